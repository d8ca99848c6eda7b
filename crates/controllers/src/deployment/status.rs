//! The status of a Deployment: counts, and the conditions that `kubectl rollout status` reads.

use super::budget::Budget;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

/// Condition type: the rollout moves, or has ended well.
const PROGRESSING: &str = "Progressing";
/// Condition type: enough pods are available.
const AVAILABLE: &str = "Available";
/// Condition type: a ReplicaSet could not create or delete pods.
const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Reason of `Progressing` once every pod is new and available.
const NEW_REPLICA_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
/// Reason of `Progressing` once nothing has moved for too long.
const DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
/// Reason of `Progressing` while the rollout is halted.
const PAUSED: &str = "DeploymentPaused";

/// The status under construction: what was reported before, and the moment we live in.
pub(super) struct Report {
    before: DeploymentStatus,
    conditions: Vec<DeploymentCondition>,
    deadline: Option<SignedDuration>,
    now: Timestamp,
}

impl Report {
    /// Starts from what the Deployment says of itself.
    pub(super) fn new(deployment: &Deployment, now: Timestamp) -> Self {
        let before = deployment.status.clone().unwrap_or_default();
        let deadline = deployment.spec.as_ref().and_then(|spec| spec.progress_deadline_seconds);
        Self {
            conditions: before.conditions.clone().unwrap_or_default(),
            before,
            // The largest number means "no deadline", as upstream's default for old API versions.
            deadline: deadline
                .filter(|seconds| *seconds != i32::MAX)
                .map(|s| SignedDuration::from_secs(s.into())),
            now,
        }
    }

    /// Notes a pause or its end, so that the time spent paused never counts against the deadline.
    pub(super) fn pause(&mut self, deployment: &Deployment) {
        if self.deadline.is_none() || self.reason(PROGRESSING) == Some(DEADLINE_EXCEEDED) {
            return;
        }
        let paused = deployment.spec.as_ref().and_then(|spec| spec.paused).unwrap_or(false);
        let noted = self.reason(PROGRESSING) == Some(PAUSED);
        if paused && !noted {
            self.set(PROGRESSING, "Unknown", PAUSED, "Deployment is paused".into());
        } else if !paused && noted {
            self.set(PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed".into());
        }
    }

    /// Notes that the rollout's ReplicaSet was created.
    pub(super) fn created(&mut self, name: &str) {
        if self.deadline.is_some() {
            let message = format!("Created new replica set \"{name}\"");
            self.set(PROGRESSING, "True", "NewReplicaSetCreated", message);
        }
    }

    /// Notes that a ReplicaSet for the template was already there.
    pub(super) fn found(&mut self, name: &str) {
        if self.deadline.is_some() && self.reason(PROGRESSING).is_none() {
            let message = format!("Found new replica set \"{name}\"");
            self.set(PROGRESSING, "True", "FoundNewReplicaSet", message);
        }
    }

    /// The status of a Deployment that is paused or being scaled: counts and availability, no
    /// judgement of progress.
    pub(super) fn counts(
        mut self,
        deployment: &Deployment,
        new: Option<&ReplicaSet>,
        old: &[&ReplicaSet],
    ) -> DeploymentStatus {
        let mut status = self.count(deployment, new, old);
        status.conditions = Some(self.conditions).filter(|conditions| !conditions.is_empty());
        status
    }

    /// The status of a Deployment in rollout, and when to look again lest a standstill go unseen.
    pub(super) fn rollout(
        mut self,
        deployment: &Deployment,
        new: Option<&ReplicaSet>,
        old: &[&ReplicaSet],
    ) -> (DeploymentStatus, Option<SignedDuration>) {
        let mut status = self.count(deployment, new, old);
        let desired = Budget::of(deployment).desired;
        let complete = is_complete(&status, desired);
        let mut check = None;
        match self.deadline {
            None => self.conditions.retain(|condition| condition.type_ != PROGRESSING),
            Some(deadline) => {
                let subject = match new {
                    Some(new) => format!("ReplicaSet \"{}\"", new.name_any()),
                    None => format!("Deployment \"{}\"", deployment.name_any()),
                };
                let done = status.replicas == status.updated_replicas
                    && self.reason(PROGRESSING) == Some(NEW_REPLICA_SET_AVAILABLE);
                if !done {
                    self.judge(&status, complete, deadline, &subject);
                }
                check = self.next_check(complete, deadline);
            }
        }
        match replica_failure(new, old) {
            Some(failure) => self.put(failure),
            None => self.conditions.retain(|condition| condition.type_ != REPLICA_FAILURE),
        }
        status.conditions = Some(self.conditions).filter(|conditions| !conditions.is_empty());
        (status, check)
    }

    fn judge(&mut self, status: &DeploymentStatus, complete: bool, deadline: SignedDuration, subject: &str) {
        if complete {
            let message = format!("{subject} has successfully progressed.");
            self.set(PROGRESSING, "True", NEW_REPLICA_SET_AVAILABLE, message);
        } else if has_progressed(&self.before, status) {
            // The same reason again is news here: its time is what the deadline counts from.
            let since = self.condition(PROGRESSING).filter(|before| before.status == "True");
            let since = since.and_then(|before| before.last_transition_time.clone());
            self.conditions.retain(|condition| condition.type_ != PROGRESSING);
            let message = format!("{subject} is progressing.");
            let mut condition = self.condition_of(PROGRESSING, "True", "ReplicaSetUpdated", message);
            condition.last_transition_time = since.or(condition.last_transition_time);
            self.conditions.push(condition);
        } else if self.overdue(deadline) {
            let message = format!("{subject} has timed out progressing.");
            self.set(PROGRESSING, "False", DEADLINE_EXCEEDED, message);
        }
    }

    fn overdue(&self, deadline: SignedDuration) -> bool {
        let Some(condition) = self.condition(PROGRESSING) else { return false };
        match condition.reason.as_deref() {
            Some(NEW_REPLICA_SET_AVAILABLE) => false,
            Some(DEADLINE_EXCEEDED) => true,
            _ => self.idle(condition) > deadline,
        }
    }

    fn idle(&self, condition: &DeploymentCondition) -> SignedDuration {
        let last = condition.last_update_time.as_ref().map_or(self.now, |time| time.0);
        self.now.duration_since(last)
    }

    fn next_check(&self, complete: bool, deadline: SignedDuration) -> Option<SignedDuration> {
        let condition = self.condition(PROGRESSING)?;
        if complete || condition.reason.as_deref() == Some(DEADLINE_EXCEEDED) {
            return None;
        }
        // Times are kept in whole seconds: one more makes sure the deadline has passed by then.
        let left = deadline - self.idle(condition) + SignedDuration::from_secs(1);
        Some(left.max(SignedDuration::from_secs(1)))
    }

    fn count(
        &mut self,
        deployment: &Deployment,
        new: Option<&ReplicaSet>,
        old: &[&ReplicaSet],
    ) -> DeploymentStatus {
        let all: Vec<&ReplicaSet> = old.iter().copied().chain(new).collect();
        let sum = |field: fn(&ReplicaSet) -> i32| all.iter().map(|set| field(set)).sum::<i32>();
        let available = sum(available);
        let total = sum(replicas);
        let budget = Budget::of(deployment);
        if available >= budget.floor() {
            let message = "Deployment has minimum availability.";
            self.set(AVAILABLE, "True", "MinimumReplicasAvailable", message.into());
        } else {
            let message = "Deployment does not have minimum availability.";
            self.set(AVAILABLE, "False", "MinimumReplicasUnavailable", message.into());
        }
        let counted = |number: i32| Some(number).filter(|number| *number != 0);
        DeploymentStatus {
            observed_generation: deployment.metadata.generation,
            replicas: counted(sum(|set| set.status.as_ref().map_or(0, |status| status.replicas))),
            updated_replicas: counted(
                new.and_then(|set| set.status.as_ref()).map_or(0, |status| status.replicas),
            ),
            ready_replicas: counted(sum(|set| {
                set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0)
            })),
            available_replicas: counted(available),
            unavailable_replicas: counted((total - available).max(0)),
            terminating_replicas: terminating(&all),
            collision_count: self.before.collision_count,
            conditions: None,
        }
    }

    fn condition(&self, kind: &str) -> Option<&DeploymentCondition> {
        self.conditions.iter().find(|condition| condition.type_ == kind)
    }

    fn reason(&self, kind: &str) -> Option<&str> {
        self.condition(kind)?.reason.as_deref()
    }

    fn condition_of(&self, kind: &str, status: &str, reason: &str, message: String) -> DeploymentCondition {
        DeploymentCondition {
            type_: kind.into(),
            status: status.into(),
            reason: Some(reason.into()),
            message: Some(message),
            last_update_time: Some(Time(self.now)),
            last_transition_time: Some(Time(self.now)),
        }
    }

    fn set(&mut self, kind: &str, status: &str, reason: &str, message: String) {
        let condition = self.condition_of(kind, status, reason, message);
        self.put(condition);
    }

    /// Puts a condition in; one of the same status and reason stays as it is, times included.
    fn put(&mut self, mut condition: DeploymentCondition) {
        if let Some(before) = self.condition(&condition.type_) {
            if before.status == condition.status && before.reason == condition.reason {
                return;
            }
            if before.status == condition.status {
                condition.last_transition_time.clone_from(&before.last_transition_time);
            }
        }
        self.conditions.retain(|before| before.type_ != condition.type_);
        self.conditions.push(condition);
    }
}

/// The status of a Deployment whose ReplicaSet could not be created.
pub(super) fn creation_failed(deployment: &Deployment, message: &str, now: Timestamp) -> DeploymentStatus {
    let mut report = Report::new(deployment, now);
    if report.deadline.is_some() {
        report.set(PROGRESSING, "False", "ReplicaSetCreateError", message.into());
    }
    DeploymentStatus { conditions: Some(report.conditions), ..report.before }
}

/// Whether the rollout has ended well: all pods are new, there are no others, all are available.
pub(super) fn is_complete(status: &DeploymentStatus, desired: i32) -> bool {
    let is = |count: Option<i32>| count.unwrap_or(0) == desired;
    is(status.updated_replicas) && is(status.replicas) && is(status.available_replicas)
}

/// Whether anything moved for the better between two statuses.
fn has_progressed(before: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let count = |number: Option<i32>| number.unwrap_or(0);
    let old = |status: &DeploymentStatus| count(status.replicas) - count(status.updated_replicas);
    count(after.updated_replicas) > count(before.updated_replicas)
        || old(after) < old(before)
        || count(after.ready_replicas) > count(before.ready_replicas)
        || count(after.available_replicas) > count(before.available_replicas)
}

/// The size a ReplicaSet should have.
pub(super) fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// The available pods a ReplicaSet reports.
pub(super) fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

/// The pods on their way out; unknown when one ReplicaSet that was looked at does not say.
fn terminating(sets: &[&ReplicaSet]) -> Option<i32> {
    sets.iter().try_fold(0, |sum, set| {
        let status = set.status.as_ref();
        match status.and_then(|status| status.terminating_replicas) {
            Some(count) => Some(sum + count),
            None if status.and_then(|status| status.observed_generation).unwrap_or(0) == 0 => Some(sum),
            None => None,
        }
    })
}

/// A failure reported by a ReplicaSet; one of the new ReplicaSet is told before others.
fn replica_failure(new: Option<&ReplicaSet>, old: &[&ReplicaSet]) -> Option<DeploymentCondition> {
    let failures = new.into_iter().chain(old.iter().copied());
    let mut failures = failures.filter_map(|set| set.status.as_ref()?.conditions.as_ref()).flatten();
    failures.find(|condition| condition.type_ == REPLICA_FAILURE).map(|condition| DeploymentCondition {
        type_: condition.type_.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        last_update_time: condition.last_transition_time.clone(),
        last_transition_time: condition.last_transition_time.clone(),
    })
}
