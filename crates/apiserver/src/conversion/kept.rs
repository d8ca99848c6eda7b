//! What was converted already.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::OnceCell;

use crate::{
    object::{Key, Revision, Stored},
    types::{Origin, Resource},
};

/// Objects that are kept at most; the oldest go first.
const MOST: usize = 8192;
/// Bytes that are kept at most.
const MOST_BYTES: usize = 32 * 1024 * 1024;

/// One version of an object in one version of its kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    key: Key,
    revision: Revision,
    version: Arc<str>,
    definition: Arc<str>,
    generation: i64,
}

impl Place {
    /// Where an object is kept as a resource shows it.
    pub(super) fn new(resource: &Resource, stored: &Stored) -> Self {
        Self {
            key: stored.key.clone(),
            revision: stored.revision,
            version: Arc::clone(&resource.version),
            definition: match &resource.origin {
                Origin::BuiltIn => "".into(),
                Origin::Custom { uid, .. } => Arc::clone(uid),
            },
            generation: resource.versions.as_ref().map_or(0, |versions| versions.generation),
        }
    }
}

/// A place for an object, filled by whoever converts it first.
pub(super) type Cell = Arc<OnceCell<Arc<Stored>>>;

/// Converted objects, the same for everybody.
#[derive(Default)]
pub(crate) struct Kept {
    cells: Mutex<Cells>,
}

#[derive(Default)]
struct Cells {
    by_place: HashMap<Place, Cell>,
    /// In the order in which they came, each with the size of what it is converted from.
    order: VecDeque<(Place, usize)>,
    bytes: usize,
}

impl Kept {
    /// The place of an object.
    pub(super) fn cell(&self, place: Place, size: usize) -> Cell {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = cells.by_place.get(&place) {
            return Arc::clone(cell);
        }
        let cell = Cell::default();
        cells.by_place.insert(place.clone(), Arc::clone(&cell));
        cells.order.push_back((place, size));
        cells.bytes += size;
        while cells.order.len() > MOST || cells.bytes > MOST_BYTES {
            let Some((oldest, size)) = cells.order.pop_front() else { break };
            cells.by_place.remove(&oldest);
            cells.bytes -= size;
        }
        cell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_goes_first() {
        let place = |number: u64| Place {
            key: Key::new("things", "default", "a"),
            revision: Revision(number),
            version: "v2".into(),
            definition: "u".into(),
            generation: 1,
        };
        let kept = Kept::default();
        for number in 0..10 {
            kept.cell(place(number), MOST_BYTES / 4);
        }
        let cells = kept.cells.lock().expect("no panic");
        let mut revisions: Vec<u64> = cells.by_place.keys().map(|place| place.revision.0).collect();
        revisions.sort_unstable();
        assert_eq!(revisions, [6, 7, 8, 9]);
        assert!(cells.bytes <= MOST_BYTES && cells.order.len() == 4);
    }
}
