//! What is on the server, kept here: per kind one list, one watch, one store of bytes.
//!
//! ```text
//!   server ──list, watch──▶ watch.rs ──Header::scan──▶ store.rs ──▶ listeners (queues)
//!                                                         ▲ │
//!                                          own writes ────┘ └──▶ View<K>: decoded when read
//! ```

mod follow;
mod header;
mod health;
mod lines;
mod metadata;
mod report;
mod selection;
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

use self::follow::Source;
pub use self::follow::{Followed, Headers};
pub use self::header::{Header, ScanError};
pub(crate) use self::health::WatchHealth;
pub use self::metadata::{MetadataEvent, MetadataStream};
pub use self::report::KindReport;
pub use self::selection::{Form, Selection};
pub(crate) use self::store::{Change, Entry, KindStore};
pub use self::view::View;
use self::watch::Watch;
pub(crate) use self::watch::collection_path;
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
    /// Which objects of a kind are cached, where it is not all of them.
    selections: HashMap<ResourceId, Selection>,
    whole: HashMap<ResourceId, Kind>,
    /// Kinds of which only metadata were declared.
    metadata: HashMap<ResourceId, Kind>,
    followed: HashMap<(ResourceId, String), Weak<Source>>,
}

#[derive(Clone)]
struct Kind {
    store: Arc<KindStore>,
    health: Arc<WatchHealth>,
    path: String,
}

impl Kind {
    fn new(resource: &ApiResource, selection: Selection) -> Self {
        Self {
            path: collection_path(resource, selection.namespace.as_deref()),
            store: Arc::new(KindStore::new(resource.clone(), selection)),
            health: Arc::default(),
        }
    }
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
        self.declare_as::<K>(Form::Whole);
    }

    /// Makes the metadata of a kind readable, if it is not cached whole anyway.
    pub(crate) fn declare_metadata<K: Object>(&self) {
        self.declare_as::<K>(Form::Metadata);
    }

    fn declare_as<K: Object>(&self, form: Form) {
        let resource = K::api_resource();
        let mut kinds = self.kinds();
        let known = kinds.whole.contains_key(&id(&resource))
            || form == Form::Metadata && kinds.metadata.contains_key(&id(&resource));
        if known {
            return;
        }
        let mut selection = kinds.selections.get(&id(&resource)).cloned().unwrap_or_default();
        selection.form = form;
        if let Scope::Namespace(namespace) = &self.0.scope
            && K::is_namespaced()
        {
            selection.namespace.get_or_insert_with(|| namespace.clone());
        }
        let kind = Kind::new(&resource, selection);
        if kinds.started {
            self.spawn(&kind, self.0.cancel.clone());
        }
        match form {
            Form::Whole => kinds.whole.insert(id(&resource), kind),
            Form::Metadata => kinds.metadata.insert(id(&resource), kind),
        };
    }

    /// Caches only some objects of a kind, once it is declared.
    pub(crate) fn select<K: Object>(&self, selection: Selection) {
        self.kinds().selections.insert(id(&K::api_resource()), selection);
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

    /// Follows some objects of a kind, from what is there now, as long as someone holds on to
    /// what this returns. The kind may be known only at run time.
    ///
    /// All who follow the same objects share one watch, also with controllers.
    pub fn follow(&self, resource: &ApiResource, selection: Selection) -> Followed {
        Followed::new(self.source(resource, selection))
    }

    /// Follows the metadata of all objects of a kind in all namespaces, from what is there now.
    ///
    /// Kinds may come and go while the manager runs: dropping the stream ends its watch. A kind
    /// that is already cached whole is not fetched a second time.
    pub fn watch_metadata(&self, resource: &ApiResource) -> MetadataStream {
        // Listening happens outside the lock: while a change is handed out, the functions that
        // get it read the cache, and so take the two locks in the other order.
        MetadataStream::new(self.source(resource, Selection::all().metadata_only()))
    }

    fn source(&self, resource: &ApiResource, selection: Selection) -> Arc<Source> {
        let whole = Selection { form: Form::Whole, ..selection.clone() }.to_string();
        let mut kinds = self.kinds();
        let declared =
            kinds.whole.get(&id(resource)).filter(|kind| kind.store.selection.to_string() == whole);
        if let Some(kind) = declared {
            let (store, health) = (Arc::clone(&kind.store), Arc::clone(&kind.health));
            return Arc::new(Source { store, health, _watch: None });
        }
        kinds.followed.retain(|_, source| source.strong_count() > 0);
        let name = (id(resource), selection.to_string());
        if let Some(source) = kinds.followed.get(&name).and_then(Weak::upgrade) {
            return source;
        }
        let cancel = self.0.cancel.child_token();
        let kind = Kind::new(resource, selection);
        self.spawn(&kind, cancel.clone());
        let Kind { store, health, .. } = kind;
        let source = Arc::new(Source { store, health, _watch: Some(cancel.drop_guard()) });
        kinds.followed.insert(name, Arc::downgrade(&source));
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

    /// The store of a kind for those who only look at metadata.
    pub(crate) fn metadata_store(&self, resource: &ApiResource) -> Option<Arc<KindStore>> {
        let kinds = self.kinds();
        let kind = kinds.whole.get(&id(resource)).or_else(|| kinds.metadata.get(&id(resource)))?;
        Some(Arc::clone(&kind.store))
    }

    /// Starts the watches of all declared kinds.
    pub(crate) fn start(&self) {
        let mut kinds = self.kinds();
        if !std::mem::replace(&mut kinds.started, true) {
            for kind in kinds.whole.values().chain(kinds.metadata.values()) {
                self.spawn(kind, self.0.cancel.clone());
            }
        }
    }

    /// Waits until every declared kind has been listed.
    ///
    /// # Errors
    /// Names a kind that was not listed in time, and why.
    pub(crate) async fn wait_synced(&self, patience: Duration) -> Result<(), SyncError> {
        let all = self.declared();
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

    /// Whether the kinds are filled and their watches go on, by the name of each.
    pub(crate) fn checks(&self) -> Vec<(String, Result<(), String>)> {
        let mut checks: Vec<_> = self
            .declared()
            .iter()
            .map(|kind| {
                let answer = match (kind.health.problem(), kind.store.is_synced()) {
                    (Some(problem), _) => Err(problem),
                    (None, false) => Err("not listed yet".to_owned()),
                    (None, true) => Ok(()),
                };
                (format!("cache-{}", kind.store.resource.plural), answer)
            })
            .collect();
        checks.sort();
        checks
    }

    /// A watch of which nothing was heard for much longer than it takes to notice that.
    pub(crate) fn stuck(&self) -> Option<String> {
        let stuck = self.declared().into_iter().find(|kind| {
            kind.store.is_synced() && kind.health.problem().is_none() && kind.health.age() > watch::STUCK
        })?;
        Some(format!("nothing was heard of {} for {:?}", stuck.store.resource.plural, stuck.health.age()))
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

    /// All kinds that controllers declared.
    fn declared(&self) -> Vec<Kind> {
        let kinds = self.kinds();
        kinds.whole.values().chain(kinds.metadata.values()).cloned().collect()
    }

    fn spawn(&self, kind: &Kind, cancel: CancellationToken) {
        self.0.metrics.add_kind(&kind.store);
        let watch = Watch {
            client: self.0.client.clone(),
            store: Arc::clone(&kind.store),
            path: kind.path.clone(),
            streams: true.into(),
            managers: Arc::clone(&self.0.managers),
            health: Arc::clone(&kind.health),
            metrics: self.0.metrics.watch(&kind.store.resource.kind, &kind.health),
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
