//! What needs a cluster.

use std::ops::ControlFlow;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::lint::{Finding, lint};
use crate::types::{GROUP, Observatory, Phase, RerunMode, Shutdown};

/// How long to wait before a watch that ended is begun again.
const PAUSE: Duration = Duration::from_millis(200);

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The file has problems.
    #[error("the file has {} problems, first at {}", .0.len(), .0.first().map(ToString::to_string).unwrap_or_default())]
    Invalid(Vec<Finding>),
    /// The file is no workflow.
    #[error("this is no workflow: {0}")]
    Unreadable(String),
    /// There is no such workflow.
    #[error("there is no workflow {namespace}/{name}; see `steer workflow list`")]
    NotFound {
        /// Where it was looked for.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// It cannot be done now.
    #[error("{0}")]
    Refused(String),
    /// The server's answer.
    #[error(transparent)]
    Kube(#[from] kube::Error),
}

/// How to submit workflows.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The namespace for workflows that name none.
    pub namespace: String,
    /// The name to give instead of the one in the file; for files with one workflow.
    pub name: Option<String>,
}

/// The workflows of a file, after making sure that nothing is wrong with them.
///
/// # Errors
/// When something is.
pub fn read(text: &str) -> Result<Vec<Observatory>, ClientError> {
    let findings = lint(text);
    if !findings.is_empty() {
        return Err(ClientError::Invalid(findings));
    }
    let unreadable = |error: &dyn std::fmt::Display| ClientError::Unreadable(error.to_string());
    let documents: Vec<serde_json::Value> =
        serde_saphyr::from_multiple(text).map_err(|error| unreadable(&error))?;
    let ours = documents.into_iter().filter(|document| {
        let version = document["apiVersion"].as_str().unwrap_or_default();
        document["kind"] == "Observatory" && version.starts_with(GROUP)
    });
    ours.map(|document| serde_json::from_value(document).map_err(|error| unreadable(&error))).collect()
}

/// Submits the workflows of a file.
///
/// # Errors
/// When the file has problems or the server refuses a workflow.
pub async fn run(client: &Client, text: &str, options: &RunOptions) -> Result<Vec<Observatory>, ClientError> {
    let mut workflows = read(text)?;
    if let Some(name) = &options.name {
        match workflows.as_mut_slice() {
            [one] => one.metadata.name = Some(name.clone()),
            _ => {
                return Err(ClientError::Refused("a name can be given only to a single workflow".to_owned()));
            }
        }
    }
    let mut created = Vec::new();
    for workflow in workflows {
        let namespace = workflow.namespace().unwrap_or_else(|| options.namespace.clone());
        let api: Api<Observatory> = Api::namespaced(client.clone(), &namespace);
        created.push(api.create(&PostParams::default(), &workflow).await?);
    }
    Ok(created)
}

/// All workflows of a namespace, or of all namespaces, newest first.
///
/// # Errors
/// When the server does not answer well.
pub async fn list(client: &Client, namespace: Option<&str>) -> Result<Vec<Observatory>, ClientError> {
    let api: Api<Observatory> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut all = api.list(&ListParams::default()).await?.items;
    all.sort_by_key(|workflow| {
        std::cmp::Reverse(workflow.metadata.creation_timestamp.as_ref().map(|time| time.0))
    });
    Ok(all)
}

/// One workflow.
///
/// # Errors
/// When there is none of that name.
pub async fn get(client: &Client, namespace: &str, name: &str) -> Result<Observatory, ClientError> {
    let api: Api<Observatory> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(name).await?.map(whole);
    found.ok_or_else(|| ClientError::NotFound { namespace: namespace.to_owned(), name: name.to_owned() })
}

/// A workflow with all of its tasks, also where the status was too large for them.
fn whole(mut workflow: Observatory) -> Observatory {
    if let Some(status) = &mut workflow.status {
        status.unpack();
    }
    workflow
}

/// Calls `see` with every state of a workflow until it breaks.
///
/// # Errors
/// When the workflow is not there, or goes.
pub async fn watch(
    client: &Client,
    namespace: &str,
    name: &str,
    mut see: impl FnMut(&Observatory) -> ControlFlow<()>,
) -> Result<(), ClientError> {
    let api: Api<Observatory> = Api::namespaced(client.clone(), namespace);
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    loop {
        let mut workflow = get(client, namespace, name).await?;
        if see(&workflow).is_break() {
            return Ok(());
        }
        let version = workflow.resource_version().unwrap_or_default();
        let mut events = api.watch(&params, &version).await?.boxed();
        // A watch ends from time to time; then it is looked again.
        while let Ok(Some(event)) = events.try_next().await {
            match event {
                WatchEvent::Added(found) | WatchEvent::Modified(found) => workflow = whole(found),
                WatchEvent::Deleted(_) => {
                    return Err(ClientError::Refused(format!("workflow {namespace}/{name} was deleted")));
                }
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(_) => break,
            }
            if see(&workflow).is_break() {
                return Ok(());
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether a workflow has ended and no rerun is asked for that has not begun.
pub fn is_over(workflow: &Observatory) -> bool {
    let status = workflow.status.as_ref();
    let begun = status.and_then(|status| status.rerun_id.as_ref());
    let asked = workflow.spec.rerun.as_ref().map(|rerun| &rerun.id);
    status.is_some_and(|status| status.phase().is_over()) && (asked.is_none() || asked == begun)
}

/// Waits for the end of a workflow.
///
/// # Errors
/// When it is not there, or goes.
pub async fn wait(client: &Client, namespace: &str, name: &str) -> Result<Observatory, ClientError> {
    let mut last = None;
    watch(client, namespace, name, |workflow| {
        last = Some(workflow.clone());
        if is_over(workflow) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .await?;
    last.ok_or_else(|| ClientError::NotFound { namespace: namespace.to_owned(), name: name.to_owned() })
}

/// Ends a workflow early.
///
/// # Errors
/// When it is not there or has ended.
pub async fn stop(
    client: &Client,
    namespace: &str,
    name: &str,
    how: Shutdown,
) -> Result<Observatory, ClientError> {
    let workflow = get(client, namespace, name).await?;
    if is_over(&workflow) && !workflow.spec.is_scheduled() {
        let phase = workflow.status.unwrap_or_default().phase();
        return Err(ClientError::Refused(format!("workflow {namespace}/{name} has already ended: {phase}")));
    }
    patch(client, namespace, name, &json!({"spec": {"shutdown": how}})).await
}

/// Runs tasks of a workflow again: those that did not succeed, those that are named and what
/// depends on them, or all.
///
/// # Errors
/// When it is not there, goes on, or has nothing to run again.
pub async fn retry(
    client: &Client,
    namespace: &str,
    name: &str,
    mode: RerunMode,
    tasks: &[String],
) -> Result<Observatory, ClientError> {
    let workflow = get(client, namespace, name).await?;
    let status = workflow.status.clone().unwrap_or_default();
    // Tasks that are named are meant.
    let mode = if tasks.is_empty() || mode == RerunMode::All { mode } else { RerunMode::Tasks };
    let refused = |why: &str| Err(ClientError::Refused(format!("workflow {namespace}/{name} {why}")));
    if workflow.spec.is_scheduled() {
        return refused("is a schedule; name one of its runs");
    }
    if !is_over(&workflow) {
        return refused("has not ended; stop it first, or wait");
    }
    if status.phase() == Phase::Succeeded && mode == RerunMode::FromFailed {
        return refused("has succeeded; name tasks to run again, or run all");
    }
    for task in tasks {
        if !workflow.spec.tasks.iter().any(|known| known.name == *task) {
            return refused(&format!("has no task {task:?}"));
        }
    }
    // Any text that was not there before makes a rerun; the version is one that never comes again.
    let id = format!("rerun-{}", workflow.resource_version().unwrap_or_default());
    let rerun = json!({"id": id, "mode": mode, "tasks": tasks});
    patch(client, namespace, name, &json!({"spec": {"shutdown": null, "rerun": rerun}})).await
}

async fn patch(
    client: &Client,
    namespace: &str,
    name: &str,
    patch: &serde_json::Value,
) -> Result<Observatory, ClientError> {
    let api: Api<Observatory> = Api::namespaced(client.clone(), namespace);
    Ok(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
}
