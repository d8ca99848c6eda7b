//! Limits over all workflows, and who goes first when they are reached.

mod support;

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use serde_json::json;
use steersman_observatory::{Limits, Observatory, Phase, cli, limited_controllers};
use steersman_test::{Cluster, Running};
use support::*;

fn limited(cluster: &Cluster, limits: Limits) -> Running {
    cluster.run_manager(limited_controllers(cluster.manager(cluster.options("observatory")), limits))
}

fn all(tasks: usize) -> Limits {
    Limits { tasks: Some(tasks), ..Limits::default() }
}

async fn are_over(cluster: &Cluster, count: usize) -> bool {
    let all = cluster.list::<Observatory>().await;
    let over = all.iter().filter(|one| one.status.as_ref().is_some_and(|status| status.phase().is_over()));
    over.count() == count
}

/// Looks again and again until so many workflows are over. Returns the most pods that lived at once.
async fn most_alive(cluster: &Cluster, workflows: usize) -> (usize, usize) {
    let (mut total, mut own) = (0, 0);
    while !are_over(cluster, workflows).await {
        let alive = alive(cluster).await;
        total = total.max(alive.values().sum());
        own = own.max(alive.values().copied().max().unwrap_or(0));
        cluster.pass(Duration::from_millis(50)).await;
    }
    (total, own)
}

fn five_tasks() -> serde_json::Value {
    (0..5).map(|number| task(&format!("t{number}"), &[])).collect()
}

#[tokio::test(start_paused = true)]
async fn all_workflows_together_run_no_more_tasks_than_the_operator_may() {
    let cluster = cluster().await;
    let _operator = limited(&cluster, all(3));
    for name in ["w1", "w2", "w3", "w4"] {
        submit(&cluster, name, json!({"tasks": five_tasks()})).await;
    }
    assert_eq!(most_alive(&cluster, 4).await.0, 3);
    for one in cluster.list::<Observatory>().await {
        assert_eq!(one.status.unwrap_or_default().phase(), Phase::Succeeded);
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_runs_no_more_tasks_than_a_namespace_may() {
    let cluster = cluster().await;
    let mut other = Namespace::default();
    other.metadata.name = Some("other".to_owned());
    cluster.create(&other).await;
    let _operator = limited(&cluster, Limits { tasks_per_namespace: Some(2), ..Limits::default() });
    for (namespace, name) in [("default", "w1"), ("default", "w2"), ("other", "w3")] {
        let mut one = workflow(name, json!({"tasks": five_tasks()}));
        one["metadata"]["namespace"] = namespace.into();
        cluster.create_json::<Observatory>(one).await;
    }
    assert_eq!(most_alive(&cluster, 3).await, (4, 2));
}

#[tokio::test(start_paused = true)]
async fn a_workflow_of_higher_priority_overtakes_one_that_runs() {
    let cluster = cluster().await;
    let _operator = limited(&cluster, all(1));
    let chain: Vec<_> = (0..20).map(|number| task(&format!("t{number}"), &[])).collect();
    submit(&cluster, "low", json!({"tasks": chain})).await;
    cluster.pass(Duration::from_millis(2500)).await;
    submit(&cluster, "middle", json!({"tasks": five_tasks(), "priority": 1})).await;
    submit(&cluster, "high", json!({"tasks": five_tasks(), "priority": 2})).await;
    let (low, middle, high) =
        (finish(&cluster, "low").await, finish(&cluster, "middle").await, finish(&cluster, "high").await);
    assert!(high.completion_time < middle.completion_time, "{high:?} {middle:?}");
    assert!(middle.completion_time < low.completion_time);
}

#[tokio::test(start_paused = true)]
async fn workflows_of_the_same_priority_take_turns() {
    let cluster = cluster().await;
    let _operator = limited(&cluster, all(1));
    submit(&cluster, "first", json!({"tasks": five_tasks()})).await;
    submit(&cluster, "second", json!({"tasks": five_tasks()})).await;
    let (first, second) = (finish(&cluster, "first").await, finish(&cluster, "second").await);
    let apart = second.completion_time.map(|end| end.0).zip(first.completion_time.map(|end| end.0));
    let apart = apart.map(|(second, first)| second.duration_since(first).as_secs().abs());
    assert!(apart.is_some_and(|seconds| seconds <= 3), "neither waits for the other's end: {apart:?}");
}

#[tokio::test(start_paused = true)]
async fn a_workflow_that_waits_for_a_place_says_so() {
    let cluster = cluster().await;
    cluster.pods().succeed("busy", Duration::from_secs(100));
    let _operator = limited(&cluster, all(1));
    submit(&cluster, "busy", json!({"tasks": [task("a", &[])]})).await;
    cluster.pass(Duration::from_secs(2)).await;
    submit(&cluster, "w", json!({"tasks": [task("a", &[])]})).await;
    let waiting = cluster
        .wait_until::<Observatory>("w", |found| {
            found.status.as_ref().is_some_and(|status| status.reason.as_deref() == Some("Limited"))
        })
        .await;
    let why = cli::explain(&waiting, "a").expect("a task");
    assert!(why.contains("at most 1 tasks of all workflows run at the same time"), "{why}");
    let status = finish(&cluster, "w").await;
    assert_eq!((status.phase(), status.reason), (Phase::Succeeded, None));
}

#[tokio::test(start_paused = true)]
async fn limits_hold_across_a_restart() {
    let cluster = cluster().await;
    cluster.pods().succeed("w", Duration::from_secs(10));
    let first = limited(&cluster, all(2));
    submit(&cluster, "w1", json!({"tasks": five_tasks()})).await;
    submit(&cluster, "w2", json!({"tasks": five_tasks()})).await;
    cluster.pass(Duration::from_secs(12)).await;
    first.kill().await;
    assert_eq!(alive(&cluster).await["default"], 2);
    let _second = limited(&cluster, all(2));
    assert_eq!(most_alive(&cluster, 2).await.0, 2);
}
