//! Takes paths out of a value.

use serde_json::{Map, Value};

use super::{
    atom::{Atom, ListAtom, MapAtom},
    path::Element,
    set::FieldSet,
};
use crate::schema::{Schema, Shape};

/// The value without these paths. What loses all its parts and is not taken out itself stays,
/// empty, or as `null` where Kubernetes writes one: for objects of built-in types, where it means
/// absent, and for what no schema describes. Elsewhere a `null` would not be admitted.
pub(super) fn remove(value: &Value, paths: &FieldSet, schema: &Schema) -> Value {
    let rest = match (Atom::of(schema, Some(value)), value) {
        (Atom::List(list), Value::Array(items)) if !list.is_atomic() => remove_items(items, paths, list),
        (Atom::Map(map), Value::Object(object)) if !map.atomic => remove_fields(object, paths, map),
        _ => return value.clone(),
    };
    let as_null = schema.name.is_some() || matches!(schema.shape, Shape::Any);
    if as_null && rest.as_object().is_some_and(Map::is_empty) { Value::Null } else { rest }
}

fn remove_items(items: &[Value], paths: &FieldSet, list: ListAtom<'_>) -> Value {
    let mut rest = Vec::new();
    for item in items {
        let Ok(element) = list.element(item) else {
            rest.push(item.clone());
            continue;
        };
        if paths.has(&element) {
            continue;
        }
        rest.push(match paths.below(&element) {
            Some(below) => remove(item, below, list.items),
            None => item.clone(),
        });
    }
    Value::Array(rest)
}

fn remove_fields(object: &Map<String, Value>, paths: &FieldSet, map: MapAtom<'_>) -> Value {
    let mut rest = Map::new();
    for (key, value) in object {
        let element = Element::field(key);
        if paths.has(&element) {
            continue;
        }
        let value = match (paths.below(&element), map.field(key)) {
            (Some(below), Some(schema)) => remove(value, below, schema),
            _ => value.clone(),
        };
        rest.insert(key.clone(), value);
    }
    Value::Object(rest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::fixture, *};

    #[test]
    fn paths_are_taken_out_and_what_they_leave_empty_stays() {
        let object = json!({"spec": {
            "number": 1, "map": {"k": "v"}, "set": ["x"], "atomicMap": {"k": "v"},
            "items": [{"name": "i", "value": "v"}, {"name": "j"}], "free": {"a": {"b": 1}},
        }});
        let mut paths =
            FieldSet::of_fields(&["spec.number", "spec.map.k", "spec.atomicMap.k", "spec.free.a.b"]);
        let item = |name: &str| Element::keyed([("name".into(), json!(name))]);
        let (spec, items) = (Element::field("spec"), Element::field("items"));
        paths.insert(&[spec.clone(), items.clone(), item("i"), Element::field("value")]);
        paths.insert(&[spec.clone(), items, item("j")]);
        paths.insert(&[spec, Element::field("set"), Element::Value(super::super::path::Ordered(json!("x")))]);
        let expected = json!({"spec": {
            "map": {}, "set": [], "atomicMap": {"k": "v"}, "items": [{"name": "i"}], "free": {"a": null},
        }});
        assert_eq!(remove(&object, &paths, &fixture::schema()), expected);
    }
}
