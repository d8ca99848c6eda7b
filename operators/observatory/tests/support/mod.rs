//! What the tests share: a cluster that knows Observatories, with pods that pretend to run.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use steersman_observatory::types::TaskStatus;
use steersman_observatory::{Observatory, ObservatoryStatus, Phase, controllers, crd};
use steersman_test::{Cluster, Running};

/// A cluster in which pods whose names begin with `w` end well after a second.
pub(crate) async fn cluster() -> Cluster {
    let cluster = Cluster::start().await;
    cluster.create(&crd()).await;
    cluster.pods().schedule_all().succeed("", Duration::from_secs(1));
    cluster
}

pub(crate) fn operator(cluster: &Cluster) -> Running {
    cluster.run_manager(controllers(cluster.manager(cluster.options("observatory"))))
}

/// How many pods have not ended, by namespace.
pub(crate) async fn alive(cluster: &Cluster) -> BTreeMap<String, usize> {
    let mut alive = BTreeMap::new();
    for pod in cluster.list::<Pod>().await {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if !matches!(phase, Some("Succeeded" | "Failed")) {
            *alive.entry(pod.namespace().unwrap_or_default()).or_default() += 1;
        }
    }
    alive
}

#[allow(clippy::needless_pass_by_value, reason = "what json! makes is handed over")]
pub(crate) fn workflow(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "workflow.seventh-horizon.io/v1alpha1", "kind": "Observatory",
        "metadata": {"name": name}, "spec": spec,
    })
}

pub(crate) fn task(name: &str, dependencies: &[&str]) -> Value {
    json!({"name": name, "image": "busybox:1.36", "dependencies": dependencies})
}

pub(crate) async fn submit(cluster: &Cluster, name: &str, spec: Value) -> Observatory {
    cluster.create_json::<Observatory>(workflow(name, spec)).await
}

/// Waits for the end and returns the status.
pub(crate) async fn finish(cluster: &Cluster, name: &str) -> ObservatoryStatus {
    let done = cluster
        .wait_until::<Observatory>(name, |found| {
            found.status.as_ref().is_some_and(|status| status.phase().is_over())
        })
        .await;
    done.status.unwrap_or_default()
}

pub(crate) fn phases(status: &ObservatoryStatus) -> BTreeMap<String, (Phase, String)> {
    let all = status.tasks.iter();
    all.map(|task| (task.name.clone(), (task.phase, task.reason.clone().unwrap_or_default()))).collect()
}

pub(crate) fn of<'a>(status: &'a ObservatoryStatus, task: &str) -> &'a TaskStatus {
    status.tasks.iter().find(|found| found.name == task).expect("the task is listed")
}

pub(crate) fn started(status: &ObservatoryStatus, task: &str) -> Timestamp {
    of(status, task).start_time.as_ref().expect("it started").0
}

pub(crate) fn ended(status: &ObservatoryStatus, task: &str) -> Timestamp {
    of(status, task).completion_time.as_ref().expect("it ended").0
}

pub(crate) async fn pod_names(cluster: &Cluster) -> Vec<String> {
    let mut names: Vec<String> = cluster.list::<Pod>().await.iter().map(|pod| pod.name_any()).collect();
    names.sort();
    names
}
