//! What readers see: the objects alive, and the recent history of each storage.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::batch::Batch;
use super::history::History;
use super::options::HistoryOptions;
use super::snapshot::{Objects, Past, Snapshot};
use crate::object::{Change, Key, Revision, Stored};
use crate::watch::{Event, Expired};

/// The revision of a store that has never been written to. Not 0, because clients give 0 the meaning
/// "any".
pub(super) const FIRST: Revision = Revision(1);

/// The storage without a name stands for all: up to its floor, none has a history.
pub(super) const EVERYTHING: &str = "";

/// Everything in memory.
#[derive(Debug)]
pub(crate) struct State {
    revision: Revision,
    collections: HashMap<Arc<str>, Collection>,
    options: HistoryOptions,
    /// Bytes in all histories.
    history_bytes: usize,
    /// Events forgotten here that may still be on disk.
    forgotten: usize,
    life: Life,
}

#[derive(Debug, PartialEq, Eq)]
enum Life {
    Open,
    Closed,
}

/// The objects of one storage.
#[derive(Debug, Default)]
pub(super) struct Collection {
    pub(super) objects: Objects,
    pub(super) history: History,
    /// Rings when something is published; gone once the store is closed.
    bell: Option<watch::Sender<()>>,
}

impl State {
    /// A store that has never been written to.
    pub(super) fn new(options: HistoryOptions) -> State {
        State::restore(options, FIRST, HashMap::new())
    }

    /// A store as it was left.
    pub(super) fn restore(
        options: HistoryOptions,
        revision: Revision,
        collections: HashMap<Arc<str>, Collection>,
    ) -> State {
        let history_bytes = collections.values().map(|collection| collection.history.bytes()).sum();
        let life = Life::Open;
        let mut state = State { revision, collections, options, history_bytes, forgotten: 0, life };
        let storages: Vec<Arc<str>> = state.collections.keys().cloned().collect();
        storages.iter().for_each(|storage| state.trim(storage));
        state
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn is_closed(&self) -> bool {
        self.life == Life::Closed
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Arc<Stored>> {
        self.collections.get(&key.storage)?.objects.get(key)
    }

    pub(super) fn storages(&self) -> Vec<Arc<str>> {
        let mut storages: Vec<Arc<str>> = (self.collections.iter())
            .filter(|(_, collection)| !collection.objects.is_empty())
            .map(|(storage, _)| Arc::clone(storage))
            .collect();
        storages.sort();
        storages
    }

    pub(super) fn snapshot(&self, storage: &str, namespace: Option<&str>) -> Snapshot {
        let (storage, objects) = match self.collections.get_key_value(storage) {
            Some((storage, collection)) => (Arc::clone(storage), collection.objects.clone()),
            None => (Arc::from(storage), Objects::new_sync()),
        };
        Snapshot::new(self.revision, storage, namespace.map(Arc::from), objects)
    }

    pub(super) fn past(
        &self,
        storage: &str,
        namespace: Option<&str>,
        revision: Revision,
    ) -> Result<Past, Expired> {
        let oldest = self.floor(storage);
        if revision < oldest || revision > self.revision {
            return Err(Expired { requested: revision, oldest, newest: self.revision });
        }
        let now = self.snapshot(storage, namespace);
        let since = match self.collections.get(storage) {
            Some(collection) => collection.history.after(revision).rev().cloned().collect(),
            None => Vec::new(),
        };
        Ok(Past { now, revision, since })
    }

    /// The first event of a watch after its cursor; the oldest revision kept where the cursor is
    /// older than that.
    pub(crate) fn event_after(
        &self,
        storage: &str,
        namespace: Option<&str>,
        cursor: Revision,
    ) -> Result<Option<Arc<Event>>, Revision> {
        let floor = self.floor(storage);
        if cursor < floor {
            return Err(floor);
        }
        let Some(Collection { history, .. }) = self.collections.get(storage) else { return Ok(None) };
        let wanted = |event: &&Arc<Event>| namespace.is_none_or(|own| *event.object.key.namespace == *own);
        Ok(history.after(cursor).find(wanted).cloned())
    }

    /// The bell of a storage, for a watch after a revision.
    pub(super) fn bell(
        &mut self,
        storage: &str,
        after: Revision,
    ) -> Result<(Arc<str>, watch::Receiver<()>), Expired> {
        let oldest = self.floor(storage);
        if after < oldest {
            return Err(Expired { requested: after, oldest, newest: self.revision });
        }
        let storage = self.intern(storage);
        let closed = self.is_closed();
        let collection = self.collections.entry(Arc::clone(&storage)).or_default();
        let bell = match &collection.bell {
            Some(bell) => bell.subscribe(),
            None => {
                let (bell, listener) = watch::channel(());
                collection.bell = (!closed).then_some(bell);
                listener
            }
        };
        Ok((storage, bell))
    }

    /// Makes a batch visible and returns the bells to ring.
    pub(super) fn publish(&mut self, batch: Batch) -> Vec<watch::Sender<()>> {
        self.revision = batch.revision();
        if let Some(floor) = batch.jumped() {
            self.forget(floor);
        }
        let mut touched: Vec<Arc<str>> = Vec::new();
        for event in batch.into_events() {
            let key = &event.object.key;
            let collection = match self.collections.get_mut(&key.storage) {
                Some(collection) => collection,
                None => self.collections.entry(Arc::clone(&key.storage)).or_default(),
            };
            match event.kind {
                Change::Added | Change::Modified => {
                    collection.objects.insert_mut(key.clone(), Arc::clone(&event.object));
                }
                Change::Deleted => {
                    collection.objects.remove_mut(key);
                }
            }
            if !touched.contains(&key.storage) {
                touched.push(Arc::clone(&key.storage));
            }
            let before = collection.history.bytes();
            collection.history.push(event);
            self.history_bytes += collection.history.bytes() - before;
        }
        touched.iter().for_each(|storage| self.trim(storage));
        touched.iter().filter_map(|storage| self.collections.get(storage)?.bell.clone()).collect()
    }

    /// How many events are forgotten here and may still be on disk.
    pub(super) fn forgotten(&self) -> usize {
        self.forgotten
    }

    /// That many forgotten events are gone from the disk too.
    pub(super) fn settle_forgotten(&mut self, count: usize) {
        self.forgotten = self.forgotten.saturating_sub(count);
    }

    /// Up to where each storage has forgotten its history.
    pub(super) fn floors(&self) -> Vec<(Arc<str>, Revision)> {
        (self.collections.iter())
            .map(|(storage, collection)| (Arc::clone(storage), collection.history.floor()))
            .filter(|(_, floor)| *floor > Revision(0))
            .collect()
    }

    /// Ends all watches and refuses writes.
    pub(super) fn close(&mut self) {
        self.life = Life::Closed;
        self.collections.values_mut().for_each(|collection| collection.bell = None);
    }

    fn floor(&self, storage: &str) -> Revision {
        let of = |storage| {
            self.collections.get(storage).map_or(Revision(0), |known: &Collection| known.history.floor())
        };
        of(storage).max(of(EVERYTHING))
    }

    /// Forgets the history of every storage up to a revision, also of those that come later.
    fn forget(&mut self, floor: Revision) {
        self.collections.entry(Arc::from(EVERYTHING)).or_default();
        for collection in self.collections.values_mut() {
            let before = collection.history.bytes();
            self.forgotten += collection.history.forget(floor);
            self.history_bytes -= before - collection.history.bytes();
        }
    }

    fn intern(&self, storage: &str) -> Arc<str> {
        self.collections.get_key_value(storage).map_or_else(|| Arc::from(storage), |(own, _)| Arc::clone(own))
    }

    /// Keeps a storage's history within its limits, and all of them within theirs.
    fn trim(&mut self, storage: &str) {
        let HistoryOptions { events, bytes, total_bytes } = self.options;
        if let Some(collection) = self.collections.get_mut(storage) {
            let before = collection.history.bytes();
            self.forgotten += collection.history.trim(events, bytes);
            self.history_bytes -= before - collection.history.bytes();
        }
        while self.history_bytes > total_bytes {
            // Half of the largest at once, so that finding it costs little per event.
            let largest = self.collections.values_mut().max_by_key(|collection| collection.history.bytes());
            let Some(Collection { history, .. }) = largest else { break };
            let before = history.bytes();
            self.forgotten += history.trim(history.len(), before / 2);
            self.history_bytes -= before - history.bytes();
        }
    }
}

impl Collection {
    /// A storage as it was left.
    pub(super) fn restore(objects: Objects, history: History) -> Collection {
        Collection { objects, history, bell: None }
    }
}
