//! A controller: a reconciler, what it watches, and how it runs.

mod run;
mod source;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};

pub(crate) use self::run::{Environment, Runs};
use self::source::Source;
use crate::cache::{Cache, Form, Header};
use crate::key::Key;
use crate::object::Object;
use crate::predicate::Predicate;
use crate::queue::BackOff;
use crate::reconciler::Reconciler;
use crate::rights::Writes;

/// Calls a [`Reconciler`] whenever something that concerns an object may have changed.
///
/// # Example
/// ```
/// # use std::sync::Arc;
/// # use steersman::{Context, Controller, Error, Outcome, Reconciler};
/// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::{ConfigMap, Node, Service}};
/// # struct Web;
/// # impl Reconciler for Web {
/// #     type Object = Deployment;
/// #     async fn reconcile(&self, _: Arc<Deployment>, _: &Context) -> Result<Outcome, Error> { Ok(Outcome::Done) }
/// # }
/// use std::time::Duration;
/// use steersman::Key;
///
/// let controller = Controller::new("web", Web)
///     .owns::<Service>()
///     .watches::<ConfigMap>(|config, _cache| vec![Key::of(config)])
///     .reads::<Node>()
///     .concurrency(4)
///     .resync(Duration::from_secs(600));
/// ```
pub struct Controller<R: Reconciler> {
    name: String,
    reconciler: Arc<R>,
    sources: Vec<Source>,
    triggers: Vec<BoxStream<'static, Key>>,
    settings: Settings,
}

/// How a controller runs.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) concurrency: usize,
    pub(crate) timeout: Duration,
    pub(crate) finalizer: Option<String>,
    pub(crate) resync: Option<Duration>,
    pub(crate) field_manager: Option<String>,
    pub(crate) back_off: BackOff,
    pub(crate) predicate: Option<Predicate>,
    pub(crate) leadership: Leadership,
    pub(crate) company: Company,
    pub(crate) writes: Writes,
    /// The only namespaces whose objects are reconciled; none named: all of them.
    pub(crate) namespaces: Vec<String>,
}

impl Settings {
    /// Whether an object of this key is looked after at all.
    pub(crate) fn concerns(&self, key: &Key) -> bool {
        let within = |namespace: &str| self.namespaces.iter().any(|one| one == namespace);
        self.namespaces.is_empty() || key.namespace().is_none_or(within)
    }
}

/// Whether a controller runs only in the process that holds the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leadership {
    Needed,
    NotNeeded,
}

/// Whether a controller expects another one for the same kind in its manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    Alone,
    Shared,
}

impl<R: Reconciler> Controller<R> {
    /// A controller with this name in logs, metrics and events.
    pub fn new(name: impl Into<String>, reconciler: R) -> Self {
        Self {
            name: name.into(),
            reconciler: Arc::new(reconciler),
            sources: Vec::new(),
            triggers: Vec::new(),
            settings: Settings {
                concurrency: 4,
                timeout: Duration::from_secs(120),
                finalizer: None,
                resync: None,
                field_manager: None,
                back_off: BackOff::default(),
                predicate: None,
                leadership: Leadership::Needed,
                company: Company::Alone,
                namespaces: Vec::new(),
                writes: Writes::Usual,
            },
        }
    }

    /// Reconciles an object when one that it owns (as its controller) comes, changes or goes.
    /// Makes the kind readable, and subject to [`Context::prune`](crate::Context::prune).
    #[must_use]
    pub fn owns<K: Object>(mut self) -> Self {
        self.sources.push(Source::owned::<R::Object, K>(Form::Whole, None));
        self
    }

    /// Like [`owns`](Self::owns), but changes of owned objects must pass a predicate.
    #[must_use]
    pub fn owns_when<K: Object>(mut self, predicate: Predicate) -> Self {
        self.sources.push(Source::owned::<R::Object, K>(Form::Whole, Some(predicate)));
        self
    }

    /// Like [`owns`](Self::owns), but only the metadata of owned objects are fetched and cached.
    /// They are read with [`Context::metadata`](crate::Context::metadata), and declaring one
    /// again is always sent, since nothing is known of its fields.
    #[must_use]
    pub fn owns_metadata<K: Object>(mut self) -> Self {
        self.sources.push(Source::owned::<R::Object, K>(Form::Metadata, None));
        self
    }

    /// Reconciles the keys that `map` finds for an object of another kind when that comes,
    /// changes (both states are asked) or goes. Makes the kind readable.
    #[must_use]
    pub fn watches<K: Object>(
        mut self,
        map: impl Fn(&K, &Cache) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        self.sources.push(Source::watched(None, map));
        self
    }

    /// Like [`watches`](Self::watches), but changes must pass a predicate.
    #[must_use]
    pub fn watches_when<K: Object>(
        mut self,
        predicate: Predicate,
        map: impl Fn(&K, &Cache) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        self.sources.push(Source::watched(Some(predicate), map));
        self
    }

    /// Like [`watches`](Self::watches), but only metadata are fetched and cached.
    #[must_use]
    pub fn watches_metadata<K: Object>(
        mut self,
        map: impl Fn(&Header, &Cache) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        self.sources.push(Source::watched_metadata::<K>(map));
        self
    }

    /// Reconciles the keys of a stream, whatever they come from: another process, a timer, or a
    /// kind that is followed at run time ([`Followed::keys`](crate::Followed::keys)).
    #[must_use]
    pub fn triggered_by(mut self, keys: impl Stream<Item = Key> + Send + 'static) -> Self {
        self.triggers.push(keys.boxed());
        self
    }

    /// Makes a kind readable; its changes cause nothing.
    #[must_use]
    pub fn reads<K: Object>(mut self) -> Self {
        self.sources.push(Source::read::<K>(Form::Whole));
        self
    }

    /// Makes the metadata of a kind readable; its changes cause nothing.
    #[must_use]
    pub fn reads_metadata<K: Object>(mut self) -> Self {
        self.sources.push(Source::read::<K>(Form::Metadata));
        self
    }

    /// Makes objects of a kind readable and findable by what `values` finds in them, through
    /// [`View::by_index`](crate::View::by_index).
    #[must_use]
    pub fn index<K: Object>(
        mut self,
        name: &'static str,
        values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.sources.push(Source::indexed(name, values));
        self
    }

    /// Which changes of the reconciled objects themselves matter. All of them by default.
    #[must_use]
    pub fn predicate(mut self, predicate: Predicate) -> Self {
        self.settings.predicate = Some(predicate);
        self
    }

    /// Leaves objects of all other namespaces alone: they are cached and can be read, but nothing
    /// of them is reconciled and no finalizer is put on them. None named: all are looked after.
    #[must_use]
    pub fn in_namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.settings.namespaces = namespaces.into_iter().map(Into::into).collect();
        self
    }

    /// How many keys are reconciled at the same time. Four by default.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.settings.concurrency = concurrency;
        self
    }

    /// After how long a reconcile is cut off and tried again. Two minutes by default.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Keeps objects from going before [`Reconciler::finalize`] is done. A name with a slash
    /// in it, such as `webapp.example.com/cleanup`.
    #[must_use]
    pub fn finalizer(mut self, finalizer: impl Into<String>) -> Self {
        self.settings.finalizer = Some(finalizer.into());
        self
    }

    /// Looks at every object again in this interval. Never by default: what changes is heard
    /// of.
    #[must_use]
    pub fn resync(mut self, interval: Duration) -> Self {
        self.settings.resync = Some(interval);
        self
    }

    /// The name under which fields are applied. That of the manager by default.
    #[must_use]
    pub fn field_manager(mut self, name: impl Into<String>) -> Self {
        self.settings.field_manager = Some(name.into());
        self
    }

    /// How long to wait after failures. One second, doubling up to five minutes, by default.
    #[must_use]
    pub fn back_off(mut self, back_off: BackOff) -> Self {
        self.settings.back_off = back_off;
        self
    }

    /// Runs in every process, whether it leads or not; for what only reads, or writes things of
    /// its own process. Its writes are not fenced.
    #[must_use]
    pub fn without_election(mut self) -> Self {
        self.settings.leadership = Leadership::NotNeeded;
        self
    }

    /// Allows another controller of the same manager to reconcile the same kind. Without this a
    /// second one is an error at the start, because two that write the same fields undo each
    /// other's work: see to it that they do not.
    #[must_use]
    pub fn shares_its_kind(mut self) -> Self {
        self.settings.company = Company::Shared;
        self
    }

    /// Says that it writes neither status nor events: no [right](crate::Manager::rights) to is asked for.
    #[must_use]
    pub fn only_looks(mut self) -> Self {
        self.settings.writes = Writes::Nothing;
        self
    }

    /// The name given at the beginning.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<R: Reconciler> fmt::Debug for Controller<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.name)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
