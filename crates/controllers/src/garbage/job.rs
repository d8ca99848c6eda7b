//! One object is looked up and dealt with.
//!
//! Nothing here trusts what was seen before: the object and its owners are read afresh, and every
//! write carries the uid and version that were read, so that a name used again, or a reference
//! that just changed, never costs an object its life.

use super::graph::{FOREGROUND, Node, ORPHAN, Uid};
use super::verdict::{HasDependents, Policy, Standing, Verdict, judge};
use crate::kinds::{Kind, Kinds};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;
use std::collections::HashSet;
use std::fmt;

/// The field manager of the references and finalizers that are removed.
const MANAGER: &str = "garbage-collector";

/// What to do about an object.
pub(super) enum Job {
    /// Find out whether it still has an owner.
    Examine {
        uid: Uid,
        node: Node,
        /// Owners that were seen to go.
        gone: HashSet<String>,
        has_dependents: bool,
        /// One of its dependents waits for it to go, while one of its owners waits for it.
        in_cycle: bool,
    },
    /// Take it out of its dependents' references, then let it go.
    Orphan { uid: Uid, node: Node, dependents: Vec<(Uid, Node)> },
    /// Let it go.
    Release { uid: Uid, node: Node, finalizer: &'static str },
}

/// Why an object could not be dealt with; always tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum JobError {
    /// An owner is of a kind the server does not know, or does not know yet.
    #[error("owner kind {kind} of {api_version} is not served")]
    UnknownKind { api_version: String, kind: String },
    /// The server said no.
    #[error(transparent)]
    Server(#[from] kube::Error),
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace =
            self.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        write!(f, "{} {namespace}{}", self.kind.kind, self.name)
    }
}

/// Does one job.
pub(super) async fn run(client: &Client, kinds: &Kinds, job: Job) -> Result<(), JobError> {
    match job {
        Job::Examine { uid, node, gone, has_dependents, in_cycle } => {
            let Some(live) = lookup(client, &node.kind, node.namespace.as_deref(), &node.name, &uid).await?
            else {
                return Ok(());
            };
            let Some(standings) = standings(client, kinds, &live, &gone).await? else { return Ok(()) };
            let has_dependents = if has_dependents { HasDependents::Yes } else { HasDependents::No };
            match judge(&live, &standings, has_dependents) {
                Verdict::Keep => Ok(()),
                Verdict::KeepReferences(references) => {
                    tracing::debug!(object = %node, "drops references to owners that are gone");
                    patch_references(client, &node, &live, references).await.map(drop)
                }
                Verdict::Delete(policy) => {
                    let live = if policy == Policy::Foreground && in_cycle {
                        unblock(client, &node, live).await?
                    } else {
                        Some(live)
                    };
                    match live {
                        Some(live) => delete(client, &node, &live, policy).await,
                        None => Ok(()),
                    }
                }
            }
        }
        Job::Orphan { uid, node, dependents } => {
            for (dependent_uid, dependent) in dependents {
                let namespace = dependent.namespace.as_deref();
                let live =
                    lookup(client, &dependent.kind, namespace, &dependent.name, &dependent_uid).await?;
                let Some(live) = live else { continue };
                let owners = live.owner_references.iter().flatten();
                let others: Vec<OwnerReference> =
                    owners.filter(|owner| *owner.uid != *uid).cloned().collect();
                if others.len() != live.owner_references.as_ref().map_or(0, Vec::len) {
                    patch_references(client, &dependent, &live, others).await?;
                }
            }
            release(client, &uid, &node, ORPHAN).await
        }
        Job::Release { uid, node, finalizer } => release(client, &uid, &node, finalizer).await,
    }
}

/// Reads an object; none when it is gone or another by now.
async fn lookup(
    client: &Client,
    kind: &Kind,
    namespace: Option<&str>,
    name: &str,
    uid: &str,
) -> Result<Option<ObjectMeta>, JobError> {
    let found = kind.api(client, namespace).get_metadata_opt(name).await?;
    let found = found.map(|object| object.metadata);
    Ok(found.filter(|metadata| metadata.uid.as_deref() == Some(uid)))
}

/// What each owner reference points at; none when a reference makes no sense and the object must
/// be left alone: something without a namespace cannot be owned by something in one.
async fn standings(
    client: &Client,
    kinds: &Kinds,
    live: &ObjectMeta,
    gone: &HashSet<String>,
) -> Result<Option<Vec<Standing>>, JobError> {
    let mut standings = Vec::new();
    for reference in live.owner_references.iter().flatten() {
        if gone.contains(&reference.uid) {
            standings.push(Standing::Dangling);
            continue;
        }
        let kind = kinds.of(reference).ok_or_else(|| JobError::UnknownKind {
            api_version: reference.api_version.clone(),
            kind: reference.kind.clone(),
        })?;
        if kind.namespaced && live.namespace.is_none() {
            return Ok(None);
        }
        let owner = lookup(client, kind, live.namespace.as_deref(), &reference.name, &reference.uid).await?;
        standings.push(match owner {
            None => Standing::Dangling,
            Some(owner) if owner.deletion_timestamp.is_some() && has_finalizer(&owner, FOREGROUND) => {
                Standing::Waiting
            }
            Some(_) => Standing::Solid,
        });
    }
    Ok(Some(standings))
}

fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|name| name == finalizer)
}

async fn delete(client: &Client, node: &Node, live: &ObjectMeta, policy: Policy) -> Result<(), JobError> {
    let params = DeleteParams {
        propagation_policy: Some(policy.into()),
        preconditions: Some(Preconditions {
            uid: live.uid.clone(),
            resource_version: live.resource_version.clone(),
        }),
        ..DeleteParams::default()
    };
    tracing::debug!(object = %node, ?policy, "is garbage");
    let deleted = node.kind.api(client, node.namespace.as_deref()).delete(&node.name, &params).await;
    unless_gone(deleted).map(drop)
}

/// Keeps an object from blocking its owners: in a cycle everybody would wait for everybody.
async fn unblock(client: &Client, node: &Node, live: ObjectMeta) -> Result<Option<ObjectMeta>, JobError> {
    let references = live.owner_references.clone().unwrap_or_default();
    let references = references
        .into_iter()
        .map(|reference| OwnerReference { block_owner_deletion: Some(false), ..reference });
    patch_references(client, node, &live, references.collect()).await
}

async fn patch_references(
    client: &Client,
    node: &Node,
    live: &ObjectMeta,
    references: Vec<OwnerReference>,
) -> Result<Option<ObjectMeta>, JobError> {
    let references = if references.is_empty() { None } else { Some(references) };
    let patch = json!({"metadata": {
        "uid": live.uid, "resourceVersion": live.resource_version, "ownerReferences": references}});
    patch_metadata(client, node, &patch).await
}

/// Takes a finalizer of ours off an object that waits for it.
async fn release(client: &Client, uid: &str, node: &Node, finalizer: &str) -> Result<(), JobError> {
    let live = lookup(client, &node.kind, node.namespace.as_deref(), &node.name, uid).await?;
    let Some(live) = live.filter(|live| has_finalizer(live, finalizer)) else { return Ok(()) };
    let others: Vec<&String> = live.finalizers.iter().flatten().filter(|name| *name != finalizer).collect();
    let patch = json!({"metadata": {
        "uid": live.uid, "resourceVersion": live.resource_version, "finalizers": others}});
    patch_metadata(client, node, &patch).await.map(drop)
}

async fn patch_metadata(
    client: &Client,
    node: &Node,
    patch: &serde_json::Value,
) -> Result<Option<ObjectMeta>, JobError> {
    let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    let api = node.kind.api(client, node.namespace.as_deref());
    let patched = api.patch_metadata(&node.name, &params, &Patch::Merge(patch)).await;
    Ok(unless_gone(patched)?.map(|object| object.metadata))
}

fn unless_gone<T>(result: Result<T, kube::Error>) -> Result<Option<T>, JobError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error.into()),
    }
}
