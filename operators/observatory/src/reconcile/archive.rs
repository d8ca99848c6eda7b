//! Keeping the log of a pod that is about to be deleted.
//!
//! A log lives as long as its pod. What the operator deletes itself, because its time was up or
//! `podGC` says so, leaves the end of its log in a ConfigMap that goes with the workflow.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::LogParams;
use kube::{Api, ResourceExt};
use steersman::{Context, EventType};

use crate::run::names;
use crate::types::{LogArchive, Observatory};

/// So much of the end of a log is kept.
const BYTES: usize = 128 * 1024;
const LINES: i64 = 5000;
/// A node that does not answer must not keep a pod from being ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// Keeps the log of a pod, if there is one. That it could not be kept is told in an event.
pub(super) async fn keep_log(workflow: &Observatory, pod: &Pod, cx: &Context) {
    if workflow.spec.log_archive == Some(LogArchive::Never) || !has_run(pod) {
        return;
    }
    let result = tokio::time::timeout(PATIENCE, copy(pod, cx)).await;
    let why = match result {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("its node did not answer within {PATIENCE:?}"),
    };
    let note = format!("The log of pod {} could not be kept: {why}", pod.name_any());
    cx.event(EventType::Warning, "LogNotKept", note);
}

async fn copy(pod: &Pod, cx: &Context) -> Result<(), steersman::Error> {
    let name = names::log_name(&pod.name_any());
    let namespace = pod.namespace().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(cx.client().clone(), &namespace);
    let params = LogParams {
        container: Some(names::CONTAINER.to_owned()),
        tail_lines: Some(LINES),
        ..LogParams::default()
    };
    let text = pods.logs(&pod.name_any(), &params).await?;
    if text.is_empty() {
        return Ok(());
    }
    let mut log = ConfigMap::default();
    log.metadata.name = Some(name);
    log.metadata.namespace = Some(namespace);
    log.metadata.labels = Some(names::own_labels(pod));
    let task = names::task_of(pod).unwrap_or_default().to_owned();
    log.metadata.annotations = Some([(names::TASK.to_owned(), task)].into());
    log.data = Some([("log".to_owned(), last(&text, BYTES).to_owned())].into());
    match cx.create(&log).await {
        Ok(_) => Ok(()),
        // Kept by an earlier attempt to delete the pod.
        Err(error) if error.has_code(409) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether the container has started, so that there can be a log.
fn has_run(pod: &Pod) -> bool {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let mut ours = containers.into_iter().flatten().filter(|one| one.name == names::CONTAINER);
    let state = ours.next().and_then(|one| one.state.as_ref());
    state.is_some_and(|state| state.running.is_some() || state.terminated.is_some())
}

/// The end of a text, from the beginning of a line where there is one.
fn last(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    let cut = (text.len() - bytes..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let end = &text[cut..];
    end.split_once('\n').map_or(end, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_log_whole_lines_of_its_end_are_kept() {
        assert_eq!(last("short", 10), "short");
        assert_eq!(last("first line\nsecond\nthird\n", 12), "third\n");
        assert_eq!(last("äöü", 3), "ü");
    }
}
