//! From what people write to JSON Schema, within bounds.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::SchemaError;

/// How deep a schema may nest.
const DEPTH: usize = 64;
/// How many schemas one may be made of.
const NODES: usize = 20_000;
/// How many schemas may have to be looked at for one value.
const COST: u64 = 10_000;
/// How long a regular expression may be.
const PATTERN: usize = 4096;

/// Keywords that hold one schema.
const ONE: [&str; 11] = [
    "items",
    "additionalItems",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
];
/// Keywords that hold a list of schemas.
const LISTS: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
/// Keywords that hold schemas by name.
const MAPS: [&str; 5] = ["properties", "patternProperties", "definitions", "$defs", "dependentSchemas"];
/// Keywords whose schemas are about the same value.
const IN_PLACE_ONE: [&str; 4] = ["not", "if", "then", "else"];
const IN_PLACE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// The schema in JSON Schema's words, or why it cannot be used.
pub(super) fn prepare(schema: &Value) -> Result<Value, SchemaError> {
    if !schema.is_object() {
        return Err(SchemaError("a schema must be an object".into()));
    }
    let mut prepared = schema.clone();
    let mut nodes = 0;
    walk(&mut prepared, "(root)", 0, &mut nodes)?;
    match prepared.get("type") {
        None => {}
        Some(Value::String(kind)) if kind == "object" => {}
        Some(Value::Array(kinds)) if kinds.contains(&json!("object")) => {}
        Some(other) => {
            return Err(SchemaError(format!(
                "(root): the parameters of a resource are an object, so the schema's type must be \"object\", not {other}"
            )));
        }
    }
    Costs { root: &prepared, known: HashMap::new(), path: Vec::new() }.check_all(&prepared, 0)?;
    Ok(prepared)
}

fn walk(schema: &mut Value, path: &str, depth: usize, nodes: &mut usize) -> Result<(), SchemaError> {
    *nodes += 1;
    if depth > DEPTH {
        return Err(SchemaError(format!("{path}: a schema may nest at most {DEPTH} levels deep")));
    }
    if *nodes > NODES {
        return Err(SchemaError(format!("a schema may be made of at most {NODES} parts")));
    }
    let Value::Object(fields) = schema else {
        return match schema {
            Value::Bool(_) => Ok(()),
            other => {
                Err(SchemaError(format!("{path}: {other} is no schema; one is an object, true or false")))
            }
        };
    };
    for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
        match fields.get(keyword) {
            None => {}
            Some(Value::String(target)) if target.starts_with('#') => {}
            Some(target) => {
                return Err(SchemaError(format!(
                    "{path}: the reference {target} leads elsewhere, and nothing is ever fetched; copy it into \"definitions\" and refer to \"#/definitions/…\""
                )));
            }
        }
    }
    if let Some(pattern) = fields.get("pattern").and_then(Value::as_str)
        && pattern.len() > PATTERN
    {
        return Err(SchemaError(format!("{path}: a pattern may have at most {PATTERN} characters")));
    }
    translate(fields);
    for keyword in ONE {
        if let Some(child) = fields.get_mut(keyword).filter(|child| !child.is_array()) {
            walk(child, &format!("{path}.{keyword}"), depth + 1, nodes)?;
        }
    }
    for keyword in LISTS {
        if let Some(Value::Array(children)) = fields.get_mut(keyword) {
            for (index, child) in children.iter_mut().enumerate() {
                walk(child, &format!("{path}.{keyword}.{index}"), depth + 1, nodes)?;
            }
        }
    }
    for keyword in MAPS {
        if let Some(Value::Object(children)) = fields.get_mut(keyword) {
            for (name, child) in children {
                walk(child, &format!("{path}.{keyword}.{name}"), depth + 1, nodes)?;
            }
        }
    }
    if let Some(Value::Object(children)) = fields.get_mut("components").and_then(|all| all.get_mut("schemas"))
    {
        for (name, child) in children {
            walk(child, &format!("{path}.components.schemas.{name}"), depth + 1, nodes)?;
        }
    }
    Ok(())
}

/// OpenAPI's and Kubernetes' own words.
fn translate(fields: &mut Map<String, Value>) {
    if fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        fields.insert("type".into(), json!(["integer", "string"]));
    }
    if fields.remove("nullable") == Some(Value::Bool(true)) {
        match fields.get_mut("type") {
            Some(Value::String(kind)) => {
                let kind = kind.clone();
                fields.insert("type".into(), json!([kind, "null"]));
            }
            Some(Value::Array(kinds)) if !kinds.contains(&json!("null")) => kinds.push(json!("null")),
            _ => {}
        }
        if let Some(Value::Array(values)) = fields.get_mut("enum")
            && !values.contains(&Value::Null)
        {
            values.push(Value::Null);
        }
    }
    // Without this, the complaint would be about the value of one unexpected property.
    if fields.get("additionalProperties") == Some(&Value::Bool(false)) && !fields.contains_key("properties") {
        fields.insert("properties".into(), json!({}));
    }
    // OpenAPI 3.0 has booleans where JSON Schema has limits.
    for (exclusive, limit) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        match fields.get(exclusive) {
            Some(Value::Bool(false)) => {
                fields.remove(exclusive);
            }
            Some(Value::Bool(true)) => {
                if let Some(bound) = fields.remove(limit) {
                    fields.insert(exclusive.into(), bound);
                } else {
                    fields.remove(exclusive);
                }
            }
            _ => {}
        }
    }
}

/// What a local reference points to.
pub(super) fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    root.pointer(pointer)
}

/// How many schemas one value may have to be held against; finds circles on the way.
struct Costs<'a> {
    root: &'a Value,
    known: HashMap<*const Value, u64>,
    path: Vec<*const Value>,
}

impl<'a> Costs<'a> {
    fn check_all(&mut self, schema: &'a Value, depth: usize) -> Result<(), SchemaError> {
        if depth > DEPTH * 2 {
            return Ok(());
        }
        if schema.is_object() && self.of(schema)? > COST {
            return Err(SchemaError(format!(
                "the schema refers to itself so often that one value would be held against more than {COST} schemas"
            )));
        }
        match schema {
            Value::Object(fields) => fields.values().try_for_each(|child| self.check_all(child, depth + 1)),
            Value::Array(items) => items.iter().try_for_each(|child| self.check_all(child, depth + 1)),
            _ => Ok(()),
        }
    }

    fn of(&mut self, schema: &'a Value) -> Result<u64, SchemaError> {
        let Value::Object(fields) = schema else {
            return Ok(1);
        };
        let here: *const Value = schema;
        if let Some(known) = self.known.get(&here) {
            return Ok(*known);
        }
        if self.path.contains(&here) || self.path.len() > DEPTH * 4 {
            return Err(SchemaError(
                "the schema refers to itself without going down into the value; no value could ever be checked".into(),
            ));
        }
        self.path.push(here);
        let mut cost = 1u64;
        if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
            let Some(target) = resolve(self.root, target) else {
                return Err(SchemaError(format!("the reference {target} leads nowhere")));
            };
            cost = cost.saturating_add(self.of(target)?);
        }
        for keyword in IN_PLACE_ONE {
            if let Some(child) = fields.get(keyword) {
                cost = cost.saturating_add(self.of(child)?);
            }
        }
        for keyword in IN_PLACE_LISTS {
            for child in fields.get(keyword).and_then(Value::as_array).into_iter().flatten() {
                cost = cost.saturating_add(self.of(child)?);
            }
        }
        self.path.pop();
        self.known.insert(here, cost);
        Ok(cost)
    }
}
