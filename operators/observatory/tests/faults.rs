//! Whatever goes wrong between operator and server: each task runs once, in order, within limits.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use steersman_observatory::run::names;
use steersman_observatory::{Observatory, ObservatoryStatus, Phase};
use steersman_test::Cluster;
use support::*;

fn diamond() -> Value {
    json!({
        "maxConcurrent": 2,
        "tasks": [
            task("a", &[]), task("b", &["a"]), task("c", &["a"]), task("d", &["a"]),
            task("e", &["b", "c", "d"]), task("Not_A_Label", &["a"]),
        ],
    })
}

/// Every task exactly one pod, none started before what it depends on had ended.
async fn everything_ran_once_and_in_order(cluster: &Cluster, status: &ObservatoryStatus, label: &str) {
    assert_eq!(status.phase(), Phase::Succeeded, "{label}: {status:#?}");
    let mut pods: BTreeMap<String, usize> = BTreeMap::new();
    for pod in cluster.list::<Pod>().await {
        *pods.entry(names::task_of(&pod).unwrap_or_default().to_owned()).or_default() += 1;
    }
    let expected: BTreeMap<String, usize> = status.tasks.iter().map(|task| (task.name.clone(), 1)).collect();
    assert_eq!(pods, expected, "{label}");
    for (task, before) in [("b", "a"), ("c", "a"), ("d", "a"), ("e", "b"), ("e", "c"), ("e", "d")] {
        assert!(started(status, task) >= ended(status, before), "{label}: {task} before {before}");
    }
    assert!(most_at_once(status) <= 2, "{label}");
}

fn most_at_once(status: &ObservatoryStatus) -> usize {
    let at = |time: jiff::Timestamp| {
        let spans = status
            .tasks
            .iter()
            .filter_map(|task| Some((task.start_time.as_ref()?.0, task.completion_time.as_ref()?.0)));
        spans.filter(|(from, to)| *from <= time && time < *to).count()
    };
    status.tasks.iter().filter_map(|task| Some(at(task.start_time.as_ref()?.0))).max().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_any_write_changes_nothing_in_the_outcome() {
    let mut crashes = 0;
    for writes in 0..40 {
        let cluster = cluster().await;
        cluster.faults().crash_after(writes);
        let first = operator(&cluster);
        submit(&cluster, "w", diamond()).await;
        let crashed = tokio::select! {
            () = cluster.faults().crashed() => true,
            _ = finish(&cluster, "w") => false,
        };
        crashes += usize::from(crashed);
        first.kill().await;
        cluster.faults().clear();
        let _second = operator(&cluster);
        let status = finish(&cluster, "w").await;
        everything_ran_once_and_in_order(&cluster, &status, &format!("crash after {writes} writes")).await;
        for pod in cluster.list::<Pod>().await {
            let name = pod.metadata.name.unwrap_or_default();
            cluster.wait_until::<Pod>(&name, |pod| !names::is_unrecorded(pod)).await;
        }
    }
    assert!(crashes > 10, "only {crashes} crashes happened");
}

#[tokio::test(start_paused = true)]
async fn lost_answers_refused_writes_conflicts_and_dropped_watches_change_nothing() {
    for round in 0..12 {
        let cluster = cluster().await;
        let operator = operator(&cluster);
        submit(&cluster, "w", diamond()).await;
        for step in 0..6 {
            match (round + step) % 4 {
                0 => cluster.faults().fail_after_write(1 + round % 3),
                1 => cluster.faults().fail_before(1 + round % 3),
                2 => cluster.faults().conflict_once::<Pod>(),
                _ => cluster.faults().drop_watches(),
            }
            cluster.pass(Duration::from_millis(u64::from(150 * (round + 1)))).await;
        }
        let status = finish(&cluster, "w").await;
        everything_ran_once_and_in_order(&cluster, &status, &format!("round {round}")).await;
        drop(operator);
    }
}

#[tokio::test(start_paused = true)]
async fn expired_watches_lose_no_end_of_a_pod() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    submit(&cluster, "w", diamond()).await;
    for _ in 0..8 {
        cluster.faults().expire_watches::<Pod>();
        cluster.pass(Duration::from_millis(700)).await;
    }
    let status = finish(&cluster, "w").await;
    everything_ran_once_and_in_order(&cluster, &status, "expired").await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_survives_a_crash_during_its_wait() {
    let cluster = cluster().await;
    cluster.pods().fail("w-a", 1, Duration::from_secs(1)).succeed("w-a-", Duration::from_secs(1));
    let first = operator(&cluster);
    let flaky = json!({"name": "a", "image": "i", "retry": {"limit": 1, "backoff": {"duration": "60s"}}});
    submit(&cluster, "w", json!({"tasks": [flaky]})).await;
    cluster
        .wait_until::<Observatory>("w", |found| {
            let status = found.status.as_ref();
            status.is_some_and(|status| of(status, "a").reason.as_deref() == Some("Retrying"))
        })
        .await;
    first.kill().await;
    let _second = operator(&cluster);
    let status = finish(&cluster, "w").await;
    assert_eq!(status.phase(), Phase::Succeeded);
    let a = of(&status, "a");
    let waited =
        started(&status, "a").duration_since(a.attempts[0].completion_time.as_ref().expect("ended").0);
    assert!((58..=63).contains(&waited.as_secs()), "{waited:?}");
    assert_eq!(cluster.list::<Pod>().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_pods_for_a_while_delays_the_workflow_and_says_why() {
    let cluster = cluster().await;
    cluster.faults().fail_before(4);
    let _operator = operator(&cluster);
    submit(&cluster, "w", json!({"tasks": [task("a", &[])]})).await;
    assert_eq!(finish(&cluster, "w").await.phase(), Phase::Succeeded);
    assert_eq!(cluster.list::<Pod>().await.len(), 1);
}
