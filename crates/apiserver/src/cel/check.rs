//! Whether an expression makes sense, of which type it is, and what it may cost.
//!
//! The cost is that of the worst value which the schema admits, in the units of Kubernetes: a look at
//! a variable or a field is one, text costs a tenth per byte, a macro its body for every element.

use std::rc::Rc;

use super::error::{CompileError, Position};
use super::expression::{Access, Call, Expression, Kind, Literal, Loop, Quantifier};
use super::signature::{Checked, result};
use super::types::Type;

/// A variable that an expression may name.
#[derive(Debug, Clone)]
pub(crate) struct Variable<'s> {
    pub(crate) name: String,
    pub(crate) kind: Type<'s>,
}

/// What an expression is.
#[derive(Debug, Clone)]
pub(crate) struct Verdict<'s> {
    pub(crate) kind: Type<'s>,
    pub(crate) cost: u64,
}

/// Checks an expression that may name these variables.
pub(super) fn check<'s>(
    expression: &Expression,
    variables: &[Variable<'s>],
    text: &str,
) -> Result<Verdict<'s>, CompileError> {
    let mut checker = Checker { variables: variables.to_vec(), text };
    checker.node(expression)
}

struct Checker<'s, 't> {
    variables: Vec<Variable<'s>>,
    text: &'t str,
}

impl<'s> Checker<'s, '_> {
    fn fail<T>(&self, message: impl Into<String>, at: Position) -> Result<T, CompileError> {
        Err(CompileError::new(message, at, self.text))
    }

    fn node(&mut self, expression: &Expression) -> Result<Verdict<'s>, CompileError> {
        let at = expression.at;
        match &expression.kind {
            Kind::Literal(literal) => Ok(Verdict { kind: literal_type(literal), cost: 0 }),
            Kind::Name(name) => self.name(name, at),
            Kind::Select { operand, field, access } => {
                let operand = self.node(operand)?;
                let kind = self.select(&operand.kind, field, *access, at)?;
                Ok(Verdict { kind, cost: operand.cost.saturating_add(1) })
            }
            Kind::Has { operand, field } => {
                let operand = self.node(operand)?;
                self.select(&operand.kind, field, Access::Plain, at)?;
                Ok(Verdict { kind: Type::Bool, cost: operand.cost.saturating_add(1) })
            }
            Kind::Index { operand, index, access } => self.index(operand, index, *access, at),
            Kind::And(left, right) => self.logic("_&&_", left, right, at),
            Kind::Or(left, right) => self.logic("_||_", left, right, at),
            Kind::Conditional(parts) => {
                let [condition, then, other] = &**parts;
                let condition = self.node(condition)?;
                let (then, other) = (self.node(then)?, self.node(other)?);
                if !condition.kind.fits(&Type::Bool) || !then.kind.fits(&other.kind) {
                    let types = format!("({}, {}, {})", condition.kind, then.kind, other.kind);
                    return self.fail(no_overload("_?_:_", &types), at);
                }
                let cost = condition.cost.saturating_add(then.cost.max(other.cost));
                Ok(Verdict { kind: then.kind.join(other.kind), cost })
            }
            Kind::List(elements) => {
                let (mut kind, mut cost) = (None, 10_u64);
                for (element, access) in elements {
                    let verdict = self.node(element)?;
                    cost = cost.saturating_add(verdict.cost);
                    let element = opened(verdict.kind, *access);
                    kind = Some(match kind {
                        None => element,
                        Some(known) => Type::join(known, element),
                    });
                }
                let element = Rc::new(kind.unwrap_or(Type::Dyn));
                Ok(Verdict { kind: Type::List(element, elements.len() as u64), cost })
            }
            Kind::Map(entries) => {
                let (mut kind, mut cost): (Option<(Type<'s>, Type<'s>)>, _) = (None, 30_u64);
                for (key, value, access) in entries {
                    let (key, value) = (self.node(key)?, self.node(value)?);
                    cost = cost.saturating_add(key.cost).saturating_add(value.cost);
                    let value = opened(value.kind, *access);
                    kind = Some(match kind {
                        None => (key.kind, value),
                        Some((known_key, known)) => (known_key.join(key.kind), known.join(value)),
                    });
                }
                let (key, value) = kind.unwrap_or((Type::Dyn, Type::Dyn));
                Ok(Verdict { kind: Type::Map(Rc::new(key), Rc::new(value), entries.len() as u64), cost })
            }
            Kind::Loop(looping) => self.looping(looping, at),
            Kind::Call(call) => self.call(call, at),
        }
    }

    fn name(&self, name: &str, at: Position) -> Result<Verdict<'s>, CompileError> {
        if let Some(variable) = self.variables.iter().rev().find(|variable| variable.name == name) {
            return Ok(Verdict { kind: variable.kind.clone(), cost: 1 });
        }
        let types = [
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
            "dyn",
            "optional_type",
        ];
        if types.contains(&name) {
            return Ok(Verdict { kind: Type::Meta, cost: 1 });
        }
        self.fail(format!("undeclared reference to '{name}' (in container '')"), at)
    }

    fn select(
        &self,
        operand: &Type<'s>,
        field: &str,
        access: Access,
        at: Position,
    ) -> Result<Type<'s>, CompileError> {
        let (inner, mut access) = match operand {
            Type::Optional(inner) => ((**inner).clone(), Access::Optional),
            other => (other.clone(), access),
        };
        let kind = match &inner {
            Type::Dyn => Type::Dyn,
            Type::Map(_, value, _) => (**value).clone(),
            Type::Object(..) => match inner.field(field) {
                Some(kind) => kind,
                None => return self.fail(format!("undefined field '{field}'"), at),
            },
            other => return self.fail(format!("type '{other}' does not support field selection"), at),
        };
        if matches!(operand, Type::Optional(_)) {
            access = Access::Optional;
        }
        Ok(closed(kind, access))
    }

    fn index(
        &mut self,
        operand: &Expression,
        index: &Expression,
        access: Access,
        at: Position,
    ) -> Result<Verdict<'s>, CompileError> {
        let (operand, index) = (self.node(operand)?, self.node(index)?);
        let (inner, access) = match &operand.kind {
            Type::Optional(inner) => ((**inner).clone(), Access::Optional),
            other => (other.clone(), access),
        };
        let kind = match &inner {
            Type::Dyn => Type::Dyn,
            Type::List(element, _)
                if matches!(index.kind, Type::Int | Type::Uint | Type::Dyn | Type::Double) =>
            {
                (**element).clone()
            }
            Type::Map(key, value, _) if key.fits(&index.kind) => (**value).clone(),
            _ => {
                let types = format!("({}, {})", operand.kind, index.kind);
                return self.fail(no_overload("_[_]", &types), at);
            }
        };
        let cost = operand.cost.saturating_add(index.cost).saturating_add(1);
        Ok(Verdict { kind: closed(kind, access), cost })
    }

    fn logic(
        &mut self,
        operator: &str,
        left: &Expression,
        right: &Expression,
        at: Position,
    ) -> Result<Verdict<'s>, CompileError> {
        let (left, right) = (self.node(left)?, self.node(right)?);
        if !left.kind.fits(&Type::Bool) || !right.kind.fits(&Type::Bool) {
            return self.fail(no_overload(operator, &format!("({}, {})", left.kind, right.kind)), at);
        }
        Ok(Verdict { kind: Type::Bool, cost: left.cost.saturating_add(right.cost) })
    }

    fn looping(&mut self, looping: &Loop, at: Position) -> Result<Verdict<'s>, CompileError> {
        let range = self.node(&looping.range)?;
        let (first, second) = match &range.kind {
            Type::List(element, _) => (Type::Int, (**element).clone()),
            Type::Map(key, value, _) => ((**key).clone(), (**value).clone()),
            Type::Optional(value) => (Type::Dyn, (**value).clone()),
            Type::Dyn => (Type::Dyn, Type::Dyn),
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                return self.fail(message, looping.range.at);
            }
        };
        let bound: Vec<Type<'s>> = match (looping.names.len(), &range.kind) {
            (2, _) => vec![first, second],
            (_, Type::Map(..)) => vec![first],
            _ => vec![second],
        };
        let before = self.variables.len();
        let variables = looping.names.iter().zip(bound);
        self.variables.extend(variables.map(|(name, kind)| Variable { name: name.clone(), kind }));
        let filter = looping.filter.as_ref().map(|filter| self.node(filter)).transpose();
        let body = self.node(&looping.body);
        self.variables.truncate(before);
        let (filter, body) = (filter?, body?);
        if let Some(filter) = &filter
            && !filter.kind.fits(&Type::Bool)
        {
            return self.fail(no_overload("_?_:_", &format!("({}, list(dyn), list(dyn))", filter.kind)), at);
        }
        let size = match &range.kind {
            Type::Optional(_) => 1,
            other => other.size(),
        };
        let wants_bool = !matches!(looping.quantifier, Quantifier::Map);
        if wants_bool && !body.kind.fits(&Type::Bool) {
            let operator = match looping.quantifier {
                Quantifier::All => "_&&_",
                Quantifier::Exists => "_||_",
                _ => "_?_:_",
            };
            return self.fail(no_overload(operator, &format!("(bool, {})", body.kind)), at);
        }
        let kind = match (looping.quantifier, &range.kind) {
            (Quantifier::Map, _) => Type::List(Rc::new(body.kind), size),
            (Quantifier::Filter, Type::Map(key, _, _)) => Type::List(Rc::clone(key), size),
            (Quantifier::Filter, Type::Dyn) => Type::List(Rc::new(Type::Dyn), size),
            (Quantifier::Filter, other) => other.clone(),
            _ => Type::Bool,
        };
        // What the macro does itself for each element: tests, and for lists a new list.
        let own = match looping.quantifier {
            Quantifier::All | Quantifier::Exists => 2,
            Quantifier::ExistsOne => 4,
            Quantifier::Map | Quantifier::Filter => 12,
        };
        let each = body.cost.saturating_add(filter.map_or(0, |filter| filter.cost)).saturating_add(own);
        let cost = range.cost.saturating_add(each.saturating_mul(size)).saturating_add(1);
        Ok(Verdict { kind, cost })
    }

    fn call(&mut self, call: &Call, at: Position) -> Result<Verdict<'s>, CompileError> {
        let mut parts = Vec::new();
        for part in call.target.as_deref().into_iter().chain(&call.arguments) {
            parts.push(self.node(part)?);
        }
        let kinds: Vec<Type<'s>> = parts.iter().map(|part| part.kind.clone()).collect();
        let shape = if call.target.is_some() { Checked::Method } else { Checked::Function };
        let Some((kind, own)) = result(&call.function, shape, &kinds) else {
            let shown: Vec<String> = kinds.iter().map(ToString::to_string).collect();
            let types = match &shown[..] {
                [target, rest @ ..] if call.target.is_some() => format!("{target}.({})", rest.join(", ")),
                all => format!("({})", all.join(", ")),
            };
            if super::signature::is_known(&call.function, shape) {
                return self.fail(no_overload(&call.function, &types), at);
            }
            return self.fail(format!("undeclared reference to '{}' (in container '')", call.function), at);
        };
        let cost = parts.iter().fold(own, |sum, part| sum.saturating_add(part.cost));
        Ok(Verdict { kind, cost })
    }
}

fn no_overload(function: &str, types: &str) -> String {
    format!("found no matching overload for '{function}' applied to '{types}'")
}

fn literal_type<'s>(literal: &Literal) -> Type<'s> {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(text) => Type::String(text.len() as u64),
        Literal::Bytes(bytes) => Type::Bytes(bytes.len() as u64),
    }
}

/// What an element that is marked optional contributes.
fn opened<'s>(kind: Type<'s>, access: Access) -> Type<'s> {
    match (kind, access) {
        (Type::Optional(inner), Access::Optional) => (*inner).clone(),
        (kind, _) => kind,
    }
}

fn closed<'s>(kind: Type<'s>, access: Access) -> Type<'s> {
    match (kind, access) {
        (kind @ Type::Optional(_), _) | (kind, Access::Plain) => kind,
        (kind, Access::Optional) => Type::Optional(Rc::new(kind)),
    }
}
