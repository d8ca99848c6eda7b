//! Reading one kind of the cache.

use std::marker::PhantomData;
use std::sync::Arc;

use super::header::Header;
use super::store::{Entry, KindStore};
use crate::key::Key;
use crate::object::Object;

/// The cached objects of one kind.
///
/// Reads never wait and never touch the network. They see every write that was made through
/// a [`Context`](crate::Context) of the same manager. Objects that do not fit the type are left
/// out with a warning.
pub struct View<K> {
    store: Option<Arc<KindStore>>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Object> View<K> {
    pub(crate) fn new(store: Option<Arc<KindStore>>) -> Self {
        Self { store, kind: PhantomData }
    }

    /// The object of this key.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.store.as_ref()?.get(key)?.typed()
    }

    /// What is known of the object of this key without decoding it.
    pub fn header(&self, key: &Key) -> Option<Header> {
        let entry = self.store.as_ref()?.get(key)?;
        Some(entry.header.clone())
    }

    /// All objects, ordered by namespace and name.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.decode(|store| store.all())
    }

    /// All objects of a namespace, ordered by name.
    pub fn list_in(&self, namespace: &str) -> Vec<Arc<K>> {
        self.decode(|store| store.in_namespace(namespace))
    }

    /// The objects that name the owner of this uid in their owner references.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<K>> {
        self.decode(|store| store.owned_by(uid))
    }

    /// The objects for which an index that was declared with
    /// [`Controller::index`](crate::Controller::index) has this value.
    pub fn by_index(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        self.decode(|store| store.by_index(index, value))
    }

    /// The objects of a namespace whose header fulfils a condition; others are not decoded.
    pub fn list_where(&self, namespace: &str, condition: impl Fn(&Header) -> bool) -> Vec<Arc<K>> {
        self.decode(|store| {
            let mut entries = store.in_namespace(namespace);
            entries.retain(|entry| condition(&entry.header));
            entries
        })
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.store.as_ref().map_or(0, |store| store.size().0)
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the first list has arrived.
    pub fn is_synced(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.is_synced())
    }

    fn decode(&self, select: impl FnOnce(&KindStore) -> Vec<Arc<Entry>>) -> Vec<Arc<K>> {
        let Some(store) = &self.store else {
            return Vec::new();
        };
        let entries = select(store);
        entries.iter().filter_map(|entry| entry.typed()).collect()
    }
}

impl<K> Clone for View<K> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), kind: PhantomData }
    }
}

impl<K: Object> std::fmt::Debug for View<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View of {} {}", self.len(), K::plural(&()))
    }
}
