//! Runs at given times. The clock of the tests begins on 1 January 2026 at midnight.

mod support;

use std::time::Duration;

use kube::ResourceExt;
use serde_json::{Value, json};
use steersman_observatory::{Observatory, Phase};
use steersman_test::Cluster;
use support::*;

const HOUR: Duration = Duration::from_secs(3600);

fn hourly(fields: Value) -> Value {
    let mut spec = json!({"tasks": [task("a", &[])], "schedule": "0 * * * *"});
    if let (Some(spec), Value::Object(fields)) = (spec.as_object_mut(), fields) {
        spec.extend(fields);
    }
    spec
}

async fn runs(cluster: &Cluster) -> Vec<Observatory> {
    let mut runs = cluster.list::<Observatory>().await;
    runs.retain(|run| !run.spec.is_scheduled());
    runs.sort_by_key(|run| run.name_any());
    runs
}

#[tokio::test(start_paused = true)]
async fn every_time_makes_a_run_and_the_schedule_shows_the_latest() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    submit(&cluster, "s", hourly(json!({}))).await;
    let waiting = cluster
        .wait_until::<Observatory>("s", |found| {
            found.status.as_ref().is_some_and(|status| status.next_schedule_time.is_some())
        })
        .await
        .status
        .expect("a status");
    assert_eq!((waiting.phase(), waiting.reason.as_deref()), (Phase::Pending, Some("Scheduled")));
    cluster.pass(2 * HOUR + Duration::from_secs(60)).await;
    let names: Vec<String> = runs(&cluster).await.iter().map(|run| run.name_any()).collect();
    assert_eq!(names, ["s-29453820", "s-29453880"]);
    let status = cluster.get::<Observatory>("s").await.and_then(|found| found.status).expect("a status");
    assert_eq!(status.phase(), Phase::Succeeded);
    assert_eq!(of(&status, "a").phase, Phase::Succeeded);
    assert_eq!(status.last_schedule_time.expect("a time").0.to_string(), "2026-01-01T02:00:00Z");
    assert!(status.last_successful_time.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_time_makes_one_run_whoever_leads_and_crashes() {
    for writes in 0..6 {
        let cluster = cluster().await;
        let first = operator(&cluster);
        submit(&cluster, "s", hourly(json!({}))).await;
        cluster.pass(HOUR - Duration::from_secs(10)).await;
        cluster.faults().crash_after(writes);
        cluster.pass(Duration::from_secs(30)).await;
        first.kill().await;
        cluster.faults().clear();
        let _second = operator(&cluster);
        cluster.pass(Duration::from_secs(60)).await;
        let runs = runs(&cluster).await;
        assert_eq!(runs.len(), 1, "crash after {writes} writes");
        assert_eq!(finish(&cluster, &runs[0].name_any()).await.phase(), Phase::Succeeded);
    }
}

#[tokio::test(start_paused = true)]
async fn only_so_many_ended_runs_are_kept() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    submit(&cluster, "s", hourly(json!({"successfulRunsHistoryLimit": 2}))).await;
    cluster.pass(5 * HOUR + Duration::from_secs(60)).await;
    let names: Vec<String> = runs(&cluster).await.iter().map(|run| run.name_any()).collect();
    assert_eq!(names, ["s-29454000", "s-29454060"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_goes_on_keeps_the_next_one_away_or_is_replaced() {
    for (policy, expected) in [("Forbid", 1), ("Allow", 2), ("Replace", 2), ("Queue", 1)] {
        let cluster = cluster().await;
        cluster.pods().succeed("s", Duration::from_secs(5000));
        let _operator = operator(&cluster);
        submit(&cluster, "s", hourly(json!({"concurrencyPolicy": policy}))).await;
        cluster.pass(2 * HOUR + Duration::from_secs(60)).await;
        let all = runs(&cluster).await;
        assert_eq!(all.len(), expected, "{policy}");
        if policy == "Replace" {
            let first = finish(&cluster, &all[0].name_any()).await;
            assert_eq!(first.reason.as_deref(), Some("Terminated"));
        }
        if policy == "Queue" {
            cluster.pass(Duration::from_secs(2000)).await;
            assert_eq!(runs(&cluster).await.len(), 2, "the one that waited runs");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_during_a_suspension_nor_made_up_for_after_it() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    submit(&cluster, "s", hourly(json!({"suspend": true, "catchUp": "All"}))).await;
    cluster.pass(3 * HOUR + Duration::from_secs(60)).await;
    cluster.patch::<Observatory>("s", json!({"spec": {"suspend": false}})).await;
    cluster.pass(Duration::from_secs(60)).await;
    assert!(runs(&cluster).await.is_empty());
    cluster.pass(HOUR).await;
    assert_eq!(runs(&cluster).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn missed_times_are_made_up_for_as_asked() {
    for (catch_up, expected) in [("None", 0), ("Latest", 1), ("All", 3)] {
        let cluster = cluster().await;
        let first = operator(&cluster);
        let spec = hourly(json!({"catchUp": catch_up, "successfulRunsHistoryLimit": 10}));
        submit(&cluster, "s", spec).await;
        cluster.pass(Duration::from_secs(60)).await;
        first.stop().await;
        cluster.pass(3 * HOUR + Duration::from_secs(120)).await;
        let _second = operator(&cluster);
        cluster.pass(Duration::from_secs(60)).await;
        assert_eq!(runs(&cluster).await.len(), expected, "{catch_up}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_schedule_is_refused_in_words() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    submit(&cluster, "s", hourly(json!({"schedule": "every day", "timezone": "Berlin"}))).await;
    let status = finish(&cluster, "s").await;
    let message = status.message.unwrap_or_default();
    assert!(message.contains("spec.schedule: \"every day\" is not a schedule"), "{message}");
    assert!(message.contains("spec.timezone: there is no time zone \"Berlin\""), "{message}");
    assert_eq!(status.reason.as_deref(), Some("Invalid"));
}
