//! Reconciles Resources: decide, write the intent, act, write the result.
//!
//! ```text
//!   decide ──▶ Start ── intent into the status ── plugin.apply ──▶ Running: checkpoint into the
//!     ▲                 (compare-and-swap)                          status, come back later
//!     │                                                        ──▶ ended: history, result into
//!     └── Resume ── plugin.resume ─────────────────────────────────  the status
//! ```

mod attempt;
mod decide;
mod ending;
mod ledger;
mod retries;
mod types;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Patch;
use serde_json::{Value, json};
use steersman::{
    Context, Controller, Error, EventType, Finalized, Key, Manager, Outcome, Predicate, Reconciler,
};

use self::decide::{Step, decide, needs_id};
use self::retries::Retries;
use crate::action::{ActionError, Capability, Drift, Registry, Task};
use crate::history::{Catalog, History};
use crate::ids::{Ids, Numbered};
use crate::metrics::{Metrics, Plugin};
use crate::redact::redact;
use crate::schema::Schemas;
use crate::settings::OperatorController;
use crate::types::{
    DriftInterval, ID, ON_DELETE, Operation, Resource, ResourceType, State, Trigger, type_object_name,
};
use crate::{FINALIZER, OPERATOR, rights};

/// How long a drift check lets retries go first before it looks again.
const YIELD: Duration = Duration::from_secs(1);

/// What the operator needs.
#[derive(Clone, Debug)]
pub struct Options {
    /// The pace.
    pub controller: OperatorController,
    /// The plugins.
    pub plugins: Registry,
    /// Where attempts are recorded.
    pub history: History,
    /// The namespace of the counter of ids; the same one that the REST face uses. `default`.
    pub namespace: String,
}

/// Adds the controllers of Resources and ResourceTypes to a manager.
#[must_use]
pub fn controllers(manager: Manager, options: Options) -> Manager {
    let Options { controller: settings, plugins, history, namespace } = options;
    let metrics = Metrics::new(&manager.metrics());
    let ids = Arc::new(Ids::new(manager.client(), &namespace));
    let catalog = Catalog::new(history, metrics.history_waiting.clone());
    let outside = plugins.clone();
    let resources = Resources {
        plugins,
        catalog: catalog.clone(),
        settings,
        metrics,
        ids: Arc::clone(&ids),
        schemas: Schemas::default(),
        checks: Mutex::default(),
        retries: Mutex::default(),
        primed: Once::new(),
        unsaved: Mutex::default(),
    };
    let resources = Controller::new("infra-resources", resources)
        .index::<Resource>("type", |resource| {
            vec![type_object_name(&resource.spec.type_name, &resource.spec.type_version)]
        })
        .watches_when::<ResourceType>(Predicate::generation_changed(), |changed, cache| {
            let users = cache.view::<Resource>().by_index("type", &changed.name_any());
            users.iter().map(|user| Key::of(&**user)).collect()
        })
        // What the operator writes itself is no news to it: it would put what failed among what users
        // want, as long as there is more to do than can be done.
        .predicate(Predicate::generation_changed().or(Predicate::annotations_changed()))
        .field_manager(OPERATOR)
        .finalizer(FINALIZER)
        .concurrency(settings.max_concurrent_reconciles.max(1))
        .resync(settings.reconcile_interval)
        .timeout(Duration::from_secs(600));
    let types =
        Controller::new("infra-types", types::Types::new(ids, catalog.clone())).field_manager(OPERATOR);
    let cache = manager.cache();
    // Plugins say what they can do once they run, and end in good order with the operator.
    let manager = manager.runnable("infra-plugins", move |stop| async move {
        for plugin in outside.all() {
            if let Err(error) = plugin.configure().await {
                tracing::warn!(plugin = plugin.describe().name, %error, "a plugin is not ready");
            }
        }
        stop.cancelled().await;
        futures::future::join_all(outside.all().map(|plugin| plugin.stop())).await;
        Ok(())
    });
    let manager = manager.controller(resources).controller(types).needs(rights::beyond());
    manager.runnable("infra-history", move |stop| async move {
        let types = cache.view::<ResourceType>().list().iter().map(|it| it.name_any()).collect();
        let all = cache.view::<Resource>().list();
        let names = all.iter().map(|it| format!("{}/{}", it.namespace().unwrap_or_default(), it.name_any()));
        let resources = names.collect();
        drop(all);
        catalog.run(types, resources, stop).await;
        Ok(())
    })
}

/// Reconciles Resources.
struct Resources {
    plugins: Registry,
    catalog: Catalog,
    settings: OperatorController,
    metrics: Metrics,
    ids: Arc<Ids>,
    schemas: Schemas,
    /// When each ready resource was last checked for drift. Not in the status: a check that finds
    /// nothing writes nothing.
    checks: Mutex<HashMap<Key, Timestamp>>,
    /// Those that failed go before drift checks.
    retries: Mutex<Retries>,
    /// Whether those that failed before this process began are among them.
    primed: Once,
    /// Checkpoints, by attempt, that could not be written yet.
    unsaved: Mutex<HashMap<String, Value>>,
}

impl Reconciler for Resources {
    type Object = Resource;

    async fn reconcile(&self, resource: Arc<Resource>, cx: &Context) -> Result<Outcome, Error> {
        let resource = self.numbered(resource, cx).await?;
        self.catalog.saw(&resource);
        self.primed.call_once(|| {
            for known in cx.cache::<Resource>().list() {
                self.expect_retry(&known, &Key::of(&*known));
            }
        });
        self.expect_retry(&resource, cx.key());
        match decide(&resource, cx.now(), self.drift_due(&resource, cx)) {
            Step::Start(operation, trigger) => self.start(&resource, operation, trigger, cx).await,
            Step::Resume => self.resume(&resource, cx).await,
            Step::CheckDrift => self.check_drift(&resource, cx).await,
            Step::Wait(delay, why) => Ok(Outcome::RequeueAfter(delay, why)),
            Step::Rest => Ok(Outcome::Done),
        }
    }

    async fn finalize(&self, resource: Arc<Resource>, cx: &Context) -> Result<Finalized, Error> {
        self.catalog.saw(&resource);
        let orphan = resource.annotations().get(ON_DELETE).is_some_and(|what| what == "orphan");
        let attempts = resource.status.as_ref().map_or(0, |status| status.attempts);
        if orphan || attempts == 0 {
            return Ok(Finalized::Done);
        }
        let outcome = match decide(&resource, cx.now(), None) {
            Step::Start(operation, trigger) => self.start(&resource, operation, trigger, cx).await?,
            Step::Resume if is_applying(&resource) => self.cancel(&resource, cx).await?,
            Step::Wait(..) if is_applying(&resource) && !is_cancelling(&resource) => {
                self.cancel(&resource, cx).await?
            }
            Step::Resume => self.resume(&resource, cx).await?,
            Step::Wait(delay, why) => Outcome::RequeueAfter(delay, why),
            Step::CheckDrift | Step::Rest => return Ok(Finalized::Done),
        };
        // Also after success: what was written since makes the object another one than this.
        Ok(match outcome {
            Outcome::Done | Outcome::Requeue(_) => Finalized::Pending(Duration::ZERO),
            Outcome::RequeueAfter(delay, _) => Finalized::Pending(delay),
        })
    }

    async fn gone(&self, key: &Key, _: &Context) -> Result<(), Error> {
        lock(&self.checks).remove(key);
        lock(&self.retries).forget(key);
        self.catalog.gone(key.namespace().unwrap_or_default(), key.name());
        Ok(())
    }
}

/// Whether parameters are held against the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    Validate,
    Trust,
}

/// The key of a resource's type.
fn type_key(resource: &Resource) -> Key {
    Key::cluster(&type_object_name(&resource.spec.type_name, &resource.spec.type_version))
}

fn is_applying(resource: &Resource) -> bool {
    let attempt = resource.status.as_ref().and_then(|status| status.attempt.as_ref());
    attempt.is_some_and(|attempt| attempt.operation == Operation::Apply)
}

fn is_cancelling(resource: &Resource) -> bool {
    let attempt = resource.status.as_ref().and_then(|status| status.attempt.as_ref());
    attempt.is_some_and(|attempt| attempt.cancelling)
}

impl Resources {
    /// Gives a resource that came past the REST face its number.
    async fn numbered(&self, resource: Arc<Resource>, cx: &Context) -> Result<Arc<Resource>, Error> {
        if !needs_id(&resource) {
            return Ok(resource);
        }
        let id = self.ids.next(Numbered::Resources).await?;
        let label = json!({"metadata": {"labels": {ID: id.to_string()}}});
        cx.patch(cx.key(), &Patch::Merge(&label)).await
    }

    /// Keeps account of what waits for another attempt.
    fn expect_retry(&self, resource: &Resource, key: &Key) {
        let status = resource.status.as_ref().filter(|_| resource.state() == State::Failed);
        match status.and_then(|status| status.next_attempt_at) {
            Some(at) => lock(&self.retries).expect(key, at),
            None => lock(&self.retries).forget(key),
        }
    }

    /// When the next drift check is due; never for a plugin that cannot tell drift.
    fn drift_due(&self, resource: &Resource, cx: &Context) -> Option<Timestamp> {
        let plugin = self.plugins.get(&resource.spec.action_plugin)?;
        if !plugin.describe().can(Capability::DetectDrift) {
            return None;
        }
        let DriftInterval::Every(interval) = self.drift_interval(resource, cx) else {
            return None;
        };
        let checked = lock(&self.checks).get(cx.key()).copied();
        let last = checked.or(resource.status.as_ref()?.last_reconcile_time)?;
        last.checked_add(interval).ok()
    }

    fn drift_interval(&self, resource: &Resource, cx: &Context) -> DriftInterval {
        let known = cx.cache::<ResourceType>().get(&type_key(resource));
        DriftInterval::of(resource, known.as_deref(), self.settings.drift_interval)
    }

    async fn check_drift(&self, resource: &Resource, cx: &Context) -> Result<Outcome, Error> {
        let name = &resource.spec.action_plugin;
        let (Some(plugin), Ok(task)) =
            (self.plugins.get(name), self.task(resource, Operation::Apply, Check::Validate, cx))
        else {
            return Ok(Outcome::Done);
        };
        let DriftInterval::Every(interval) = self.drift_interval(resource, cx) else {
            return Ok(Outcome::Done);
        };
        // What failed goes first, though nothing waits for ever.
        let due = self.drift_due(resource, cx);
        let patient = due.and_then(|due| due.checked_add(interval).ok()).is_some_and(|last| cx.now() < last);
        if patient && lock(&self.retries).overdue(cx.now()) {
            return Ok(Outcome::RequeueAfter(YIELD, "drift check, after what failed"));
        }
        self.metrics.drift_checks.get_or_create(&Plugin::new(name)).inc();
        lock(&self.checks).insert(cx.key().clone(), cx.now());
        match plugin.detect_drift(&task).await {
            Ok(Drift::None) => Ok(Outcome::RequeueAfter(interval, "drift check")),
            Ok(Drift::Found(what)) => {
                self.metrics.drift_found.get_or_create(&Plugin::new(name)).inc();
                let what = redact(&what, [&task.config, &task.parameters]);
                cx.event(EventType::Warning, "DriftDetected", what);
                self.start(resource, Operation::Apply, Trigger::Drift, cx).await
            }
            // Not being able to look is no reason to act.
            Err(error) => {
                let why = redact(&error.to_string(), [&task.config, &task.parameters]);
                cx.event(EventType::Warning, "DriftCheckFailed", why);
                Ok(Outcome::RequeueAfter(interval, "drift check"))
            }
        }
    }

    /// What a plugin is to do, with defaults and configuration; or why it cannot be done.
    fn task(
        &self,
        resource: &Resource,
        operation: Operation,
        check: Check,
        cx: &Context,
    ) -> Result<Task, ActionError> {
        let spec = &resource.spec;
        let known = cx.cache::<ResourceType>().get(&type_key(resource));
        let mut parameters = spec.parameters.clone();
        let check = if operation == Operation::Destroy { Check::Trust } else { check };
        match (&known, check) {
            (Some(known), Check::Validate) => {
                let schema = self.schemas.of(known).map_err(|error| {
                    ActionError::permanent(format!(
                        "the schema of resource type {}/{} cannot be used: {error}",
                        spec.type_name, spec.type_version
                    ))
                })?;
                schema.default_into(&mut parameters);
                schema.check(&parameters).map_err(|complaints| {
                    ActionError::permanent(format!("Spec validation failed: {}", complaints.join("; ")))
                })?;
            }
            (None, Check::Validate) => {
                return Err(ActionError::permanent(format!(
                    "Resource type {}/{} not found",
                    spec.type_name, spec.type_version
                )));
            }
            // What is under way must come to its end, and what is to go must be able to go,
            // whatever has become of the type.
            (known, Check::Trust) => {
                if let Some(schema) = known.as_ref().and_then(|known| self.schemas.of(known).ok()) {
                    schema.default_into(&mut parameters);
                }
            }
        }
        let status = resource.status.clone().unwrap_or_default();
        let attempt = status.attempt.as_ref();
        Ok(Task {
            attempt: attempt.map(|attempt| attempt.id.clone()).unwrap_or_default(),
            started_at: attempt.map_or_else(|| cx.now(), |attempt| attempt.started_at),
            operation,
            name: resource.short_name().to_owned(),
            namespace: resource.namespace().unwrap_or_default(),
            uid: resource.uid().unwrap_or_default(),
            type_name: spec.type_name.clone(),
            type_version: spec.type_version.clone(),
            generation: resource.metadata.generation.unwrap_or_default(),
            parameters,
            config: self.plugins.config(resource, known.as_deref()),
            last_run: status.last_run,
            outputs: status.outputs.unwrap_or_default(),
            now: cx.now(),
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
