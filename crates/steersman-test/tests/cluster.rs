//! The cluster itself: it starts fast, pods pretend, faults happen.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{DynamicObject, GroupVersionKind};
use serde_json::json;
use steersman_test::Cluster;

fn pod(name: &str) -> serde_json::Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}})
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}

fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    status.unwrap_or_default()
}

#[tokio::test]
async fn a_cluster_is_there_at_once_and_of_its_own() {
    let other = Cluster::start().await;
    other.create_json::<ConfigMap>(json!({"metadata": {"name": "b"}})).await;
    let cluster = Cluster::start().await;
    cluster.create_json::<ConfigMap>(json!({"metadata": {"name": "a"}})).await;
    assert!(cluster.get::<ConfigMap>("a").await.is_some());
    assert!(cluster.get::<ConfigMap>("default/b").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn pods_become_ready_when_the_script_says_so() {
    let cluster = Cluster::start().await;
    cluster.pods().schedule_all().ready_after(Duration::from_secs(5));
    let began = tokio::time::Instant::now();
    cluster.create_json::<Pod>(pod("web")).await;
    let ready = cluster.wait_until::<Pod>("web", is_ready).await;
    let waited = began.elapsed();
    assert!(waited >= Duration::from_secs(5) && waited < Duration::from_secs(8), "{waited:?}");
    let status = ready.status.expect("a status");
    assert!(status.pod_ip.is_some());
    assert!(status.container_statuses.expect("containers")[0].ready);
}

#[tokio::test(start_paused = true)]
async fn pods_fail_with_the_exit_code_of_the_script() {
    let cluster = Cluster::start().await;
    cluster
        .pods()
        .schedule_all()
        .fail("bad", 3, Duration::from_secs(60))
        .succeed("good", Duration::from_secs(1))
        .never_ready("slow");
    for name in ["bad-1", "good-1", "slow-1"] {
        cluster.create_json::<Pod>(pod(name)).await;
    }
    let failed = cluster.wait_until::<Pod>("bad-1", |pod| phase(pod) == "Failed").await;
    let containers = failed.status.and_then(|status| status.container_statuses).expect("containers");
    let terminated = containers[0].state.as_ref().and_then(|state| state.terminated.as_ref());
    assert_eq!(terminated.map(|end| end.exit_code), Some(3));
    cluster.wait_until::<Pod>("good-1", |pod| phase(pod) == "Succeeded").await;
    let slow = cluster.wait_until::<Pod>("slow-1", |pod| phase(pod) == "Running").await;
    assert!(!is_ready(&slow));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_goes_after_the_node_confirms() {
    let cluster = Cluster::start().await;
    cluster.pods().schedule_all();
    cluster.create_json::<Pod>(pod("web")).await;
    cluster.wait_until::<Pod>("web", is_ready).await;
    cluster.delete::<Pod>("web").await;
    cluster.wait_until_gone::<Pod>("web").await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "the moon landing did not come to pass within 600s")]
async fn a_condition_that_never_holds_says_so_without_waiting() {
    let cluster = Cluster::start().await;
    cluster.wait_for("the moon landing", || async { None::<()> }).await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_served_once_it_is_installed() {
    let cluster = Cluster::start().await;
    cluster
        .install(&[definition(&json!({"type": "object", "properties": {"spec": {"type": "object"}}}))])
        .await;
    let inventory = cluster.inventory().await;
    let widgets = kube::core::ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let api: kube::Api<DynamicObject> = kube::Api::namespaced_with(cluster.client(), "default", &widgets);
    api.create(&Default::default(), &DynamicObject::new("one", &widgets)).await.expect("it is served");
    assert_eq!(cluster.inventory().await.since(&inventory), ["Widget default/one"]);
    api.delete("one", &Default::default()).await.expect("it goes");
    cluster.assert_nothing_left(&inventory).await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "schema")]
async fn a_schema_that_is_not_structural_fails_the_test() {
    let cluster = Cluster::start().await;
    cluster.install(&[definition(&json!({"properties": {"spec": {"properties": {"a": {}}}}}))]).await;
}

fn definition(schema: &serde_json::Value) -> CustomResourceDefinition {
    serde_json::from_value(json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}
    }))
    .expect("a definition")
}
