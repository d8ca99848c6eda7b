//! What the cache holds, for people.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use serde::Serialize;

use super::{Cache, Kind};

/// The state of one watch and its objects.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KindReport {
    /// The kind.
    pub kind: String,
    /// Where it is asked for.
    pub path: String,
    /// Which objects, and how much of each.
    pub selection: String,
    /// Whether the first list has arrived.
    pub synced: bool,
    /// How many objects are held.
    pub objects: usize,
    /// The bytes of these objects.
    pub bytes: usize,
    /// Seconds since the server last said something.
    pub last_heard_seconds: f64,
    /// What keeps the watch from going on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Objects that cannot be read, and why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub quarantined: BTreeMap<String, String>,
}

impl Cache {
    /// The state of every watch, ordered by kind.
    pub fn report(&self) -> Vec<KindReport> {
        let mut all = self.declared();
        let followed: Vec<_> = self.kinds().followed.values().filter_map(Weak::upgrade).collect();
        all.extend(followed.iter().map(|source| Kind {
            path: super::collection_path(&source.store.resource, source.store.selection.namespace.as_deref()),
            store: Arc::clone(&source.store),
            health: Arc::clone(&source.health),
        }));
        let mut reports: Vec<KindReport> = all.iter().map(Kind::report).collect();
        reports.sort_by(|one, other| (&one.kind, &one.selection).cmp(&(&other.kind, &other.selection)));
        reports
    }
}

impl Kind {
    fn report(&self) -> KindReport {
        let (objects, bytes) = self.store.size();
        let mut quarantined = self.health.quarantined();
        for key in self.store.unreadable() {
            quarantined.insert(key.to_string(), "does not fit the type in which it is read".to_owned());
        }
        KindReport {
            kind: self.store.resource.kind.clone(),
            path: self.path.clone(),
            selection: self.store.selection.to_string(),
            synced: self.store.is_synced(),
            objects,
            bytes,
            last_heard_seconds: self.health.age().as_secs_f64(),
            problem: self.health.problem(),
            quarantined,
        }
    }
}
