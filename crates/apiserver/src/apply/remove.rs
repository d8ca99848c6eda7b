//! Takes paths out of a value.

use serde_json::{Map, Value};

use super::{
    atom::{Atom, ListAtom, MapAtom},
    path::Element,
    set::FieldSet,
};
use crate::schema::Schema;

/// The value without these paths; `null` where nothing is left of it.
pub(super) fn remove(value: &Value, paths: &FieldSet, schema: &Schema) -> Value {
    match Atom::of(schema, Some(value)) {
        Atom::Scalar(_) => value.clone(),
        // A path below something that is owned as one value takes all of it.
        Atom::List(list) if list.is_atomic() => Value::Null,
        Atom::Map(map) if map.atomic => Value::Null,
        Atom::List(list) => match value {
            Value::Array(items) => remove_items(items, paths, list),
            _ => Value::Null,
        },
        Atom::Map(map) => match value {
            Value::Object(object) => remove_fields(object, paths, map),
            _ => Value::Null,
        },
    }
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
    if rest.is_empty() { Value::Null } else { Value::Array(rest) }
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
    if rest.is_empty() { Value::Null } else { Value::Object(rest) }
}
