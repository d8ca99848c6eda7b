//! Kinds that are followed only while someone holds on to them.

use std::sync::Arc;

use futures::Stream;
use kube::core::ApiResource;
use tokio_util::sync::DropGuard;

use super::header::Header;
use super::metadata::MetadataStream;
use super::store::KindStore;
use super::watch::WatchHealth;
use crate::key::Key;

/// A kind that is followed as long as someone holds this or a stream of its events.
///
/// Made by [`Cache::follow`](super::Cache::follow) at any time, also for kinds that are known
/// only at run time. All who follow the same objects of a kind share one watch.
#[derive(Clone)]
pub struct Followed(Arc<Source>);

/// A store that lives as long as someone listens to it.
pub(super) struct Source {
    pub(super) store: Arc<KindStore>,
    pub(super) health: Arc<WatchHealth>,
    /// Ends the watch that was started for this store alone.
    pub(super) _watch: Option<DropGuard>,
}

impl Followed {
    pub(super) fn new(source: Arc<Source>) -> Self {
        Self(source)
    }

    /// The kind.
    pub fn resource(&self) -> &ApiResource {
        &self.0.store.resource
    }

    /// What is there now.
    pub fn headers(&self) -> Headers {
        Headers(Some(Arc::clone(&self.0.store)))
    }

    /// What is there now and every change after that, without a gap.
    pub fn events(&self) -> MetadataStream {
        MetadataStream::new(Arc::clone(&self.0))
    }

    /// Keys of objects that came, changed or went, for
    /// [`Controller::triggered_by`](crate::Controller::triggered_by).
    pub fn keys(&self) -> impl Stream<Item = Key> + Send + use<> {
        use super::metadata::MetadataEvent;
        use futures::StreamExt;
        self.events().filter_map(|event| {
            std::future::ready(match event {
                MetadataEvent::Applied(header) | MetadataEvent::Deleted(header) => Some(header.key().clone()),
                MetadataEvent::Synced => None,
            })
        })
    }

    /// Waits until everything that was there at the beginning has arrived.
    pub async fn synced(&self) {
        self.0.store.wait_synced().await;
    }

    /// Whether everything that was there at the beginning has arrived.
    pub fn is_synced(&self) -> bool {
        self.0.store.is_synced()
    }

    /// What keeps the watch from going on, if something does.
    pub fn problem(&self) -> Option<String> {
        self.0.health.problem()
    }
}

impl std::fmt::Debug for Followed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Followed {} ({})", self.resource().plural, self.0.store.selection)
    }
}

/// The cached objects of one kind as bytes with their headers, ordered by namespace and name.
///
/// [`Header::json`] holds the whole object, or only its metadata if the kind is followed so.
#[derive(Clone)]
pub struct Headers(Option<Arc<KindStore>>);

impl Headers {
    pub(crate) fn new(store: Option<Arc<KindStore>>) -> Self {
        Self(store)
    }

    /// The object of this key.
    pub fn get(&self, key: &Key) -> Option<Header> {
        let entry = self.0.as_ref()?.get(key)?;
        Some(entry.header.clone())
    }

    /// All objects.
    pub fn list(&self) -> Vec<Header> {
        self.select(KindStore::all)
    }

    /// All objects of a namespace.
    pub fn list_in(&self, namespace: &str) -> Vec<Header> {
        self.select(|store| store.in_namespace(namespace))
    }

    /// The objects that name the owner of this uid in their owner references.
    pub fn owned_by(&self, uid: &str) -> Vec<Header> {
        self.select(|store| store.owned_by(uid))
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |store| store.size().0)
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn select(&self, select: impl FnOnce(&KindStore) -> Vec<Arc<super::Entry>>) -> Vec<Header> {
        let entries = self.0.as_deref().map(select).unwrap_or_default();
        entries.iter().map(|entry| entry.header.clone()).collect()
    }
}

impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Headers of {} objects", self.len())
    }
}
