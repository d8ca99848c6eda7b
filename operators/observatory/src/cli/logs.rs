//! What tasks wrote, from their pods or from what was kept of them.

use std::collections::BTreeMap;

use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, LogParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt};

use super::client::{ClientError, get};
use crate::run::names;
use crate::types::Observatory;

/// Where the log of an attempt is.
#[derive(Clone, Debug, Default)]
struct Source {
    pod: Option<Pod>,
    kept: Option<String>,
}

/// Gives the lines of the logs of a workflow's tasks, or of one of them, with the task and the
/// attempt they belong to; those of pods that the operator deleted come from what it kept. With
/// `follow`, waits for further lines until the pods end.
///
/// # Errors
/// When the workflow or the task is not there, or a log cannot be had.
pub async fn logs(
    client: &Client,
    namespace: &str,
    name: &str,
    task: Option<&str>,
    params: &LogParams,
    mut line: impl FnMut(&str, i32, &str),
) -> Result<(), ClientError> {
    let workflow = get(client, namespace, name).await?;
    if let Some(task) = task
        && !workflow.spec.tasks.iter().any(|known| known.name == task)
    {
        return Err(ClientError::Refused(format!("workflow {namespace}/{name} has no task {task:?}")));
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = LogParams { container: Some(names::CONTAINER.to_owned()), ..params.clone() };
    for ((place, attempt), source) in sources(client, namespace, &workflow).await? {
        let own = &workflow.spec.tasks[place].name;
        if task.is_some_and(|task| task != own) {
            continue;
        }
        let started = source.pod.filter(|pod| !is_pending(pod));
        match (started, source.kept) {
            (_, Some(kept)) => kept.lines().for_each(|text| line(own, attempt, text)),
            (Some(pod), None) => {
                let mut lines = pods.log_stream(&pod.name_any(), &params).await?.lines();
                while let Some(text) = lines.try_next().await.map_err(kube::Error::ReadEvents)? {
                    line(own, attempt, &text);
                }
            }
            (None, None) => {}
        }
    }
    Ok(())
}

/// Where the logs are, in the order of tasks and attempts.
async fn sources(
    client: &Client,
    namespace: &str,
    workflow: &Observatory,
) -> Result<BTreeMap<(usize, i32), Source>, ClientError> {
    let selector = format!("{}={}", names::UID, workflow.uid().unwrap_or_default());
    let ours = ListParams::default().labels(&selector);
    let places: BTreeMap<&str, usize> =
        workflow.spec.tasks.iter().enumerate().map(|(place, task)| (task.name.as_str(), place)).collect();
    let whose = |meta: &ObjectMeta| {
        let task = meta.annotations.as_ref()?.get(names::TASK)?;
        let attempt = meta.labels.as_ref()?.get(names::ATTEMPT)?.parse().ok()?;
        Some((*places.get(task.as_str())?, attempt))
    };
    let mut sources: BTreeMap<(usize, i32), Source> = BTreeMap::new();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    for pod in pods.list(&ours).await?.items {
        if let Some(place) = whose(&pod.metadata) {
            sources.entry(place).or_default().pod = Some(pod);
        }
    }
    let kept: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    for mut log in kept.list(&ours).await?.items {
        if let Some(place) = whose(&log.metadata) {
            sources.entry(place).or_default().kept = log.data.as_mut().and_then(|data| data.remove("log"));
        }
    }
    Ok(sources)
}

fn is_pending(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending")
}
