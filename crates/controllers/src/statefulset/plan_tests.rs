//! Tables of what a StatefulSet does next.

use super::identity;
use super::plan::{Action, Revisions, Template, places, plan, report};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::sync::Arc;

fn set(replicas: i32, more: &Value) -> StatefulSet {
    let mut spec = json!({"replicas": replicas, "serviceName": "db",
        "selector": {"matchLabels": {"app": "db"}},
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}});
    if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more.clone()) {
        spec.extend(more);
    }
    serde_json::from_value(json!({"metadata": {"name": "db", "uid": "u", "generation": 4}, "spec": spec}))
        .expect("a StatefulSet")
}

/// `0` serves with the old template, `1!` with the new one; `?` is not ready, `x` leaves, `f` failed.
fn pod(text: &str) -> Arc<Pod> {
    let place: i32 = text.trim_end_matches(['!', '?', 'x', 'f']).parse().expect("a place");
    let mut pod = identity::pod(&set(1, &json!({})), place, if text.contains('!') { "new" } else { "old" });
    let ready = if text.contains('?') { "False" } else { "True" };
    let phase = if text.contains('f') { "Failed" } else { "Running" };
    pod.status = serde_json::from_value(json!({"phase": phase, "conditions": [
        {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}))
    .expect("a status");
    if text.contains('x') {
        pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    }
    Arc::new(pod)
}

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().expect("a time")
}

fn pods(text: &str) -> Vec<Arc<Pod>> {
    text.split_whitespace().map(pod).collect()
}

fn revisions() -> Revisions {
    Revisions { current: "old".into(), update: "new".into() }
}

fn next(set: &StatefulSet, text: &str) -> String {
    let places = places(set, &pods(text));
    let show = |action: &Action| match action {
        Action::Create(place, Template::Update) => format!("+{place}!"),
        Action::Create(place, Template::Current) => format!("+{place}"),
        Action::Delete(pod) => format!("-{}", pod.name_any().trim_start_matches("db-")),
    };
    plan(set, &places, &revisions(), now()).iter().map(show).collect::<Vec<_>>().join(" ")
}

#[test]
fn places_are_filled_one_after_the_other_and_emptied_from_the_last() {
    for (replicas, have, expected) in [
        (3, "", "+0!"),
        (3, "0!", "+1!"),
        (3, "0!?", ""),
        (3, "0! 1!x", ""),
        (3, "0! 2!", "+1!"),
        (3, "0! 1!f", "-1"),
        (3, "0! 1! 2!", ""),
        (1, "0! 1! 2!", "-2"),
        (1, "0! 1! 2!x", ""),
        (1, "0! 1!? 2!", "-2"),
        (1, "0! 1!? 2!?", ""),
        (1, "0! 1! 2!?", "-2"),
        (0, "0!", "-0"),
    ] {
        assert_eq!(next(&set(replicas, &json!({})), have), expected, "{replicas} of {have}");
    }
}

#[test]
fn with_the_parallel_policy_nobody_waits() {
    let parallel = json!({"podManagementPolicy": "Parallel"});
    for (replicas, have, expected) in
        [(3, "", "+0! +1! +2!"), (3, "1!?", "+0! +2!"), (1, "0! 1!? 2! 3!x", "-2 -1"), (0, "0! 1!", "-1 -0")]
    {
        assert_eq!(next(&set(replicas, &parallel), have), expected, "{replicas} of {have}");
    }
}

#[test]
fn a_new_template_replaces_pods_from_the_last_down_to_the_partition() {
    let partition = |number: i32| json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": number}}});
    for (more, have, expected) in [
        (json!({}), "0 1 2", "-2"),
        (json!({}), "0 1", "+2!"),
        (json!({}), "0 1 2!?", ""),
        (json!({}), "0 1 2!", "-1"),
        (json!({}), "0! 1! 2!", ""),
        (partition(2), "0 1 2!", ""),
        (partition(2), "0 2!", "+1"),
        (partition(5), "0 1 2", ""),
        (json!({"updateStrategy": {"type": "OnDelete"}}), "0 1 2", ""),
        (json!({"updateStrategy": {"type": "OnDelete"}}), "0 1", "+2!"),
        (json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}), "0 1 2", "-2 -1"),
        (json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": "50%"}}}), "0 1 2", "-2 -1"),
        (json!({"ordinals": {"start": 5}}), "5! 6!", "+7!"),
        (json!({"ordinals": {"start": 5}}), "4! 5! 6! 7!", "-4"),
    ] {
        assert_eq!(next(&set(3, &more), have), expected, "{more} with {have}");
    }
}

#[test]
fn nobody_is_created_or_deleted_for_a_set_that_goes() {
    let mut set = set(3, &json!({}));
    set.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    assert_eq!(next(&set, "0!"), "");
}

#[test]
fn the_report_counts_and_ends_an_update_when_everybody_has_it() {
    let counted = |text: &str, more: &Value| {
        let set = set(2, more);
        report(&set, &places(&set, &pods(text)), revisions(), None, now())
    };
    let (half, next) = counted("0 1!", &json!({}));
    assert_eq!((half.replicas, half.ready_replicas, half.available_replicas), (2, Some(2), Some(2)));
    assert_eq!((half.current_replicas, half.updated_replicas), (Some(1), Some(1)));
    assert_eq!(
        (half.current_revision.as_deref(), half.update_revision.as_deref()),
        (Some("old"), Some("new"))
    );
    assert_eq!((half.observed_generation, next), (Some(4), None));
    let (waiting, _) = counted("0! 1!?", &json!({}));
    assert_eq!(waiting.current_revision.as_deref(), Some("old"));
    let (done, _) = counted("0! 1!", &json!({}));
    assert_eq!((done.current_revision.as_deref(), done.current_replicas), (Some("new"), Some(2)));
    let (slow, next) = counted("0! 1!", &json!({"minReadySeconds": 90}));
    assert_eq!((slow.available_replicas, next.map(|left| left.as_secs())), (Some(0), Some(30)));
}
