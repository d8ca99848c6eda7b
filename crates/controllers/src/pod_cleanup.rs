//! Pods nobody will ever see off: those of a node that is gone, and those that were deleted
//! before they had a node.

use crate::pods::{is_terminal, node_name};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::DeleteParams;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use steersman::cache::Cache;
use steersman::{Context, Controller, Error, EventType, Key, Outcome, Reconciler};
use tokio::time::Instant;

/// How long a node may be away before its pods are given up: it may only be registering anew.
const PATIENCE: Duration = Duration::from_secs(40);
/// The index of pods by their node.
const BY_NODE: &str = "pods-by-node";

/// Removes pods that are left over.
#[derive(Debug, Default)]
pub(crate) struct PodCleanup {
    /// Since when a node has been missing.
    missing: Mutex<HashMap<String, Instant>>,
}

/// The controller that removes left-over pods.
pub(crate) fn controller() -> Controller<PodCleanup> {
    Controller::new("pod-garbage-collector", PodCleanup::default())
        .shares_its_kind()
        .index::<Pod>(BY_NODE, |pod| node_name(pod).map(str::to_owned).into_iter().collect())
        .watches_when::<Node>(steersman::Predicate::new(|_, _| false), |node, cache: &Cache| {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            let pods = cache.view::<Pod>().by_index(BY_NODE, name);
            pods.iter().map(|pod| Key::of(&**pod)).collect()
        })
        .concurrency(2)
}

impl Reconciler for PodCleanup {
    type Object = Pod;

    async fn reconcile(&self, pod: Arc<Pod>, cx: &Context) -> Result<Outcome, Error> {
        let Some(node) = node_name(&pod) else {
            if pod.metadata.deletion_timestamp.is_some() {
                cx.delete_with(&*pod, at_once()).await?;
            }
            return Ok(Outcome::Done);
        };
        if cx.cache::<Node>().get(&Key::cluster(node)).is_some() {
            self.missing().remove(node);
            return Ok(Outcome::Done);
        }
        let since = *self.missing().entry(node.to_owned()).or_insert_with(Instant::now);
        let left = PATIENCE.saturating_sub(since.elapsed());
        if !left.is_zero() {
            return Ok(Outcome::RequeueAfter(left, "its node is missing"));
        }
        let nodes: Api<Node> = Api::all(cx.client().clone());
        if nodes.get_opt(node).await?.is_some() {
            return Ok(Outcome::RequeueAfter(PATIENCE, "its node is back"));
        }
        if !is_terminal(&pod) {
            cx.event(EventType::Normal, "NodeGone", format!("Node {node} is gone; the pod is removed"));
        }
        cx.delete_with(&*pod, at_once()).await?;
        Ok(Outcome::Done)
    }
}

impl PodCleanup {
    fn missing(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody is there to end the pod gracefully.
fn at_once() -> DeleteParams {
    DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }
}
