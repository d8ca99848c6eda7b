//! Deployments, ReplicaSets, the scheduler and EndpointSlices together.

use crate::{cluster, deployment, is_rolled_out, node};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use serde_json::json;
use std::time::Duration;
use steersman_test::Cluster;

const REVISION: &str = "deployment.kubernetes.io/revision";

async fn condition(cluster: &Cluster, name: &str, kind: &str) -> Option<(String, String)> {
    let deployment = cluster.get::<Deployment>(name).await?;
    let conditions = deployment.status?.conditions?;
    let found = conditions.into_iter().find(|condition| condition.type_ == kind)?;
    Some((found.status, found.reason.unwrap_or_default()))
}

async fn images(cluster: &Cluster) -> Vec<String> {
    let pods = cluster.list::<Pod>().await;
    let image = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone());
    let mut images: Vec<String> = pods.iter().filter_map(image).collect();
    images.sort();
    images
}

#[tokio::test(start_paused = true)]
async fn a_deployment_brings_up_its_pods_and_replaces_them_on_a_new_template() {
    let (cluster, _running) = cluster().await;
    node(&cluster, "n1").await;
    cluster.create_json::<Deployment>(deployment("web", 3, "v1")).await;
    let web = cluster.wait_until::<Deployment>("web", is_rolled_out).await;
    assert_eq!(web.annotations()[REVISION], "1");
    assert_eq!(images(&cluster).await, ["v1", "v1", "v1"]);

    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "v2"}]}}}});
    cluster.patch::<Deployment>("web", image).await;
    let web = cluster.wait_until::<Deployment>("web", is_rolled_out).await;
    assert_eq!(web.annotations()[REVISION], "2");
    cluster
        .wait_for("only new pods", || async { (images(&cluster).await == ["v2", "v2", "v2"]).then_some(()) })
        .await;
    assert_eq!(
        condition(&cluster, "web", "Progressing").await,
        Some(("True".into(), "NewReplicaSetAvailable".into()))
    );
    assert_eq!(cluster.list::<ReplicaSet>().await.len(), 2, "the old revision is kept for an undo");
}

#[tokio::test(start_paused = true)]
async fn pods_follow_the_scale_and_come_back_when_deleted() {
    let (cluster, _running) = cluster().await;
    node(&cluster, "n1").await;
    cluster.create_json::<Deployment>(deployment("web", 2, "v1")).await;
    cluster.wait_until::<Deployment>("web", is_rolled_out).await;
    for replicas in [5, 1, 0, 3] {
        cluster.patch::<Deployment>("web", json!({"spec": {"replicas": replicas}})).await;
        cluster.wait_until::<Deployment>("web", is_rolled_out).await;
        let count = || async { (cluster.list::<Pod>().await.len() == replicas).then_some(()) };
        cluster.wait_for("the pods", count).await;
    }
    let victim = cluster.list::<Pod>().await[0].name_any();
    cluster.delete::<Pod>(&victim).await;
    cluster.wait_until_gone::<Pod>(&victim).await;
    cluster
        .wait_for("a replacement", || async { (cluster.list::<Pod>().await.len() == 3).then_some(()) })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_does_not_move_is_reported_after_its_deadline() {
    let (cluster, _running) = cluster().await;
    node(&cluster, "n1").await;
    cluster.pods().never_ready("web");
    cluster.create_json::<Deployment>(deployment("web", 2, "v1")).await;
    cluster
        .wait_for("pods that never get ready", || async {
            (cluster.list::<Pod>().await.len() == 2).then_some(())
        })
        .await;
    cluster.pass(Duration::from_secs(590)).await;
    assert_ne!(
        condition(&cluster, "web", "Progressing").await.map(|(_, reason)| reason).as_deref(),
        Some("ProgressDeadlineExceeded")
    );
    cluster.pass(Duration::from_secs(15)).await;
    let stuck = Some(("False".into(), "ProgressDeadlineExceeded".into()));
    assert_eq!(condition(&cluster, "web", "Progressing").await, stuck);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_available_only_after_min_ready_seconds() {
    let (cluster, _running) = cluster().await;
    node(&cluster, "n1").await;
    let mut web = deployment("web", 1, "v1");
    web["spec"]["minReadySeconds"] = 30.into();
    cluster.create_json::<Deployment>(web).await;
    let count = |web: &Deployment| web.status.as_ref().and_then(|status| status.ready_replicas);
    let web = cluster.wait_until::<Deployment>("web", |web| count(web) == Some(1)).await;
    assert_eq!(web.status.and_then(|status| status.available_replicas), None);
    let before = (cluster.clock())();
    cluster.wait_until::<Deployment>("web", is_rolled_out).await;
    assert!((cluster.clock())().duration_since(before).as_secs() >= 28);
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_node_says_why_and_is_scheduled_once_one_comes() {
    let (cluster, _running) = cluster().await;
    cluster.create_json::<Deployment>(deployment("web", 1, "v1")).await;
    let scheduled = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        let found = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled");
        found.map(|found| (found.status, found.message.unwrap_or_default()))
    };
    let waits =
        |pod: Pod| scheduled(&pod).filter(|(status, _)| status == "False").map(|(_, message)| message);
    let message = cluster
        .wait_for("the reason", || async { cluster.list::<Pod>().await.into_iter().find_map(waits) })
        .await;
    assert_eq!(message, "no nodes available to schedule pods");
    node(&cluster, "n1").await;
    cluster.wait_until::<Deployment>("web", is_rolled_out).await;
    let pods = cluster.list::<Pod>().await;
    assert_eq!(pods[0].spec.as_ref().and_then(|spec| spec.node_name.clone()).as_deref(), Some("n1"));
}

#[tokio::test(start_paused = true)]
async fn a_service_knows_the_pods_it_selects_and_leaves_foreign_slices_alone() {
    let (cluster, _running) = cluster().await;
    node(&cluster, "n1").await;
    cluster
        .create_json::<Service>(json!({"metadata": {"name": "web"}, "spec": {
            "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}}))
        .await;
    cluster
        .create_json::<EndpointSlice>(json!({
            "metadata": {"name": "foreign", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "endpoints": [{"addresses": ["10.9.9.9"]}], "ports": []}))
        .await;
    cluster.create_json::<Deployment>(deployment("web", 3, "v1")).await;
    let ours = || async {
        let slices = cluster.list::<EndpointSlice>().await;
        slices.into_iter().filter(|slice| slice.name_any().starts_with("web-")).collect::<Vec<_>>()
    };
    let ready = |slices: &[EndpointSlice]| {
        let endpoints = slices.iter().flat_map(|slice| slice.endpoints.clone().unwrap_or_default());
        endpoints.filter(|one| one.conditions.as_ref().and_then(|c| c.ready) == Some(true)).count()
    };
    cluster.wait_for("three endpoints", || async { (ready(&ours().await) == 3).then_some(()) }).await;
    let slice = ours().await.remove(0);
    assert_eq!(slice.ports.map(|ports| ports[0].port), Some(Some(8080)));
    assert_eq!(
        slice.metadata.owner_references.map(|owners| owners[0].kind.clone()).as_deref(),
        Some("Service")
    );
    cluster
        .wait_until::<Endpoints>("web", |endpoints| {
            let subsets = endpoints.subsets.clone().unwrap_or_default();
            subsets.iter().flat_map(|subset| &subset.addresses).map(Vec::len).sum::<usize>() == 3
        })
        .await;
    cluster.patch::<Deployment>("web", json!({"spec": {"replicas": 1}})).await;
    cluster.wait_for("one endpoint", || async { (ready(&ours().await) == 1).then_some(()) }).await;
    assert!(cluster.get::<EndpointSlice>("foreign").await.is_some());
    cluster.delete::<Service>("web").await;
    cluster.wait_for("no slices of ours", || async { ours().await.is_empty().then_some(()) }).await;
    cluster.wait_until_gone::<Endpoints>("web").await;
    assert!(cluster.get::<EndpointSlice>("foreign").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn recreate_never_runs_old_and_new_pods_together() {
    let (cluster, _running) = cluster().await;
    node(&cluster, "n1").await;
    let mut web = deployment("web", 2, "v1");
    web["spec"]["strategy"] = json!({"type": "Recreate"});
    cluster.create_json::<Deployment>(web).await;
    cluster.wait_until::<Deployment>("web", is_rolled_out).await;
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "v2"}]}}}});
    cluster.patch::<Deployment>("web", image).await;
    cluster
        .wait_for("the new pods", || async {
            let images = images(&cluster).await;
            assert!(!(images.contains(&"v1".into()) && images.contains(&"v2".into())), "{images:?}");
            (images == ["v2", "v2"]).then_some(())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_clash_of_names_is_got_out_of() {
    let (cluster, _running) = cluster().await;
    node(&cluster, "n1").await;
    cluster.create_json::<Deployment>(deployment("web", 1, "v1")).await;
    cluster.wait_until::<Deployment>("web", is_rolled_out).await;
    let name = cluster.list::<ReplicaSet>().await[0].name_any();
    cluster.delete::<Deployment>("web").await;
    cluster.wait_until_gone::<ReplicaSet>(&name).await;
    cluster
        .create_json::<ReplicaSet>(json!({"metadata": {"name": name}, "spec": {"replicas": 0,
            "selector": {"matchLabels": {"app": "other"}}, "template": {
                "metadata": {"labels": {"app": "other"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}}))
        .await;
    cluster.create_json::<Deployment>(deployment("web", 1, "v1")).await;
    let web = cluster.wait_until::<Deployment>("web", is_rolled_out).await;
    assert_eq!(web.status.and_then(|status| status.collision_count), Some(1));
    let foreign = cluster.get::<ReplicaSet>(&name).await.expect("the other one stays");
    assert!(foreign.owner_references().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_orphaned_pod_that_matches_is_adopted_and_a_relabelled_one_released() {
    let (cluster, _running) = cluster().await;
    node(&cluster, "n1").await;
    cluster.create_json::<Deployment>(deployment("web", 2, "v1")).await;
    cluster.wait_until::<Deployment>("web", is_rolled_out).await;
    let pod = cluster.list::<Pod>().await.remove(0);
    let hash = pod.labels()["pod-template-hash"].clone();
    cluster.patch::<Pod>(&pod.name_any(), json!({"metadata": {"labels": {"app": "away"}}})).await;
    cluster.wait_until::<Pod>(&pod.name_any(), |pod| pod.owner_references().is_empty()).await;
    cluster
        .wait_for("a replacement", || async { (cluster.list::<Pod>().await.len() == 3).then_some(()) })
        .await;
    cluster
        .create_json::<Pod>(
            json!({"metadata": {"name": "stray", "labels": {"app": "web", "pod-template-hash": hash}},
            "spec": {"containers": [{"name": "c", "image": "v1"}]}}),
        )
        .await;
    // It is one too many, and the youngest: adopted, then deleted.
    cluster.wait_until_gone::<Pod>("stray").await;
    assert!(cluster.get::<Pod>(&pod.name_any()).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_is_gone_are_replaced() {
    let (cluster, _running) = cluster().await;
    node(&cluster, "n1").await;
    cluster.create_json::<Deployment>(deployment("web", 1, "v1")).await;
    cluster.wait_until::<Deployment>("web", is_rolled_out).await;
    let old = cluster.list::<Pod>().await[0].name_any();
    node(&cluster, "n2").await;
    cluster.delete::<k8s_openapi::api::core::v1::Node>("n1").await;
    cluster.pass(Duration::from_secs(30)).await;
    assert!(cluster.get::<Pod>(&old).await.is_some(), "a node may come back");
    cluster.wait_until_gone::<Pod>(&old).await;
    cluster.wait_until::<Deployment>("web", is_rolled_out).await;
    let pod = &cluster.list::<Pod>().await[0];
    assert_eq!(pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).as_deref(), Some("n2"));
}
