//! Starts everything in the right order, and stops it in the reverse one.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::Admin;
use crate::cache::{Cache, Scope, SyncError};
use crate::clock::{Clock, system_clock};
use crate::controller::{Controller, Environment, Runs};
use crate::error::Error;
use crate::events::{self, Recorder};
use crate::jitter::Jitter;
use crate::lease::{Election, Fence, LeaseOptions, counted};
use crate::metrics::Metrics;
use crate::reconciler::Reconciler;

/// What a manager needs to know.
#[derive(Clone)]
pub struct Options {
    /// The operator's name: its field manager, and its name in logs. `steersman`.
    pub name: String,
    /// The lease to hold before anything is reconciled. None: every process reconciles.
    pub lease: Option<LeaseOptions>,
    /// Where to serve `/metrics`. Nowhere by default; port 0 picks a free one.
    pub metrics: Option<SocketAddr>,
    /// Where to serve `/healthz` and `/readyz`. Nowhere by default.
    pub health: Option<SocketAddr>,
    /// Which namespaces to look at. All.
    pub scope: Scope,
    /// How long running reconciles may take to finish at shutdown. 30 seconds.
    pub grace: Duration,
    /// How long the first lists may take before the start counts as failed. Two minutes.
    pub sync_timeout: Duration,
    /// Wall time. That of the machine.
    pub clock: Clock,
    /// Makes delays repeatable in tests. Random by default.
    pub seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "steersman".to_owned(),
            lease: None,
            metrics: None,
            health: None,
            scope: Scope::AllNamespaces,
            grace: Duration::from_secs(30),
            sync_timeout: Duration::from_secs(120),
            clock: system_clock(),
            seed: None,
        }
    }
}

impl Options {
    /// The defaults under an operator's name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("name", &self.name)
            .field("lease", &self.lease)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// Why a manager did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// Something was put together wrongly.
    #[error("{0}")]
    Invalid(String),
    /// An address for metrics or health is not to be had.
    #[error("cannot listen on {address}: {source}; choose another address, or port 0 for a free one")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// A kind could not be listed.
    #[error(transparent)]
    Sync(#[from] SyncError),
    /// Another process leads now; this one must end.
    #[error("leadership of lease {lease} was lost: {why}; the process must end and be started again")]
    LostLease {
        /// The lease.
        lease: String,
        /// What was seen.
        why: String,
    },
    /// A runnable failed.
    #[error("{name} failed: {message}")]
    Runnable {
        /// Its name.
        name: String,
        /// Its error.
        message: String,
    },
}

impl ManagerError {
    /// The exit code that a program should end with: 3 for a lost lease, 1 otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::LostLease { .. } => 3,
            _ => 1,
        }
    }
}

/// Where a manager answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Of `/metrics`.
    pub metrics: Option<SocketAddr>,
    /// Of `/healthz` and `/readyz`.
    pub health: Option<SocketAddr>,
}

type Task = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, Result<(), Error>> + Send>;
type Callback = Box<dyn FnMut() + Send>;

/// Carries controllers, their shared cache, the election and the endpoints.
///
/// Start: endpoints, caches, the first lists, the election, then controllers and runnables.
/// Stop: the reverse, with time for running reconciles to finish; the lease is handed back.
///
/// # Example
/// ```no_run
/// # use std::sync::Arc;
/// # use steersman::{Context, Controller, Error, Manager, Options, Outcome, Reconciler};
/// # struct Web;
/// # impl Reconciler for Web {
/// #     type Object = k8s_openapi::api::apps::v1::Deployment;
/// #     async fn reconcile(&self, _: Arc<Self::Object>, _: &Context) -> Result<Outcome, Error> { Ok(Outcome::Done) }
/// # }
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// use tokio_util::sync::CancellationToken;
///
/// let client = kube::Client::try_default().await?;
/// Manager::new(client, Options::named("web"))
///     .controller(Controller::new("web", Web))
///     .run(CancellationToken::new())
///     .await?;
/// # Ok(()) }
/// ```
pub struct Manager {
    options: Options,
    client: Client,
    guarded: Client,
    fence: Fence,
    cache: Cache,
    metrics: Metrics,
    jitter: Jitter,
    recorder: Recorder,
    sender: events::Sender,
    controllers: Vec<Box<dyn Runs>>,
    runnables: Vec<(String, Task)>,
    started_leading: Vec<Callback>,
    stopped_leading: Vec<Callback>,
    listeners: Option<Listeners>,
}

#[derive(Default)]
struct Listeners {
    endpoints: Endpoints,
    sockets: Vec<TcpListener>,
}

impl Manager {
    /// A manager without controllers. Must be called within a tokio runtime.
    pub fn new(client: Client, options: Options) -> Self {
        let metrics = Metrics::new();
        let jitter = options.seed.map_or_else(Jitter::random, Jitter::seeded);
        let client = counted(client, &metrics);
        let fence = match options.lease {
            Some(_) => Fence::closed(),
            None => Fence::absent(),
        };
        let guarded = fence.guard(&client);
        let cache = Cache::new(client.clone(), options.scope.clone(), metrics.clone(), jitter.clone());
        let (recorder, sender) = events::recorder(guarded.clone(), Arc::clone(&options.clock));
        Self {
            options,
            client,
            guarded,
            fence,
            cache,
            metrics,
            jitter,
            recorder,
            sender,
            controllers: Vec::new(),
            runnables: Vec::new(),
            started_leading: Vec::new(),
            stopped_leading: Vec::new(),
            listeners: None,
        }
    }

    /// Adds a controller.
    #[must_use]
    pub fn controller<R: Reconciler>(mut self, controller: Controller<R>) -> Self {
        self.controllers.push(Box::new(controller));
        self
    }

    /// Adds something else that runs while this process leads, until its token is cancelled.
    /// When it returns an error, the manager stops.
    #[must_use]
    pub fn runnable<F, T>(mut self, name: impl Into<String>, run: F) -> Self
    where
        F: FnOnce(CancellationToken) -> T + Send + 'static,
        T: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let task: Task = Box::new(move |stop| run(stop).boxed());
        self.runnables.push((name.into(), task));
        self
    }

    /// Calls a function each time this process begins to lead.
    #[must_use]
    pub fn on_started_leading(mut self, callback: impl FnMut() + Send + 'static) -> Self {
        self.started_leading.push(Box::new(callback));
        self
    }

    /// Calls a function when this process stops leading.
    #[must_use]
    pub fn on_stopped_leading(mut self, callback: impl FnMut() + Send + 'static) -> Self {
        self.stopped_leading.push(Box::new(callback));
        self
    }

    /// The cache that the controllers share.
    pub fn cache(&self) -> Cache {
        self.cache.clone()
    }

    /// A client whose writes are refused while this process does not lead.
    pub fn client(&self) -> Client {
        self.guarded.clone()
    }

    /// The metrics of this manager.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Records events about objects outside of reconciles.
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// Opens the addresses of metrics and health already now, to learn which ports they got.
    ///
    /// # Errors
    /// When an address is taken or not ours.
    pub async fn listen(&mut self) -> Result<Endpoints, ManagerError> {
        if let Some(listeners) = &self.listeners {
            return Ok(listeners.endpoints);
        }
        let mut listeners = Listeners::default();
        if let Some(address) = self.options.metrics {
            listeners.endpoints.metrics = Some(listeners.bind(address).await?);
        }
        if let Some(address) = self.options.health {
            listeners.endpoints.health = match self.options.metrics {
                Some(same) if same == address && address.port() != 0 => listeners.endpoints.metrics,
                _ => Some(listeners.bind(address).await?),
            };
        }
        let endpoints = listeners.endpoints;
        self.listeners = Some(listeners);
        Ok(endpoints)
    }

    /// Runs until `shutdown` is cancelled, or something makes going on impossible.
    ///
    /// # Errors
    /// When it cannot start, loses its lease, or a runnable fails.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), ManagerError> {
        self.check()?;
        self.listen().await?;
        let synced = Arc::new(AtomicBool::new(false));
        let listeners = self.listeners.take().unwrap_or_default();
        let admin = Admin { metrics: self.metrics.clone(), readiness: readiness(&self.cache, &synced) };
        let admin_stop = CancellationToken::new();
        let mut admin_tasks = JoinSet::new();
        for listener in listeners.sockets {
            admin_tasks.spawn(admin.clone().serve(listener, admin_stop.clone()));
        }
        let mut sender = JoinSet::new();
        sender.spawn(self.sender.run());
        let _cache_ends = self.cache.stop_on_drop();

        for controller in &self.controllers {
            controller.declare(&self.cache, &self.options.name);
        }
        self.cache.start();
        let election = self.options.lease.clone().map(|lease| {
            let metrics = self.metrics.election(&lease.name);
            Election::new(
                self.client.clone(),
                lease,
                Arc::clone(&self.options.clock),
                self.jitter.clone(),
                self.fence.clone(),
                metrics,
            )
        });
        let work = Work {
            environment: Environment {
                client: self.guarded,
                cache: self.cache.clone(),
                clock: Arc::clone(&self.options.clock),
                recorder: self.recorder,
                metrics: self.metrics,
                jitter: self.jitter,
                field_manager: self.options.name.clone(),
                stop: CancellationToken::new(),
                abort: CancellationToken::new(),
            },
            controllers: self.controllers,
            runnables: self.runnables,
            started_leading: self.started_leading,
            stopped_leading: self.stopped_leading,
            grace: self.options.grace,
        };
        let result = tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(()),
            result = self.cache.wait_synced(self.options.sync_timeout) => {
                result.map_err(ManagerError::from)
            }
        };
        let result = match result {
            Ok(()) if !shutdown.is_cancelled() => {
                synced.store(true, Ordering::Relaxed);
                work.run(election.as_ref(), &shutdown).await
            }
            other => other,
        };
        // Caches go after the controllers that read them, the endpoints last of all.
        self.cache.stop().await;
        finish(sender).await;
        admin_stop.cancel();
        while admin_tasks.join_next().await.is_some() {}
        result
    }

    fn check(&self) -> Result<(), ManagerError> {
        if self.options.name.is_empty() || self.options.name.len() > 128 {
            return Err(ManagerError::Invalid(
                "a manager needs a name of at most 128 characters: it is the field manager of what it applies".to_owned(),
            ));
        }
        if let Some(lease) = &self.options.lease {
            lease.check().map_err(ManagerError::Invalid)?;
        }
        let mut names = std::collections::HashSet::new();
        for controller in &self.controllers {
            controller.check().map_err(ManagerError::Invalid)?;
            if !names.insert(controller.name()) {
                return Err(ManagerError::Invalid(format!(
                    "two controllers are named {}; give one of them another name",
                    controller.name()
                )));
            }
        }
        Ok(())
    }
}

impl Listeners {
    async fn bind(&mut self, address: SocketAddr) -> Result<SocketAddr, ManagerError> {
        let failed = |source| ManagerError::Listen { address, source };
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        let bound = socket.local_addr().map_err(failed)?;
        self.sockets.push(socket);
        Ok(bound)
    }
}

/// What is done while leading.
struct Work {
    environment: Environment,
    controllers: Vec<Box<dyn Runs>>,
    runnables: Vec<(String, Task)>,
    started_leading: Vec<Callback>,
    stopped_leading: Vec<Callback>,
    grace: Duration,
}

impl Work {
    async fn run(
        mut self,
        election: Option<&Election>,
        shutdown: &CancellationToken,
    ) -> Result<(), ManagerError> {
        let mut lease = None;
        if let Some(election) = election {
            lease = tokio::select! {
                biased;
                () = shutdown.cancelled() => None,
                lease = election.acquire() => Some(lease),
            };
            if lease.is_none() {
                // The last attempt may have won without our learning of it.
                election.release().await;
                return Ok(());
            }
        }
        self.started_leading.iter_mut().for_each(|call| call());
        let mut held = std::pin::pin!(async {
            match (election, lease) {
                (Some(election), Some(lease)) => {
                    let why = election.hold(lease).await;
                    election.lost();
                    let lease = election.name();
                    ManagerError::LostLease { lease, why }
                }
                _ => std::future::pending().await,
            }
        });

        let Environment { stop, abort, .. } = self.environment.clone();
        let mut controllers = JoinSet::new();
        for controller in self.controllers {
            controllers.spawn(controller.run(self.environment.clone()));
        }
        let mut runnables = JoinSet::new();
        for (name, run) in self.runnables {
            let task = run(stop.child_token());
            runnables.spawn(async move { (name, task.await) });
        }
        drop(self.environment);

        let mut result = tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(()),
            lost = &mut held => Err(lost),
            failure = first_failure(&mut runnables) => Err(failure),
        };
        stop.cancel();
        // A deposed leader has no time: what it still does may collide with the next one.
        let lost = matches!(result, Err(ManagerError::LostLease { .. }));
        if !lost {
            // The lease is renewed until the last reconcile has ended.
            let drained = async {
                while controllers.join_next().await.is_some() {}
                while runnables.join_next().await.is_some() {}
            };
            tokio::select! {
                () = drained => {}
                lost = &mut held => result = Err(lost),
                () = tokio::time::sleep(self.grace) => {
                    tracing::warn!(grace = ?self.grace, "reconciles did not end in time and are cut off");
                }
            }
        }
        abort.cancel();
        while controllers.join_next().await.is_some() {}
        runnables.shutdown().await;
        if let Some(election) = election {
            match result {
                Err(ManagerError::LostLease { .. }) => {}
                _ => election.release().await,
            }
        }
        self.stopped_leading.iter_mut().for_each(|call| call());
        result
    }
}

/// Waits for a runnable to fail; those that end well are nobody's concern.
async fn first_failure(runnables: &mut JoinSet<(String, Result<(), Error>)>) -> ManagerError {
    loop {
        match runnables.join_next().await {
            Some(Ok((name, Err(error)))) => {
                let message = error.to_string();
                return ManagerError::Runnable { name, message };
            }
            Some(Ok((name, Ok(())))) => tracing::debug!(name, "runnable ended"),
            Some(Err(error)) => {
                return ManagerError::Runnable { name: "a runnable".to_owned(), message: error.to_string() };
            }
            None => std::future::pending().await,
        }
    }
}

/// Gives the last events a moment to be sent.
async fn finish(mut sender: JoinSet<()>) {
    const MOMENT: Duration = Duration::from_secs(2);
    if tokio::time::timeout(MOMENT, sender.join_next()).await.is_err() {
        sender.shutdown().await;
    }
}

fn readiness(cache: &Cache, synced: &Arc<AtomicBool>) -> crate::admin::Readiness {
    let (cache, synced) = (cache.clone(), Arc::clone(synced));
    Arc::new(move || {
        let mut missing = cache.problems();
        if !synced.load(Ordering::Relaxed) && missing.is_empty() {
            missing.push("starting".to_owned());
        }
        missing
    })
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.controllers.iter().map(|one| one.name()).collect();
        f.debug_struct("Manager")
            .field("options", &self.options)
            .field("controllers", &names)
            .finish_non_exhaustive()
    }
}
