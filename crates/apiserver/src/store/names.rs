//! The storages that a database knows, and their numbers in it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::object::{Change, Revision};

/// Numbers of storages, and up to where their history is forgotten. Cheap to copy.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    known: Arc<HashMap<Arc<str>, (i64, Revision)>>,
    last: i64,
}

impl Names {
    pub(super) fn insert(&mut self, storage: Arc<str>, id: i64, floor: Revision) {
        self.last = self.last.max(id);
        Arc::make_mut(&mut self.known).insert(storage, (id, floor));
    }

    pub(super) fn get(&self, storage: &str) -> Option<i64> {
        self.known.get(storage).map(|(id, _)| *id)
    }

    pub(super) fn floor(&self, storage: &str) -> Revision {
        self.known.get(storage).map_or(Revision(0), |(_, floor)| *floor)
    }

    /// Gives a new storage the next number.
    pub(super) fn add(&mut self, storage: &Arc<str>) -> i64 {
        let id = self.last + 1;
        self.insert(Arc::clone(storage), id, Revision(0));
        id
    }
}

/// A revision as databases keep numbers.
pub(super) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

/// A change as databases keep it.
pub(super) fn code(change: Change) -> i64 {
    match change {
        Change::Added => 1,
        Change::Modified => 2,
        Change::Deleted => 3,
    }
}
