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
use crate::admin::{Admin, Face};
use crate::cache::{Cache, Form, Selection};
use crate::checks::Checks;
use crate::controller::{Company, Controller, Environment, Leadership, Runs};
use crate::error::Error;
use crate::events::{self, Recorder};
use crate::jitter::Jitter;
use crate::lease::{Election, Fence, counted};
use crate::metrics::Metrics;
use crate::object::Object;
use crate::recent::Recent;
use crate::reconciler::Reconciler;
use crate::rights::{self, Rights, Rule};
use crate::webhook::{Certificates, Keeper, Reach, Serving, Webhooks};

type Task = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, Result<(), Error>> + Send>;
type Callback = Box<dyn FnMut() + Send>;

/// Carries controllers, their shared cache, the election and the endpoints.
///
/// Start: endpoints, webhooks, caches, the first lists, the election, then controllers and runnables.
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
    live: Checks,
    ready: Checks,
    recent: Recent,
    webhooks: Option<Webhooks>,
    needs: Vec<Rule>,
    listeners: Option<Listeners>,
}

#[derive(Default)]
struct Listeners {
    endpoints: Endpoints,
    metrics: Option<TcpListener>,
    health: Option<TcpListener>,
    webhooks: Option<TcpListener>,
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
            live: Checks::default(),
            ready: Checks::default(),
            recent: Recent::default(),
            webhooks: None,
            needs: Vec::new(),
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

    /// Serves webhooks, whether this process leads or not.
    #[must_use]
    pub fn webhooks(mut self, webhooks: Webhooks) -> Self {
        self.webhooks = Some(webhooks);
        self
    }

    /// Says that the operator asks more of the API server than its controllers tell.
    #[must_use]
    pub fn needs(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.needs.extend(rules);
        self
    }

    /// Everything that the operator must be allowed to do: what its controllers read, own and report, the
    /// lease, the webhooks, and what was said with [`needs`](Self::needs).
    pub fn rights(&self) -> Rights {
        let mut all = Rights::default();
        for controller in &self.controllers {
            all.extend(controller.rights());
        }
        all.extend(self.needs.iter().cloned());
        if let Some(lease) = &self.options.lease {
            all.extend(rights::election(&lease.name));
        }
        if let Some(webhooks) = &self.webhooks {
            let options = &webhooks.options;
            if !matches!(options.reach, Reach::Unmanaged { .. }) {
                all.add(rights::webhook_configurations(&self.options.name));
                all.extend(webhooks.converters.iter().map(|found| rights::conversion(&found.resource())));
            }
            if let Certificates::Secret { name, .. } = &options.certificates {
                all.extend(rights::webhook_certificate(name));
            }
        }
        all
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

    /// Adds a check to `/healthz`, under its name also at `/healthz/<name>`: as long as it
    /// returns an error, the process counts as broken and wants to be started again.
    #[must_use]
    pub fn health_check(
        mut self,
        name: &str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.live.add(name, Arc::new(check));
        self
    }

    /// Adds a check to `/readyz`, under its name also at `/readyz/<name>`: as long as it returns
    /// an error, the process counts as not ready to be used.
    #[must_use]
    pub fn ready_check(
        mut self,
        name: &str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.ready.add(name, Arc::new(check));
        self
    }

    /// Caches only some objects of a kind, for all controllers. Others are never seen, not even
    /// those that were written here.
    #[must_use]
    pub fn select<K: Object>(self, selection: Selection) -> Self {
        self.cache.select::<K>(selection);
        self
    }

    /// The last reconciles of all controllers.
    pub fn recent(&self) -> Recent {
        self.recent.clone()
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

    /// Opens the addresses of metrics, health and webhooks already now, to learn which ports they got.
    ///
    /// # Errors
    /// When an address is taken or not ours.
    pub async fn listen(&mut self) -> Result<Endpoints, ManagerError> {
        if let Some(listeners) = &self.listeners {
            return Ok(listeners.endpoints);
        }
        let mut listeners = Listeners::default();
        if let Some(address) = self.options.metrics {
            let (socket, bound) = bind(address).await?;
            listeners.endpoints.metrics = Some(bound);
            listeners.metrics = Some(socket);
        }
        if let Some(address) = self.options.health {
            if self.options.metrics == Some(address) && address.port() != 0 {
                listeners.endpoints.health = listeners.endpoints.metrics;
            } else {
                let (socket, bound) = bind(address).await?;
                listeners.endpoints.health = Some(bound);
                listeners.health = Some(socket);
            }
        }
        if let Some(webhooks) = &self.webhooks {
            let socket = Keeper::listen(webhooks).await?;
            listeners.endpoints.webhooks = socket.local_addr().ok();
            listeners.webhooks = Some(socket);
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
        let mut listeners = self.listeners.take().unwrap_or_default();
        let admin = Admin {
            metrics: self.metrics.clone(),
            live: liveness(self.live, &self.cache),
            ready: readiness(self.ready, &self.cache, &synced),
            cache: self.cache.clone(),
            recent: self.recent.clone(),
        };
        let serving = |stop: &CancellationToken| Serving {
            name: self.options.name.clone(),
            client: self.client.clone(),
            clock: Arc::clone(&self.options.clock),
            metrics: self.metrics.clone(),
            stop: stop.clone(),
        };
        let admin_stop = CancellationToken::new();
        let mut admin_tasks = JoinSet::new();
        let health_face = match self.options.secure_metrics {
            Some(_) => Face::Health,
            None => Face::Open,
        };
        if let Some(listener) = listeners.health.take() {
            admin_tasks.spawn(admin.clone().serve(listener, health_face, admin_stop.clone()));
        }
        if let Some(listener) = listeners.metrics.take() {
            let face = match (&self.options.secure_metrics, listeners.endpoints.metrics) {
                (Some(secure), Some(bound)) => {
                    let face = Box::pin(Face::guarded(secure, bound, serving(&admin_stop), &mut admin_tasks));
                    tokio::select! {
                        biased;
                        () = shutdown.cancelled() => return Ok(()),
                        face = face => face.map_err(ManagerError::Metrics)?,
                    }
                }
                _ => Face::Open,
            };
            admin_tasks.spawn(admin.serve(listener, face, admin_stop.clone()));
        }
        let webhooks_stop = CancellationToken::new();
        let mut webhook_tasks = JoinSet::new();
        // Before any cache: an API server that asks a webhook about what it lists would wait for us.
        if let (Some(webhooks), Some(listener)) = (self.webhooks.take(), listeners.webhooks.take()) {
            let serving = serving(&webhooks_stop);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Ok(()),
                started = Keeper::start(webhooks, listener, serving, &mut webhook_tasks) => started?,
            }
        }
        let mut sender = JoinSet::new();
        sender.spawn(self.sender.run());
        let _cache_ends = self.cache.stop_on_drop();

        // What one controller needs whole, the others need not fetch a second time.
        for form in [Form::Whole, Form::Metadata] {
            for controller in &self.controllers {
                controller.declare(&self.cache, &self.options.name, form);
            }
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
        let environment = Environment {
            client: self.guarded,
            cache: self.cache.clone(),
            clock: Arc::clone(&self.options.clock),
            recorder: self.recorder,
            metrics: self.metrics,
            jitter: self.jitter,
            field_manager: self.options.name.clone(),
            recent: self.recent,
            stop: CancellationToken::new(),
            abort: CancellationToken::new(),
        };
        let (controllers, always): (Vec<_>, Vec<_>) = self
            .controllers
            .into_iter()
            .partition(|controller| controller.leadership() == Leadership::Needed);
        let mut unfenced = None;
        if !always.is_empty() {
            let (recorder, unfenced_sender) =
                events::recorder(self.client.clone(), Arc::clone(&self.options.clock));
            sender.spawn(unfenced_sender.run());
            unfenced = Some(Environment {
                client: self.client,
                recorder,
                stop: CancellationToken::new(),
                abort: CancellationToken::new(),
                ..environment.clone()
            });
        }
        let work = Work {
            environment,
            controllers,
            always: unfenced.map(|environment| (environment, always)),
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
                Box::pin(work.run(election.as_ref(), &shutdown)).await
            }
            other => other,
        };
        // Caches go after the controllers that read them, webhooks after those, the endpoints last of all.
        self.cache.stop().await;
        finish(sender).await;
        webhooks_stop.cancel();
        while webhook_tasks.join_next().await.is_some() {}
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
        let shared = self.options.metrics.filter(|address| address.port() != 0);
        if self.options.secure_metrics.is_some() && shared.is_some() && shared == self.options.health {
            return Err(ManagerError::Invalid(
                "secured metrics need an address of their own: probes of health send no tokens".to_owned(),
            ));
        }
        if let Some(webhooks) = &self.webhooks {
            webhooks.check().map_err(ManagerError::Invalid)?;
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
        self.check_kinds()
    }

    /// One kind, one controller: two would undo each other's work.
    fn check_kinds(&self) -> Result<(), ManagerError> {
        let mut known = std::collections::HashMap::new();
        for controller in &self.controllers {
            let (resource, company) = controller.kind();
            let other = known.insert((resource.group, resource.kind.clone()), (controller.name(), company));
            if let Some((other, their_company)) = other
                && company == Company::Alone
                && their_company == Company::Alone
            {
                return Err(ManagerError::Invalid(format!(
                    "controllers {other} and {} both reconcile {}; make them one, or say with shares_its_kind() that they write different fields",
                    controller.name(),
                    resource.kind
                )));
            }
        }
        Ok(())
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ManagerError> {
    let failed = |source| ManagerError::Listen { address, source };
    let socket = TcpListener::bind(address).await.map_err(failed)?;
    let bound = socket.local_addr().map_err(failed)?;
    Ok((socket, bound))
}

/// Gives the last events a moment to be sent.
async fn finish(mut sender: JoinSet<()>) {
    const MOMENT: Duration = Duration::from_secs(2);
    let sent = async { while sender.join_next().await.is_some() {} };
    if tokio::time::timeout(MOMENT, sent).await.is_err() {
        sender.shutdown().await;
    }
}

/// The process is well, unless a watch is neither heard of nor said to fail: then its loop is
/// stuck, and only a new start helps.
fn liveness(mut checks: Checks, cache: &Cache) -> Checks {
    checks.add("ping", Arc::new(|| Ok(())));
    let cache = cache.clone();
    checks.add("watches", Arc::new(move || cache.stuck().map_or(Ok(()), Err)));
    checks
}

fn readiness(mut checks: Checks, cache: &Cache, synced: &Arc<AtomicBool>) -> Checks {
    let (cache, synced) = (cache.clone(), Arc::clone(synced));
    let started = move || match synced.load(Ordering::Relaxed) {
        true => Ok(()),
        false => Err("the first lists are under way".to_owned()),
    };
    checks.add("started", Arc::new(started));
    checks.add_list(Arc::new(move || cache.checks()));
    checks
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
