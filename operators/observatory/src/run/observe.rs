//! What a pod says about its attempt.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use kube::Resource;

use super::names::CONTAINER;

/// What can be seen of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Its container has not started.
    Waiting {
        /// Why, in one word.
        reason: String,
        /// Why, in a sentence.
        message: Option<String>,
        /// Whether waiting longer will probably not help.
        image: Image,
    },
    /// Its container runs.
    Running {
        /// Since when.
        since: Option<Timestamp>,
    },
    /// It is over.
    Ended(End),
}

/// Whether the image is the reason for a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Image {
    /// Not known to be.
    #[default]
    Fine,
    /// It cannot be had, or the container cannot be made from it.
    Unusable,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Whether it did what it should.
    pub verdict: Verdict,
    /// When the container started, if it did.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// The container's exit code, if it got that far.
    pub exit_code: Option<i32>,
    /// Why it failed, in one word.
    pub reason: Option<String>,
    /// Why it failed, in a sentence.
    pub message: Option<String>,
}

/// Whether an attempt did what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It did.
    Succeeded,
    /// It did not.
    Failed(Failure),
}

/// What kind of failure it was; decides whether it is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The container ended with an exit code other than 0.
    Exit,
    /// It took too long.
    Timeout,
    /// It could not start, or was deleted or lost.
    Error,
    /// The node was at fault.
    Infrastructure,
}

/// Reasons of a pod's failure for which its node is to blame.
const NODE_FAULTS: [&str; 13] = [
    "Evicted",
    "NodeShutdown",
    "NodeLost",
    "Shutdown",
    "Terminated",
    "NodeAffinity",
    "UnexpectedAdmissionError",
    "Preempting",
    "Preempted",
    "OutOfcpu",
    "OutOfmemory",
    "OutOfpods",
    "NodeUnreachable",
];

/// Reasons of a container's wait that time alone seldom heals.
const IMAGE_FAULTS: [&str; 8] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "CreateContainerConfigError",
    "CreateContainerError",
];

/// Whether a recorded reason is a fault of the node.
pub fn is_node_fault(reason: &str) -> bool {
    NODE_FAULTS.contains(&reason)
}

/// Reads a pod.
pub fn observe(pod: &Pod) -> Sight {
    let nothing = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&nothing);
    let container = main_container(status);
    let state = container.and_then(|container| container.state.as_ref());
    match status.phase.as_deref() {
        Some("Succeeded") => Sight::Ended(succeeded(state.and_then(|state| state.terminated.as_ref()))),
        Some("Failed") => {
            Sight::Ended(failed(pod, status, state.and_then(|state| state.terminated.as_ref())))
        }
        _ if is_abandoned(pod) => Sight::Ended(End {
            verdict: Verdict::Failed(Failure::Error),
            started: state.and_then(|state| state.running.as_ref()?.started_at.as_ref()).map(|time| time.0),
            ended: None,
            exit_code: None,
            reason: Some("PodDeleted".to_owned()),
            message: Some("the pod was deleted before it ended".to_owned()),
        }),
        _ => match state {
            Some(state) if state.running.is_some() => {
                let since = state.running.as_ref().and_then(|running| running.started_at.as_ref());
                Sight::Running { since: since.map(|time| time.0) }
            }
            Some(state) if state.terminated.is_some() => {
                // The pod's phase follows; another container may still run.
                let since = state.terminated.as_ref().and_then(|end| end.started_at.as_ref());
                Sight::Running { since: since.map(|time| time.0) }
            }
            _ => waiting(status, container),
        },
    }
}

fn main_container(status: &PodStatus) -> Option<&ContainerStatus> {
    status.container_statuses.iter().flatten().find(|container| container.name == CONTAINER)
}

/// Deleted, and no kubelet will say how it ended: there was none yet, or it is done with the pod.
fn is_abandoned(pod: &Pod) -> bool {
    let unbound =
        pod.spec.as_ref().is_none_or(|spec| spec.node_name.as_deref().unwrap_or_default().is_empty());
    pod.meta().deletion_timestamp.is_some()
        && (unbound || pod.meta().deletion_grace_period_seconds == Some(0))
}

fn succeeded(end: Option<&ContainerStateTerminated>) -> End {
    End {
        verdict: Verdict::Succeeded,
        started: end.and_then(|end| end.started_at.as_ref()).map(|time| time.0),
        ended: end.and_then(|end| end.finished_at.as_ref()).map(|time| time.0),
        exit_code: end.map(|end| end.exit_code),
        reason: None,
        message: None,
    }
}

fn failed(pod: &Pod, status: &PodStatus, end: Option<&ContainerStateTerminated>) -> End {
    let started = end.and_then(|end| end.started_at.as_ref()).map(|time| time.0);
    let pod_reason = status.reason.as_deref().unwrap_or_default();
    let base = End {
        verdict: Verdict::Failed(Failure::Error),
        started,
        ended: end.and_then(|end| end.finished_at.as_ref()).map(|time| time.0),
        exit_code: end.map(|end| end.exit_code),
        reason: None,
        message: None,
    };
    let fault = is_node_fault(pod_reason).then_some(pod_reason).or_else(|| disruption(status));
    if let Some(reason) = fault {
        let message = status.message.clone().unwrap_or_else(|| "the node ended the pod".to_owned());
        return End {
            verdict: Verdict::Failed(Failure::Infrastructure),
            reason: Some(reason.to_owned()),
            message: Some(short(&message)),
            ..base
        };
    }
    if pod_reason == "DeadlineExceeded" {
        return End {
            verdict: Verdict::Failed(Failure::Timeout),
            reason: Some("TimedOut".to_owned()),
            message: Some("the pod reached its activeDeadlineSeconds".to_owned()),
            ..base
        };
    }
    if pod.meta().deletion_timestamp.is_some() {
        return End {
            reason: Some("PodDeleted".to_owned()),
            message: Some("the pod was deleted before it ended".to_owned()),
            ..base
        };
    }
    let Some(end) = end else {
        let reason = if pod_reason.is_empty() { "PodFailed" } else { pod_reason };
        let message = status.message.as_deref().unwrap_or("the pod failed before its container ran");
        return End { reason: Some(reason.to_owned()), message: Some(short(message)), ..base };
    };
    let telling = ["OOMKilled", "StartError", "ContainerCannotRun"];
    let reason = end.reason.as_deref().filter(|reason| telling.contains(reason)).unwrap_or("ExitCode");
    let said = end.message.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let message = match (reason, said) {
        ("OOMKilled", _) => "the container used more memory than its limit".to_owned(),
        (_, Some(said)) => format!("exit code {}: {}", end.exit_code, last_line(said)),
        (_, None) => format!("exit code {}", end.exit_code),
    };
    End {
        verdict: Verdict::Failed(Failure::Exit),
        reason: Some(reason.to_owned()),
        message: Some(message),
        ..base
    }
}

/// A pod that the cluster took away says so in a condition.
fn disruption(status: &PodStatus) -> Option<&'static str> {
    let conditions = status.conditions.iter().flatten();
    let mut targets = conditions.filter(|one| one.type_ == "DisruptionTarget" && one.status == "True");
    match targets.next()?.reason.as_deref() {
        Some("PreemptionByScheduler") => Some("Preempted"),
        Some("TerminationByKubelet") => Some("NodeShutdown"),
        Some("DeletionByPodGC") => Some("NodeLost"),
        _ => Some("Evicted"),
    }
}

fn waiting(status: &PodStatus, container: Option<&ContainerStatus>) -> Sight {
    let state = container.and_then(|container| container.state.as_ref()?.waiting.as_ref());
    if let Some(waiting) = state {
        let reason = waiting.reason.clone().unwrap_or_else(|| "Starting".to_owned());
        let image = if IMAGE_FAULTS.contains(&reason.as_str()) { Image::Unusable } else { Image::Fine };
        return Sight::Waiting { reason, message: waiting.message.as_deref().map(short), image };
    }
    let conditions = status.conditions.iter().flatten();
    let mut unscheduled = conditions.filter(|one| one.type_ == "PodScheduled" && one.status == "False");
    if let Some(condition) = unscheduled.next() {
        let reason = condition.reason.clone().unwrap_or_else(|| "Unschedulable".to_owned());
        return Sight::Waiting {
            reason,
            message: condition.message.as_deref().map(short),
            image: Image::Fine,
        };
    }
    Sight::Waiting { reason: "Starting".to_owned(), message: None, image: Image::Fine }
}

/// Statuses hold sentences, not logs.
fn short(text: &str) -> String {
    const LONGEST: usize = 300;
    match text.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text.to_owned(),
    }
}

fn last_line(text: &str) -> String {
    short(text.lines().last().unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "what json! makes is handed over")]
    fn pod(meta: Value, status: Value) -> Pod {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": meta,
            "spec": {"nodeName": "n", "containers": []}, "status": status,
        }))
        .expect("a pod")
    }

    fn terminated(code: i32, message: &str) -> Value {
        json!({"phase": if code == 0 { "Succeeded" } else { "Failed" }, "containerStatuses": [{
            "name": "task", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {
                "exitCode": code, "message": message,
                "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:05Z",
            }},
        }]})
    }

    fn end(meta: Value, status: Value) -> End {
        match observe(&pod(meta, status)) {
            Sight::Ended(end) => end,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn exit_code_0_is_success_and_any_other_a_failure_with_the_last_words() {
        assert_eq!(end(json!({}), terminated(0, "")).verdict, Verdict::Succeeded);
        let failed = end(json!({}), terminated(3, "reading\nno such table\n"));
        assert_eq!(failed.verdict, Verdict::Failed(Failure::Exit));
        assert_eq!(failed.message.as_deref(), Some("exit code 3: no such table"));
        assert_eq!((failed.exit_code, failed.reason.as_deref()), (Some(3), Some("ExitCode")));
    }

    #[test]
    fn an_evicted_pod_is_the_nodes_fault() {
        let evicted =
            end(json!({}), json!({"phase": "Failed", "reason": "Evicted", "message": "disk pressure"}));
        assert_eq!(evicted.verdict, Verdict::Failed(Failure::Infrastructure));
        assert_eq!(evicted.started, None);
        let preempted = end(
            json!({}),
            json!({"phase": "Failed", "conditions": [
                {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
            ]}),
        );
        assert_eq!(preempted.reason.as_deref(), Some("Preempted"));
    }

    #[test]
    fn an_image_that_cannot_be_had_is_told_from_a_node_without_room() {
        let waiting = |reason: &str| {
            json!({"phase": "Pending", "containerStatuses": [{
                "name": "task", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": reason, "message": "m"}},
            }]})
        };
        let image = |status: Value| match observe(&pod(json!({}), status)) {
            Sight::Waiting { image, .. } => image,
            other => panic!("{other:?}"),
        };
        assert_eq!(image(waiting("ImagePullBackOff")), Image::Unusable);
        assert_eq!(image(waiting("ContainerCreating")), Image::Fine);
        let unschedulable = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
        ]});
        assert_eq!(image(unschedulable), Image::Fine);
    }

    #[test]
    fn a_deleted_pod_has_ended_only_when_its_node_says_so_or_there_is_none() {
        let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30});
        let running = json!({"phase": "Running", "containerStatuses": [{
            "name": "task", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }]});
        assert!(matches!(observe(&pod(deleting.clone(), running.clone())), Sight::Running { .. }));
        let done = json!({"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 0});
        assert_eq!(end(done, running).reason.as_deref(), Some("PodDeleted"));
        assert_eq!(end(deleting.clone(), terminated(143, "")).reason.as_deref(), Some("PodDeleted"));
        assert_eq!(end(deleting, terminated(0, "")).verdict, Verdict::Succeeded);
    }
}
