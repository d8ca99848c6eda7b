//! Rules of a custom resource's schema (`x-kubernetes-validations`), held against objects.

use serde_json::Value as Json;

use super::validate::counterpart;
use super::{FieldError, FieldErrorKind, Schema, Shape, Unknown};
use crate::cel::{EvalError, Program, Scope, Value};

mod definition;
mod field_path;

pub(crate) use definition::check_definition;
use field_path::FieldPath;

/// What the rules of one schema may cost in all, for one object.
const OBJECT_BUDGET: u64 = 10_000_000;

/// What one rule may cost at one place.
const RULE_BUDGET: u64 = 1_000_000;

/// The longest message that an expression may make.
const MESSAGE_LENGTH: usize = 5 * 1024;

/// One rule.
#[derive(Debug)]
pub struct Rule {
    text: String,
    program: Program,
    message: String,
    message_program: Option<Program>,
    kind: FieldErrorKind,
    field: FieldPath,
    old: Old,
}

/// What a rule wants to know of the value before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Old {
    /// Nothing.
    Unused,
    /// The value; the rule is not asked where there is none.
    Needed,
    /// The value or that there is none.
    Optional,
}

impl Rule {
    /// Reads a rule that a definition's validation let through; nothing where it cannot be used.
    pub(super) fn read(json: &Json) -> Option<Rule> {
        let text = |key: &str| json[key].as_str().unwrap_or_default().trim().to_owned();
        let program = Program::parse(&text("rule")).ok()?;
        let message_program = match text("messageExpression").as_str() {
            "" => None,
            expression => Program::parse(expression).ok(),
        };
        let old = match (program.mentions("oldSelf"), json["optionalOldSelf"] == true) {
            (false, _) => Old::Unused,
            (true, false) => Old::Needed,
            (true, true) => Old::Optional,
        };
        Some(Rule {
            text: text("rule"),
            program,
            message: text("message"),
            message_program,
            kind: match json["reason"].as_str() {
                Some("FieldValueForbidden") => FieldErrorKind::Forbidden,
                Some("FieldValueRequired") => FieldErrorKind::Required,
                Some("FieldValueDuplicate") => FieldErrorKind::Duplicate,
                _ => FieldErrorKind::Invalid,
            },
            field: FieldPath::parse(&text("fieldPath")).unwrap_or_default(),
            old,
        })
    }

    /// What is said of a value that breaks the rule, where no expression says it.
    fn words(&self) -> String {
        if self.message.is_empty() { format!("failed rule: {}", self.text) } else { self.message.clone() }
    }
}

/// Whether any rule stands in a schema.
fn has_rules(schema: &Schema) -> bool {
    let own = schema.constraints.as_deref().is_some_and(|constraints| !constraints.compiled.is_empty());
    own || match &schema.shape {
        Shape::Struct(fields) => {
            fields.fields.values().any(|field| field.schema.name.is_none() && has_rules(&field.schema))
        }
        Shape::List { items, .. } => has_rules(items),
        Shape::Map { values, .. } => has_rules(values),
        Shape::Any | Shape::Scalar(_) => false,
    }
}

/// What the rules find wrong with an object. They are not asked about one that is too wrong already.
pub(crate) fn check(
    object: &Json,
    old: Option<&Json>,
    schema: &Schema,
    errors: &[FieldError],
) -> Vec<FieldError> {
    let blocks = |error: &FieldError| {
        matches!(
            error.kind,
            FieldErrorKind::NotSupported
                | FieldErrorKind::Required
                | FieldErrorKind::TooLong
                | FieldErrorKind::TooMany
                | FieldErrorKind::TypeInvalid
        )
    };
    if errors.iter().any(blocks) {
        if !has_rules(schema) {
            return Vec::new();
        }
        let words = "some validation rules were not checked because the object was invalid; correct the existing \
                     errors to complete validation";
        return vec![FieldError::invalid("<nil>", Json::Null, words)];
    }
    let mut checker = Checker { left: OBJECT_BUDGET, errors: Vec::new(), spent: false };
    checker.node("", object, old, schema);
    checker.errors
}

struct Checker {
    left: u64,
    errors: Vec<FieldError>,
    /// The budget is used up; nothing more is checked.
    spent: bool,
}

impl Checker {
    fn node(&mut self, path: &str, value: &Json, old: Option<&Json>, schema: &Schema) {
        if value.is_null() || self.spent {
            return;
        }
        for rule in schema.constraints.iter().flat_map(|constraints| &constraints.compiled) {
            self.rule(rule, path, value, old, schema);
        }
        match (&schema.shape, value) {
            (Shape::Struct(known), Json::Object(fields)) => {
                for (name, value) in fields {
                    let inner = match (known.fields.get(name.as_str()), &known.unknown) {
                        (Some(field), _) => &field.schema,
                        (None, Unknown::Typed(values)) => values,
                        (None, _) => continue,
                    };
                    // Built-in types inside, such as metadata, have no rules.
                    if inner.name.is_none() {
                        self.node(&child(path, name), value, old.and_then(|old| old.get(name)), inner);
                    }
                }
            }
            (Shape::Map { values, .. }, Json::Object(fields)) => {
                for (name, value) in fields {
                    let path = format!("{path}[{name}]");
                    self.node(&path, value, old.and_then(|old| old.get(name)), values);
                }
            }
            (Shape::List { items, kind }, Json::Array(elements)) => {
                let before = old.and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
                for (at, element) in elements.iter().enumerate() {
                    self.node(&format!("{path}[{at}]"), element, counterpart(element, before, kind), items);
                }
            }
            _ => {}
        }
    }

    fn rule(&mut self, rule: &Rule, path: &str, value: &Json, old: Option<&Json>, schema: &Schema) {
        let old_value = match (rule.old, old) {
            // What did not change was admitted before.
            (Old::Unused, Some(old)) if old == value => return,
            (Old::Unused, _) => None,
            (Old::Needed, None) => return,
            (Old::Needed, Some(old)) => Some(Value::of(old, Some(schema))),
            (Old::Optional, old) => Some(Value::optional(old.map(|old| Value::of(old, Some(schema))))),
        };
        if self.spent {
            return;
        }
        let mut variables = vec![("self".to_owned(), Value::of(value, Some(schema)))];
        variables.extend(old_value.map(|old| ("oldSelf".to_owned(), old)));
        let mut scope = Scope::new(variables.clone(), RULE_BUDGET.min(self.left));
        let before = scope.left();
        let outcome = rule.program.evaluate(&mut scope);
        self.left -= before - scope.left();
        let at = rule.field.under(path, schema);
        let at = if at.is_empty() { "<nil>".to_owned() } else { at };
        let shown = kind_name(value, schema);
        match outcome {
            Ok(Value::Bool(true)) => {}
            Ok(Value::Bool(false)) => {
                let detail = match rule.kind {
                    FieldErrorKind::Duplicate => String::new(),
                    _ => self.message(rule, variables),
                };
                // Values with parts are not shown: they may be large.
                let bad = (!value.is_object() && !value.is_array()).then(|| value.clone());
                self.errors.push(FieldError { field: at, kind: rule.kind, bad, detail });
            }
            Ok(_) => {
                let words = "cel expression evaluated to unexpected type";
                self.errors.push(FieldError::invalid(at, shown, words));
            }
            Err(EvalError::TooCostly) if self.left == 0 => {
                self.spent = true;
                let words = "validation failed due to running out of cost budget, no further validation rules will be run";
                self.errors.push(FieldError::invalid(at, shown, words));
            }
            Err(EvalError::TooCostly) => {
                let words = format!(
                    "call cost exceeds limit for rule: {}: no further validation rules will be run due to call cost exceeds limit for rule: {}",
                    rule.text, rule.text
                );
                self.spent = true;
                self.errors.push(FieldError::invalid(at, shown, words));
            }
            Err(EvalError::Failed(why)) => {
                let about = if rule.message.is_empty() { &rule.text } else { &rule.message };
                let words = format!("{why} evaluating rule: {about}");
                self.errors.push(FieldError::invalid(at, shown, words));
            }
        }
    }

    /// The words for a value that breaks a rule; where the expression for them fails, the fixed ones.
    fn message(&mut self, rule: &Rule, variables: Vec<(String, Value<'_>)>) -> String {
        let Some(program) = &rule.message_program else { return rule.words() };
        let mut scope = Scope::new(variables, RULE_BUDGET.min(self.left));
        let before = scope.left();
        let outcome = program.evaluate(&mut scope);
        self.left -= before - scope.left();
        match outcome {
            Ok(Value::String(text)) => {
                let text = text.trim();
                if text.is_empty() || text.contains(['\n', '\r']) || text.len() > MESSAGE_LENGTH {
                    rule.words()
                } else {
                    text.to_owned()
                }
            }
            _ => rule.words(),
        }
    }
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The type that messages show instead of the value.
fn kind_name(value: &Json, schema: &Schema) -> &'static str {
    match value {
        Json::Object(_) => "object",
        Json::Array(_) => "array",
        Json::String(_) => "string",
        Json::Bool(_) => "boolean",
        Json::Number(_) => match schema.shape {
            Shape::Scalar(super::Scalar::Number) => "number",
            _ => "integer",
        },
        Json::Null => "null",
    }
}
