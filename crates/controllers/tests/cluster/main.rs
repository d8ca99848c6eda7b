//! The controllers at work in a cluster inside the test, under virtual time.

mod faults;
mod garbage;
mod jobs;
mod namespaces;
mod ownership;
mod statefulsets;
mod workloads;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use std::time::Duration;
use steersman_controllers::{ControllerOptions, controllers};
use steersman_test::{Cluster, Running};

/// A cluster with all controllers.
async fn cluster() -> (Cluster, Running) {
    let cluster = Cluster::start().await;
    let running = run(&cluster);
    (cluster, running)
}

/// Runs all controllers.
fn run(cluster: &Cluster) -> Running {
    let manager = cluster.manager(cluster.options("controllers"));
    let options = ControllerOptions { root_ca: Some("a certificate".into()), ..ControllerOptions::default() };
    cluster.run_manager(controllers(manager, options))
}

/// Gives the cluster a node on which pods become ready at once.
async fn node(cluster: &Cluster, name: &str) {
    let node = json!({"metadata": {"name": name}});
    cluster.create_json::<Node>(node).await;
    let ready = json!({"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}]});
    cluster.patch_status::<Node>(name, json!({"status": ready})).await;
    cluster.pods().ready_after(Duration::ZERO);
}

fn deployment(name: &str, replicas: i32, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": image}]}}}
    })
}

/// Whether a Deployment has rolled out, as `kubectl rollout status` judges it.
fn is_rolled_out(deployment: &Deployment) -> bool {
    let Some(status) = deployment.status.as_ref() else { return false };
    let desired = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let count = |number: Option<i32>| number.or(Some(0));
    status.observed_generation >= deployment.metadata.generation
        && count(status.updated_replicas) == desired
        && count(status.replicas) == desired
        && count(status.available_replicas) == desired
}
