//! Starts everything in the right order, and stops it in the reverse one.

mod options;
mod work;

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

pub use self::options::{Endpoints, ManagerError, Options};
use self::work::Work;
use crate::admin::Admin;
use crate::cache::Cache;
use crate::controller::{Controller, Environment, Runs};
use crate::error::Error;
use crate::events::{self, Recorder};
use crate::jitter::Jitter;
use crate::lease::{Election, Fence, counted};
use crate::metrics::Metrics;
use crate::reconciler::Reconciler;

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
