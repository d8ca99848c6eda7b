//! The life of a controller: keys come in, workers reconcile them.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use kube::Client;
use kube::core::ApiResource;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::source::{Role, Source, Subscription};
use super::{Company, Controller, Leadership, Settings};
use crate::cache::{Cache, Entry, Form, KindStore};
use crate::clock::Clock;
use crate::context::{Context, Shared};
use crate::error::Error;
use crate::events::{EventType, Recorder, Subject};
use crate::jitter::Jitter;
use crate::metrics::{ControllerMetrics, Metrics};
use crate::object::Object;
use crate::queue::{Item, Next, Priority, Queue, Retry};
use crate::reason::Reason;
use crate::recent::{Recent, Reconciled, Writes};
use crate::reconciler::{Finalized, Outcome, Reconciler};
use crate::rights::{self, Rule};

/// What a manager gives to its controllers.
#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) client: Client,
    pub(crate) cache: Cache,
    pub(crate) clock: Clock,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) jitter: Jitter,
    pub(crate) field_manager: String,
    pub(crate) recent: Recent,
    /// No further reconcile begins.
    pub(crate) stop: CancellationToken,
    /// Those that run are cut off.
    pub(crate) abort: CancellationToken,
}

/// A controller whose type does not matter any more.
pub(crate) trait Runs: Send {
    fn name(&self) -> &str;
    /// Says what is wrong with the settings, if anything.
    fn check(&self) -> Result<(), String>;
    /// Names the kinds that are needed in a form.
    fn declare(&self, cache: &Cache, field_manager: &str, form: Form);
    /// The kind that it reconciles, and whether another one may as well.
    fn kind(&self) -> (ApiResource, Company);
    /// What it must be allowed to do.
    fn rights(&self) -> Vec<Rule>;
    /// Whether it runs only while leading.
    fn leadership(&self) -> Leadership;
    /// Runs until stopped.
    fn run(self: Box<Self>, environment: Environment) -> BoxFuture<'static, ()>;
}

impl<R: Reconciler> Runs for Controller<R> {
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) -> Result<(), String> {
        if self.name.is_empty() {
            return Err("a controller needs a name".to_owned());
        }
        if self.settings.concurrency == 0 {
            return Err(format!("controller {}: a concurrency of 0 would never do anything", self.name));
        }
        match &self.settings.finalizer {
            Some(finalizer) if !finalizer.contains('/') => Err(format!(
                "controller {}: the finalizer {finalizer} needs a domain and a slash, such as {}.example.com/cleanup",
                self.name, self.name
            )),
            _ => Ok(()),
        }
    }

    fn declare(&self, cache: &Cache, field_manager: &str, form: Form) {
        cache.keep_manager(self.settings.field_manager.as_deref().unwrap_or(field_manager));
        if form == Form::Whole {
            cache.declare::<R::Object>();
        }
        for source in self.sources.iter().filter(|source| source.form == form) {
            source.declare(cache);
        }
    }

    fn kind(&self) -> (ApiResource, Company) {
        (R::Object::api_resource(), self.settings.company)
    }

    fn rights(&self) -> Vec<Rule> {
        let kind = R::Object::api_resource();
        let mut rules = rights::primary(&kind, self.settings.writes, self.settings.finalizer.as_deref());
        for source in &self.sources {
            match source.role {
                Role::Owned => rules.extend(rights::owned(&kind, &source.resource)),
                Role::Primary | Role::Watched | Role::Read => rules.push(rights::look(&source.resource)),
            }
        }
        rules
    }

    fn leadership(&self) -> Leadership {
        self.settings.leadership
    }

    fn run(self: Box<Self>, environment: Environment) -> BoxFuture<'static, ()> {
        Box::pin(run(*self, environment))
    }
}

async fn run<R: Reconciler>(controller: Controller<R>, environment: Environment) {
    let Controller { name, reconciler, mut sources, triggers, settings } = controller;
    let cache = &environment.cache;
    sources.insert(0, Source::primary::<R::Object>(settings.predicate.clone()));
    let Some(store) = cache.store(&R::Object::api_resource()) else {
        return;
    };
    let metrics = environment.metrics.controller(&name);
    metrics.max_concurrent.set(i64::try_from(settings.concurrency).unwrap_or(i64::MAX));
    let shared = Shared {
        field_manager: settings.field_manager.clone().unwrap_or_else(|| environment.field_manager.clone()),
        controller: name.clone(),
        client: environment.client.clone(),
        cache: cache.clone(),
        clock: Arc::clone(&environment.clock),
        recorder: environment.recorder.clone(),
        metrics: metrics.clone(),
        primary: R::Object::api_resource(),
        readable: kinds_of(sources.iter().filter(|source| source.form == Form::Whole)),
        listed: kinds_of(sources.iter()),
        owned: sources
            .iter()
            .filter(|source| source.role == Role::Owned)
            .map(|source| source.resource.clone())
            .collect(),
    };
    let queue =
        Arc::new(Queue::new(settings.back_off, environment.jitter.clone(), environment.metrics.queue(&name)));
    environment.metrics.add_queue(&name, Arc::clone(&queue));

    let worker = Arc::new(Worker {
        reconciler,
        settings,
        shared: Arc::new(shared),
        resource: Arc::new(R::Object::api_resource()),
        store,
        metrics,
        recent: environment.recent.clone(),
        jitter: environment.jitter.clone(),
    });
    let mut tasks = JoinSet::new();
    for _ in 0..worker.settings.concurrency {
        tasks.spawn(Arc::clone(&worker).work(Arc::clone(&queue)));
    }
    let subscriptions: Vec<Subscription> =
        sources.into_iter().filter_map(|source| source.subscribe(cache, &queue)).collect();
    let mut triggers = futures::stream::select_all(triggers);
    let triggered = async {
        while let Some(key) = triggers.next().await {
            queue.add(key, Priority::Interactive, Reason::Manual);
        }
        std::future::pending::<()>().await;
    };
    tracing::info!(controller = name, "started");

    tokio::select! {
        () = environment.stop.cancelled() => {}
        () = worker.resync(&queue, &environment.jitter) => {}
        () = triggered => {}
    }
    drop(subscriptions);
    queue.close();
    let drained = async { while tasks.join_next().await.is_some() {} };
    tokio::select! {
        () = drained => {}
        () = environment.abort.cancelled() => {}
    }
    tasks.shutdown().await;
    tracing::info!(controller = name, "stopped");
}

struct Worker<R: Reconciler> {
    reconciler: Arc<R>,
    settings: Settings,
    shared: Arc<Shared>,
    resource: Arc<kube::core::ApiResource>,
    store: Arc<KindStore>,
    metrics: ControllerMetrics,
    recent: Recent,
    jitter: Jitter,
}

impl<R: Reconciler> Worker<R> {
    async fn work(self: Arc<Self>, queue: Arc<Queue>) {
        while let Some(item) = queue.pop().await {
            let next = self.attempt(&item).await;
            queue.done(item, next);
        }
    }

    /// Puts all keys in again and again; never ends.
    async fn resync(&self, queue: &Queue, jitter: &Jitter) {
        let Some(interval) = self.settings.resync else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(jitter.spread(interval, 0.1)).await;
            for entry in self.store.all() {
                let key = entry.header.key().clone();
                queue.add(key, Priority::Resync, Reason::Resync);
            }
        }
    }

    /// One reconcile: whatever happens in it, the worker goes on.
    async fn attempt(&self, item: &Item) -> Next {
        let (began, at) = (Instant::now(), (self.shared.clock)());
        self.metrics.active.inc();
        self.metrics.reasons(&item.reasons);
        let id = format!("{:016x}", self.jitter.number());
        let span = tracing::info_span!(
            "reconcile", controller = %self.shared.controller, key = %item.key, id, reasons = %item.reasons
        );
        let writes = Writes::default();
        let reconcile = AssertUnwindSafe(self.reconcile(item, &writes)).catch_unwind();
        let timeout = self.settings.timeout;
        let result = match tokio::time::timeout(timeout, reconcile).instrument(span.clone()).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => {
                self.metrics.panics.inc();
                Err(Error::msg(format!("the reconciler panicked: {}", said(&*panic))))
            }
            Err(_) => {
                self.metrics.timeouts.inc();
                Err(Error::msg(format!("the reconcile took longer than {timeout:?} and was cut off")))
            }
        };
        let _entered = span.enter();
        self.metrics.active.dec();
        let took = began.elapsed();
        self.metrics.seconds.observe(took.as_secs_f64());
        let (next, result, message) = self.settle(item, result);
        tracing::debug!(?took, ?next, "reconciled");
        self.recent.add(Reconciled {
            id,
            controller: self.shared.controller.clone(),
            key: item.key.to_string(),
            reasons: item.reasons.to_string(),
            began: at,
            seconds: took.as_secs_f64(),
            result,
            message,
            writes: writes.take(),
        });
        next
    }

    /// What comes next, in which word it is told, and what there is to say about it.
    fn settle(&self, item: &Item, result: Result<Next, Error>) -> (Next, &'static str, Option<String>) {
        let error = match result {
            Ok(next) => {
                let (counter, name) = match next {
                    Next::Again(_) => (&self.metrics.requeue, "requeue"),
                    Next::After(..) => (&self.metrics.requeue_after, "requeue_after"),
                    Next::Forget | Next::Failed(_) => (&self.metrics.success, "done"),
                };
                counter.inc();
                return (next, name, None);
            }
            Err(error) => error,
        };
        let message = Some(error.to_string());
        if let Retry::Wait(delay) = error.retry() {
            self.metrics.requeue_after.inc();
            tracing::info!("{error}");
            return (Next::After(delay, "waits for something else"), "waiting", message);
        }
        self.metrics.error.inc();
        self.metrics.errors.inc();
        if error.is_terminal() {
            self.metrics.terminal_errors.inc();
        }
        self.report(item, &error);
        let name = match error.is_terminal() {
            true => "terminal",
            false => "error",
        };
        (Next::Failed(error.retry()), name, message)
    }

    fn report(&self, item: &Item, error: &Error) {
        // Controller, key and reasons are told by the span. Someone else was faster: that is
        // what retries are for.
        if error.has_code(409) {
            tracing::debug!(%error, "conflict, trying again");
        } else if error.is_terminal() {
            tracing::error!(%error, "reconcile failed and waits for a change");
        } else {
            tracing::warn!(%error, failures = item.failures + 1, "reconcile failed, trying again");
        }
    }

    async fn reconcile(&self, item: &Item, writes: &Writes) -> Result<Next, Error> {
        if !self.settings.concerns(&item.key) {
            return Ok(Next::Forget);
        }
        let Some(entry) = self.store.get(&item.key) else {
            let cx = self.context(item, None).noting(writes);
            self.reconciler.gone(&item.key, &cx).await?;
            return checked(&cx, Next::Forget);
        };
        let cx = self.context(item, Some(&entry)).noting(writes);
        let Some(mut object) = entry.typed::<R::Object>() else {
            let note = format!(
                "this object does not fit the type that controller {} knows; correct it or update the controller",
                self.shared.controller
            );
            cx.event(EventType::Warning, "Unreadable", note.clone());
            return Err(Error::terminal(note));
        };
        if let Some(finalizer) = &self.settings.finalizer {
            let mut finalizers = entry.header.finalizers();
            let ours = finalizers.iter().position(|known| known == finalizer);
            let version = entry.header.resource_version();
            match (entry.header.deleting, ours) {
                (true, None) => return Ok(Next::Forget),
                (true, Some(ours)) => {
                    if let Finalized::Pending(delay) = self.reconciler.finalize(object, &cx).await? {
                        return checked(&cx, Next::After(delay, "clean-up is under way"));
                    }
                    finalizers.remove(ours);
                    return match cx.set_finalizers(version, &finalizers).await {
                        Err(error) if error.has_code(404) => Ok(Next::Forget),
                        other => other.and_then(|()| checked(&cx, Next::Forget)),
                    };
                }
                (false, None) => {
                    finalizers.push(finalizer.clone());
                    cx.set_finalizers(version, &finalizers).await?;
                    let now = self.store.get(&item.key).and_then(|entry| entry.typed());
                    object = now.unwrap_or(object);
                }
                (false, Some(_)) => {}
            }
        }
        let next = match self.reconciler.reconcile(object, &cx).await? {
            Outcome::Done => Next::Forget,
            Outcome::Requeue(why) => Next::Again(why),
            Outcome::RequeueAfter(delay, why) => Next::After(delay, why),
        };
        checked(&cx, next)
    }

    fn context(&self, item: &Item, entry: Option<&Arc<Entry>>) -> Context {
        let subject = entry.map(|entry| Subject {
            resource: Arc::clone(&self.resource),
            key: item.key.clone(),
            uid: entry.header.uid().to_owned(),
            resource_version: entry.header.resource_version().to_owned(),
        });
        Context::new(Arc::clone(&self.shared), item.key.clone(), item.reasons.clone(), item.failures, subject)
    }
}

fn kinds_of<'a>(sources: impl Iterator<Item = &'a Source>) -> HashSet<(String, String)> {
    sources.map(|source| (source.resource.group.clone(), source.resource.kind.clone())).collect()
}

/// A reconcile that read what it must not has failed, whatever it returned.
fn checked(cx: &Context, next: Next) -> Result<Next, Error> {
    match cx.misuse() {
        Some(misuse) => Err(Error::terminal(misuse)),
        None => Ok(next),
    }
}

/// The words of a panic.
fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without words")
}
