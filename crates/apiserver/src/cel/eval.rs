//! The value of an expression, with an eye on what it costs.

use std::rc::Rc;

use super::error::EvalError;
use super::expression::{Access, Call, Expression, Kind, Literal, Loop, Quantifier};
use super::functions;
use super::value::{Map, Value};

/// What an expression can see while it is evaluated, and how much it may still cost.
#[derive(Debug)]
pub(crate) struct Scope<'a> {
    variables: Vec<(String, Value<'a>)>,
    left: u64,
}

impl<'a> Scope<'a> {
    /// A scope with these variables, for an expression that may cost so much.
    pub(crate) fn new(variables: Vec<(String, Value<'a>)>, budget: u64) -> Scope<'a> {
        Scope { variables, left: budget }
    }

    /// What is left of the budget.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn spend(&mut self, cost: u64) -> Result<(), EvalError> {
        self.left = self.left.checked_sub(cost).ok_or(EvalError::TooCostly)?;
        Ok(())
    }
}

/// Evaluates an expression.
pub(super) fn evaluate<'a>(expression: &Expression, scope: &mut Scope<'a>) -> Result<Value<'a>, EvalError> {
    match &expression.kind {
        Kind::Literal(literal) => Ok(match literal {
            Literal::Null => Value::Null,
            Literal::Bool(value) => Value::Bool(*value),
            Literal::Int(number) => Value::Int(*number),
            Literal::Uint(number) => Value::Uint(*number),
            Literal::Double(number) => Value::Double(*number),
            Literal::String(text) => Value::string(text.as_str()),
            Literal::Bytes(bytes) => Value::Bytes(bytes.as_slice().into()),
        }),
        Kind::Name(name) => name_value(name, scope),
        Kind::Select { operand, field, access } => {
            let operand = evaluate(operand, scope)?;
            scope.spend(1)?;
            select(operand, field, *access)
        }
        Kind::Has { operand, field } => {
            let operand = evaluate(operand, scope)?;
            scope.spend(1)?;
            match select(operand, field, Access::Optional)? {
                Value::Optional(value) => Ok(Value::Bool(value.is_some())),
                _ => Ok(Value::Bool(true)),
            }
        }
        Kind::Index { operand, index, access } => {
            let (operand, index) = (evaluate(operand, scope)?, evaluate(index, scope)?);
            scope.spend(1)?;
            at(operand, &index, *access)
        }
        Kind::And(left, right) => logic(left, right, scope, Connective::And),
        Kind::Or(left, right) => logic(left, right, scope, Connective::Or),
        Kind::Conditional(parts) => {
            let [condition, then, other] = &**parts;
            match evaluate(condition, scope)? {
                Value::Bool(true) => evaluate(then, scope),
                Value::Bool(false) => evaluate(other, scope),
                _ => EvalError::overload("_?_:_"),
            }
        }
        Kind::List(elements) => {
            scope.spend(10)?;
            let mut made = Vec::with_capacity(elements.len());
            for (element, access) in elements {
                made.extend(opened(evaluate(element, scope)?, *access));
            }
            Ok(Value::list(made))
        }
        Kind::Map(entries) => {
            scope.spend(30)?;
            let mut made: Vec<(Value<'a>, Value<'a>)> = Vec::with_capacity(entries.len());
            for (key, value, access) in entries {
                let key = evaluate(key, scope)?;
                if made.iter().any(|(known, _)| known.equals(&key)) {
                    return EvalError::failed("insert failed: key already exists");
                }
                if let Some(value) = opened(evaluate(value, scope)?, *access) {
                    made.push((key, value));
                }
            }
            Ok(Value::Map(Map::Made(Rc::new(made))))
        }
        Kind::Loop(looping) => run(looping, scope),
        Kind::Call(call) => invoke(call, scope),
    }
}

fn name_value<'a>(name: &str, scope: &mut Scope<'a>) -> Result<Value<'a>, EvalError> {
    scope.spend(1)?;
    if let Some((_, value)) = scope.variables.iter().rev().find(|(known, _)| known == name) {
        return Ok(value.clone());
    }
    const TYPES: [&str; 11] = [
        "int",
        "uint",
        "double",
        "bool",
        "string",
        "bytes",
        "list",
        "map",
        "null_type",
        "type",
        "optional_type",
    ];
    match TYPES.iter().find(|known| **known == name) {
        Some(known) => Ok(Value::Type(known)),
        None => EvalError::failed(format!("no such attribute(s): {name}")),
    }
}

/// What an element that is marked optional contributes.
fn opened<'a>(value: Value<'a>, access: Access) -> Option<Value<'a>> {
    match (value, access) {
        (Value::Optional(inner), Access::Optional) => inner.map(|inner| (*inner).clone()),
        (value, _) => Some(value),
    }
}

fn select<'a>(operand: Value<'a>, field: &str, access: Access) -> Result<Value<'a>, EvalError> {
    match operand {
        Value::Map(map) => found(map.select(field), || format!("no such key: {field}"), access),
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => select((*inner).clone(), field, Access::Optional),
        _ => EvalError::failed(format!("no such key: {field}")),
    }
}

fn at<'a>(operand: Value<'a>, index: &Value<'a>, access: Access) -> Result<Value<'a>, EvalError> {
    match (operand, index) {
        (Value::Map(map), key) => {
            found(map.get(key), || format!("no such key: {}", functions::show(key)), access)
        }
        (Value::List(list), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
            let position = match index {
                Value::Int(number) => usize::try_from(*number).ok(),
                Value::Uint(number) => usize::try_from(*number).ok(),
                Value::Double(number) if number.fract() == 0.0 && *number >= 0.0 => Some(*number as usize),
                _ => None,
            };
            let element = position.and_then(|position| list.get(position));
            found(element, || format!("index out of bounds: {}", functions::show(index)), access)
        }
        (Value::Optional(None), _) => Ok(Value::Optional(None)),
        (Value::Optional(Some(inner)), _) => at((*inner).clone(), index, Access::Optional),
        _ => EvalError::overload("_[_]"),
    }
}

fn found<'a>(
    value: Option<Value<'a>>,
    missing: impl FnOnce() -> String,
    access: Access,
) -> Result<Value<'a>, EvalError> {
    match (value, access) {
        (value, Access::Optional) => Ok(Value::Optional(value.map(Rc::new))),
        (Some(value), Access::Plain) => Ok(value),
        (None, Access::Plain) => EvalError::failed(missing()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Connective {
    And,
    Or,
}

/// One side may fail where the other decides.
fn logic<'a>(
    left: &Expression,
    right: &Expression,
    scope: &mut Scope<'a>,
    connective: Connective,
) -> Result<Value<'a>, EvalError> {
    let decides = connective == Connective::Or;
    let first = evaluate(left, scope);
    match &first {
        Ok(Value::Bool(value)) if *value == decides => return Ok(Value::Bool(decides)),
        Err(EvalError::TooCostly) => return Err(EvalError::TooCostly),
        _ => {}
    }
    let second = evaluate(right, scope)?;
    match (first, second) {
        (_, Value::Bool(value)) if value == decides => Ok(Value::Bool(decides)),
        (Ok(Value::Bool(_)), Value::Bool(value)) => Ok(Value::Bool(value)),
        (Err(error), _) => Err(error),
        _ => EvalError::overload(if decides { "_||_" } else { "_&&_" }),
    }
}

fn run<'a>(looping: &Loop, scope: &mut Scope<'a>) -> Result<Value<'a>, EvalError> {
    let range = evaluate(&looping.range, scope)?;
    scope.spend(1)?;
    let two = looping.names.len() == 2;
    let elements: Vec<(Value<'a>, Value<'a>)> = match range {
        Value::List(list) => {
            list.iter().enumerate().map(|(index, value)| (Value::Int(index as i64), value)).collect()
        }
        Value::Map(map) if two => map.entries(),
        Value::Map(map) => map.entries().into_iter().map(|(key, _)| (Value::Null, key)).collect(),
        Value::Optional(value) => value.map(|value| (Value::Null, (*value).clone())).into_iter().collect(),
        _ => return EvalError::overload("comprehension"),
    };
    let depth = scope.variables.len();
    let mut made = Vec::new();
    let (mut count, mut failed) = (0_u32, None);
    for (key, element) in elements {
        scope.spend(2)?;
        match &looping.names[..] {
            [first, second] => {
                scope.variables.push((first.clone(), key));
                scope.variables.push((second.clone(), element.clone()));
            }
            [name] => scope.variables.push((name.clone(), element.clone())),
            _ => return EvalError::failed("a macro without a name"),
        }
        let outcome = body(looping, scope);
        scope.variables.truncate(depth);
        match (looping.quantifier, outcome) {
            (_, Err(EvalError::TooCostly)) => return Err(EvalError::TooCostly),
            (_, Ok(None)) => {}
            (Quantifier::Map, Ok(Some(value))) => made.push(value),
            (Quantifier::Map | Quantifier::Filter | Quantifier::ExistsOne, Err(error)) => return Err(error),
            // Another element may decide all the same.
            (Quantifier::All | Quantifier::Exists, Err(error)) => failed = Some(error),
            (Quantifier::All, Ok(Some(Value::Bool(false)))) => return Ok(Value::Bool(false)),
            (Quantifier::Exists, Ok(Some(Value::Bool(true)))) => return Ok(Value::Bool(true)),
            (Quantifier::ExistsOne, Ok(Some(Value::Bool(true)))) => count += 1,
            (Quantifier::Filter, Ok(Some(Value::Bool(true)))) => made.push(element),
            (_, Ok(Some(Value::Bool(_)))) => {}
            _ => return EvalError::overload("comprehension"),
        }
    }
    match (looping.quantifier, failed) {
        (_, Some(error)) => Err(error),
        (Quantifier::All, None) => Ok(Value::Bool(true)),
        (Quantifier::Exists, None) => Ok(Value::Bool(false)),
        (Quantifier::ExistsOne, None) => Ok(Value::Bool(count == 1)),
        (Quantifier::Map | Quantifier::Filter, None) => Ok(Value::list(made)),
    }
}

/// What the body says of an element; nothing where the filter leaves it out.
fn body<'a>(looping: &Loop, scope: &mut Scope<'a>) -> Result<Option<Value<'a>>, EvalError> {
    if let Some(filter) = &looping.filter {
        match evaluate(filter, scope)? {
            Value::Bool(true) => {}
            Value::Bool(false) => return Ok(None),
            _ => return EvalError::overload("_?_:_"),
        }
    }
    evaluate(&looping.body, scope).map(Some)
}

fn invoke<'a>(call: &Call, scope: &mut Scope<'a>) -> Result<Value<'a>, EvalError> {
    let mut values = Vec::with_capacity(call.arguments.len() + 1);
    for part in call.target.as_deref().into_iter().chain(&call.arguments) {
        values.push(evaluate(part, scope)?);
    }
    scope.spend(functions::cost(&call.function, &values))?;
    match call.target {
        Some(_) => functions::method(&call.function, &values, call.pattern.as_ref()),
        None => functions::function(&call.function, &values, call.pattern.as_ref()),
    }
}
