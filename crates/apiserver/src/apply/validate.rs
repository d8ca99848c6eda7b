//! Whether a value fits its type closely enough to be merged.

use std::collections::BTreeSet;

use serde_json::Value;

use super::atom::{Atom, ListAtom, MapAtom};
use crate::schema::{Scalar, Schema};

/// How much a value is held to its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strictness {
    /// As stored objects are: every list element has a name, maybe the same as another.
    Stored,
    /// As nobody may apply otherwise: declared fields of the right kind, no name twice.
    Applied,
}

/// Says what is wrong with a value, one sentence per error, each with its path.
pub(super) fn validate(value: &Value, schema: &Schema, strictness: Strictness) -> Result<(), String> {
    let mut check = Check { strictness, keeps_unknown: false, path: String::new(), errors: Vec::new() };
    check.value(value, schema);
    match check.errors.as_slice() {
        [] => Ok(()),
        [only] => Err(only.clone()),
        many => Err(format!("errors:\n  {}", many.join("\n  "))),
    }
}

struct Check {
    strictness: Strictness,
    /// Whether some object above keeps unknown fields, which goes for everything below it.
    keeps_unknown: bool,
    path: String,
    errors: Vec<String>,
}

impl Check {
    fn value(&mut self, value: &Value, schema: &Schema) {
        if value.is_null() {
            return;
        }
        match Atom::of(schema, Some(value)) {
            Atom::Scalar(scalar) => self.scalar(value, scalar),
            Atom::List(list) => self.list(value, list),
            Atom::Map(map) => self.map(value, map),
        }
    }

    fn scalar(&mut self, value: &Value, scalar: Option<Scalar>) {
        if self.strictness == Strictness::Stored {
            return;
        }
        let (fits, expected) = match scalar {
            Some(Scalar::String | Scalar::Bytes) => (value.is_string(), "string"),
            Some(Scalar::Int32 | Scalar::Int64 | Scalar::Number) => {
                (value.is_number(), "numeric (int or float)")
            }
            Some(Scalar::Boolean) => (value.is_boolean(), "boolean"),
            _ => (!value.is_object() && !value.is_array(), "any scalar"),
        };
        if !fits {
            self.error(&format!("expected {expected}, got {value}"));
        }
    }

    fn list(&mut self, value: &Value, list: ListAtom<'_>) {
        let Value::Array(items) = value else {
            return self.error(&format!("expected list, got {value}"));
        };
        let mut seen = BTreeSet::new();
        for (place, item) in items.iter().enumerate() {
            let step = if list.is_atomic() {
                format!("[{place}]")
            } else {
                let element = match list.element(item) {
                    Ok(element) => element,
                    Err(reason) => return self.error(&format!("element {place}: {reason}")),
                };
                let step = element.to_string();
                if !seen.insert(element) && self.strictness == Strictness::Applied {
                    self.error(&format!("duplicate entries for key {step}"));
                }
                step
            };
            self.descend(&step, item, list.items);
        }
    }

    fn map(&mut self, value: &Value, map: MapAtom<'_>) {
        let Value::Object(object) = value else {
            return self.error(&format!("expected map, got {value}"));
        };
        let above = self.keeps_unknown;
        self.keeps_unknown |= map.keeps_unknown;
        for (key, value) in object {
            let step = format!(".{key}");
            match map.field(key) {
                Some(schema) => self.descend(&step, value, schema),
                None if self.strictness == Strictness::Stored || self.keeps_unknown => {}
                None => {
                    let length = self.path.len();
                    self.path.push_str(&step);
                    self.error("field not declared in schema");
                    self.path.truncate(length);
                }
            }
        }
        self.keeps_unknown = above;
    }

    fn descend(&mut self, step: &str, value: &Value, schema: &Schema) {
        let length = self.path.len();
        self.path.push_str(step);
        self.value(value, schema);
        self.path.truncate(length);
    }

    fn error(&mut self, reason: &str) {
        let error = if self.path.is_empty() { reason.to_owned() } else { format!("{}: {reason}", self.path) };
        self.errors.push(error);
    }
}
