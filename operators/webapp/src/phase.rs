//! What a WebApp reports, judged by its Deployment.

use crate::desired::{selector_text, url};
use crate::{Phase, WebApp, WebAppStatus};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus};
use k8s_openapi::api::core::v1::Service;
use steersman::conditions::{self, ConditionStatus, Observation};

/// The status of a WebApp whose Deployment and Service look like this.
pub(crate) fn report(
    webapp: &WebApp,
    deployment: &Deployment,
    service: Option<&Service>,
    now: Timestamp,
) -> WebAppStatus {
    // What the Deployment wants, which an autoscaler may have changed.
    let desired = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(webapp.spec.replicas);
    let seen = deployment.status.clone().unwrap_or_default();
    let before = webapp.status.clone().unwrap_or_default();
    let current = seen.observed_generation >= deployment.metadata.generation;
    let phase = phase(webapp, desired, &before, &seen, current);
    let mut status = WebAppStatus {
        replicas: seen.replicas.unwrap_or(0),
        available_replicas: seen.available_replicas.unwrap_or(0),
        url: service.map(|service| url(webapp, service)).or(before.url),
        selector: Some(selector_text(webapp)),
        phase: Some(phase),
        observed_generation: webapp.metadata.generation,
        conditions: before.conditions,
    };
    let generation = webapp.metadata.generation;
    for (r#type, (judged, reason, message)) in [
        ("Available", available(desired, &seen)),
        ("Progressing", progressing(desired, &seen, current)),
        ("Degraded", degraded(&seen)),
    ] {
        let observation = Observation { r#type, status: judged, reason, message, generation };
        conditions::set(&mut status.conditions, now, observation);
    }
    status
}

/// The status of a WebApp that cannot be had.
pub(crate) fn failure(webapp: &WebApp, reason: &'static str, message: &str, now: Timestamp) -> WebAppStatus {
    let before = webapp.status.clone().unwrap_or_default();
    let generation = webapp.metadata.generation;
    let mut status = WebAppStatus { phase: Some(Phase::Failed), observed_generation: generation, ..before };
    for (r#type, value) in [
        ("Available", ConditionStatus::False),
        ("Progressing", ConditionStatus::False),
        ("Degraded", ConditionStatus::True),
    ] {
        let message = message.to_owned();
        let observation = Observation { r#type, status: value, reason, message, generation };
        conditions::set(&mut status.conditions, now, observation);
    }
    status
}

type Judgement = (ConditionStatus, &'static str, String);

/// The state machine of [`Phase`].
fn phase(
    webapp: &WebApp,
    desired: i32,
    before: &WebAppStatus,
    seen: &DeploymentStatus,
    current: bool,
) -> Phase {
    let count = |number: Option<i32>| number.unwrap_or(0);
    let (total, updated) = (count(seen.replicas), count(seen.updated_replicas));
    let complete = total == desired && updated == desired && count(seen.available_replicas) == desired;
    let was_ready = matches!(before.phase, Some(Phase::Ready | Phase::Scaling));
    // Nothing of an older template runs: what is missing or too much is a matter of number.
    let same_template = total == updated;
    match () {
        () if webapp.metadata.deletion_timestamp.is_some() => Phase::Deleting,
        () if current && complete => Phase::Ready,
        () if was_ready && same_template && (total != desired || before.phase == Some(Phase::Scaling)) => {
            Phase::Scaling
        }
        () if !current => Phase::Reconciling,
        () => Phase::WaitingForPodsReady,
    }
}

fn condition<'a>(seen: &'a DeploymentStatus, kind: &str) -> Option<&'a DeploymentCondition> {
    seen.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

fn available(want: i32, seen: &DeploymentStatus) -> Judgement {
    let have = seen.available_replicas.unwrap_or(0);
    let counted = format!("{have} of {want} replicas are available");
    match condition(seen, "Available").map(|condition| condition.status.as_str()) {
        Some("True") => (ConditionStatus::True, "MinimumReplicasAvailable", counted),
        Some(_) => (ConditionStatus::False, "MinimumReplicasUnavailable", counted),
        None => {
            (ConditionStatus::Unknown, "DeploymentNotObserved", "the Deployment has not reported yet".into())
        }
    }
}

fn progressing(desired: i32, seen: &DeploymentStatus, current: bool) -> Judgement {
    let is = |number: Option<i32>| number.unwrap_or(0) == desired;
    if !current {
        let message = "the Deployment has yet to take in the latest change".into();
        return (ConditionStatus::True, "DeploymentUpdated", message);
    }
    if is(seen.replicas) && is(seen.updated_replicas) && is(seen.available_replicas) {
        let message = format!("all {desired} replicas run the latest image");
        return (ConditionStatus::False, "RolloutComplete", message);
    }
    if is_stuck(seen) {
        return (ConditionStatus::False, "ProgressDeadlineExceeded", stuck_message(seen));
    }
    let message = format!("{} of {desired} replicas are up to date", seen.updated_replicas.unwrap_or(0));
    (ConditionStatus::True, "RollingOut", message)
}

fn is_stuck(seen: &DeploymentStatus) -> bool {
    condition(seen, "Progressing")
        .is_some_and(|condition| condition.reason.as_deref() == Some("ProgressDeadlineExceeded"))
}

fn stuck_message(seen: &DeploymentStatus) -> String {
    let said = condition(seen, "Progressing").and_then(|condition| condition.message.clone());
    format!(
        "{} Look at the pods: kubectl describe pods shows what keeps them from starting.",
        said.unwrap_or_else(|| "The rollout has stopped.".into())
    )
}

fn degraded(seen: &DeploymentStatus) -> Judgement {
    if let Some(failure) = condition(seen, "ReplicaFailure").filter(|condition| condition.status == "True") {
        let message = failure.message.clone().unwrap_or_default();
        return (ConditionStatus::True, "ReplicaFailure", message);
    }
    if is_stuck(seen) {
        return (ConditionStatus::True, "ProgressDeadlineExceeded", stuck_message(seen));
    }
    (ConditionStatus::False, "AsExpected", "nothing is known to be wrong".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WebAppSpec;
    use serde_json::{Value, json};

    fn webapp(replicas: i32, phase: Option<Phase>) -> WebApp {
        let mut webapp =
            WebApp::new("web", WebAppSpec { image: "i".into(), replicas, port: 80, ..WebAppSpec::default() });
        webapp.metadata.generation = Some(3);
        webapp.status = phase.map(|phase| WebAppStatus { phase: Some(phase), ..WebAppStatus::default() });
        webapp
    }

    fn deployment(status: &Value) -> Deployment {
        serde_json::from_value(json!({"metadata": {"generation": 5}, "spec": {
            "selector": {}, "template": {}}, "status": status}))
        .expect("a deployment")
    }

    fn counts(generation: i64, total: i32, updated: i32, available: i32) -> Value {
        json!({"observedGeneration": generation, "replicas": total, "updatedReplicas": updated,
            "availableReplicas": available, "conditions": [{"type": "Available", "status": "True"}]})
    }

    #[test]
    fn the_phase_follows_the_rollout() {
        use Phase::{Created, Ready, Reconciling, Scaling, WaitingForPodsReady};
        let cases = [
            ("nothing yet", None, json!({}), Reconciling),
            ("seen for the first time", Some(Created), counts(5, 3, 3, 0), WaitingForPodsReady),
            ("the Deployment is behind", None, counts(4, 3, 3, 3), Reconciling),
            ("pods start", Some(Reconciling), counts(5, 3, 3, 1), WaitingForPodsReady),
            ("all there", Some(WaitingForPodsReady), counts(5, 3, 3, 3), Ready),
            ("scaled up, not seen yet", Some(Ready), counts(4, 1, 1, 1), Scaling),
            ("scaled up, pods start", Some(Scaling), counts(5, 3, 3, 1), Scaling),
            ("scaled down", Some(Ready), counts(5, 5, 5, 5), Scaling),
            ("scaled, done", Some(Scaling), counts(5, 3, 3, 3), Ready),
            ("a new image", Some(Ready), counts(5, 4, 1, 3), WaitingForPodsReady),
            ("a pod failed", Some(Ready), counts(5, 3, 3, 2), WaitingForPodsReady),
        ];
        for (case, before, seen, expected) in cases {
            let status = report(&webapp(3, before), &deployment(&seen), None, Timestamp::UNIX_EPOCH);
            assert_eq!(status.phase, Some(expected), "{case}");
            assert_eq!(status.observed_generation, Some(3));
        }
    }

    fn shown(status: &WebAppStatus, kind: &str) -> (String, String) {
        let found = conditions::find(&status.conditions, kind);
        found.map(|condition| (condition.status.clone(), condition.reason.clone())).unwrap_or_default()
    }

    #[test]
    fn conditions_say_whether_it_serves_moves_and_is_well() {
        let at = Timestamp::UNIX_EPOCH;
        let ready = report(&webapp(3, None), &deployment(&counts(5, 3, 3, 3)), None, at);
        assert_eq!(shown(&ready, "Available"), ("True".into(), "MinimumReplicasAvailable".into()));
        assert_eq!(shown(&ready, "Progressing"), ("False".into(), "RolloutComplete".into()));
        assert_eq!(shown(&ready, "Degraded"), ("False".into(), "AsExpected".into()));

        let mut stuck = counts(5, 3, 3, 0);
        stuck["conditions"] = json!([
            {"type": "Available", "status": "False"},
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "Timed out."}]);
        let stuck = report(&webapp(3, None), &deployment(&stuck), None, at);
        assert_eq!(shown(&stuck, "Available"), ("False".into(), "MinimumReplicasUnavailable".into()));
        assert_eq!(shown(&stuck, "Progressing"), ("False".into(), "ProgressDeadlineExceeded".into()));
        assert_eq!(shown(&stuck, "Degraded"), ("True".into(), "ProgressDeadlineExceeded".into()));
    }

    #[test]
    fn a_webapp_that_is_being_deleted_says_so() {
        let mut leaving = webapp(3, Some(Phase::Ready));
        leaving.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
        let status = report(&leaving, &deployment(&counts(5, 3, 3, 3)), None, Timestamp::UNIX_EPOCH);
        assert_eq!(status.phase, Some(Phase::Deleting));
    }

    #[test]
    fn a_failure_is_degraded_and_not_available() {
        let status = failure(&webapp(3, Some(Phase::Ready)), "NameTaken", "why", Timestamp::UNIX_EPOCH);
        assert_eq!(status.phase, Some(Phase::Failed));
        assert_eq!(shown(&status, "Degraded"), ("True".into(), "NameTaken".into()));
        assert_eq!(shown(&status, "Available"), ("False".into(), "NameTaken".into()));
    }
}
