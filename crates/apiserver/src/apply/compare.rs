//! What changed between two versions of an object.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    atom::{Atom, ListAtom, MapAtom, keys, list, map},
    path::{Element, same},
    set::FieldSet,
};
use crate::schema::Schema;

/// The paths that a change removed, modified and added.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) removed: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) added: FieldSet,
}

impl Comparison {
    /// What of these fields nothing happened to.
    pub(super) fn untouched(&self, set: FieldSet) -> FieldSet {
        let touched = self.modified.clone().union(&self.added);
        set.difference(&touched).difference(&self.removed)
    }

    /// Takes out what these paths and everything below them say.
    pub(super) fn without_subtrees(self, paths: &FieldSet) -> Self {
        Self {
            removed: self.removed.without_subtrees(paths),
            modified: self.modified.without_subtrees(paths),
            added: self.added.without_subtrees(paths),
        }
    }
}

/// Compares two objects of one type.
pub(super) fn compare(old: &Value, new: &Value, schema: &Schema) -> Comparison {
    let mut walk = Walk { path: Vec::new(), result: Comparison::default() };
    walk.value(Some(old), Some(new), schema);
    walk.result
}

struct Walk {
    path: Vec<Element>,
    result: Comparison,
}

/// Whether a value was handled as one leaf or part by part.
#[derive(PartialEq, Eq)]
enum Handled {
    Leaf,
    Parts,
}

impl Walk {
    fn value(&mut self, old: Option<&Value>, new: Option<&Value>, schema: &Schema) {
        let (before, after) = (Atom::of(schema, old), Atom::of(schema, new));
        let handled = match (old, new) {
            (None, None) => return,
            (Some(_), None) => self.atom(&before, old, new),
            (Some(_), Some(_)) if !before.same_kind(&after) => {
                self.atom(&before, old, new);
                self.atom(&after, old, new)
            }
            (_, Some(_)) => self.atom(&after, old, new),
        };
        if handled == Handled::Parts {
            match (old, new) {
                (None, _) => self.result.added.insert(&self.path),
                (_, None) => self.result.removed.insert(&self.path),
                _ => {}
            }
        }
    }

    fn atom(&mut self, atom: &Atom<'_>, old: Option<&Value>, new: Option<&Value>) -> Handled {
        match atom {
            Atom::Scalar(_) => self.leaf(old, new),
            Atom::List(atom) => {
                let (before, after) = (list(old), list(new));
                let empty = before.is_none_or(Vec::is_empty) && after.is_none_or(Vec::is_empty);
                if atom.is_atomic() || empty { self.leaf(old, new) } else { self.lists(before, after, *atom) }
            }
            Atom::Map(atom) => {
                let (before, after) = (map(old), map(new));
                let empty = before.is_none_or(Map::is_empty) && after.is_none_or(Map::is_empty);
                if atom.atomic || empty { self.leaf(old, new) } else { self.maps(before, after, *atom) }
            }
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) -> Handled {
        match (old, new) {
            (None, _) => self.result.added.insert(&self.path),
            (_, None) => self.result.removed.insert(&self.path),
            (Some(old), Some(new)) if !same(old, new) => self.result.modified.insert(&self.path),
            _ => {}
        }
        Handled::Leaf
    }

    fn maps(
        &mut self,
        old: Option<&Map<String, Value>>,
        new: Option<&Map<String, Value>>,
        atom: MapAtom<'_>,
    ) -> Handled {
        static UNKNOWN: Schema = Schema::any();
        for key in keys(old, new) {
            self.path.push(Element::field(key));
            let schema = atom.field(key).unwrap_or(&UNKNOWN);
            self.value(old.and_then(|old| old.get(key)), new.and_then(|new| new.get(key)), schema);
            self.path.pop();
        }
        Handled::Parts
    }

    /// Elements with a name of their own are compared one to one; those that share a name are
    /// compared and owned together, as one leaf.
    fn lists(&mut self, old: Option<&Vec<Value>>, new: Option<&Vec<Value>>, atom: ListAtom<'_>) -> Handled {
        let mut by_name: BTreeMap<Element, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in old.into_iter().flatten() {
            if let Ok(element) = atom.element(item) {
                by_name.entry(element).or_default().0.push(item);
            }
        }
        for item in new.into_iter().flatten() {
            if let Ok(element) = atom.element(item) {
                by_name.entry(element).or_default().1.push(item);
            }
        }
        for (element, (before, after)) in by_name {
            self.path.push(element);
            match (before.as_slice(), after.as_slice()) {
                ([], [new]) => self.value(None, Some(new), atom.items),
                ([old], []) => self.value(Some(old), None, atom.items),
                ([old], [new]) => self.value(Some(old), Some(new), atom.items),
                ([_, _, ..], [_, _, ..]) => {
                    let equal = before.len() == after.len()
                        && before.iter().zip(&after).all(|(old, new)| same(old, new));
                    if !equal {
                        self.result.modified.insert(&self.path);
                    }
                }
                ([_, _, ..], rest) => {
                    if let [new] = rest {
                        self.value(None, Some(new), atom.items);
                    }
                    self.result.removed.insert(&self.path);
                }
                (rest, _) => {
                    if let [old] = rest {
                        self.value(Some(old), None, atom.items);
                    }
                    self.result.added.insert(&self.path);
                }
            }
            self.path.pop();
        }
        Handled::Parts
    }
}
