//! Creating and deleting many pods of one controller.

use crate::replicaset::is_namespace_terminating;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use std::sync::Arc;
use steersman::{Context, Error, EventType};

/// Most pods created or deleted at the same time.
const SIDE_BY_SIDE: usize = 64;

/// Creates pods, one at first and twice as many each time it goes well: when the first is
/// refused, by a quota for instance, the others are not even tried.
pub(crate) async fn create(pods: &[&Pod], cx: &Context) -> Result<(), Error> {
    let mut left = pods;
    let mut batch = 1;
    while !left.is_empty() {
        let (now, later) = left.split_at(batch.min(left.len()).min(SIDE_BY_SIDE));
        for result in join_all(now.iter().map(|pod| cx.create(*pod))).await {
            match result {
                Ok(pod) => {
                    let note = format!("Created pod: {}", pod.name_any());
                    cx.event(EventType::Normal, "SuccessfulCreate", note);
                }
                // Everything in the namespace is about to go; nothing needs to be done.
                Err(error) if is_namespace_terminating(&error) => return Ok(()),
                Err(error) => {
                    cx.event(EventType::Warning, "FailedCreate", format!("Error creating: {error}"));
                    return Err(error);
                }
            }
        }
        left = later;
        batch *= 2;
    }
    Ok(())
}

/// Deletes pods side by side; the first failure is told after all have been tried.
pub(crate) async fn delete(pods: &[Arc<Pod>], cx: &Context) -> Result<(), Error> {
    let mut failure = None;
    for batch in pods.chunks(SIDE_BY_SIDE) {
        let deleted = join_all(batch.iter().map(|pod| cx.delete(&**pod))).await;
        for (pod, deleted) in batch.iter().zip(deleted) {
            match deleted {
                Ok(()) => {
                    let note = format!("Deleted pod: {}", pod.name_any());
                    cx.event(EventType::Normal, "SuccessfulDelete", note);
                }
                Err(error) => {
                    cx.event(EventType::Warning, "FailedDelete", format!("Error deleting: {error}"));
                    failure.get_or_insert(error);
                }
            }
        }
    }
    failure.map_or(Ok(()), Err)
}
