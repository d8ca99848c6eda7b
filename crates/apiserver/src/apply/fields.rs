//! Which paths a value sets.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    atom::{Atom, ListAtom, MapAtom},
    path::Element,
    set::{FieldSet, Membership},
};
use crate::schema::Schema;

/// The paths that `value` sets: its leaves, list elements, keys of free maps, and empty objects.
///
/// Objects with known fields are not members themselves: whoever sets `spec.replicas` does not
/// own `spec`.
pub(super) fn fields(value: &Value, schema: &Schema) -> FieldSet {
    level(value, schema).unwrap_or_default()
}

/// The type of what the schema does not know.
static UNKNOWN: Schema = Schema::any();

/// What `value` sets below itself; `None` when it is a leaf, which its parent notes.
fn level(value: &Value, schema: &Schema) -> Option<FieldSet> {
    match Atom::of(schema, Some(value)) {
        Atom::Scalar(_) => None,
        Atom::List(list) if list.is_atomic() => None,
        Atom::Map(map) if map.atomic => None,
        Atom::List(list) => Some(value.as_array().map(|items| list_fields(items, list)).unwrap_or_default()),
        Atom::Map(map) => Some(value.as_object().map(|object| map_fields(object, map)).unwrap_or_default()),
    }
}

fn list_fields(items: &[Value], list: ListAtom<'_>) -> FieldSet {
    let mut by_name: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
    for item in items {
        if let Ok(element) = list.element(item) {
            by_name.entry(element).or_default().push(item);
        }
    }
    let mut set = FieldSet::default();
    for (element, items) in by_name {
        let below = match items.as_slice() {
            [only] => level(only, list.items).unwrap_or_default(),
            _ => FieldSet::default(),
        };
        set.put(element, Membership::Member, below);
    }
    set
}

fn map_fields(object: &Map<String, Value>, map: MapAtom<'_>) -> FieldSet {
    let mut set = FieldSet::default();
    for (key, value) in object {
        let schema = map.field(key).unwrap_or(&UNKNOWN);
        let below = level(value, schema);
        let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        let member = below.is_none() || empty || map.named(key).is_none();
        set.put(Element::field(key), Membership::from(member), below.unwrap_or_default());
    }
    set
}

/// Adds the objects with known fields above each path, which [`fields`] leaves out: to take a
/// path away means to take away what was only there to hold it.
pub(super) fn with_named_fields(set: &FieldSet, schema: &Schema) -> FieldSet {
    let mut result = FieldSet::default();
    let map = match Atom::of(schema, None) {
        Atom::Map(map) => Some(map),
        _ => None,
    };
    let list = match Atom::of(schema, Some(&Value::Array(Vec::new()))) {
        Atom::List(list) => Some(list),
        _ => None,
    };
    for (element, member, below) in set.elements() {
        let (named, child) = match element {
            Element::Field(name) => match map {
                Some(map) => (map.named(name).is_some(), map.field(name)),
                None => (false, None),
            },
            Element::Key(_) => (false, list.map(|list| list.items)),
            Element::Value(_) | Element::Index(_) => (false, None),
        };
        let below_named = with_named_fields(below, child.unwrap_or(&UNKNOWN));
        let member = member || (named && !below.is_empty());
        result.put(element.clone(), Membership::from(member), below_named);
    }
    result
}
