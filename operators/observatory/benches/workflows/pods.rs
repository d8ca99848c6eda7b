//! Pods that end by the clock, to the millisecond.

use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use steersman_test::Cluster;
use tokio::task::JoinSet;

/// Plays the kubelet for every pod that is created, until it is dropped.
pub(crate) struct Pods {
    _task: JoinSet<()>,
}

impl Pods {
    /// Pods succeed about this long after their creation.
    pub(crate) async fn ending_after(cluster: &Cluster, length: Duration) -> Self {
        Self::play(cluster, length, json!({"phase": "Succeeded"})).await
    }

    /// Pods run for ever.
    pub(crate) async fn running(cluster: &Cluster) -> Self {
        Self::play(cluster, Duration::ZERO, json!({"phase": "Running"})).await
    }

    async fn play(cluster: &Cluster, after: Duration, status: Value) -> Self {
        let api: Api<Pod> = Api::default_namespaced(cluster.client());
        let version = api.list(&Default::default()).await.expect("a list").metadata.resource_version;
        let mut task = JoinSet::new();
        task.spawn(watch(cluster.client(), version.unwrap_or_default(), after, json!({"status": status})));
        Self { _task: task }
    }
}

/// Half to one and a half times as long, the same for the same name: pods that all take equally long
/// would end all at once, again and again.
pub(crate) fn about(length: Duration, name: &str) -> Duration {
    let hash = name.bytes().fold(17u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    length.mul_f64(0.5 + f64::from(hash.wrapping_mul(2_654_435_761) >> 16) / 65_536.0)
}

async fn watch(client: Client, version: String, after: Duration, status: Value) {
    let api: Api<Pod> = Api::default_namespaced(client);
    let events = api.watch(&WatchParams::default().timeout(290), &version).await.expect("a watch");
    let mut events = std::pin::pin!(events);
    let mut ends = JoinSet::new();
    while let Some(event) = events.try_next().await.expect("an event") {
        let WatchEvent::Added(pod) = event else { continue };
        let (api, status) = (api.clone(), status.clone());
        ends.spawn(async move {
            tokio::time::sleep(about(after, &pod.name_any())).await;
            let params = PatchParams::default();
            // The last pod may be gone with its cluster.
            let _ = api.patch_status(&pod.name_any(), &params, &Patch::Merge(&status)).await;
        });
        while ends.try_join_next().is_some() {}
    }
}
