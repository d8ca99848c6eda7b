//! The union of a live value and what somebody applies to it; where both have a leaf, the
//! applied one wins.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::{
    atom::{Atom, ListAtom, MapAtom, keys, list, map},
    path::Element,
};
use crate::schema::Schema;

/// Merges `applied` into `live`. `None` means that nothing is left to write.
pub(super) fn merge(live: Option<&Value>, applied: Option<&Value>, schema: &Schema) -> Option<Value> {
    let leaf = || applied.or(live).cloned();
    // The applied value decides what kind of JSON this is; without one the live value does.
    match Atom::of(schema, applied.or(live)) {
        Atom::Scalar(_) => leaf(),
        Atom::List(atom) => {
            let (live, applied) = (list(live), list(applied));
            let empty = live.is_none_or(Vec::is_empty) && applied.is_none_or(Vec::is_empty);
            if atom.is_atomic() || empty { leaf() } else { merge_lists(live, applied, atom) }
        }
        Atom::Map(atom) => {
            let (live, applied) = (map(live), map(applied));
            let empty = live.is_none_or(Map::is_empty) && applied.is_none_or(Map::is_empty);
            if atom.atomic || empty { leaf() } else { merge_maps(live, applied, atom) }
        }
    }
}

fn merge_maps(
    live: Option<&Map<String, Value>>,
    applied: Option<&Map<String, Value>>,
    atom: MapAtom<'_>,
) -> Option<Value> {
    let mut merged = Map::new();
    static UNKNOWN: Schema = Schema::any();
    for key in keys(live, applied) {
        let schema = atom.field(key).unwrap_or(&UNKNOWN);
        let value =
            merge(live.and_then(|live| live.get(key)), applied.and_then(|applied| applied.get(key)), schema);
        if let Some(value) = value {
            merged.insert(key.clone(), value);
        }
    }
    (!merged.is_empty()).then_some(Value::Object(merged))
}

/// Elements of both keep the applied order, those only live stay where they were as far as that
/// order allows, those only applied come after their applied predecessor.
fn merge_lists(live: Option<&Vec<Value>>, applied: Option<&Vec<Value>>, atom: ListAtom<'_>) -> Option<Value> {
    let live = Side::of(live, atom);
    let applied = Side::of(applied, atom);
    let mut shared: VecDeque<&Element> =
        applied.order.iter().map(|(element, _)| element).filter(|element| live.has(element)).collect();
    let mut next_shared = shared.pop_front();
    let mut taken: BTreeSet<&Element> = BTreeSet::new();
    let mut merged = Vec::new();
    let (mut left, mut right) = (0, 0);
    while left < live.order.len() || right < applied.order.len() {
        if let (Some((ours, _)), Some((theirs, _))) = (live.order.get(left), applied.order.get(right)) {
            if ours == theirs {
                taken.insert(ours);
                merged.extend(merge(live.get(ours), applied.get(ours), atom.items));
                left += 1;
                right += 1;
                next_shared = shared.pop_front();
                continue;
            }
            if applied.has(ours) && next_shared.is_some_and(|next| next != ours) {
                left += 1;
                continue;
            }
        }
        if let Some((ours, item)) = live.order.get(left) {
            if !applied.has(ours) {
                merged.extend(merge(Some(item), None, atom.items));
                left += 1;
                continue;
            }
            if taken.contains(ours) {
                left += 1;
            }
        }
        if let Some((theirs, _)) = applied.order.get(right) {
            taken.insert(theirs);
            merged.extend(merge(live.get(theirs), applied.get(theirs), atom.items));
            right += 1;
            if next_shared == Some(theirs) {
                next_shared = shared.pop_front();
            }
        }
    }
    (!merged.is_empty()).then_some(Value::Array(merged))
}

/// The elements of one list by name and in order.
struct Side<'v> {
    order: Vec<(Element, &'v Value)>,
    by_name: BTreeMap<Element, Option<&'v Value>>,
}

impl<'v> Side<'v> {
    fn of(items: Option<&'v Vec<Value>>, atom: ListAtom<'_>) -> Self {
        let mut side = Self { order: Vec::new(), by_name: BTreeMap::new() };
        for item in items.into_iter().flatten() {
            let Ok(element) = atom.element(item) else { continue };
            // Of several elements with one name none is merged with what is applied.
            side.by_name.entry(element.clone()).and_modify(|value| *value = None).or_insert(Some(item));
            side.order.push((element, item));
        }
        side
    }

    fn has(&self, element: &Element) -> bool {
        self.by_name.contains_key(element)
    }

    fn get(&self, element: &Element) -> Option<&'v Value> {
        self.by_name.get(element).copied().flatten()
    }
}
