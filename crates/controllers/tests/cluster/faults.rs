//! The controllers come to the right end whatever goes wrong on the way.

use crate::{deployment, is_rolled_out, node, run};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::ResourceExt;
use serde_json::json;
use std::time::Duration;
use steersman_test::Cluster;

/// Rolls a Deployment out twice while `upset` does what it can, and checks what is left.
async fn roll_out(cluster: &Cluster, upset: impl Fn(&Cluster)) {
    node(cluster, "n1").await;
    cluster.create_json::<Deployment>(deployment("web", 3, "v1")).await;
    upset(cluster);
    cluster.wait_until::<Deployment>("web", is_rolled_out).await;
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "v2"}]}}}});
    cluster.patch::<Deployment>("web", image).await;
    upset(cluster);
    cluster.wait_until::<Deployment>("web", is_rolled_out).await;
    settled(cluster).await;
}

async fn settled(cluster: &Cluster) {
    cluster.wait_for("three pods", || async { (cluster.list::<Pod>().await.len() == 3).then_some(()) }).await;
    cluster.pass(Duration::from_secs(60)).await;
    assert_eq!(cluster.list::<Pod>().await.len(), 3);
    let sets = cluster.list::<ReplicaSet>().await;
    assert_eq!(sets.len(), 2, "{:?}", sets.iter().map(ResourceExt::name_any).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn conflicts_and_errors_on_either_side_of_a_write_only_cost_time() {
    let cluster = Cluster::start().await;
    let _running = run(&cluster);
    roll_out(&cluster, |cluster| {
        cluster.faults().conflict_once::<ReplicaSet>();
        cluster.faults().conflict_once::<Pod>();
        cluster.faults().fail_before(3);
        cluster.faults().fail_after_write(3);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn lost_watches_lose_nothing() {
    let cluster = Cluster::start().await;
    let _running = run(&cluster);
    roll_out(&cluster, |cluster| {
        cluster.faults().drop_watches();
        cluster.faults().expire_watches::<Pod>();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_any_two_writes_is_recovered_from() {
    for writes in 1..30 {
        let cluster = Cluster::start().await;
        let running = run(&cluster);
        cluster.wait_for_object::<k8s_openapi::api::core::v1::ServiceAccount>("default/default").await;
        node(&cluster, "n1").await;
        cluster.faults().crash_after(writes);
        cluster.create_json::<Deployment>(deployment("web", 3, "v1")).await;
        let crashed =
            tokio::time::timeout(Duration::from_secs(120), cluster.faults().crashed()).await.is_ok();
        running.kill().await;
        cluster.faults().clear();
        let _running = run(&cluster);
        cluster.wait_until::<Deployment>("web", is_rolled_out).await;
        cluster.pass(Duration::from_secs(60)).await;
        assert_eq!(cluster.list::<Pod>().await.len(), 3, "after a crash at write {writes}");
        assert_eq!(cluster.list::<ReplicaSet>().await.len(), 1, "after a crash at write {writes}");
        if !crashed {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn at_rest_nothing_is_written() {
    let cluster = Cluster::start().await;
    let running = run(&cluster);
    node(&cluster, "n1").await;
    cluster.create_json::<Namespace>(json!({"metadata": {"name": "shop"}})).await;
    cluster.create_json::<Deployment>(deployment("web", 3, "v1")).await;
    cluster.wait_until::<Deployment>("web", is_rolled_out).await;
    cluster.pass(Duration::from_secs(30)).await;
    let before = cluster.faults().writes();
    cluster.pass(Duration::from_secs(1_800)).await;
    assert_eq!(cluster.faults().writes(), before);
    running.stop().await;
}
