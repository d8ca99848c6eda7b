//! Dropping what a schema does not know.

use serde_json::Value;

use super::{Schema, Shape, Unknown};

/// Drops every field that the schema does not list and returns their paths, sorted, for example
/// `spec.containers[0].imagee`.
pub fn prune(value: &mut Value, schema: &Schema) -> Vec<String> {
    let mut dropped = Vec::new();
    walk(value, schema, &mut String::new(), &mut dropped);
    dropped.sort();
    dropped
}

fn walk(value: &mut Value, schema: &Schema, path: &mut String, dropped: &mut Vec<String>) {
    let length = path.len();
    match (&schema.shape, value) {
        (Shape::Struct(known), Value::Object(fields)) => fields.retain(|name, value| {
            push_name(path, name);
            let schema = match (known.fields.get(name.as_str()), &known.unknown) {
                (Some(field), _) => Some(&field.schema),
                (None, Unknown::Typed(values)) => Some(values),
                (None, Unknown::Keep | Unknown::Prune) => None,
            };
            let keep = schema.is_some() || matches!(known.unknown, Unknown::Keep);
            match schema {
                Some(schema) => walk(value, schema, path, dropped),
                None if !keep => dropped.push(path.clone()),
                None => {}
            }
            path.truncate(length);
            keep
        }),
        (Shape::Map { values, .. }, Value::Object(fields)) => {
            for (name, value) in fields {
                push_name(path, name);
                walk(value, values, path, dropped);
                path.truncate(length);
            }
        }
        (Shape::List { items, .. }, Value::Array(elements)) => {
            for (at, element) in elements.iter_mut().enumerate() {
                path.push_str(&format!("[{at}]"));
                walk(element, items, path, dropped);
                path.truncate(length);
            }
        }
        // Values of another type than the schema says are refused later; they lose nothing here.
        _ => {}
    }
}

fn push_name(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::structural::read_root;

    fn schema(spec: &Value) -> Schema {
        read_root(&json!({"type": "object", "properties": {"spec": spec}})).expect("a schema")
    }

    #[test]
    fn unknown_fields_go_and_are_named() {
        let schema = schema(&json!({"type": "object", "properties": {
            "a": {"type": "object", "properties": {"b": {"type": "string"}}},
            "l": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
            "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {}}},
        }}));
        let mut object = json!({
            "apiVersion": "g/v1", "kind": "K", "top": 1,
            "metadata": {"name": "x", "odd": 1, "labels": {"a": "b"}},
            "spec": {"a": {"b": "1", "no": 1}, "l": [{"n": 1}, {"n": 1, "no": 2}], "m": {"k": {"no": 1}}, "no": {}},
        });
        let dropped = prune(&mut object, &schema);
        assert_eq!(dropped, ["metadata.odd", "spec.a.no", "spec.l[1].no", "spec.m.k.no", "spec.no", "top"]);
        assert_eq!(
            object,
            json!({
                "apiVersion": "g/v1", "kind": "K",
                "metadata": {"name": "x", "labels": {"a": "b"}},
                "spec": {"a": {"b": "1"}, "l": [{"n": 1}, {"n": 1}], "m": {"k": {}}},
            })
        );
    }

    #[test]
    fn preserved_fields_stay_but_described_ones_inside_are_pruned() {
        let schema = schema(&json!({
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"k": {"type": "object", "properties": {"known": {"type": "string"}}}},
        }));
        let mut object = json!({"spec": {"free": {"x": [1]}, "k": {"known": "1", "dropped": 2}}});
        assert_eq!(prune(&mut object, &schema), ["spec.k.dropped"]);
        assert_eq!(object, json!({"spec": {"free": {"x": [1]}, "k": {"known": "1"}}}));
    }
}
