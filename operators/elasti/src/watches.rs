//! Watches on targets, whatever their kind: one per target, shared by the ElastiServices about it, ended
//! with the last of them.

use crate::metrics::{ElastiMetrics, Watching};
use futures::StreamExt;
use kube::core::ApiResource;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use steersman::{Cache, Key, MetadataEvent, Selection};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::AbortHandle;

/// Keys that may wait to be reconciled; a watch that finds no room waits.
const WAITING: usize = 1024;

/// A target, by everything that tells it from others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TargetId {
    api_version: String,
    plural: String,
    namespace: String,
    name: String,
}

/// The watches that there are.
#[derive(Clone)]
pub(crate) struct Watches(Arc<Inner>);

struct Inner {
    cache: Cache,
    keys: Sender<Key>,
    metrics: ElastiMetrics,
    held: Mutex<BTreeMap<TargetId, Held>>,
}

/// A watch and who needs it.
struct Held {
    users: Arc<Mutex<BTreeSet<Key>>>,
    task: AbortHandle,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watches {
    /// None yet; and where the keys come out of ElastiServices whose targets changed.
    pub(crate) fn new(cache: Cache, metrics: ElastiMetrics) -> (Self, Receiver<Key>) {
        let (keys, changed) = channel(WAITING);
        (Self(Arc::new(Inner { cache, keys, metrics, held: Mutex::default() })), changed)
    }

    /// An ElastiService needs to hear of this target, and of no other any more.
    pub(crate) fn hold(&self, user: &Key, resource: &ApiResource, name: &str) {
        let namespace = user.namespace().unwrap_or_default().to_owned();
        let id = TargetId {
            api_version: resource.api_version.clone(),
            plural: resource.plural.clone(),
            namespace,
            name: name.to_owned(),
        };
        let mut held = self.lock();
        self.leave(&mut held, user, Some(&id));
        let known = held.get(&id).map(|watch| Arc::clone(&watch.users));
        match known {
            Some(users) => {
                lock(&users).insert(user.clone());
            }
            None => {
                let users = Arc::new(Mutex::new(BTreeSet::from([user.clone()])));
                let task = self.follow(resource, &id, Arc::clone(&users));
                held.insert(id, Held { users, task });
                self.0.metrics.watching(user, Watching::Started, held.len());
            }
        }
    }

    /// An ElastiService is gone.
    pub(crate) fn release(&self, user: &Key) {
        let mut held = self.lock();
        self.leave(&mut held, user, None);
    }

    fn leave(&self, held: &mut BTreeMap<TargetId, Held>, user: &Key, but: Option<&TargetId>) {
        let before = held.len();
        held.retain(|id, watch| {
            if Some(id) == but {
                return true;
            }
            let mut users = lock(&watch.users);
            users.remove(user);
            !users.is_empty()
        });
        if held.len() < before {
            self.0.metrics.watching(user, Watching::Stopped, held.len());
        }
    }

    fn follow(&self, resource: &ApiResource, id: &TargetId, users: Arc<Mutex<BTreeSet<Key>>>) -> AbortHandle {
        let selection = Selection::all()
            .in_namespace(&id.namespace)
            .with_fields(format!("metadata.name={}", id.name))
            .metadata_only();
        let followed = self.0.cache.follow(resource, selection);
        let (keys, metrics) = (self.0.keys.clone(), self.0.metrics.clone());
        let hearing = async move {
            let mut events = std::pin::pin!(followed.events());
            while let Some(event) = events.next().await {
                if matches!(event, MetadataEvent::Synced) {
                    continue;
                }
                let users = lock(&users).clone();
                for user in users {
                    metrics.heard(&user);
                    if keys.send(user).await.is_err() {
                        return;
                    }
                }
            }
        };
        // Ended with the last who needs it, and with the runtime.
        tokio::spawn(hearing).abort_handle()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TargetId, Held>> {
        lock(&self.0.held)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watches on {} targets", self.lock().len())
    }
}
