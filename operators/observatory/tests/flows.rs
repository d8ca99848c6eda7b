//! Workflows from beginning to end, with pods that pretend to run.

mod support;

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;
use steersman_observatory::{Observatory, Phase};
use support::*;

#[tokio::test(start_paused = true)]
async fn the_sample_runs_in_order_with_pods_named_after_it() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    let tasks = json!([task("task-1", &[]), task("task-2", &["task-1"]), task("task-3", &["task-1"])]);
    submit(&cluster, "observatory-sample", json!({"tasks": tasks})).await;
    let status = finish(&cluster, "observatory-sample").await;
    assert_eq!(status.phase(), Phase::Succeeded);
    assert_eq!(status.progress.as_deref(), Some("3/3"));
    assert_eq!(
        pod_names(&cluster).await,
        ["observatory-sample-task-1", "observatory-sample-task-2", "observatory-sample-task-3"]
    );
    for task in ["task-2", "task-3"] {
        assert!(started(&status, task) >= ended(&status, "task-1"));
    }
    assert!(status.completion_time >= status.start_time);
    let pod = cluster.get::<Pod>("observatory-sample-task-1").await.expect("it is kept");
    let owner = &pod.owner_references()[0];
    assert_eq!((owner.kind.as_str(), owner.controller), ("Observatory", Some(true)));
    // Its end is on record, so nothing holds it any more.
    cluster.wait_until::<Pod>("observatory-sample-task-1", |pod| pod.finalizers().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_lets_siblings_finish_before_the_workflow_has_failed() {
    let cluster = cluster().await;
    cluster.pods().fail("w-bad", 3, Duration::from_secs(1)).succeed("w-slow", Duration::from_secs(60));
    let _operator = operator(&cluster);
    let tasks = json!([
        task("bad", &[]),
        task("slow", &[]),
        task("after-bad", &["bad"]),
        task("after-slow", &["slow"])
    ]);
    submit(&cluster, "w", json!({"tasks": tasks})).await;
    cluster.pass(Duration::from_secs(30)).await;
    let midway = cluster.get::<Observatory>("w").await.and_then(|found| found.status).expect("a status");
    assert_eq!(midway.phase(), Phase::Running);
    assert_eq!(of(&midway, "bad").phase, Phase::Failed);
    let status = finish(&cluster, "w").await;
    assert_eq!(status.phase(), Phase::Failed);
    assert_eq!(status.reason.as_deref(), Some("TaskFailed"));
    assert_eq!(status.message.as_deref(), Some("task bad failed: exit code 3"));
    assert_eq!(of(&status, "after-slow").phase, Phase::Succeeded);
    let omitted = of(&status, "after-bad");
    assert_eq!((omitted.phase, omitted.reason.as_deref()), (Phase::Failed, Some("UpstreamFailed")));
    assert!(omitted.pod_name.is_none());
    assert_eq!(status.progress.as_deref(), Some("2/4"));
}

#[tokio::test(start_paused = true)]
async fn with_failure_policy_stop_nothing_starts_after_a_failure() {
    let cluster = cluster().await;
    cluster.pods().fail("w-a", 1, Duration::from_secs(1));
    let _operator = operator(&cluster);
    let tasks = json!([task("a", &[]), task("b", &[]), task("c", &["b"])]);
    submit(&cluster, "w", json!({"tasks": tasks, "maxConcurrent": 1, "failurePolicy": "Stop"})).await;
    let status = finish(&cluster, "w").await;
    // b has the longer way to go and is first; then a fails.
    assert_eq!(of(&status, "b").phase, Phase::Succeeded);
    assert_eq!(phases(&status)["c"], (Phase::Failed, "NotStarted".to_owned()));
    assert_eq!(status.phase(), Phase::Failed);
}

#[tokio::test(start_paused = true)]
async fn never_more_tasks_run_than_allowed() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    let tasks: Vec<_> = (0..20).map(|i| task(&format!("t{i}"), &[])).collect();
    submit(&cluster, "w", json!({"tasks": tasks, "maxConcurrent": 3})).await;
    let mut most = 0;
    loop {
        let pods = cluster.list::<Pod>().await;
        let alive = pods.iter().filter(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            !matches!(phase, Some("Succeeded" | "Failed"))
        });
        most = most.max(alive.count());
        let found = cluster.get::<Observatory>("w").await.and_then(|found| found.status);
        if found.is_some_and(|status| status.phase().is_over()) {
            break;
        }
        cluster.pass(Duration::from_millis(50)).await;
    }
    assert_eq!(most, 3);
    assert_eq!(cluster.list::<Pod>().await.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_workflow_starts_nothing_until_it_is_resumed() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    submit(&cluster, "w", json!({"tasks": [task("a", &[]), task("b", &["a"])], "suspend": true})).await;
    let waiting = cluster
        .wait_until::<Observatory>("w", |found| found.status.as_ref().is_some_and(|s| s.reason.is_some()))
        .await;
    let status = waiting.status.expect("a status");
    assert_eq!((status.phase(), status.reason.as_deref()), (Phase::Pending, Some("Suspended")));
    assert_eq!(status.tasks.len(), 2);
    cluster.pass(Duration::from_secs(60)).await;
    assert!(cluster.list::<Pod>().await.is_empty());
    cluster.patch::<Observatory>("w", json!({"spec": {"suspend": false}})).await;
    assert_eq!(finish(&cluster, "w").await.phase(), Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn suspending_lets_what_runs_finish() {
    let cluster = cluster().await;
    cluster.pods().succeed("w-a", Duration::from_secs(10));
    let _operator = operator(&cluster);
    submit(&cluster, "w", json!({"tasks": [task("a", &[]), task("b", &["a"])]})).await;
    cluster.wait_for_object::<Pod>("w-a").await;
    cluster.patch::<Observatory>("w", json!({"spec": {"suspend": true}})).await;
    let found = cluster
        .wait_until::<Observatory>("w", |found| {
            found.status.as_ref().is_some_and(|status| status.progress.as_deref() == Some("1/2"))
        })
        .await;
    cluster.pass(Duration::from_secs(60)).await;
    assert_eq!(found.status.unwrap_or_default().phase(), Phase::Running);
    assert_eq!(pod_names(&cluster).await, ["w-a"]);
    cluster.patch::<Observatory>("w", json!({"spec": {"suspend": false}})).await;
    assert_eq!(finish(&cluster, "w").await.phase(), Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_cycle_is_refused_with_its_path_and_can_be_mended() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    submit(&cluster, "w", json!({"tasks": [task("a", &["b"]), task("b", &["a"])]})).await;
    let status = finish(&cluster, "w").await;
    assert_eq!((status.phase(), status.reason.as_deref()), (Phase::Failed, Some("Invalid")));
    let message = status.message.clone().unwrap_or_default();
    assert!(message.contains("a -> b -> a"), "{message}");
    let valid = status.conditions.iter().find(|one| one.type_ == "Valid").expect("a condition");
    assert_eq!((valid.status.as_str(), valid.reason.as_str()), ("False", "Cycle"));
    assert!(cluster.list::<Pod>().await.is_empty());
    let mended = json!([task("a", &[]), task("b", &["a"])]);
    cluster.patch::<Observatory>("w", json!({"spec": {"tasks": mended}})).await;
    cluster
        .wait_until::<Observatory>("w", |found| {
            found.status.as_ref().is_some_and(|status| status.phase() == Phase::Succeeded)
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn names_that_no_pod_can_have_and_names_that_are_taken_run_all_the_same() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    // `a` with `b-c` and `a-b` with `c` would both be pod a-b-c.
    submit(&cluster, "a", json!({"tasks": [task("b-c", &[]), task("Upper_Case.x", &["b-c"])]})).await;
    submit(&cluster, "a-b", json!({"tasks": [task("c", &[])]})).await;
    assert_eq!(finish(&cluster, "a").await.phase(), Phase::Succeeded);
    assert_eq!(finish(&cluster, "a-b").await.phase(), Phase::Succeeded);
    assert_eq!(cluster.list::<Pod>().await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_workflow_that_nothing_happens_to_costs_nothing() {
    let cluster = cluster().await;
    cluster.pods().succeed("w-a", Duration::from_secs(3600));
    let operator = operator(&cluster);
    submit(&cluster, "w", json!({"tasks": [task("a", &[])]})).await;
    cluster
        .wait_until::<Observatory>("w", |found| {
            found.status.as_ref().is_some_and(|status| of(status, "a").phase == Phase::Running)
        })
        .await;
    cluster.pass(Duration::from_secs(10)).await;
    let before = operator.metric("observatory_reconcile_total");
    cluster.pass(Duration::from_secs(1800)).await;
    assert!((operator.metric("observatory_reconcile_total") - before).abs() < 0.5);
}

#[tokio::test(start_paused = true)]
async fn at_most_three_writes_per_task() {
    let cluster = cluster().await;
    cluster.pods().succeed("", Duration::from_millis(50));
    let _operator = operator(&cluster);
    let tasks: Vec<_> = (0..100)
        .map(|i| match i {
            0 => task("t0", &[]),
            _ => task(&format!("t{i}"), &[&format!("t{}", i - 1)]),
        })
        .collect();
    submit(&cluster, "w", json!({"tasks": tasks})).await;
    assert_eq!(finish(&cluster, "w").await.phase(), Phase::Succeeded);
    cluster.pass(Duration::from_secs(5)).await;
    let writes = cluster.faults().writes();
    assert!(writes <= 300 + 10, "{writes} writes for 100 tasks");
}

#[tokio::test(start_paused = true)]
async fn a_pod_the_server_refuses_fails_its_task_with_the_servers_words() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    let bad = json!({"name": "a", "image": "i", "env": [{"name": "not valid=", "value": "x"}]});
    submit(&cluster, "w", json!({"tasks": [bad]})).await;
    let status = finish(&cluster, "w").await;
    assert_eq!(phases(&status)["a"], (Phase::Failed, "InvalidPod".to_owned()));
    assert!(of(&status, "a").message.as_deref().unwrap_or_default().contains("env"));
}

#[tokio::test(start_paused = true)]
async fn deleting_a_workflow_lets_its_pods_go() {
    let cluster = cluster().await;
    cluster.pods().succeed("w-a", Duration::from_secs(3600));
    let _operator = operator(&cluster);
    let _collector = cluster.run_manager(steersman_controllers::controllers(
        cluster.manager(cluster.options("controllers")),
        steersman_controllers::ControllerOptions::default(),
    ));
    submit(&cluster, "w", json!({"tasks": [task("a", &[])]})).await;
    cluster.wait_for_object::<Pod>("w-a").await;
    cluster.delete::<Observatory>("w").await;
    cluster.wait_until_gone::<Pod>("w-a").await;
}

#[tokio::test(start_paused = true)]
async fn every_metric_that_is_announced_exists() {
    let cluster = cluster().await;
    let operator = operator(&cluster);
    submit(&cluster, "w", json!({"tasks": [task("a", &[])]})).await;
    finish(&cluster, "w").await;
    cluster.pass(Duration::from_secs(1)).await;
    let text = operator.metrics().encode();
    for name in [
        "reconcile_total",
        "reconcile_errors_total",
        "reconcile_duration_seconds_count",
        "workflow_duration_seconds_count",
        "workflow_step_duration_seconds_count",
        "workflow_retries_total",
        "job_timeout_total",
        "active_workflows",
        "dependency_resolution_duration_seconds_count",
        "status_writes_total",
        "pods_created_total",
    ] {
        assert!(text.contains(&format!("\nobservatory_{name}")), "{name} is missing");
    }
    assert!((operator.metric("observatory_active_workflows")).abs() < 0.5, "none runs any more");
}

#[tokio::test(start_paused = true)]
async fn a_workflow_may_change_while_it_runs() {
    let cluster = cluster().await;
    cluster.pods().succeed("w-a", Duration::from_secs(30)).succeed("w-b", Duration::from_secs(3600));
    let _operator = operator(&cluster);
    submit(&cluster, "w", json!({"tasks": [task("a", &[]), task("b", &[])]})).await;
    cluster.wait_for_object::<Pod>("w-b").await;
    // b goes, c comes.
    let tasks = json!([task("a", &[]), task("c", &["a"])]);
    cluster.patch::<Observatory>("w", json!({"spec": {"tasks": tasks}})).await;
    let status = finish(&cluster, "w").await;
    assert_eq!((status.phase(), status.progress.as_deref()), (Phase::Succeeded, Some("2/2")));
    assert_eq!(of(&status, "a").attempt, 0);
    cluster.wait_until_gone::<Pod>("w-b").await;
    // An edit that makes no sense is refused, and what runs is not forgotten.
    submit(&cluster, "w2", json!({"tasks": [task("a", &[]), task("b", &["a"])]})).await;
    cluster.wait_for_object::<Pod>("w2-a").await;
    let broken = json!([task("a", &["b"]), task("b", &["a"])]);
    cluster.patch::<Observatory>("w2", json!({"spec": {"tasks": broken}})).await;
    let status = finish(&cluster, "w2").await;
    assert_eq!(status.reason.as_deref(), Some("Invalid"));
    let mended = json!([task("a", &[]), task("b", &["a"])]);
    cluster.patch::<Observatory>("w2", json!({"spec": {"tasks": mended}})).await;
    cluster
        .wait_until::<Observatory>("w2", |found| {
            found.status.as_ref().is_some_and(|status| status.phase() == Phase::Succeeded)
        })
        .await;
    assert_eq!(pod_names(&cluster).await.iter().filter(|name| name.starts_with("w2")).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_workflow_that_is_made_again_under_its_name_runs_again() {
    let cluster = cluster().await;
    cluster.pods().succeed("w-a", Duration::from_secs(600));
    let _operator = operator(&cluster);
    submit(&cluster, "w", json!({"tasks": [task("a", &[])]})).await;
    cluster.wait_for_object::<Pod>("w-a").await;
    cluster.delete::<Observatory>("w").await;
    // Nobody collects garbage here: the old pod keeps the name.
    cluster.pass(Duration::from_secs(5)).await;
    submit(&cluster, "w", json!({"tasks": [task("a", &[])]})).await;
    let status = finish(&cluster, "w").await;
    assert_eq!(status.phase(), Phase::Succeeded);
    assert_ne!(of(&status, "a").pod_name.as_deref(), Some("w-a"));
}
