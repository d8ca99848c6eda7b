//! All objects of one kind, their indexes, and who wants to hear of changes.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use kube::core::ApiResource;
use tokio::sync::watch;

use super::header::Header;
use super::selection::Selection;
use crate::key::Key;
use crate::object::Object;

/// One object of the cache: its bytes, and the decoded value once someone asked for it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) header: Header,
    typed: OnceLock<Option<Arc<dyn Any + Send + Sync>>>,
    /// The list that last contained the object; what an older list left behind is swept.
    mark: AtomicU64,
}

impl Entry {
    pub(crate) fn new(header: Header) -> Self {
        Self { header, typed: OnceLock::new(), mark: AtomicU64::new(0) }
    }

    /// The object as a type; nothing if it does not fit the type.
    pub(crate) fn typed<K: Object>(&self) -> Option<Arc<K>> {
        self.typed
            .get_or_init(|| match serde_json::from_slice::<K>(self.header.json()) {
                Ok(object) => Some(Arc::new(object)),
                Err(error) => {
                    tracing::warn!(
                        kind = %K::kind(&()), key = %self.header.key(), %error,
                        "an object does not fit its type and is left out; correct the object or its type"
                    );
                    None
                }
            })
            .clone()
            .and_then(|object| object.downcast().ok())
    }
}

/// One step of a kind's history.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Was already there when the listener came.
    Initial(Arc<Entry>),
    /// Came or changed.
    Applied { old: Option<Arc<Entry>>, new: Arc<Entry> },
    /// Went; this is the last state that was seen.
    Deleted(Arc<Entry>),
    /// The first list is complete.
    Synced,
}

type Handler = Arc<dyn Fn(&Change) + Send + Sync>;
type Extract = Box<dyn Fn(&Entry) -> Vec<String> + Send + Sync>;

/// All objects of one kind.
pub(crate) struct KindStore {
    pub(crate) resource: ApiResource,
    pub(crate) selection: Selection,
    state: RwLock<State>,
    /// Held during every change until all listeners have heard of it, so that they hear of
    /// changes in order. The state's lock is free by then: listeners may read.
    listeners: Mutex<Listeners>,
    synced: watch::Sender<bool>,
}

#[derive(Default)]
struct Listeners {
    next: u64,
    handlers: Vec<(u64, Handler)>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<Key, Arc<Entry>>,
    owned: HashMap<Box<str>, BTreeSet<Key>>,
    indexes: Vec<Index>,
    /// The newest version that the watch has delivered.
    observed: Option<u64>,
    /// Objects that we deleted ourselves, by uid, with the list that was then the latest:
    /// events from before the deletion must not bring them back.
    tombstones: HashMap<Box<str>, u64>,
    list: u64,
    bytes: usize,
}

struct Index {
    name: &'static str,
    extract: Extract,
    keys: HashMap<String, BTreeSet<Key>>,
}

impl KindStore {
    pub(crate) fn new(resource: ApiResource, selection: Selection) -> Self {
        Self {
            resource,
            selection,
            state: RwLock::default(),
            listeners: Mutex::default(),
            synced: watch::channel(false).0,
        }
    }

    // === reading ===

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.read().objects.get(key).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        self.read().objects.values().cloned().collect()
    }

    pub(crate) fn in_namespace(&self, namespace: &str) -> Vec<Arc<Entry>> {
        let from = Key::new(namespace, "");
        self.read()
            .objects
            .range(from..)
            .take_while(|(key, _)| key.namespace() == Some(namespace))
            .map(|(_, entry)| Arc::clone(entry))
            .collect()
    }

    pub(crate) fn owned_by(&self, uid: &str) -> Vec<Arc<Entry>> {
        let state = self.read();
        state.resolve(state.owned.get(uid))
    }

    pub(crate) fn by_index(&self, name: &str, value: &str) -> Vec<Arc<Entry>> {
        let state = self.read();
        let index = state.indexes.iter().find(|index| index.name == name);
        state.resolve(index.and_then(|index| index.keys.get(value)))
    }

    /// Objects that did not fit the type in which someone wanted to read them.
    pub(crate) fn unreadable(&self) -> Vec<Key> {
        let state = self.read();
        let unread = state.objects.values().filter(|entry| matches!(entry.typed.get(), Some(None)));
        unread.map(|entry| entry.header.key().clone()).collect()
    }

    /// Number of objects and their bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        let state = self.read();
        (state.objects.len(), state.bytes)
    }

    pub(crate) fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    pub(crate) async fn wait_synced(&self) {
        // The sender lives as long as we do.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    // === listening ===

    /// Calls `handler` for everything that is there, then for every change.
    pub(crate) fn listen(&self, handler: Handler) -> u64 {
        let mut listeners = lock(&self.listeners);
        for entry in self.all() {
            call(&handler, &Change::Initial(entry));
        }
        if self.is_synced() {
            call(&handler, &Change::Synced);
        }
        let id = listeners.next;
        listeners.next += 1;
        listeners.handlers.push((id, handler));
        id
    }

    pub(crate) fn unlisten(&self, id: u64) {
        lock(&self.listeners).handlers.retain(|(at, _)| *at != id);
    }

    /// Adds an index over what `extract` finds; an index of that name is kept as it is.
    pub(crate) fn index(&self, name: &'static str, extract: Extract) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.indexes.iter().any(|index| index.name == name) {
            return;
        }
        let mut index = Index { name, extract, keys: HashMap::new() };
        for entry in state.objects.values() {
            index.add(entry);
        }
        state.indexes.push(index);
    }

    // === what the watch says ===

    /// A list begins; objects of its pages come through [`Self::listed`].
    pub(crate) fn list_started(&self) {
        self.change(|state| {
            state.list += 1;
            Vec::new()
        });
    }

    pub(crate) fn listed(&self, headers: Vec<Header>) {
        self.change(|state| {
            let mut changes = Vec::new();
            for header in headers {
                state.apply(header, &mut changes);
            }
            changes
        });
    }

    /// The list is complete at this version: what it did not contain is gone.
    pub(crate) fn list_finished(&self, version: &str) {
        let version = version.parse().ok();
        let first = !self.is_synced();
        self.change(|state| {
            let list = state.list;
            let stale: Vec<Key> = state
                .objects
                .iter()
                .filter(|(_, entry)| entry.mark.load(Ordering::Relaxed) < list)
                .filter(|(_, entry)| !is_newer(entry, version))
                .map(|(key, _)| key.clone())
                .collect();
            state.tombstones.retain(|_, made| *made >= list);
            state.observed = version;
            let mut changes: Vec<Change> =
                stale.iter().filter_map(|key| state.remove(key)).map(Change::Deleted).collect();
            if first {
                changes.push(Change::Synced);
            }
            changes
        });
        self.synced.send_replace(true);
    }

    pub(crate) fn applied(&self, header: Header) {
        self.change(|state| {
            state.observe(header.resource_version());
            let mut changes = Vec::new();
            state.apply(header, &mut changes);
            changes
        });
    }

    pub(crate) fn deleted(&self, header: &Header) {
        self.change(|state| {
            state.observe(header.resource_version());
            state.tombstones.remove(header.uid());
            let known = state.objects.get(header.key());
            // A key may already be taken by the next object of the same name.
            match known {
                Some(entry) if entry.header.uid() == header.uid() => {
                    state.remove(header.key()).map(Change::Deleted).into_iter().collect()
                }
                _ => Vec::new(),
            }
        });
    }

    pub(crate) fn bookmark(&self, version: &str) {
        self.change(|state| {
            state.observe(version);
            Vec::new()
        });
    }

    // === what we wrote ourselves ===

    /// Takes over the server's answer to a write, unless the watch is already past it.
    pub(crate) fn written(&self, header: Header) {
        // Nobody would ever tell us that it is gone again.
        if !self.selection.admits(&header) {
            return;
        }
        self.change(|state| {
            let version: Option<u64> = header.resource_version().parse().ok();
            if version.is_none() || version <= state.observed {
                return Vec::new();
            }
            let mut changes = Vec::new();
            state.apply(header, &mut changes);
            changes
        });
    }

    /// An object is gone by our own request.
    pub(crate) fn erased(&self, key: &Key, uid: &str) {
        self.change(|state| {
            match state.objects.get(key) {
                Some(entry) if entry.header.uid() == uid => {}
                _ => return Vec::new(),
            }
            let list = state.list;
            state.tombstones.insert(uid.into(), list);
            state.remove(key).map(Change::Deleted).into_iter().collect()
        });
    }

    fn change(&self, change: impl FnOnce(&mut State) -> Vec<Change>) {
        let listeners = lock(&self.listeners);
        let changes = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            change(&mut state)
        };
        for change in &changes {
            for (_, handler) in &listeners.handlers {
                call(handler, change);
            }
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn apply(&mut self, header: Header, changes: &mut Vec<Change>) {
        if self.tombstones.contains_key(header.uid()) {
            return;
        }
        let list = self.list;
        if let Some(known) = self.objects.get(header.key()) {
            known.mark.store(list, Ordering::Relaxed);
            if known.header.uid() == header.uid() && !is_newer_version(&header, &known.header) {
                return;
            }
        }
        let old = self.remove(header.key());
        let new = Arc::new(Entry::new(header));
        new.mark.store(list, Ordering::Relaxed);
        self.insert(Arc::clone(&new));
        match old {
            // Another object took the name: the first one is gone, even if nobody told us.
            Some(old) if old.header.uid() != new.header.uid() => {
                changes.push(Change::Deleted(old));
                changes.push(Change::Applied { old: None, new });
            }
            old => changes.push(Change::Applied { old, new }),
        }
    }

    fn insert(&mut self, entry: Arc<Entry>) {
        self.bytes += entry.header.json().len();
        for owner in entry.header.owners() {
            let keys = self.owned.entry(owner.uid.into()).or_default();
            keys.insert(entry.header.key().clone());
        }
        for index in &mut self.indexes {
            index.add(&entry);
        }
        self.objects.insert(entry.header.key().clone(), entry);
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<Entry>> {
        let entry = self.objects.remove(key)?;
        self.bytes -= entry.header.json().len();
        for owner in entry.header.owners() {
            if let Some(keys) = self.owned.get_mut(owner.uid.as_str()) {
                keys.remove(key);
                if keys.is_empty() {
                    self.owned.remove(owner.uid.as_str());
                }
            }
        }
        for index in &mut self.indexes {
            index.remove(&entry);
        }
        Some(entry)
    }

    fn observe(&mut self, version: &str) {
        self.observed = self.observed.max(version.parse().ok());
    }

    fn resolve(&self, keys: Option<&BTreeSet<Key>>) -> Vec<Arc<Entry>> {
        keys.into_iter().flatten().filter_map(|key| self.objects.get(key).cloned()).collect()
    }
}

impl Index {
    fn add(&mut self, entry: &Entry) {
        for value in (self.extract)(entry) {
            let keys = self.keys.entry(value).or_default();
            keys.insert(entry.header.key().clone());
        }
    }

    fn remove(&mut self, entry: &Entry) {
        for value in (self.extract)(entry) {
            if let Some(keys) = self.keys.get_mut(&value) {
                keys.remove(entry.header.key());
                if keys.is_empty() {
                    self.keys.remove(&value);
                }
            }
        }
    }
}

fn is_newer(entry: &Entry, version: Option<u64>) -> bool {
    let own: Option<u64> = entry.header.resource_version().parse().ok();
    own.is_some() && version.is_some() && own > version
}

/// Versions are numbers on every server we know; one that is not is taken as it comes.
fn is_newer_version(new: &Header, known: &Header) -> bool {
    let versions: (Option<u64>, Option<u64>) =
        (new.resource_version().parse().ok(), known.resource_version().parse().ok());
    match versions {
        (Some(new), Some(known)) => new > known,
        _ => new.resource_version() != known.resource_version(),
    }
}

/// A mapper of the operator's author may panic; the cache must not die of it.
fn call(handler: &Handler, change: &Change) {
    if catch_unwind(AssertUnwindSafe(|| handler(change))).is_err() {
        tracing::error!("a function that maps watched objects to keys panicked; the change is lost");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
