//! How an attempt ends: a line in the history, then a result in the status.

use std::time::Duration;

use kube::ResourceExt;
use sha2::{Digest, Sha256};
use steersman::conditions::{self, ConditionStatus, Observation};
use steersman::{Context, Error, EventType, Outcome};

use super::ledger::{OnChange, Written};
use super::{Resources, lock};
use crate::action::{ActionError, Changes, Completed, Plan, Task};
use crate::history::Record;
use crate::metrics::{Ended, Plugin};
use crate::redact::redact;
use crate::types::{Attempt, AttemptPhase, Operation, Resource, ResourceStatus, State, TRIGGER, Trigger};

/// How an attempt ended.
pub(super) enum Ending {
    Success(Completed, Plan),
    Failure { error: ActionError, last_run: Option<serde_json::Value>, plan: Option<Plan> },
}

impl Resources {
    /// Ends the attempt: first the history, then the status.
    pub(super) async fn finish(
        &self,
        resource: &Resource,
        task: &Task,
        ending: Ending,
        cx: &Context,
    ) -> Result<Outcome, Error> {
        let mut status = resource.status.clone().unwrap_or_default();
        let Some(attempt) = status.attempt.take() else {
            return Ok(Outcome::Requeue("no attempt is under way"));
        };
        let plugin = &resource.spec.action_plugin;
        let took = Duration::try_from(cx.now().duration_since(attempt.started_at)).unwrap_or_default();
        self.metrics.seconds.get_or_create(&Plugin::new(plugin)).observe(took.as_secs_f64());
        let record = record(resource, &attempt, &ending, took, task, cx);
        let result = if record.success { "success" } else { "failure" };
        self.metrics.attempts.get_or_create(&Ended::new(plugin, result)).inc();
        self.catalog.remember(record).await;

        status.last_reconcile_time = Some(cx.now());
        let uid = resource.uid().unwrap_or_default();
        let outcome = match ending {
            Ending::Success(done, _) => {
                status.failures = 0;
                status.last_reconciled_generation = Some(attempt.generation);
                status.outputs = Some(done.outputs);
                status.last_run = done.last_run;
                if attempt.operation == Operation::Apply {
                    status.state = Some(State::Ready);
                    status.message = Some("Reconciliation successful".into());
                } else {
                    status.message = Some("Destruction successful".into());
                }
                cx.event(EventType::Normal, "Reconciled", status.message.clone().unwrap_or_default());
                lock(&self.checks).remove(cx.key());
                Outcome::Done
            }
            Ending::Failure { error, last_run, .. } => {
                let message = redact(&error.to_string(), [&task.config, &task.parameters]);
                status.failures = status.failures.saturating_add(1);
                let mut delay = match &error {
                    ActionError::Permanent(_) => self.settings.back_off_longest,
                    _ => self.settings.delay(status.failures, &uid),
                };
                if let ActionError::Transient { retry_after: Some(after), .. } = &error {
                    // Not for ever, whatever the other side says.
                    delay = delay.max((*after).min(self.settings.back_off_longest));
                }
                status.next_attempt_at = cx.now().checked_add(delay).ok();
                status.last_run = last_run.or(status.last_run);
                if attempt.operation == Operation::Apply {
                    status.state = Some(State::Failed);
                }
                cx.event(EventType::Warning, "ReconciliationFailed", message.clone());
                status.message = Some(message);
                Outcome::RequeueAfter(delay, "a failed attempt is repeated later")
            }
        };
        observe(&mut status, cx);
        let Written::Yes(written) = self.write(cx, resource, &status, OnChange::Insist).await? else {
            return Ok(Outcome::Requeue("changed meanwhile"));
        };
        lock(&self.unsaved).remove(&attempt.id);
        if attempt.operation == Operation::Destroy {
            return Ok(outcome);
        }
        // What changed meanwhile, and the next drift check, are for the next decision.
        Ok(match super::decide(&written, cx.now(), self.drift_due(&written, cx)) {
            super::Step::Wait(delay, why) => Outcome::RequeueAfter(delay, why),
            super::Step::Rest => Outcome::Done,
            _ => Outcome::Requeue("there is more to do"),
        })
    }

    /// Says why nothing can be attempted; nothing is touched.
    pub(super) async fn refuse(
        &self,
        resource: &Resource,
        operation: Operation,
        trigger: Trigger,
        error: &ActionError,
        cx: &Context,
    ) -> Result<Outcome, Error> {
        let config = self.plugins.config(resource, None);
        let mut message = redact(&error.to_string(), [&config, &resource.spec.parameters]);
        let mut status = resource.status.clone().unwrap_or_default();
        status.observed_generation = resource.metadata.generation;
        status.observed_trigger = resource.annotations().get(TRIGGER).cloned();
        status.last_operation = Some(operation);
        status.next_attempt_at = None;
        status.failures = status.failures.max(1);
        match operation {
            Operation::Apply => status.state = Some(State::Failed),
            Operation::Destroy => {
                status.state = Some(State::Deleting);
                message.push_str("; to let the resource go without destroying anything, annotate it with infra.steersman.io/on-delete=orphan");
            }
        }
        status.message = Some(message.clone());
        observe(&mut status, cx);
        if resource.status.as_ref() != Some(&status) {
            cx.event(EventType::Warning, "Refused", message.clone());
            let uid = resource.uid().unwrap_or_default();
            let generation = resource.metadata.generation.unwrap_or_default();
            let digest = Sha256::digest(format!("{uid}/{generation}/{message}"));
            let attempt = Attempt {
                id: digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect(),
                operation,
                trigger,
                phase: AttemptPhase::Planning,
                generation,
                started_at: cx.now(),
                checkpoint: None,
                poll_at: None,
                poll_failures: 0,
                cancelling: false,
            };
            let ending = Ending::Failure { error: error.clone(), last_run: None, plan: None };
            let mut entry = record_of(resource, &attempt, &ending, Duration::ZERO, cx);
            entry.phase = "initializing".into();
            entry.error_message = Some(message);
            self.catalog.remember(entry).await;
            self.write(cx, resource, &status, OnChange::Yield).await?;
        }
        Ok(match operation {
            Operation::Apply => Outcome::Done,
            Operation::Destroy => Outcome::RequeueAfter(self.settings.back_off_first, "cannot be destroyed"),
        })
    }
}

fn record(
    resource: &Resource,
    attempt: &Attempt,
    ending: &Ending,
    took: Duration,
    task: &Task,
    cx: &Context,
) -> Record {
    let mut record = record_of(resource, attempt, ending, took, cx);
    for text in [&mut record.error_message, &mut record.plan, &mut record.apply].into_iter().flatten() {
        *text = redact(text, [&task.config, &task.parameters]);
    }
    record
}

fn record_of(
    resource: &Resource,
    attempt: &Attempt,
    ending: &Ending,
    took: Duration,
    cx: &Context,
) -> Record {
    let (success, error, plan, apply, changes) = match ending {
        Ending::Success(done, plan) => {
            let changes = done.changes.unwrap_or(plan.changes);
            (true, None, Some(plan.text.clone()), Some(done.text.clone()), changes)
        }
        Ending::Failure { error, plan, .. } => {
            let plan = plan.as_ref().map(|plan| plan.text.clone());
            (false, Some(error.to_string()), plan, None, Changes::default())
        }
    };
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    Record {
        attempt: attempt.id.clone(),
        resource_id: resource.id().unwrap_or_default(),
        resource_uid: resource.uid().unwrap_or_default(),
        resource_name: resource.short_name().to_owned(),
        resource_type: format!("{}/{}", resource.spec.type_name, resource.spec.type_version),
        action_plugin: resource.spec.action_plugin.clone(),
        generation: attempt.generation,
        success,
        phase: match (success, attempt.phase) {
            (true, _) => "completed".into(),
            (false, AttemptPhase::Planning) => "planning".into(),
            (false, AttemptPhase::Applying) => "applying".into(),
            (false, AttemptPhase::Destroying) => "destroying".into(),
        },
        error_message: error,
        created: changes.created,
        updated: changes.updated,
        deleted: changes.deleted,
        plan: filled(plan),
        apply: filled(apply),
        trigger: attempt.trigger.as_str().to_owned(),
        drift: attempt.trigger == Trigger::Drift,
        duration: took,
        time: cx.now(),
    }
}

/// Puts the state into conditions.
pub(super) fn observe(status: &mut ResourceStatus, cx: &Context) {
    let state = status.state.unwrap_or(State::Pending);
    let message = status.message.clone().unwrap_or_default();
    let generation = status.observed_generation;
    let ready = match state {
        State::Ready => (ConditionStatus::True, "Reconciled"),
        State::Failed => (ConditionStatus::False, "Failed"),
        State::Deleting => (ConditionStatus::False, "Deleting"),
        State::Pending | State::Reconciling => (ConditionStatus::Unknown, "Reconciling"),
    };
    let busy = status.attempt.is_some();
    let failing = status.failures > 0;
    let all = [
        ("Ready", ready.0, ready.1),
        ("Reconciling", busy.into(), if busy { "AttemptUnderWay" } else { "Idle" }),
        ("Degraded", failing.into(), if failing { "AttemptFailed" } else { "AsExpected" }),
    ];
    for (r#type, holds, reason) in all {
        let message = message.clone();
        conditions::set(
            &mut status.conditions,
            cx.now(),
            Observation { r#type, status: holds, reason, message, generation },
        );
    }
}
