//! Questions every controller asks about a pod: is it ready, available, active, and which of
//! several should go first.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::ResourceExt;
use std::cmp::{Ordering, Reverse};

/// The pod's condition of that type.
pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

/// Whether the pod's `Ready` condition is true.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Since when the pod has been ready, when it is.
fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|ready| ready.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// When a pod counts, or will count, as available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    /// Not ready.
    Unready,
    /// Ready, and available after this much longer.
    In(SignedDuration),
    /// Ready for long enough.
    Available,
}

/// Whether a pod has been ready for `min_ready_seconds`.
pub(crate) fn availability(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Availability {
    if !is_ready(pod) {
        return Availability::Unready;
    }
    if min_ready_seconds <= 0 {
        return Availability::Available;
    }
    let wanted = SignedDuration::from_secs(min_ready_seconds.into());
    match ready_since(pod) {
        Some(since) => match wanted - now.duration_since(since) {
            left if left <= SignedDuration::ZERO => Availability::Available,
            left => Availability::In(left.min(wanted)),
        },
        None => Availability::In(wanted),
    }
}

/// The pod's phase, `Pending` when nobody has reported one yet.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// Whether the pod has run to its end and will not run again.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether the pod counts towards its controller's replicas: neither finished nor on its way out.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Whether the pod is on its way out but has not finished.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.metadata.deletion_timestamp.is_some()
}

/// The node the pod is bound to.
pub(crate) fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// The highest restart count of the pod's containers.
fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.into_iter().flatten().map(|status| status.restart_count).max().unwrap_or(0)
}

/// What the annotation `controller.kubernetes.io/pod-deletion-cost` says; cheaper pods go first.
fn deletion_cost(pod: &Pod) -> i32 {
    let cost = pod.annotations().get("controller.kubernetes.io/pod-deletion-cost");
    cost.and_then(|cost| cost.parse().ok()).unwrap_or(0)
}

/// Orders pods by how gladly a controller parts with them: the first is deleted first.
///
/// Unbound before bound, pending before running, not ready before ready, cheaper before dearer,
/// crowded (more ready siblings on the same node) before lonely, shortly ready before long ready,
/// often restarted before stable, young before old; then by name, so that every replica of a
/// controller chooses alike.
pub(crate) fn deletion_order(a: &Pod, b: &Pod, crowd: impl Fn(&Pod) -> usize) -> Ordering {
    let rank = |pod: &Pod| match phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    // Without a time counts as newer than any time.
    let newest_first = |time: Option<Timestamp>| Reverse(time.unwrap_or(Timestamp::MAX));
    let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let key = |pod: &Pod| {
        (
            (node_name(pod).is_some(), rank(pod), is_ready(pod), deletion_cost(pod)),
            Reverse(crowd(pod)),
            newest_first(if is_ready(pod) { ready_since(pod) } else { None }),
            Reverse(restarts(pod)),
            newest_first(created(pod)),
        )
    };
    key(a).cmp(&key(b)).then_with(|| a.name_any().cmp(&b.name_any()))
}

/// Looks up a container port by its name in a pod.
pub(crate) fn named_port(pod: &Pod, name: &str, protocol: &str) -> Option<i32> {
    let spec = pod.spec.as_ref()?;
    // A restartable init container is a sidecar: it serves like any other container.
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    spec.containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten())
        .find(|port| {
            port.name.as_deref() == Some(name) && port.protocol.as_deref().unwrap_or("TCP") == protocol
        })
        .map(|port| port.container_port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).expect("a pod")
    }

    fn ready_at(name: &str, time: &str) -> Pod {
        pod(json!({
            "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": time}]}
        }))
    }

    #[test]
    fn a_pod_is_available_once_it_has_been_ready_for_long_enough() {
        let pod = ready_at("a", "2026-01-01T00:00:00Z");
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        assert_eq!(availability(&pod, 0, at("2026-01-01T00:00:00Z")), Availability::Available);
        let left = availability(&pod, 10, at("2026-01-01T00:00:04Z"));
        assert_eq!(left, Availability::In(SignedDuration::from_secs(6)));
        assert_eq!(availability(&pod, 10, at("2026-01-01T00:00:10Z")), Availability::Available);
        let skewed = availability(&pod, 10, at("2025-12-31T00:00:00Z"));
        assert_eq!(skewed, Availability::In(SignedDuration::from_secs(10)), "a skewed clock waits no longer");
    }

    #[test]
    fn the_least_useful_pod_is_deleted_first() {
        let unbound = pod(json!({"metadata": {"name": "unbound"}, "spec": {"containers": []}}));
        let pending = pod(json!({"metadata": {"name": "pending"},
            "spec": {"nodeName": "n", "containers": []}, "status": {"phase": "Pending"}}));
        let unready = pod(json!({"metadata": {"name": "unready"},
            "spec": {"nodeName": "n", "containers": []}, "status": {"phase": "Running"}}));
        let mut cheap = ready_at("cheap", "2026-01-01T00:00:00Z");
        cheap.annotations_mut().insert("controller.kubernetes.io/pod-deletion-cost".into(), "-5".into());
        let young = ready_at("young", "2026-01-02T00:00:00Z");
        let mut restarted = ready_at("restarted", "2026-01-01T00:00:00Z");
        if let Some(status) = restarted.status.as_mut() {
            status.container_statuses = serde_json::from_value(
                json!([{"name": "c", "restartCount": 3, "ready": true, "image": "", "imageID": ""}]),
            )
            .expect("statuses");
        }
        let old = ready_at("zzz-old", "2026-01-01T00:00:00Z");
        let mut pods = [old, restarted, young, cheap, unready, pending, unbound];
        pods.sort_by(|a, b| deletion_order(a, b, |_| 0));
        let names: Vec<_> = pods.iter().map(|pod| pod.name_any()).collect();
        assert_eq!(names, ["unbound", "pending", "unready", "cheap", "young", "restarted", "zzz-old"]);
    }

    #[test]
    fn of_equal_pods_the_one_in_the_larger_crowd_goes_first() {
        let mut lonely = ready_at("a-lonely", "2026-01-01T00:00:00Z");
        if let Some(spec) = lonely.spec.as_mut() {
            spec.node_name = Some("other".into());
        }
        let mut pods = [lonely, ready_at("b", "2026-01-01T00:00:00Z"), ready_at("c", "2026-01-01T00:00:00Z")];
        pods.sort_by(|a, b| deletion_order(a, b, |pod| if node_name(pod) == Some("n") { 2 } else { 1 }));
        assert_eq!(pods[2].name_any(), "a-lonely");
    }

    #[test]
    fn a_named_port_is_found_by_name_and_protocol() {
        let pod = pod(json!({"spec": {"containers": [
            {"name": "a", "ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"}]},
            {"name": "b", "ports": [{"name": "web", "containerPort": 8080}]}]}}));
        assert_eq!(named_port(&pod, "web", "TCP"), Some(8080));
        assert_eq!(named_port(&pod, "dns", "TCP"), None);
        assert_eq!(named_port(&pod, "dns", "UDP"), Some(53));
    }
}
