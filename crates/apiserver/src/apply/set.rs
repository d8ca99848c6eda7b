//! A set of paths into an object: what a manager owns, what a change touched.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
};

use serde_json::{Map, Value};

use super::path::{Element, ElementError};

/// A set of paths, kept as a tree.
///
/// A path in the set says nothing about the paths above or below it: `spec.replicas` may be
/// a member while `spec` is not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    nodes: BTreeMap<Element, Node>,
}

/// What a [`FieldSet`] knows below one element. Either a member or with members below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Node {
    member: bool,
    below: FieldSet,
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl FieldSet {
    /// The set of these paths of field names, each written with dots: `metadata.name`.
    pub fn of_fields(paths: &[&str]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<Element> = path.split('.').map(Element::field).collect();
            set.insert(&path);
        }
        set
    }

    /// Whether it holds no path.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a path. The empty path stands for the whole object, which nobody owns.
    pub fn insert(&mut self, path: &[Element]) {
        let Some((last, above)) = path.split_last() else { return };
        let mut set = self;
        for element in above {
            set = &mut set.nodes.entry(element.clone()).or_default().below;
        }
        set.nodes.entry(last.clone()).or_default().member = true;
    }

    /// Whether this very path is a member.
    pub fn contains(&self, path: &[Element]) -> bool {
        let Some((last, above)) = path.split_last() else { return false };
        let mut set = self;
        for element in above {
            match set.nodes.get(element) {
                Some(node) => set = &node.below,
                None => return false,
            }
        }
        set.has(last)
    }

    /// Whether this element, right here, is a member.
    pub(super) fn has(&self, element: &Element) -> bool {
        self.nodes.get(element).is_some_and(|node| node.member)
    }

    /// The members below this element, if there are any.
    pub(super) fn below(&self, element: &Element) -> Option<&FieldSet> {
        self.nodes.get(element).map(|node| &node.below).filter(|below| !below.is_empty())
    }

    /// The elements right here, each with whether it is a member and what is below it.
    pub(super) fn elements(&self) -> impl Iterator<Item = (&Element, bool, &FieldSet)> {
        self.nodes.iter().map(|(element, node)| (element, node.member, &node.below))
    }

    /// Puts what `below` holds under `element`, which becomes a member if `member` says so.
    pub(super) fn put(&mut self, element: Element, member: Membership, below: FieldSet) {
        let node = Node { member: member == Membership::Member, below };
        if !node.is_empty() {
            self.nodes.insert(element, node);
        }
    }

    /// The paths in either.
    pub fn union(mut self, other: &Self) -> Self {
        for (element, theirs) in &other.nodes {
            match self.nodes.entry(element.clone()) {
                Entry::Vacant(vacant) => {
                    vacant.insert(theirs.clone());
                }
                Entry::Occupied(mut occupied) => {
                    let ours = occupied.get_mut();
                    ours.member |= theirs.member;
                    ours.below = std::mem::take(&mut ours.below).union(&theirs.below);
                }
            }
        }
        self
    }

    /// The paths in both.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut result = Self::default();
        for (element, ours) in &self.nodes {
            if let Some(theirs) = other.nodes.get(element) {
                let member = Membership::from(ours.member && theirs.member);
                result.put(element.clone(), member, ours.below.intersection(&theirs.below));
            }
        }
        result
    }

    /// The paths of this set that are not in `other`.
    pub fn difference(mut self, other: &Self) -> Self {
        self.subtract(other, Reach::ThesePaths);
        self
    }

    /// The paths of this set that are neither in `other` nor below a path in `other`.
    pub fn without_subtrees(mut self, other: &Self) -> Self {
        self.subtract(other, Reach::Subtrees);
        self
    }

    fn subtract(&mut self, other: &Self, reach: Reach) {
        for (element, theirs) in &other.nodes {
            let Some(ours) = self.nodes.get_mut(element) else { continue };
            if theirs.member {
                ours.member = false;
                if reach == Reach::Subtrees {
                    ours.below = Self::default();
                }
            }
            ours.below.subtract(&theirs.below, reach);
            if ours.is_empty() {
                self.nodes.remove(element);
            }
        }
    }

    /// The members that have no member below them.
    pub fn leaves(&self) -> Self {
        let mut result = Self::default();
        for (element, node) in &self.nodes {
            let member = Membership::from(node.member && node.below.is_empty());
            result.put(element.clone(), member, node.below.leaves());
        }
        result
    }

    /// Every path, in order: at each level first the members, then what is below them.
    pub fn paths(&self) -> Vec<Vec<Element>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, above: &mut Vec<Element>, paths: &mut Vec<Vec<Element>>) {
        for (element, node) in &self.nodes {
            if node.member {
                let mut path = above.clone();
                path.push(element.clone());
                paths.push(path);
            }
        }
        for (element, node) in &self.nodes {
            above.push(element.clone());
            node.below.collect(above, paths);
            above.pop();
        }
    }

    /// As `fieldsV1` shows it.
    pub fn encode(&self) -> Value {
        Value::Object(self.encode_level())
    }

    fn encode_level(&self) -> Map<String, Value> {
        let mut level = Map::new();
        for (element, node) in &self.nodes {
            let mut below = node.below.encode_level();
            if node.member && !below.is_empty() {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            level.insert(element.encode(), Value::Object(below));
        }
        level
    }

    /// Reads `fieldsV1`. Elements of an unknown kind are dropped.
    pub fn decode(fields: &Value) -> Result<Self, ElementError> {
        let mut set = Self::default();
        let Some(fields) = fields.as_object() else {
            return Err(ElementError::Malformed(fields.to_string()));
        };
        for (key, value) in fields {
            if key == "." {
                continue;
            }
            let element = match Element::decode(key) {
                Err(ElementError::UnknownKind(_)) => continue,
                other => other?,
            };
            let below = Self::decode(value)?;
            let marked = value.get(".").is_some() || below.is_empty();
            set.put(element, Membership::from(marked), below);
        }
        Ok(set)
    }
}

/// Whether an element is in the set itself, or only has members below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Membership {
    /// In the set.
    Member,
    /// Only on the way to members.
    Way,
}

impl From<bool> for Membership {
    fn from(member: bool) -> Self {
        if member { Self::Member } else { Self::Way }
    }
}

/// How far a subtraction goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    ThesePaths,
    Subtrees,
}

/// One path per line.
impl fmt::Display for FieldSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for path in self.paths() {
            writeln!(f, "{}", path_text(&path))?;
        }
        Ok(())
    }
}

/// A path as conflicts show it: `.spec.containers[name="web"].image`.
pub(super) fn path_text(path: &[Element]) -> String {
    path.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn element() -> impl Strategy<Value = Element> {
        prop_oneof![
            "[a-c]".prop_map(|name| Element::field(&name)),
            "[a-b]".prop_map(|name| Element::keyed([("name".into(), json!(name))])),
            (0..2i64).prop_map(|value| Element::Value(super::super::path::Ordered(json!(value)))),
            (0..2i64).prop_map(Element::Index),
        ]
    }

    fn paths() -> impl Strategy<Value = BTreeSet<Vec<Element>>> {
        prop::collection::btree_set(prop::collection::vec(element(), 1..4), 0..12)
    }

    fn set(paths: &BTreeSet<Vec<Element>>) -> FieldSet {
        let mut set = FieldSet::default();
        for path in paths {
            set.insert(path);
        }
        set
    }

    fn model(set: &FieldSet) -> BTreeSet<Vec<Element>> {
        set.paths().into_iter().collect()
    }

    proptest! {
        #[test]
        fn the_algebra_is_that_of_sets_of_paths(a in paths(), b in paths()) {
            prop_assert_eq!(&model(&set(&a)), &a);
            prop_assert_eq!(model(&set(&a).union(&set(&b))), a.union(&b).cloned().collect());
            prop_assert_eq!(model(&set(&a).intersection(&set(&b))), a.intersection(&b).cloned().collect());
            prop_assert_eq!(model(&set(&a).difference(&set(&b))), a.difference(&b).cloned().collect());
            let outside = a.iter().filter(|path| !b.iter().any(|above| path.starts_with(above))).cloned().collect();
            prop_assert_eq!(model(&set(&a).without_subtrees(&set(&b))), outside);
            let leaves = a.iter().filter(|path| !a.iter().any(|p| p != *path && p.starts_with(path))).cloned().collect();
            prop_assert_eq!(model(&set(&a).leaves()), leaves);
            for path in a.union(&b) {
                prop_assert_eq!(set(&a).contains(path), a.contains(path));
            }
        }

        #[test]
        fn equal_sets_of_paths_are_equal_trees(a in paths(), b in paths()) {
            let rebuilt = set(&a).union(&set(&b)).difference(&set(&b)).union(&set(&a));
            prop_assert_eq!(rebuilt, set(&a));
        }

        #[test]
        fn what_is_encoded_is_decoded(a in paths()) {
            prop_assert_eq!(FieldSet::decode(&set(&a).encode()).unwrap(), set(&a));
        }
    }

    #[test]
    fn a_set_is_encoded_as_kubernetes_does() {
        let mut owned = FieldSet::of_fields(&["spec.replicas", "metadata.labels", "metadata.labels.app"]);
        owned.insert(&[
            Element::field("spec"),
            Element::keyed([("name".into(), json!("web"))]),
            Element::field("image"),
        ]);
        let encoded = json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {"f:replicas": {}, "k:{\"name\":\"web\"}": {"f:image": {}}},
        });
        assert_eq!(owned.encode(), encoded);
        assert_eq!(FieldSet::decode(&encoded).unwrap(), owned);
    }

    #[test]
    fn elements_of_an_unknown_kind_are_dropped() {
        let decoded = FieldSet::decode(&json!({"z:new": {}, "f:a": {"z:new": {}}})).unwrap();
        assert_eq!(decoded, FieldSet::of_fields(&["a"]));
    }

    #[test]
    fn broken_field_sets_are_refused() {
        for broken in [json!([]), json!("x"), json!({"a": {}}), json!({"f:a": 1}), json!({"k:{": {}})] {
            assert!(FieldSet::decode(&broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn paths_are_shown_as_conflicts_show_them() {
        let mut set = FieldSet::of_fields(&["spec.replicas"]);
        set.insert(&[
            Element::field("spec"),
            Element::keyed([("name".into(), json!("web"))]),
            Element::field("image"),
        ]);
        assert_eq!(set.to_string(), ".spec.replicas\n.spec[name=\"web\"].image\n");
    }
}
