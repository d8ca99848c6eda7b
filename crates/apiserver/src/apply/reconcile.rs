//! Owned fields after the type itself changed: what used to be owned part by part and is now
//! one value is owned as that one value.

use super::{atom::Atom, path::Element, set::FieldSet};
use crate::schema::Schema;

/// The set as the schema of today names it.
pub(super) fn reconcile(set: FieldSet, schema: &Schema) -> FieldSet {
    let mut became_atomic = FieldSet::default();
    find(&set, schema, &mut Vec::new(), &mut became_atomic);
    if became_atomic.is_empty() {
        return set;
    }
    set.without_subtrees(&became_atomic).union(&became_atomic)
}

fn find(set: &FieldSet, schema: &Schema, path: &mut Vec<Element>, became_atomic: &mut FieldSet) {
    let (map, list) = match Atom::of(schema, None) {
        Atom::Scalar(_) => return,
        Atom::Map(map) if map.is_deduced() => return,
        Atom::Map(map) if map.atomic => return became_atomic.insert(path),
        Atom::List(list) if list.is_atomic() => return became_atomic.insert(path),
        Atom::Map(map) => (Some(map), None),
        Atom::List(list) => (None, Some(list)),
    };
    for (element, _, below) in set.elements() {
        if below.is_empty() {
            continue;
        }
        let child = match (element, map, list) {
            (Element::Field(name), Some(map), _) => map.field(name),
            (Element::Key(_), _, Some(list)) => Some(list.items),
            _ => None,
        };
        if let Some(child) = child {
            path.push(element.clone());
            find(below, child, path, became_atomic);
            path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fixture, *};

    #[test]
    fn fields_of_a_map_that_became_atomic_are_owned_as_one() {
        let schema = fixture::schema();
        let granular =
            FieldSet::of_fields(&["spec.atomicMap.a", "spec.atomicMap.b", "spec.map.a", "spec.number"]);
        let owned = reconcile(granular, &schema);
        assert_eq!(owned, FieldSet::of_fields(&["spec.atomicMap", "spec.map.a", "spec.number"]));
    }

    #[test]
    fn what_fits_the_schema_stays_as_it_is() {
        let schema = fixture::schema();
        let owned =
            FieldSet::of_fields(&["spec.atomicMap", "spec.map", "spec.map.a", "spec.free.a.b", "gone.x"]);
        assert_eq!(reconcile(owned.clone(), &schema), owned);
    }
}
