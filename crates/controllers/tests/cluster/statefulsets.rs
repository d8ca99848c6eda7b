//! StatefulSets at work: order, names, claims, scaling and updates.

use crate::{cluster, node};
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};
use std::time::Duration;
use steersman_test::Cluster;

fn set(name: &str, replicas: i32, more: Value) -> Value {
    let mut spec = json!({"replicas": replicas, "serviceName": name,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "v1"}]}}});
    if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more) {
        spec.extend(more);
    }
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

fn is_rolled_out(set: &StatefulSet) -> bool {
    let (Some(spec), Some(status)) = (&set.spec, &set.status) else { return false };
    let wanted = spec.replicas.unwrap_or(1);
    // Zeros are left out.
    status.observed_generation >= set.metadata.generation
        && status.replicas == wanted
        && status.available_replicas.unwrap_or(0) == wanted
        && status.updated_replicas.unwrap_or(0) == wanted
}

/// Names of pods with their images, in the order of their creation.
async fn pods(cluster: &Cluster) -> Vec<(String, String)> {
    let mut pods = cluster.list::<Pod>().await;
    pods.sort_by_key(|pod| (pod.metadata.creation_timestamp.clone(), pod.name_any()));
    let image = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone());
    pods.iter().map(|pod| (pod.name_any(), image(pod).unwrap_or_default())).collect()
}

async fn names(cluster: &Cluster) -> Vec<String> {
    let mut names: Vec<String> = pods(cluster).await.into_iter().map(|(name, _)| name).collect();
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn pods_come_in_order_each_when_the_one_before_is_ready() {
    let (cluster, _running) = cluster().await;
    node(&cluster, "n1").await;
    cluster.pods().ready_after(Duration::from_secs(5));
    cluster.create_json::<StatefulSet>(set("db", 3, json!({}))).await;
    for present in 1..=3 {
        cluster
            .wait_for("the next pod", || async { (names(&cluster).await.len() == present).then_some(()) })
            .await;
        let ready = cluster.get::<StatefulSet>("db").await.and_then(|set| set.status?.ready_replicas);
        assert!(ready.unwrap_or(0) + 1 >= i32::try_from(present).expect("small"), "one after the other");
    }
    cluster.wait_until::<StatefulSet>("db", is_rolled_out).await;
    let order: Vec<String> = pods(&cluster).await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(order, ["db-0", "db-1", "db-2"]);
    let first = cluster.get::<Pod>("db-0").await.expect("there");
    assert_eq!(first.labels()["statefulset.kubernetes.io/pod-name"], "db-0");
    assert_eq!(first.spec.as_ref().and_then(|spec| spec.subdomain.clone()).as_deref(), Some("db"));
}

#[tokio::test(start_paused = true)]
async fn the_last_goes_first_and_a_deleted_one_comes_back_under_its_name() {
    let (cluster, _running) = cluster().await;
    node(&cluster, "n1").await;
    cluster.create_json::<StatefulSet>(set("db", 3, json!({}))).await;
    cluster.wait_until::<StatefulSet>("db", is_rolled_out).await;
    let before = cluster.get::<Pod>("db-1").await.expect("there").uid();
    cluster.delete::<Pod>("db-1").await;
    let again = || async { cluster.get::<Pod>("db-1").await.filter(|pod| pod.uid() != before) };
    cluster.wait_for("db-1 again", again).await;
    cluster.wait_until::<StatefulSet>("db", is_rolled_out).await;
    for replicas in [1, 0, 2] {
        cluster.patch::<StatefulSet>("db", json!({"spec": {"replicas": replicas}})).await;
        cluster.wait_until::<StatefulSet>("db", is_rolled_out).await;
        let expected: Vec<String> = (0..replicas).map(|place| format!("db-{place}")).collect();
        assert_eq!(names(&cluster).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_template_goes_from_the_last_to_the_first_and_stops_at_the_partition() {
    let (cluster, _running) = cluster().await;
    node(&cluster, "n1").await;
    let partition = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}});
    cluster.create_json::<StatefulSet>(set("db", 3, partition)).await;
    cluster.wait_until::<StatefulSet>("db", is_rolled_out).await;
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "v2"}]}}}});
    cluster.patch::<StatefulSet>("db", image).await;
    let updated = |set: &StatefulSet| {
        let status = set.status.clone().unwrap_or_default();
        status.updated_replicas == Some(2) && status.ready_replicas == Some(3)
    };
    let set = cluster.wait_until::<StatefulSet>("db", updated).await;
    let status = set.status.expect("a status");
    assert_ne!(status.current_revision, status.update_revision, "the partition holds one back");
    let mut images = pods(&cluster).await;
    images.sort();
    let images: Vec<&str> = images.iter().map(|(_, image)| image.as_str()).collect();
    assert_eq!(images, ["v1", "v2", "v2"]);
    // One that is lost below the partition comes back as it was.
    let before = cluster.get::<Pod>("db-0").await.expect("there").uid();
    cluster.delete::<Pod>("db-0").await;
    let again = || async { cluster.get::<Pod>("db-0").await.filter(|pod| pod.uid() != before) };
    let pod = cluster.wait_for("db-0 again", again).await;
    assert_eq!(pod.spec.and_then(|spec| spec.containers[0].image.clone()).as_deref(), Some("v1"));
    let whole = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}});
    cluster.patch::<StatefulSet>("db", whole).await;
    let set = cluster.wait_until::<StatefulSet>("db", is_rolled_out).await;
    let status = set.status.expect("a status");
    assert_eq!(status.current_revision, status.update_revision);
    assert_eq!(cluster.list::<ControllerRevision>().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn claims_are_kept_for_the_next_pod_of_a_place() {
    let (cluster, _running) = cluster().await;
    node(&cluster, "n1").await;
    let claims = json!({"podManagementPolicy": "Parallel", "volumeClaimTemplates": [{"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]});
    cluster.create_json::<StatefulSet>(set("db", 2, claims)).await;
    cluster.wait_until::<StatefulSet>("db", is_rolled_out).await;
    cluster.patch::<StatefulSet>("db", json!({"spec": {"replicas": 1}})).await;
    cluster.wait_until_gone::<Pod>("db-1").await;
    assert!(cluster.get::<PersistentVolumeClaim>("data-db-1").await.is_some(), "kept by default");
    let policy = json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}}});
    cluster.patch::<StatefulSet>("db", policy).await;
    cluster.wait_until_gone::<PersistentVolumeClaim>("data-db-1").await;
    assert!(cluster.get::<PersistentVolumeClaim>("data-db-0").await.is_some());
}
