//! Filling in defaults.

use serde_json::{Map, Value};

use super::prepare::resolve;

/// How deep defaults are looked for; a schema may refer to itself.
const DEPTH: usize = 64;

/// Fills in the defaults that a schema has for an object, and for what is in it.
pub(super) fn fill(root: &Value, schema: &Value, object: &mut Map<String, Value>, depth: usize) {
    if depth > DEPTH {
        return;
    }
    if let Some(target) = schema.get("$ref").and_then(Value::as_str).and_then(|target| resolve(root, target))
    {
        fill(root, target, object, depth + 1);
    }
    for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        fill(root, part, object, depth + 1);
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if !object.contains_key(name)
            && let Some(default) = property.get("default")
        {
            object.insert(name.clone(), default.clone());
        }
        if let Some(value) = object.get_mut(name) {
            descend(root, property, value, depth + 1);
        }
    }
}

fn descend(root: &Value, schema: &Value, value: &mut Value, depth: usize) {
    if depth > DEPTH {
        return;
    }
    match value {
        Value::Object(object) => fill(root, schema, object, depth),
        Value::Array(items) => {
            if let Some(schema) = schema.get("items").filter(|items| items.is_object()) {
                for item in items {
                    descend(root, schema, item, depth + 1);
                }
            }
        }
        _ => {}
    }
}
