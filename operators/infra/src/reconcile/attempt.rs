//! One attempt: from the intent to what came of it.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use steersman::conditions::{self, ConditionStatus, Observation};
use steersman::{Context, Error, EventType, Outcome};
use uuid::Uuid;

use super::ending::{Ending, observe};
use super::ledger::{OnChange, Written, write};
use super::{Check, Resources, lock};
use crate::action::{Action, ActionError, Capability, Completed, Needed, Plan, Progress, Task};
use crate::redact::redact;
use crate::types::{
    Attempt, AttemptPhase, Operation, PLUGIN_UNAVAILABLE, Resource, ResourceStatus, State, TRIGGER, Trigger,
};

/// How long to wait before asking again about something that may have been done.
const UNKNOWN: Duration = Duration::from_secs(5);
/// The longest time between two questions that both fail.
const LONGEST_POLL: Duration = Duration::from_secs(300);

impl Resources {
    /// Begins an attempt: the intent goes into the status before anything is touched.
    pub(super) async fn start(
        &self,
        resource: &Resource,
        operation: Operation,
        trigger: Trigger,
        cx: &Context,
    ) -> Result<Outcome, Error> {
        lock(&self.retries).forget(cx.key());
        let name = &resource.spec.action_plugin;
        let plugin = self.plugins.get(name).ok_or_else(|| ActionError::permanent(self.plugins.unknown(name)));
        let task = self.task(resource, operation, Check::Validate, cx);
        let (plugin, mut task, plans) = match self.prepare(plugin, task).await {
            Ok(prepared) => prepared,
            Err(ActionError::Transient { message, retry_after }) => {
                let delay = retry_after.unwrap_or(UNKNOWN);
                // The next check finds what this one found.
                if trigger == Trigger::Drift {
                    cx.event(EventType::Warning, PLUGIN_UNAVAILABLE, message);
                    return Ok(Outcome::RequeueAfter(delay, "the plugin cannot be asked"));
                }
                return self.wait_for_plugin(resource, &message, delay, cx).await;
            }
            Err(error) => return self.refuse(resource, operation, trigger, &error, cx).await,
        };
        let attempt = Attempt {
            id: Uuid::new_v4().to_string(),
            operation,
            trigger,
            phase: if plans { AttemptPhase::Planning } else { acting(operation) },
            generation: task.generation,
            started_at: cx.now(),
            checkpoint: None,
            poll_at: None,
            poll_failures: 0,
            cancelling: false,
        };
        task.attempt.clone_from(&attempt.id);
        task.started_at = attempt.started_at;
        let mut status = resource.status.clone().unwrap_or_default();
        status.state = Some(match operation {
            Operation::Apply => State::Reconciling,
            Operation::Destroy => State::Deleting,
        });
        status.message = Some(match operation {
            Operation::Apply => "Reconciliation in progress".into(),
            Operation::Destroy => "Destruction in progress".into(),
        });
        status.attempts += 1;
        let manual = resource.annotations().get(TRIGGER) != status.observed_trigger.as_ref();
        let fresh = match operation {
            Operation::Apply => trigger != Trigger::Retry,
            Operation::Destroy => manual || status.last_operation != Some(Operation::Destroy),
        };
        if fresh {
            status.failures = 0;
        }
        status.next_attempt_at = None;
        status.last_operation = Some(operation);
        status.observed_generation = Some(task.generation);
        status.observed_trigger = resource.annotations().get(TRIGGER).cloned();
        status.attempt = Some(attempt);
        observe(&mut status, cx);
        let Written::Yes(resource) = self.write(cx, resource, &status, OnChange::Yield).await? else {
            return Ok(Outcome::Requeue("changed meanwhile"));
        };
        match plans {
            true => self.plan(resource, &plugin, &task, cx).await,
            false => self.act(resource, &plugin, &task, Plan::default(), cx).await,
        }
    }

    /// Says that the plugin cannot be asked. Nothing is attempted and nothing counts as a failure:
    /// what is to be done stays to be done.
    async fn wait_for_plugin(
        &self,
        resource: &Resource,
        message: &str,
        delay: Duration,
        cx: &Context,
    ) -> Result<Outcome, Error> {
        let config = self.plugins.config(resource, None);
        let message = redact(message, [&config, &resource.spec.parameters]);
        let mut status = resource.status.clone().unwrap_or_default();
        status.state.get_or_insert(State::Pending);
        status.message = Some(message.clone());
        let generation = status.observed_generation;
        conditions::set(
            &mut status.conditions,
            cx.now(),
            Observation {
                r#type: "Ready",
                status: ConditionStatus::Unknown,
                reason: PLUGIN_UNAVAILABLE,
                message: message.clone(),
                generation,
            },
        );
        if resource.status.as_ref() != Some(&status) {
            cx.event(EventType::Warning, PLUGIN_UNAVAILABLE, message);
            self.write(cx, resource, &status, OnChange::Yield).await?;
        }
        Ok(Outcome::RequeueAfter(delay, "the plugin cannot be asked"))
    }

    /// Writes the status, and tells the history's database what it is now.
    pub(super) async fn write(
        &self,
        cx: &Context,
        resource: &Resource,
        status: &ResourceStatus,
        on_change: OnChange,
    ) -> Result<Written, Error> {
        let written = write(cx, resource, status, on_change).await?;
        if let Written::Yes(resource) = &written {
            self.catalog.saw(resource);
        }
        Ok(written)
    }

    /// Gets the plugin ready and lets it look at the task.
    async fn prepare(
        &self,
        plugin: Result<Arc<dyn Action>, ActionError>,
        task: Result<Task, ActionError>,
    ) -> Result<(Arc<dyn Action>, Task, bool), ActionError> {
        let (plugin, task) = (plugin?, task?);
        let plans = plugin.configure().await?.can(Capability::Plan);
        plugin.validate(&task).await?;
        Ok((plugin, task, plans))
    }

    /// Finds out what would change, and writes down that it is about to be done.
    async fn plan(
        &self,
        resource: Box<Resource>,
        plugin: &Arc<dyn Action>,
        task: &Task,
        cx: &Context,
    ) -> Result<Outcome, Error> {
        let plan = match plugin.plan(task).await {
            Ok(plan) if plan.needed == Needed::No => {
                let outputs = match plugin.describe().can(Capability::Outputs) {
                    true => plugin.outputs(task).await.unwrap_or_else(|_| task.outputs.clone()),
                    false => task.outputs.clone(),
                };
                let done = Completed { outputs, last_run: task.last_run.clone(), ..Completed::default() };
                return self.finish(&resource, task, Ending::Success(done, plan), cx).await;
            }
            Ok(plan) => plan,
            Err(error) => {
                // Planning touches nothing, so nothing can be unknown about it.
                let error = match error {
                    ActionError::Unknown(message) => ActionError::transient(message),
                    known => known,
                };
                return self
                    .finish(&resource, task, Ending::Failure { error, last_run: None, plan: None }, cx)
                    .await;
            }
        };
        let mut status = resource.status.clone().unwrap_or_default();
        if let Some(attempt) = &mut status.attempt {
            attempt.phase = acting(task.operation);
        }
        let Written::Yes(resource) = self.write(cx, &resource, &status, OnChange::Insist).await? else {
            return Ok(Outcome::Requeue("changed meanwhile"));
        };
        self.act(resource, plugin, task, plan, cx).await
    }

    async fn act(
        &self,
        resource: Box<Resource>,
        plugin: &Arc<dyn Action>,
        task: &Task,
        plan: Plan,
        cx: &Context,
    ) -> Result<Outcome, Error> {
        let result = match task.operation {
            Operation::Apply => plugin.apply(task).await,
            Operation::Destroy => plugin.destroy(task).await,
        };
        match result {
            Ok(progress) => self.progress(&resource, task, progress, plan, cx).await,
            Err(ActionError::Unknown(message)) => self.ask_later(&resource, &message, UNKNOWN, cx).await,
            Err(error) => {
                let ending = Ending::Failure { error, last_run: None, plan: Some(plan) };
                self.finish(&resource, task, ending, cx).await
            }
        }
    }

    /// Goes on with an attempt that is under way, also one of a process that is gone.
    pub(super) async fn resume(&self, resource: &Resource, cx: &Context) -> Result<Outcome, Error> {
        let Some(attempt) = resource.status.as_ref().and_then(|status| status.attempt.clone()) else {
            return Ok(Outcome::Requeue("no attempt is under way"));
        };
        let name = &resource.spec.action_plugin;
        let plugin = self.plugins.get(name).ok_or_else(|| ActionError::permanent(self.plugins.unknown(name)));
        let task =
            plugin.and_then(|plugin| Ok((plugin, self.task(resource, attempt.operation, Check::Trust, cx)?)));
        let (plugin, mut task) = match task {
            Ok(found) => found,
            // What was begun cannot be followed any more: no plugin, or no such type.
            Err(error) => return self.ask_later(resource, &error.to_string(), LONGEST_POLL, cx).await,
        };
        task.generation = attempt.generation;
        if attempt.phase == AttemptPhase::Planning {
            return self.plan(Box::new(resource.clone()), &plugin, &task, cx).await;
        }
        let unsaved = lock(&self.unsaved).get(&attempt.id).cloned();
        let checkpoint = unsaved.or(attempt.checkpoint);
        match plugin.resume(&task, checkpoint.as_ref()).await {
            Ok(progress) => self.progress(resource, &task, progress, Plan::default(), cx).await,
            Err(ActionError::Permanent(message)) => {
                let ending = Ending::Failure {
                    error: ActionError::Permanent(message),
                    last_run: checkpoint,
                    plan: None,
                };
                self.finish(resource, &task, ending, cx).await
            }
            Err(ActionError::Transient { message, retry_after }) => {
                let delay = retry_after.unwrap_or_else(|| poll_delay(attempt.poll_failures));
                let delay = delay.min(self.settings.back_off_longest);
                self.ask_later(resource, &message, delay, cx).await
            }
            Err(ActionError::Unknown(message)) => {
                self.ask_later(resource, &message, poll_delay(attempt.poll_failures), cx).await
            }
        }
    }

    /// Stops an apply because the resource is being deleted; the destroy follows.
    pub(super) async fn cancel(&self, resource: &Resource, cx: &Context) -> Result<Outcome, Error> {
        let name = &resource.spec.action_plugin;
        let Some(plugin) = self.plugins.get(name) else {
            return self.ask_later(resource, &self.plugins.unknown(name), LONGEST_POLL, cx).await;
        };
        let Ok(task) = self.task(resource, Operation::Apply, Check::Trust, cx) else {
            return Ok(Outcome::Requeue("changed meanwhile"));
        };
        let attempt = resource.status.as_ref().and_then(|status| status.attempt.clone());
        let checkpoint = attempt.as_ref().and_then(|attempt| {
            lock(&self.unsaved).get(&attempt.id).cloned().or_else(|| attempt.checkpoint.clone())
        });
        if plugin.describe().can(Capability::Cancel)
            && let Err(error) = plugin.cancel(&task, checkpoint.as_ref()).await
        {
            let failures = attempt.map_or(0, |attempt| attempt.poll_failures);
            let mut stopping = resource.clone();
            if let Some(attempt) = stopping.status.as_mut().and_then(|status| status.attempt.as_mut()) {
                attempt.cancelling = true;
            }
            return self.ask_later(&stopping, &error.to_string(), poll_delay(failures), cx).await;
        }
        let error = ActionError::transient("cancelled because the resource is being deleted");
        let ending = Ending::Failure { error, last_run: checkpoint, plan: None };
        self.finish(resource, &task, ending, cx).await?;
        Ok(Outcome::Requeue("destroy"))
    }

    async fn progress(
        &self,
        resource: &Resource,
        task: &Task,
        progress: Progress,
        plan: Plan,
        cx: &Context,
    ) -> Result<Outcome, Error> {
        let (checkpoint, after, message) = match progress {
            Progress::Done(done) => {
                return self.finish(resource, task, Ending::Success(done, plan), cx).await;
            }
            Progress::Failed { message, last_run } => {
                let error = ActionError::transient(message);
                return self
                    .finish(resource, task, Ending::Failure { error, last_run, plan: Some(plan) }, cx)
                    .await;
            }
            Progress::Running { checkpoint, after, message } => (checkpoint, after, message),
        };
        let mut status = resource.status.clone().unwrap_or_default();
        if let Some(attempt) = &mut status.attempt {
            attempt.checkpoint = Some(checkpoint.clone());
            attempt.poll_at = cx.now().checked_add(after).ok();
            attempt.poll_failures = 0;
        }
        status.message = Some(redact(&message, [&task.config, &task.parameters]));
        // What is known only here must outlive a server that does not answer.
        lock(&self.unsaved).insert(task.attempt.clone(), checkpoint);
        if let Written::Yes(_) = self.write(cx, resource, &status, OnChange::Insist).await? {
            lock(&self.unsaved).remove(&task.attempt);
        }
        Ok(Outcome::RequeueAfter(after, "the action is under way"))
    }

    /// Keeps the attempt and asks again: it may be going on.
    async fn ask_later(
        &self,
        resource: &Resource,
        message: &str,
        delay: Duration,
        cx: &Context,
    ) -> Result<Outcome, Error> {
        let mut status = resource.status.clone().unwrap_or_default();
        if let Some(attempt) = &mut status.attempt {
            attempt.poll_at = cx.now().checked_add(delay).ok();
            attempt.poll_failures += 1;
        }
        let config = self.plugins.config(resource, None);
        status.message = Some(redact(message, [&config, &resource.spec.parameters]));
        self.write(cx, resource, &status, OnChange::Insist).await?;
        Ok(Outcome::RequeueAfter(delay, "the action may be under way"))
    }
}

fn acting(operation: Operation) -> AttemptPhase {
    match operation {
        Operation::Apply => AttemptPhase::Applying,
        Operation::Destroy => AttemptPhase::Destroying,
    }
}

fn poll_delay(failures: u32) -> Duration {
    UNKNOWN.saturating_mul(1 << failures.min(10)).min(LONGEST_POLL)
}
