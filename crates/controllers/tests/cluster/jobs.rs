//! Jobs and their pods.

use crate::{cluster, node};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::time::Duration;

fn job(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["template"] =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Whether the Job has this condition.
fn is(kind: &'static str) -> impl Fn(&Job) -> bool {
    move |job| {
        let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| condition.type_ == kind && condition.status == "True")
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_its_pods_and_is_complete() {
    let (cluster, _running) = cluster().await;
    node(&cluster, "n1").await;
    cluster.pods().succeed("sum-", Duration::from_secs(5));
    cluster.create_json::<Job>(job("sum", &json!({"completions": 5, "parallelism": 2}))).await;
    let active = |job: &Job| job.status.as_ref().and_then(|status| status.active) == Some(2);
    cluster.wait_until::<Job>("sum", active).await;
    let done = cluster.wait_until::<Job>("sum", is("Complete")).await;
    let status = done.status.expect("a status");
    assert_eq!((status.succeeded, status.failed, status.active), (Some(5), None, None));
    assert!(status.completion_time.is_some() && status.start_time.is_some());
    assert_eq!(cluster.list::<Pod>().await.len(), 5, "their pods stay, for their logs");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_keeps_failing_gives_up() {
    let (cluster, _running) = cluster().await;
    node(&cluster, "n1").await;
    cluster.pods().fail("bad-", 3, Duration::from_secs(1));
    cluster.create_json::<Job>(job("bad", &json!({"backoffLimit": 2}))).await;
    let failed = cluster.wait_until::<Job>("bad", is("Failed")).await;
    assert_eq!(failed.status.and_then(|status| status.failed), Some(3));
    assert_eq!(cluster.list::<Pod>().await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_job_has_no_pods_until_it_goes_on() {
    let (cluster, _running) = cluster().await;
    node(&cluster, "n1").await;
    cluster
        .create_json::<Job>(job("later", &json!({"suspend": true, "completions": 2, "parallelism": 2})))
        .await;
    cluster.wait_until::<Job>("later", is("Suspended")).await;
    assert!(cluster.list::<Pod>().await.is_empty());
    cluster.patch::<Job>("later", json!({"spec": {"suspend": false}})).await;
    let ready = |job: &Job| job.status.as_ref().and_then(|status| status.ready) == Some(2);
    cluster.wait_until::<Job>("later", ready).await;
    cluster.patch::<Job>("later", json!({"spec": {"suspend": true}})).await;
    cluster.wait_until::<Job>("later", is("Suspended")).await;
    cluster.wait_for("no pods", || async { cluster.list::<Pod>().await.is_empty().then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn an_indexed_job_runs_each_index_and_goes_when_its_time_is_over() {
    let (cluster, _running) = cluster().await;
    node(&cluster, "n1").await;
    cluster.pods().succeed("part-", Duration::from_secs(5));
    let spec = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed", "ttlSecondsAfterFinished": 60});
    cluster.create_json::<Job>(job("part", &spec)).await;
    let done = cluster.wait_until::<Job>("part", is("Complete")).await;
    assert_eq!(done.status.and_then(|status| status.completed_indexes).as_deref(), Some("0-2"));
    let mut indexes: Vec<String> = cluster
        .list::<Pod>()
        .await
        .iter()
        .filter_map(|pod| pod.labels().get("batch.kubernetes.io/job-completion-index").cloned())
        .collect();
    indexes.sort();
    assert_eq!(indexes, ["0", "1", "2"]);
    cluster.wait_until_gone::<Job>("part").await;
    cluster
        .wait_for("its pods to go with it", || async { cluster.list::<Pod>().await.is_empty().then_some(()) })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_job_ends_at_its_deadline_with_its_pods() {
    let (cluster, _running) = cluster().await;
    node(&cluster, "n1").await;
    cluster.create_json::<Job>(job("slow", &json!({"activeDeadlineSeconds": 30}))).await;
    let failed = cluster.wait_until::<Job>("slow", is("Failed")).await;
    let status = failed.status.expect("a status");
    let reason = status.conditions.into_iter().flatten().find(|condition| condition.type_ == "Failed");
    assert_eq!(reason.and_then(|condition| condition.reason).as_deref(), Some("DeadlineExceeded"));
    cluster.wait_for("no pods", || async { cluster.list::<Pod>().await.is_empty().then_some(()) }).await;
}
