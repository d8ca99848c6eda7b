//! What a user reads who wrote something wrong: from the server at once, or in the status.

mod support;

use kube::api::PostParams;
use serde_json::{Value, json};
use steersman_observatory::{Observatory, Phase, cli};
use steersman_test::Cluster;
use support::*;

/// The words of the server that refused a workflow, or those of its status.
async fn answer(cluster: &Cluster, name: &str, spec: &Value) -> String {
    let api: kube::Api<kube::core::DynamicObject> = kube::Api::namespaced_with(
        cluster.client(),
        "default",
        &kube::core::ApiResource::erase::<Observatory>(&()),
    );
    let object = serde_json::from_value(workflow(name, spec.clone())).expect("an object");
    match api.create(&PostParams::default(), &object).await {
        Err(error) => error.to_string(),
        Ok(_) => {
            let status = finish(cluster, name).await;
            assert_eq!(
                (status.phase(), status.reason.as_deref()),
                (Phase::Failed, Some("Invalid")),
                "{name}"
            );
            let valid = status.conditions.iter().find(|one| one.type_ == "Valid").expect("a condition");
            assert_eq!(valid.status, "False", "{name}");
            status.message.unwrap_or_default()
        }
    }
}

#[tokio::test(start_paused = true)]
async fn everything_that_can_be_wrong_is_told_in_words() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    let a = || task("a", &[]);
    let with = |field: &str, value: Value| json!([{"name": "a", "image": "i", field: value}]);
    let cases: Vec<(&str, Value, &str)> = vec![
        ("no-tasks", json!({"tasks": []}), "spec.tasks"),
        ("tasks-left-out", json!({}), "tasks"),
        (
            "cycle",
            json!({"tasks": [task("a", &["c"]), task("b", &["a"]), task("c", &["b"])]}),
            "tasks wait for each other: a -> c -> b -> a; remove one of these dependencies",
        ),
        ("self", json!({"tasks": [task("a", &["a"])]}), "task \"a\" depends on itself"),
        (
            "unknown",
            json!({"tasks": [task("extract", &[]), task("b", &["extrct"])]}),
            "depends on \"extrct\", which does not exist; did you mean \"extract\"?",
        ),
        ("twice", json!({"tasks": [a(), task("b", &["a", "a"])]}), "names its dependency \"a\" twice"),
        ("same-name", json!({"tasks": [a(), a()]}), "task \"a\" is there twice, first as spec.tasks[0]"),
        ("no-name", json!({"tasks": [task("", &[])]}), "spec.tasks[0].name: a task needs a name"),
        ("long-name", json!({"tasks": [task(&"x".repeat(254), &[])]}), "the name has 254 bytes; at most 253"),
        ("no-image", json!({"tasks": [{"name": "a", "image": ""}]}), "task \"a\" needs an image"),
        ("image-left-out", json!({"tasks": [{"name": "a"}]}), "image"),
        ("cron", json!({"tasks": [a()], "schedule": "61 * * * *"}), "spec.schedule"),
        ("cron-words", json!({"tasks": [a()], "schedule": "every day"}), "spec.schedule"),
        ("cron-second", json!({"tasks": [a()], "schedules": ["0 6 * * *", "x"]}), "spec.schedules[1]"),
        ("zone", json!({"tasks": [a()], "schedule": "0 6 * * *", "timezone": "Berlin"}), "spec.timezone"),
        ("limit", json!({"tasks": [a()], "maxConcurrent": 0}), "maxConcurrent"),
        ("limit-word", json!({"tasks": [a()], "maxConcurrent": "ten"}), "maxConcurrent"),
        ("timeout", json!({"tasks": with("timeout", json!("soon"))}), "timeout"),
        ("timeout-bare", json!({"tasks": with("timeout", json!("10"))}), "timeout"),
        ("timeout-negative", json!({"tasks": with("totalTimeout", json!("-5s"))}), "totalTimeout"),
        (
            "backoff",
            json!({"tasks": with("retry", json!({"limit": 1, "backoff": {"duration": "1 minute"}}))}),
            "backoff.duration",
        ),
        ("jitter", json!({"tasks": with("retry", json!({"limit": 1, "backoff": {"jitter": 2}}))}), "jitter"),
        ("retry-limit", json!({"tasks": with("retry", json!({"limit": -1}))}), "limit"),
        (
            "retry-policy",
            json!({"tasks": with("retry", json!({"limit": 1, "policy": "Sometimes"}))}),
            "policy",
        ),
        ("ttl", json!({"tasks": [a()], "ttl": {"afterSuccess": "1 week"}}), "afterSuccess"),
        ("gc", json!({"tasks": [a()], "podGC": {"strategy": "Later"}}), "podGC.strategy"),
        ("shutdown", json!({"tasks": [a()], "shutdown": "Please"}), "shutdown"),
        (
            "rerun",
            json!({"tasks": [a()], "rerun": {"id": "1", "mode": "Tasks", "tasks": ["x"]}}),
            "there is no task \"x\" to run again",
        ),
    ];
    for (name, spec, expected) in cases {
        let said = answer(&cluster, name, &spec).await;
        assert!(said.contains(expected), "{name}: {said}");
        assert!(pod_names(&cluster).await.is_empty(), "{name}: nothing may start");
        let findings = cli::lint(&workflow(name, spec).to_string());
        assert!(!findings.is_empty(), "{name}: lint finds nothing");
        assert!(findings.iter().all(|one| one.line > 0 && one.column > 0), "{name}: {findings:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn all_that_is_wrong_is_told_at_once() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    let tasks = json!([task("a", &["b"]), task("b", &["a"]), task("c", &["x", "c"]), task("c", &[])]);
    let said = answer(&cluster, "w", &json!({"tasks": tasks, "schedule": null})).await;
    for part in ["a -> b -> a", "\"x\", which does not exist", "depends on itself", "is there twice"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
