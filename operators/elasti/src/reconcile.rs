//! The reconciler: look, decide, carry out, report.

use crate::metrics::{ElastiMetrics, Went};
use crate::options::ElastiOptions;
use crate::plan::{Plan, Rules, Sleep, Watching, World, plan};
use crate::ports::{self, Own};
use crate::scale::{self, Rest, ScaleError, Target};
use crate::status::{self, Problem};
use crate::trigger::{Case, Judge, Verdict};
use crate::types::{ElastiService, Mode, TriggerType};
use crate::watches::Watches;
use crate::{OPERATOR, desired, names, period, rights, world};
use futures::stream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Client, ResourceExt};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use steersman::{Cache, Context, Controller, Error, EventType, Finalized, Key, Manager, Outcome, Reconciler};
use tokio::time::Instant;

/// For how long a deletion waits for pods before the resolver leaves anyway.
const LEAVE: Duration = Duration::from_secs(60);

/// Reconciles ElastiServices.
#[derive(Debug)]
pub struct ElastiServices {
    options: ElastiOptions,
    judge: Judge,
    watches: Watches,
    metrics: ElastiMetrics,
    memory: Mutex<HashMap<Key, Memory>>,
}

/// What is remembered of one ElastiService; losing it costs a question.
#[derive(Clone, Debug, Default)]
struct Memory {
    asked: Option<(Timestamp, Verdict)>,
    needed: Option<Timestamp>,
    own: Own,
    /// Since when the ports have been in the status.
    own_since: Option<Timestamp>,
}

/// Adds the operator to a manager. Wake-up calls are taken beside it, by
/// [`endpoint::serve`](crate::endpoint::serve).
///
/// # Example
/// ```no_run
/// # async fn start(client: kube::Client) -> Result<(), steersman::ManagerError> {
/// use steersman::{CancellationToken, Manager, Options};
/// use steersman_elasti::{ElastiOptions, OPERATOR, controllers};
///
/// let manager = Manager::new(client, Options::named(OPERATOR));
/// controllers(manager, ElastiOptions::default()).run(CancellationToken::new()).await
/// # }
/// ```
#[must_use]
pub fn controllers(manager: Manager, options: ElastiOptions) -> Manager {
    let metrics = ElastiMetrics::default();
    metrics.register(&manager.metrics());
    let cache = manager.cache();
    manager.controller(controller(cache, metrics, options)).needs(rights::operator())
}

/// The controller of ElastiServices, what it counts, and the watches on its targets.
fn controller(cache: Cache, metrics: ElastiMetrics, options: ElastiOptions) -> Controller<ElastiServices> {
    let resolver = Key::new(&options.resolver_namespace, &options.resolver_service);
    let judge = Judge::new(options.dial.clone());
    let namespaces = options.watch_namespaces.clone();
    let (watches, changed) = Watches::new(cache, metrics.clone());
    let reconciler = ElastiServices { options, judge, watches, metrics, memory: Mutex::default() };
    let changed =
        stream::unfold(changed, |mut changed| async move { Some((changed.recv().await?, changed)) });
    Controller::new(OPERATOR, reconciler)
        .owns::<Service>()
        .owns::<EndpointSlice>()
        .watches::<Service>(|service, cache| {
            about(cache, service.namespace(), |elasti| elasti.spec.service == service.name_any())
        })
        .watches::<EndpointSlice>(move |slice, cache| {
            let Some(service) = slice.labels().get(world::SERVICE_NAME) else { return Vec::new() };
            let namespace = slice.namespace().unwrap_or_default();
            if Key::new(&namespace, service) == resolver {
                return cache.view::<ElastiService>().list().iter().map(|one| Key::of(&**one)).collect();
            }
            about(cache, Some(namespace), |elasti| elasti.spec.service == *service)
        })
        .triggered_by(changed)
        .field_manager(OPERATOR)
        .finalizer(names::FINALIZER)
        .in_namespaces(namespaces)
        // One trigger that does not answer must not hold up the others.
        .concurrency(16)
}

/// The ElastiServices of a namespace that fulfil a condition.
fn about(cache: &Cache, namespace: Option<String>, condition: impl Fn(&ElastiService) -> bool) -> Vec<Key> {
    let all = cache.view::<ElastiService>().list_in(&namespace.unwrap_or_default());
    all.iter().filter(|elasti| condition(elasti)).map(|elasti| Key::of(&**elasti)).collect()
}

/// What a reconcile works with.
struct Subject {
    namespace: String,
    public: Arc<Service>,
    target: Target,
    replicas: i32,
    ready: usize,
    resolvers: Vec<IpAddr>,
}

impl Reconciler for ElastiServices {
    type Object = ElastiService;

    async fn reconcile(&self, elasti: Arc<ElastiService>, cx: &Context) -> Result<Outcome, Error> {
        let begin = Instant::now();
        let result = self.settle(elasti, cx).await;
        self.metrics.reconciled(cx.key(), begin.elapsed(), Went::of(&result));
        result
    }

    /// Brings the target back and only then takes the resolver out of the path.
    async fn finalize(&self, elasti: Arc<ElastiService>, cx: &Context) -> Result<Finalized, Error> {
        let result = self.restore(elasti, cx).await;
        if result.as_ref().is_ok_and(|finalized| *finalized == Finalized::Done) || result.is_err() {
            self.metrics.finalized(cx.key(), Went::of(&result));
        }
        result
    }

    async fn gone(&self, key: &Key, _: &Context) -> Result<(), Error> {
        self.memory().remove(key);
        self.watches.release(key);
        self.metrics.forget(key);
        Ok(())
    }
}

/// How often a deletion looks whether pods are back.
const PAUSE: Duration = Duration::from_millis(500);

impl ElastiServices {
    async fn settle(&self, elasti: Arc<ElastiService>, cx: &Context) -> Result<Outcome, Error> {
        let again = Outcome::RequeueAfter(self.options.polling, "ask the triggers");
        let subject = match self.look(&elasti, cx).await? {
            Ok(subject) => subject,
            Err(problem) => {
                let status = status::failure(&elasti, &problem, cx.now());
                if elasti.status.as_ref() != Some(&status) {
                    cx.event(EventType::Warning, problem.reason, problem.message);
                }
                cx.apply_status(&status).await?;
                return Ok(again);
            }
        };
        let now = cx.now();
        let before = elasti.status.clone().unwrap_or_default();
        let switched = before.switched_time.as_ref().map(|time| time.0);
        let due = switched.is_some_and(|since| elapsed(since, now) >= self.options.switch_delay);
        let (verdict, sleep) = self.ask(&elasti, &subject, due, cx).await;
        let was_asleep = before.replicas == Some(0);
        let woken = subject.replicas > 0 && was_asleep;
        let need = match (woken, &verdict) {
            (true, _) => Need::Woken,
            (false, Verdict::Busy) => Need::Busy,
            (false, _) => Need::None,
        };
        let last_up = self.needed(&elasti, need, cx);
        let wish = wish(&elasti).filter(|wish| *wish >= last_up.needed && verdict != Verdict::Busy);
        let verdict = if wish.is_some() { Verdict::Idle } else { verdict };
        let world = World {
            now,
            replicas: subject.replicas,
            ready: subject.ready,
            resolvers: subject.resolvers.len(),
            verdict,
            switched,
            needed: last_up.needed,
        };
        let mut rules = self.rules(&elasti, sleep);
        if wish.is_some() {
            rules.cooldown = Duration::ZERO;
        }
        let plan = plan(&world, rules);
        let own = self.own_ports(&elasti, &subject, cx);
        let settled = self.settled(&elasti, &subject, &own, cx);
        let used = settled.clone().unwrap_or_default();
        let done = self.carry_out(&elasti, &subject, &plan, &used, cx).await;
        if before.mode != Some(plan.mode) {
            self.metrics.switched(cx.key(), plan.mode, Went::of(&done));
        }
        done?;
        self.metrics.is_in(cx.key(), plan.mode);
        cx.apply_status(&status::report(&elasti, &world, &plan, last_up.written, &own)).await?;
        announce(&elasti, &plan, woken, cx);
        let pauses = [plan.again, settled.err()].into_iter().flatten();
        Ok(match pauses.min() {
            Some(pause) => Outcome::RequeueAfter(pause.min(self.options.polling), "the plan goes on"),
            None => again,
        })
    }

    async fn restore(&self, elasti: Arc<ElastiService>, cx: &Context) -> Result<Finalized, Error> {
        let namespace = elasti.namespace().unwrap_or_default();
        let autoscaler = elasti.spec.autoscaler.as_ref();
        scale::rest(cx.client(), &namespace, autoscaler, Rest::Resumed).await?;
        // Of two about one Service, the one that did nothing has nothing to undo.
        let idle = elasti.status.as_ref().is_none_or(|status| status.mode.is_none());
        if !idle {
            let back = self.bring_back(&elasti, &namespace, cx).await?;
            if back != Finalized::Done {
                return Ok(back);
            }
        }
        let uid = elasti.uid().unwrap_or_default();
        for slice in cx.cache::<EndpointSlice>().owned_by(&uid) {
            cx.delete(&*slice).await?;
        }
        for service in cx.cache::<Service>().owned_by(&uid) {
            cx.delete(&*service).await?;
        }
        Ok(Finalized::Done)
    }

    /// Reads what a decision needs, or says what is missing.
    async fn look(&self, elasti: &ElastiService, cx: &Context) -> Result<Result<Subject, Problem>, Error> {
        let problem = |reason, message| Ok(Err(Problem { reason, message }));
        let namespace = elasti.namespace().unwrap_or_default();
        let name = &elasti.spec.service;
        let all = cx.cache::<ElastiService>().list_in(&namespace);
        let rank = |one: &ElastiService| (one.creation_timestamp(), one.name_any());
        let older = all.iter().find(|one| one.spec.service == *name && rank(one) < rank(elasti));
        if let Some(older) = older {
            let message = format!(
                "Service {name} belongs to ElastiService {} already; delete one of the two",
                older.name_any()
            );
            return problem("ServiceTaken", message);
        }
        let Some(public) = cx.cache::<Service>().get(&Key::new(&namespace, name)) else {
            return problem("ServiceNotFound", format!("spec.service: there is no Service named {name}"));
        };
        if let Some(message) = world::problem(&public) {
            return problem("ServiceUnsuitable", message);
        }
        let target = match Target::find(cx.client(), &namespace, &elasti.spec.scale_target_ref).await {
            Ok(target) => target,
            Err(error @ ScaleError::Kind { .. }) => return problem("TargetUnknown", error.to_string()),
            Err(error) => return Err(error.into()),
        };
        self.watches.hold(cx.key(), target.resource(), &elasti.spec.scale_target_ref.name);
        let replicas = match target.replicas().await {
            Ok(replicas) => replicas,
            Err(error @ ScaleError::NotFound { .. }) => return problem("TargetNotFound", error.to_string()),
            Err(error) => return Err(error.into()),
        };
        let slices = cx.cache::<EndpointSlice>();
        let ready = world::ready(&world::native(&slices, &namespace, name)).len();
        let resolvers = world::ready(&world::native(
            &slices,
            &self.options.resolver_namespace,
            &self.options.resolver_service,
        ));
        Ok(Ok(Subject { namespace, public, target, replicas, ready, resolvers }))
    }

    /// What the triggers say, asked at most once per interval unless it is about to count.
    async fn ask(
        &self,
        elasti: &ElastiService,
        subject: &Subject,
        due: bool,
        cx: &Context,
    ) -> (Verdict, Sleep) {
        let now = cx.now();
        let sleep = match elasti.spec.enabled_period.as_ref().map(|period| period::allows(period, now)) {
            None | Some(Ok(true)) => Sleep::Allowed,
            Some(Ok(false)) => Sleep::Forbidden,
            Some(Err(why)) => return (Verdict::Unknown(why), Sleep::Allowed),
        };
        let known = self.memory().get(cx.key()).and_then(|memory| memory.asked.clone());
        if let Some((asked, verdict)) = known
            && elapsed(asked, now) < self.options.polling
            && !due
        {
            return (verdict, sleep);
        }
        let case = Case {
            namespace: &subject.namespace,
            service: &elasti.spec.service,
            triggers: &elasti.spec.triggers,
            cooldown: elasti.spec.cooldown_period,
            resolvers: &subject.resolvers,
        };
        let verdict = self.judge.ask(&case, &self.options).await;
        self.memory().entry(cx.key().clone()).or_default().asked = Some((now, verdict.clone()));
        (verdict, sleep)
    }

    /// When the service was last needed: exactly in memory, now and then in the status, so that a
    /// restart forgets at most half of the cooldown and an idle cluster writes nothing.
    fn needed(&self, elasti: &ElastiService, need: Need, cx: &Context) -> LastUp {
        let now = cx.now();
        let written = elasti.status.as_ref().and_then(|status| status.last_scaled_up_time.as_ref());
        let written = written.map(|time| time.0);
        let born = elasti.creation_timestamp().map_or(now, |time| time.0);
        let mut memory = self.memory();
        let memory = memory.entry(cx.key().clone()).or_default();
        if need != Need::None {
            memory.needed = Some(now);
        }
        let needed = [memory.needed, written, Some(born)].into_iter().flatten().max().unwrap_or(now);
        let half = cooldown(elasti) / 2;
        let stale = written.is_none_or(|written| elapsed(written, now) >= half.max(Duration::from_secs(1)));
        let write = need == Need::Woken || need == Need::Busy && stale;
        LastUp { needed, written: if write { Some(now) } else { written } }
    }

    fn rules(&self, elasti: &ElastiService, sleep: Sleep) -> Rules {
        let watches = elasti.spec.triggers.iter().any(|trigger| trigger.kind == TriggerType::Resolver);
        Rules {
            min_replicas: elasti.spec.min_target_replicas.max(1),
            cooldown: cooldown(elasti),
            switch_delay: self.options.switch_delay,
            watching: if watches { Watching::Always } else { Watching::Never },
            sleep,
        }
    }

    /// The ports of the resolver that stand for those of the Service; nobody else has them.
    fn own_ports(&self, elasti: &ElastiService, subject: &Subject, cx: &Context) -> Own {
        let mut memory = self.memory();
        let others = cx.cache::<ElastiService>().list();
        let others = others.iter().filter(|other| Key::of(&***other) != *cx.key());
        let mut taken: BTreeSet<u16> = others.flat_map(|other| ports::of(other).into_values()).collect();
        let unwritten = memory.iter().filter(|(key, _)| *key != cx.key());
        taken.extend(unwritten.flat_map(|(_, memory)| memory.own.values().copied()));
        let ports = world::ports(&subject.public);
        let own = ports::assign(cx.key(), &ports, &ports::of(elasti), &taken, &self.options.own_ports);
        let memory = memory.entry(cx.key().clone()).or_default();
        if memory.own != own {
            memory.own = own.clone();
            memory.own_since = None;
        }
        // They count from when resolvers could read of them.
        if ports::of(elasti) == own && memory.own_since.is_none() {
            memory.own_since = Some(cx.now());
        }
        own
    }

    /// The ports, once every resolver has had the time to listen there; or how long that takes.
    fn settled(
        &self,
        elasti: &ElastiService,
        subject: &Subject,
        own: &Own,
        cx: &Context,
    ) -> Result<Own, Duration> {
        let name = Key::new(&subject.namespace, &names::slice(&elasti.spec.service));
        let slice = cx.cache::<EndpointSlice>().get(&name);
        if slice.is_some_and(|slice| ports::leads_there(&slice, own)) {
            return Ok(own.clone());
        }
        let since = self.memory().get(cx.key()).and_then(|memory| memory.own_since);
        let left =
            since.map_or(ports::SETTLE, |since| ports::SETTLE.saturating_sub(elapsed(since, cx.now())));
        if left.is_zero() { Ok(own.clone()) } else { Err(left) }
    }

    /// Makes the new way before it breaks the old one: slices first, replicas after.
    async fn carry_out(
        &self,
        elasti: &ElastiService,
        subject: &Subject,
        plan: &Plan,
        own: &Own,
        cx: &Context,
    ) -> Result<(), Error> {
        cx.apply(&desired::private_service(&subject.public)).await?;
        if plan.mode == Mode::Proxy {
            for slice in desired::slices(&subject.public, &subject.resolvers, own, &self.options) {
                cx.apply(&slice).await?;
            }
        }
        // In Serve mode the slices go here; pods of the Service's own slices are ready by then.
        cx.prune().await?;
        let Some(replicas) = plan.scale else { return Ok(()) };
        let result = scale_to(elasti, subject, replicas, cx.client()).await;
        let target = &elasti.spec.scale_target_ref.name;
        self.metrics.scaled(cx.key(), &elasti.spec.service, target, Went::of(&result));
        result.map_err(|error| {
            cx.event(EventType::Warning, "FailedToScale", format!("Cannot scale to {replicas}: {error}"));
            error.into()
        })
    }

    /// Wakes the target of an ElastiService that goes, and waits for its pods for a while.
    async fn bring_back(
        &self,
        elasti: &ElastiService,
        namespace: &str,
        cx: &Context,
    ) -> Result<Finalized, Error> {
        match scale::wake_target(cx.client(), namespace, elasti).await {
            Ok(()) => {}
            Err(ScaleError::NotFound { .. } | ScaleError::Kind { .. }) => return Ok(Finalized::Done),
            Err(error) => return Err(error.into()),
        }
        let key = Key::new(namespace, &elasti.spec.service);
        let Some(public) = cx.cache::<Service>().get(&key) else { return Ok(Finalized::Done) };
        let slices = cx.cache::<EndpointSlice>();
        let ready = !world::ready(&world::native(&slices, namespace, &elasti.spec.service)).is_empty();
        let since = elasti.metadata.deletion_timestamp.as_ref().map_or(cx.now(), |time| time.0);
        if ready || world::problem(&public).is_some() || elapsed(since, cx.now()) > LEAVE {
            return Ok(Finalized::Done);
        }
        Ok(Finalized::Pending(PAUSE))
    }

    fn memory(&self) -> MutexGuard<'_, HashMap<Key, Memory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a service is needed at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Its target sleeps no more.
    Woken,
    /// A trigger says so.
    Busy,
    /// Nothing says so.
    None,
}

/// When somebody asked for sleep, if anybody did.
fn wish(elasti: &ElastiService) -> Option<Timestamp> {
    elasti.annotations().get(crate::cli::SLEEP)?.parse().ok()
}

/// Scales a target, with its autoscaler at rest while it sleeps.
async fn scale_to(
    elasti: &ElastiService,
    subject: &Subject,
    replicas: i32,
    client: &Client,
) -> Result<(), ScaleError> {
    let (namespace, autoscaler) = (&subject.namespace, elasti.spec.autoscaler.as_ref());
    if replicas == 0 {
        scale::rest(client, namespace, autoscaler, Rest::Paused).await?;
        return subject.target.set(0).await;
    }
    scale::rest(client, namespace, autoscaler, Rest::Resumed).await?;
    subject.target.set(scale::awake(client, namespace, elasti).await?).await
}

/// When a service was last needed.
struct LastUp {
    needed: Timestamp,
    /// As the status says it.
    written: Option<Timestamp>,
}

fn cooldown(elasti: &ElastiService) -> Duration {
    Duration::from_secs(u64::try_from(elasti.spec.cooldown_period).unwrap_or(0))
}

fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO)
}

/// Tells in an event what a user waits for.
fn announce(elasti: &ElastiService, plan: &Plan, woken: bool, cx: &Context) {
    let target = &elasti.spec.scale_target_ref.name;
    match plan.scale {
        Some(0) => cx.event(EventType::Normal, "SuccessToScale", format!("Put {target} to sleep")),
        Some(replicas) => {
            cx.event(EventType::Normal, "SuccessToScale", format!("Woke {target} to {replicas} replicas"));
        }
        None if woken => cx.event(EventType::Normal, "SuccessToScale", format!("{target} was woken")),
        None => {}
    }
    let before = elasti.status.as_ref().and_then(|status| status.mode);
    if before != Some(plan.mode) {
        let note = match plan.mode {
            Mode::Proxy => "Requests go through the resolver",
            Mode::Serve => "Requests go to the pods",
        };
        cx.event(EventType::Normal, "ModeChanged", note);
    }
}
