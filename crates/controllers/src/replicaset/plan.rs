//! What a ReplicaSet should do next, and what it reports, decided without any I/O.

use crate::owner::{Claim, claim, controller_reference};
use crate::pods::{self, Availability, availability, deletion_order, is_active, is_ready, node_name};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;
use kube::core::Selector;
use std::collections::HashMap;
use std::sync::Arc;

/// Most pods created or deleted in one go; the rest follows in the next.
const BURST: usize = 500;

/// One write to a pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Become the pod's controller.
    Adopt(Arc<Pod>),
    /// Stop being the pod's controller.
    Release(Arc<Pod>),
    /// Create this many pods from the template.
    Create(usize),
    /// Delete pods that are too many.
    Delete(Vec<Arc<Pod>>),
}

/// The pods of a ReplicaSet, sorted out.
#[derive(Clone, Debug, Default)]
pub(super) struct Sorted {
    /// Neither finished nor on their way out; the ones that count.
    pub(super) active: Vec<Arc<Pod>>,
    /// On their way out.
    terminating: usize,
    /// Matching and nobody's.
    adopt: Vec<Arc<Pod>>,
    /// Ours and matching no longer.
    release: Vec<Arc<Pod>>,
}

/// Sorts out the pods a ReplicaSet could care for. Adopted pods count as active at once.
pub(super) fn sort(set: &ReplicaSet, selector: &Selector, candidates: Vec<Arc<Pod>>) -> Sorted {
    let mut sorted = Sorted::default();
    for pod in candidates {
        let claim = claim(&set.metadata, selector, &pod.metadata);
        match claim {
            Claim::Ours if is_active(&pod) => sorted.active.push(pod),
            Claim::Ours if pods::is_terminating(&pod) => sorted.terminating += 1,
            Claim::Adopt if is_active(&pod) => {
                sorted.adopt.push(pod.clone());
                sorted.active.push(pod);
            }
            Claim::Release if is_active(&pod) => sorted.release.push(pod),
            _ => {}
        }
    }
    sorted
}

/// The writes that bring the number of pods to what is wanted.
pub(super) fn plan(set: &ReplicaSet, sorted: &Sorted) -> Vec<Action> {
    let mut actions: Vec<Action> = sorted.adopt.iter().cloned().map(Action::Adopt).collect();
    actions.extend(sorted.release.iter().cloned().map(Action::Release));
    if set.metadata.deletion_timestamp.is_some() {
        return actions;
    }
    let wanted = usize::try_from(wanted(set)).unwrap_or(0);
    let have = sorted.active.len();
    if have < wanted {
        actions.push(Action::Create((wanted - have).min(BURST)));
    } else if have > wanted {
        let surplus = (have - wanted).min(BURST);
        actions.push(Action::Delete(least_useful(&sorted.active, surplus)));
    }
    actions
}

/// Whether a plan was cut to the size of a burst, so that another must follow.
pub(super) fn is_burst(actions: &[Action]) -> bool {
    actions.iter().any(|action| match action {
        Action::Create(count) => *count >= BURST,
        Action::Delete(pods) => pods.len() >= BURST,
        Action::Adopt(_) | Action::Release(_) => false,
    })
}

/// The size a ReplicaSet should have.
fn wanted(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

fn least_useful(active: &[Arc<Pod>], count: usize) -> Vec<Arc<Pod>> {
    if count >= active.len() {
        return active.to_vec();
    }
    let mut crowds: HashMap<Option<&str>, usize> = HashMap::new();
    for pod in active.iter().filter(|pod| is_ready(pod)) {
        *crowds.entry(node_name(pod)).or_default() += 1;
    }
    let crowd = |pod: &Pod| crowds.get(&node_name(pod)).copied().unwrap_or(0);
    let mut pods = active.to_vec();
    pods.sort_by(|a, b| deletion_order(a, b, crowd));
    pods.truncate(count);
    pods
}

/// A pod made from the ReplicaSet's template.
pub(super) fn pod(set: &ReplicaSet) -> Pod {
    let template = set.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default();
    let meta = template.metadata.unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", set.name_any())),
            namespace: set.namespace(),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![controller_reference(set)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

/// What a ReplicaSet reports, and when a pod that is ready will become available.
pub(super) fn report(
    set: &ReplicaSet,
    sorted: &Sorted,
    failure: Option<&str>,
    now: Timestamp,
) -> (ReplicaSetStatus, Option<SignedDuration>) {
    let spec = set.spec.as_ref();
    let min_ready = spec.and_then(|spec| spec.min_ready_seconds).unwrap_or(0);
    let template_labels =
        spec.and_then(|spec| spec.template.as_ref()?.metadata.as_ref()?.labels.clone()).unwrap_or_default();
    let (mut labelled, mut ready, mut available) = (0, 0, 0);
    let mut next: Option<SignedDuration> = None;
    for pod in &sorted.active {
        let labels = pod.labels();
        labelled += i32::from(template_labels.iter().all(|(key, value)| labels.get(key) == Some(value)));
        match availability(pod, min_ready, now) {
            Availability::Unready => {}
            Availability::Available => {
                ready += 1;
                available += 1;
            }
            Availability::In(left) => {
                ready += 1;
                next = Some(next.map_or(left, |next| next.min(left)));
            }
        }
    }
    let before = set.status.as_ref();
    let counted = |number: i32| Some(number).filter(|number| *number != 0);
    let replicas = i32::try_from(sorted.active.len()).unwrap_or(i32::MAX);
    let status = ReplicaSetStatus {
        observed_generation: set.metadata.generation,
        replicas,
        fully_labeled_replicas: counted(labelled),
        ready_replicas: counted(ready),
        available_replicas: counted(available),
        terminating_replicas: Some(i32::try_from(sorted.terminating).unwrap_or(i32::MAX)),
        conditions: conditions(before, failure, replicas < wanted(set), now),
    };
    (status, next)
}

/// The conditions with the failure of this attempt in them; the first failure of a row keeps its
/// time and message, so that retries write nothing.
fn conditions(
    before: Option<&ReplicaSetStatus>,
    failure: Option<&str>,
    creating: bool,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    const FAILURE: &str = "ReplicaFailure";
    let mut conditions = before.and_then(|status| status.conditions.clone()).unwrap_or_default();
    let known = conditions.iter().any(|condition| condition.type_ == FAILURE);
    match failure {
        None => conditions.retain(|condition| condition.type_ != FAILURE),
        Some(_) if known => {}
        Some(message) => conditions.push(ReplicaSetCondition {
            type_: FAILURE.into(),
            status: "True".into(),
            reason: Some(if creating { "FailedCreate" } else { "FailedDelete" }.into()),
            message: Some(message.into()),
            last_transition_time: Some(Time(now)),
        }),
    }
    Some(conditions).filter(|conditions| !conditions.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set(replicas: i32) -> ReplicaSet {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "n", "uid": "set", "generation": 2},
            "spec": {"replicas": replicas, "minReadySeconds": 10,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web", "tier": "front"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]}}}
        }))
        .expect("a replica set")
    }

    fn pod_with(name: &str, change: impl FnOnce(&mut Value)) -> Arc<Pod> {
        let mut value = json!({
            "metadata": {"name": name, "labels": {"app": "web", "tier": "front"}, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "set", "controller": true}]},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
        });
        change(&mut value);
        Arc::new(serde_json::from_value(value).expect("a pod"))
    }

    fn sorted(set: &ReplicaSet, pods: Vec<Arc<Pod>>) -> Sorted {
        let selector = set.spec.as_ref().map(|spec| spec.selector.clone()).unwrap_or_default();
        sort(set, &Selector::try_from(selector).expect("a selector"), pods)
    }

    fn names(actions: &[Action]) -> Vec<String> {
        let show = |action: &Action| match action {
            Action::Adopt(pod) => format!("adopt {}", pod.name_any()),
            Action::Release(pod) => format!("release {}", pod.name_any()),
            Action::Create(count) => format!("create {count}"),
            Action::Delete(pods) => {
                format!("delete {}", pods.iter().map(|pod| pod.name_any()).collect::<Vec<_>>().join(" "))
            }
        };
        actions.iter().map(show).collect()
    }

    #[test]
    fn missing_pods_are_created_and_surplus_ones_deleted_unready_first() {
        let pods = vec![
            pod_with("a", |_| {}),
            pod_with("b", |pod| pod["status"]["conditions"][0]["status"] = "False".into()),
            pod_with("c", |_| {}),
        ];
        let cases = [(5, vec!["create 2"]), (3, vec![]), (2, vec!["delete b"])];
        for (replicas, expected) in cases {
            let set = set(replicas);
            assert_eq!(names(&plan(&set, &sorted(&set, pods.clone()))), expected, "{replicas}");
        }
        assert_eq!(names(&plan(&set(0), &sorted(&set(0), pods))), ["delete a b c"]);
    }

    #[test]
    fn a_large_step_is_taken_in_bursts() {
        assert_eq!(names(&plan(&set(1_200), &Sorted::default())), ["create 500"]);
    }

    #[test]
    fn finished_and_leaving_pods_are_replaced() {
        let set = set(2);
        let pods = vec![
            pod_with("failed", |pod| pod["status"]["phase"] = "Failed".into()),
            pod_with("leaving", |pod| pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into()),
        ];
        let sorted = sorted(&set, pods);
        assert_eq!(names(&plan(&set, &sorted)), ["create 2"]);
        let (status, _) = report(&set, &sorted, None, Timestamp::UNIX_EPOCH);
        assert_eq!((status.replicas, status.terminating_replicas), (0, Some(1)));
    }

    #[test]
    fn matching_orphans_are_adopted_and_strangers_released() {
        let set = set(2);
        let pods = vec![
            pod_with("orphan", |pod| pod["metadata"]["ownerReferences"] = json!([])),
            pod_with("relabelled", |pod| pod["metadata"]["labels"] = json!({"app": "db"})),
            pod_with("foreign", |pod| pod["metadata"]["ownerReferences"][0]["uid"] = "other".into()),
        ];
        assert_eq!(
            names(&plan(&set, &sorted(&set, pods))),
            ["adopt orphan", "release relabelled", "create 1"]
        );
    }

    #[test]
    fn a_replica_set_that_is_being_deleted_leaves_its_pods_to_the_garbage_collector() {
        let mut set = set(3);
        set.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert!(plan(&set, &sorted(&set, vec![pod_with("a", |_| {})])).is_empty());
    }

    #[test]
    fn the_report_counts_labels_readiness_and_availability() {
        let set = set(3);
        let pods = vec![
            pod_with("available", |_| {}),
            pod_with("ready", |pod| {
                pod["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:55Z".into();
            }),
            pod_with("bare", |pod| {
                pod["metadata"]["labels"] = json!({"app": "web"});
                pod["status"] = json!({});
            }),
        ];
        let now = "2026-01-01T00:01:00Z".parse().expect("a time");
        let (status, next) = report(&set, &sorted(&set, pods), None, now);
        assert_eq!(status.replicas, 3);
        assert_eq!(status.fully_labeled_replicas, Some(2));
        assert_eq!(status.ready_replicas, Some(2));
        assert_eq!(status.available_replicas, Some(1));
        assert_eq!(status.observed_generation, Some(2));
        assert_eq!(next, Some(SignedDuration::from_secs(5)));
    }

    #[test]
    fn a_failure_is_reported_once_and_forgotten_on_success() {
        let mut set = set(3);
        let now = Timestamp::UNIX_EPOCH;
        let (status, _) = report(&set, &Sorted::default(), Some("quota exceeded"), now);
        let condition = &status.conditions.as_ref().expect("conditions")[0];
        assert_eq!(condition.reason.as_deref(), Some("FailedCreate"));
        assert_eq!(condition.message.as_deref(), Some("quota exceeded"));
        set.status = Some(status.clone());
        let later = now + SignedDuration::from_secs(60);
        let (again, _) = report(&set, &Sorted::default(), Some("quota exceeded, again"), later);
        assert_eq!(again.conditions, status.conditions);
        let (good, _) = report(&set, &Sorted::default(), None, later);
        assert_eq!(good.conditions, None);
    }

    #[test]
    fn a_pod_is_made_from_the_template() {
        let pod = pod(&set(1));
        assert_eq!(pod.metadata.generate_name.as_deref(), Some("web-"));
        assert_eq!(pod.labels()["tier"], "front");
        assert_eq!(pod.owner_references()[0].controller, Some(true));
        assert_eq!(pod.spec.as_ref().map(|spec| spec.containers.len()), Some(1));
    }
}
