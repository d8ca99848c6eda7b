//! What is on the server, kept here: per kind one list, one watch, one store of bytes.
//!
//! ```text
//!   server ──list, watch──▶ watch.rs ──Header::scan──▶ store.rs ──▶ listeners (queues)
//!                                                         ▲ │
//!                                          own writes ────┘ └──▶ View<K>: decoded when read
//! ```

mod header;
mod lines;
mod metadata;
mod store;
mod view;
mod watch;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use kube::Client;
use kube::core::ApiResource;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub use self::header::{Header, ScanError};
use self::metadata::MetadataSource;
pub use self::metadata::{MetadataEvent, MetadataStream};
pub(crate) use self::store::{Change, Entry, KindStore};
pub use self::view::View;
pub(crate) use self::watch::collection_path;
use self::watch::{Form, Watch, WatchHealth};
use crate::jitter::Jitter;
use crate::metrics::Metrics;
use crate::object::Object;

/// Which namespaces are looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    #[default]
    AllNamespaces,
    /// Only this one; kinds without namespaces are still seen whole.
    Namespace(String),
}

/// The caches of all kinds that the controllers of a manager declared.
///
/// Cheap to clone. A kind is fetched only after someone declared it; see
/// [`Controller::reads`](crate::Controller::reads).
#[derive(Clone)]
pub struct Cache(Arc<Inner>);

struct Inner {
    client: Client,
    scope: Scope,
    managers: Arc<RwLock<BTreeSet<String>>>,
    kinds: Mutex<Kinds>,
    tasks: TaskTracker,
    cancel: CancellationToken,
    metrics: Metrics,
    jitter: Jitter,
}

/// Watches hold stores, never the cache: they end with its last handle.
impl Drop for Inner {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

#[derive(Default)]
struct Kinds {
    started: bool,
    whole: HashMap<ResourceId, Kind>,
    metadata: HashMap<ResourceId, Weak<MetadataSource>>,
}

#[derive(Clone)]
struct Kind {
    store: Arc<KindStore>,
    health: Arc<WatchHealth>,
    path: String,
}

type ResourceId = (String, String, String);

fn id(resource: &ApiResource) -> ResourceId {
    (resource.group.clone(), resource.version.clone(), resource.plural.clone())
}

/// A kind whose first list did not arrive in time.
#[derive(Debug, thiserror::Error)]
#[error(
    "the cache of {kind} ({path}) was not filled within {waited:?}: {problem}; check that the kind is installed and that its list and watch are allowed"
)]
pub struct SyncError {
    /// The kind that is missing.
    pub kind: String,
    /// Where it was asked for.
    pub path: String,
    /// How long it was waited for.
    pub waited: Duration,
    /// The last error of its watch.
    pub problem: String,
}

impl Cache {
    pub(crate) fn new(client: Client, scope: Scope, metrics: Metrics, jitter: Jitter) -> Self {
        Self(Arc::new(Inner {
            client,
            scope,
            managers: Arc::default(),
            kinds: Mutex::default(),
            tasks: TaskTracker::new(),
            cancel: CancellationToken::new(),
            metrics,
            jitter,
        }))
    }

    /// The cached objects of a kind; empty for a kind that nobody declared.
    pub fn view<K: Object>(&self) -> View<K> {
        View::new(self.store(&K::api_resource()))
    }

    /// Makes a kind readable. Before the manager runs this only notes it; afterwards its watch
    /// starts at once.
    pub fn declare<K: Object>(&self) {
        let namespace = match &self.0.scope {
            Scope::Namespace(namespace) if K::is_namespaced() => Some(namespace.as_str()),
            _ => None,
        };
        let resource = K::api_resource();
        let mut kinds = self.kinds();
        if kinds.whole.contains_key(&id(&resource)) {
            return;
        }
        let kind = Kind {
            path: collection_path(&resource, namespace),
            store: Arc::new(KindStore::new(resource.clone(), namespace.map(str::to_owned))),
            health: Arc::default(),
        };
        self.0.metrics.add_kind(Arc::clone(&kind.store));
        if kinds.started {
            self.spawn(&kind, Form::Whole, self.0.cancel.clone());
        }
        kinds.whole.insert(id(&resource), kind);
    }

    /// Adds an index over a declared kind.
    pub(crate) fn index<K: Object>(
        &self,
        name: &'static str,
        values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) {
        if let Some(store) = self.store(&K::api_resource()) {
            let extract = move |entry: &Entry| {
                let object = entry.typed::<K>();
                object.map_or_else(Vec::new, |object| values(&object))
            };
            store.index(name, Box::new(extract));
        }
    }

    /// Follows the metadata of all objects of a kind in all namespaces, from what is there now.
    ///
    /// Kinds may come and go while the manager runs: dropping the stream ends its watch. A kind
    /// that is already cached whole is not fetched a second time.
    pub fn watch_metadata(&self, resource: &ApiResource) -> MetadataStream {
        // Listening happens outside the lock: while a change is handed out, the functions that
        // get it read the cache, and so take the two locks in the other order.
        MetadataStream::new(self.metadata_source(resource))
    }

    fn metadata_source(&self, resource: &ApiResource) -> Arc<MetadataSource> {
        let mut kinds = self.kinds();
        if self.0.scope == Scope::AllNamespaces
            && let Some(kind) = kinds.whole.get(&id(resource))
        {
            return Arc::new(MetadataSource { store: Arc::clone(&kind.store), _watch: None });
        }
        kinds.metadata.retain(|_, source| source.strong_count() > 0);
        if let Some(source) = kinds.metadata.get(&id(resource)).and_then(Weak::upgrade) {
            return source;
        }
        let cancel = self.0.cancel.child_token();
        let kind = Kind {
            path: collection_path(resource, None),
            store: Arc::new(KindStore::new(resource.clone(), None)),
            health: Arc::default(),
        };
        self.spawn(&kind, Form::Metadata, cancel.clone());
        let source = Arc::new(MetadataSource { store: kind.store, _watch: Some(cancel.drop_guard()) });
        kinds.metadata.insert(id(resource), Arc::downgrade(&source));
        source
    }

    /// Keeps the managed fields of this field manager, which apply needs to see that nothing
    /// changed.
    pub(crate) fn keep_manager(&self, manager: &str) {
        self.0.managers.write().unwrap_or_else(PoisonError::into_inner).insert(manager.to_owned());
    }

    /// Reads an object's bytes the way the watch does.
    pub(crate) fn scan(&self, bytes: &[u8], resource: &ApiResource) -> Result<Header, ScanError> {
        let managers = self.0.managers.read().unwrap_or_else(PoisonError::into_inner);
        Header::scan(bytes, resource, &managers)
    }

    pub(crate) fn store(&self, resource: &ApiResource) -> Option<Arc<KindStore>> {
        let kinds = self.kinds();
        let kind = kinds.whole.get(&id(resource))?;
        Some(Arc::clone(&kind.store))
    }

    /// Starts the watches of all declared kinds.
    pub(crate) fn start(&self) {
        let mut kinds = self.kinds();
        if !std::mem::replace(&mut kinds.started, true) {
            for kind in kinds.whole.values() {
                self.spawn(kind, Form::Whole, self.0.cancel.clone());
            }
        }
    }

    /// Waits until every declared kind has been listed.
    ///
    /// # Errors
    /// Names a kind that was not listed in time, and why.
    pub(crate) async fn wait_synced(&self, patience: Duration) -> Result<(), SyncError> {
        let all: Vec<Kind> = self.kinds().whole.values().cloned().collect();
        let deadline = tokio::time::Instant::now() + patience;
        for kind in all {
            let synced = tokio::time::timeout_at(deadline, kind.store.wait_synced()).await;
            if synced.is_err() {
                let problem = kind.health.problem();
                return Err(SyncError {
                    kind: kind.store.resource.kind.clone(),
                    path: kind.path.clone(),
                    waited: patience,
                    problem: problem.unwrap_or_else(|| "the server has not answered".to_owned()),
                });
            }
        }
        Ok(())
    }

    /// Kinds that are not filled or whose watch fails, with the reason.
    pub(crate) fn problems(&self) -> Vec<String> {
        let kinds = self.kinds();
        let mut problems: Vec<String> = kinds
            .whole
            .values()
            .filter_map(|kind| match (kind.health.problem(), kind.store.is_synced()) {
                (Some(problem), _) => Some(format!("{}: {problem}", kind.store.resource.kind)),
                (None, false) => Some(format!("{}: not listed yet", kind.store.resource.kind)),
                (None, true) => None,
            })
            .collect();
        problems.sort();
        problems
    }

    /// Ends all watches when dropped, for a manager that is cut off instead of stopped.
    pub(crate) fn stop_on_drop(&self) -> DropGuard {
        self.0.cancel.clone().drop_guard()
    }

    /// Ends all watches and waits for them.
    pub(crate) async fn stop(&self) {
        self.0.cancel.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    fn spawn(&self, kind: &Kind, form: Form, cancel: CancellationToken) {
        let watch = Watch {
            client: self.0.client.clone(),
            store: Arc::clone(&kind.store),
            path: kind.path.clone(),
            form,
            managers: Arc::clone(&self.0.managers),
            health: Arc::clone(&kind.health),
            metrics: self.0.metrics.watch(&kind.store.resource.kind),
            jitter: self.0.jitter.clone(),
        };
        self.0.tasks.spawn(watch.run(cancel));
    }

    fn kinds(&self) -> MutexGuard<'_, Kinds> {
        self.0.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.kinds();
        let names: BTreeSet<&str> =
            kinds.whole.values().map(|kind| kind.store.resource.kind.as_str()).collect();
        f.debug_tuple("Cache").field(&names).finish()
    }
}
