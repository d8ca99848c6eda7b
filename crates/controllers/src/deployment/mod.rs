//! Deployments: replace pods by newer ones, a few at a time, and remember how to go back.
//!
//! ```text
//! Deployment ─ template hash ─▶ ReplicaSet (revision 3, current)  ─▶ pods
//!                              ReplicaSet (revision 2, scaled down)
//!                              ReplicaSet (revision 1, scaled down)
//! ```
//! `kubectl rollout undo` puts the template of an old ReplicaSet back into the Deployment; the
//! ReplicaSet is found again by its template and scaled up under a new revision.

mod budget;
mod plan;
#[cfg(test)]
mod plan_tests;
mod status;
mod template;

use crate::owner::{Claim, claim, controller_of, controller_reference, orphaned_in};
use crate::pods::is_terminal;
use crate::replicaset::is_namespace_terminating;
use crate::status::report;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Patch;
use kube::core::{Selector, SelectorExt};
use kube::{Api, ResourceExt};
use plan::{Action, Update};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use steersman::cache::Cache;
use steersman::{Context, Controller, Error, EventType, Key, Outcome, Reconciler};
pub(crate) use template::{same_template, template_hash};

/// The index of ReplicaSets that nobody controls, by namespace.
const ORPHANS: &str = "orphaned-replicasets";

/// Rolls Deployments out.
#[derive(Debug)]
pub(crate) struct Deployments;

/// The controller that runs Deployments.
pub(crate) fn controller() -> Controller<Deployments> {
    Controller::new("deployment-controller", Deployments)
        .owns::<ReplicaSet>()
        .watches::<ReplicaSet>(adopters)
        .index::<ReplicaSet>(ORPHANS, |set| orphaned_in(&set.metadata))
        .reads::<Pod>()
        .concurrency(8)
}

/// The Deployments that may want to adopt a ReplicaSet that nobody controls.
fn adopters(set: &ReplicaSet, cache: &Cache) -> Vec<Key> {
    if controller_of(&set.metadata).is_some() || set.labels().is_empty() {
        return Vec::new();
    }
    let deployments = cache.view::<Deployment>().list_in(&set.namespace().unwrap_or_default());
    deployments
        .iter()
        .filter(|deployment| selector(deployment).is_some_and(|selector| selector.matches(set.labels())))
        .map(|deployment| Key::of(&**deployment))
        .collect()
}

/// The selector of a Deployment; one that selects everything or is invalid selects nothing.
fn selector(deployment: &Deployment) -> Option<Selector> {
    let selector: Selector = deployment.spec.as_ref()?.selector.clone().try_into().ok()?;
    (!selector.selects_all()).then_some(selector)
}

impl Reconciler for Deployments {
    type Object = Deployment;

    async fn reconcile(&self, deployment: Arc<Deployment>, cx: &Context) -> Result<Outcome, Error> {
        let Some(selector) = selector(&deployment) else {
            let note = "This deployment is selecting all pods. A non-empty selector is required.";
            cx.event(EventType::Warning, "SelectingAll", note);
            return Ok(Outcome::Done);
        };
        let sets = claim_sets(&deployment, &selector, cx).await?;
        let pods = cx.cache::<Pod>();
        let has_pods = |set: &ReplicaSet| {
            pods.owned_by(&set.uid().unwrap_or_default()).iter().any(|pod| !is_terminal(pod))
        };
        let plan = plan::plan(&deployment, sets, has_pods, now(cx));
        for action in &plan.actions {
            match act(&deployment, action, cx).await? {
                Done::Continue => {}
                Done::Collision => return Ok(Outcome::Requeue("a name collision")),
                Done::Leave => return Ok(Outcome::Done),
            }
        }
        show_revision(&deployment, plan.revision, cx).await?;
        report(&plan.status, cx).await?;
        Ok(match plan.check_after {
            Some(left) => {
                let left = Duration::try_from(left).unwrap_or_default();
                Outcome::RequeueAfter(left, "progress deadline")
            }
            None => Outcome::Done,
        })
    }
}

/// The time in whole seconds, as objects keep it: what is written compares equal to what is read.
fn now(cx: &Context) -> jiff::Timestamp {
    jiff::Timestamp::from_second(cx.now().as_second()).unwrap_or_else(|_| cx.now())
}

/// Whether to go on with a plan.
enum Done {
    Continue,
    /// Another name is to be tried.
    Collision,
    /// The namespace goes, and everything in it.
    Leave,
}

/// The ReplicaSets of a Deployment, orphans adopted and strangers released.
async fn claim_sets(
    deployment: &Deployment,
    selector: &Selector,
    cx: &Context,
) -> Result<Vec<Arc<ReplicaSet>>, Error> {
    let cache = cx.cache::<ReplicaSet>();
    let mut candidates = cache.owned_by(&deployment.uid().unwrap_or_default());
    candidates.extend(cache.by_index(ORPHANS, &deployment.namespace().unwrap_or_default()));
    let mut sets = Vec::new();
    for set in candidates {
        match claim(&deployment.metadata, selector, &set.metadata) {
            Claim::Ours => sets.push(set),
            Claim::Adopt => sets.extend(adopt(deployment, &set, cx).await?),
            Claim::Release => {
                let owners = set.owner_references().iter();
                let others: Vec<_> =
                    owners.filter(|owner| Some(&owner.uid) != deployment.metadata.uid.as_ref()).collect();
                set_owners(&set, &json!(others), cx).await?;
            }
            Claim::Foreign => {}
        }
    }
    Ok(sets)
}

/// Becomes the controller of a ReplicaSet, after making sure that the Deployment is still there.
async fn adopt(
    deployment: &Deployment,
    set: &ReplicaSet,
    cx: &Context,
) -> Result<Option<Arc<ReplicaSet>>, Error> {
    let api: Api<Deployment> =
        Api::namespaced(cx.client().clone(), &deployment.namespace().unwrap_or_default());
    let live = api.get_opt(&deployment.name_any()).await?;
    let stays =
        live.is_some_and(|live| live.uid() == deployment.uid() && live.metadata.deletion_timestamp.is_none());
    if !stays {
        return Ok(None);
    }
    let mut owners = set.owner_references().to_vec();
    owners.push(controller_reference(deployment));
    set_owners(set, &json!(owners), cx).await
}

async fn set_owners(
    set: &ReplicaSet,
    owners: &Value,
    cx: &Context,
) -> Result<Option<Arc<ReplicaSet>>, Error> {
    let patch = json!({"metadata": {
        "uid": set.uid(), "resourceVersion": set.resource_version(), "ownerReferences": owners}});
    match cx.patch::<ReplicaSet, _>(&Key::of(set), &Patch::Merge(&patch)).await {
        Err(error) if error.has_code(404) => Ok(None),
        other => other.map(Some),
    }
}

async fn act(deployment: &Deployment, action: &Action, cx: &Context) -> Result<Done, Error> {
    match action {
        Action::Create(set) => return create(deployment, set, cx).await,
        Action::Update(update) => {
            let before = status::replicas(&update.live);
            cx.patch::<ReplicaSet, _>(&Key::of(&*update.live), &Patch::Merge(changes(update))).await?;
            if before != update.replicas {
                announce_scaling(&update.live.name_any(), before, update.replicas, cx);
            }
        }
        Action::Delete(set) => cx.delete(&**set).await?,
    }
    Ok(Done::Continue)
}

/// Only what changes, so that others may write the rest.
fn changes(update: &Update) -> Value {
    let before = update.live.annotations();
    let annotations: serde_json::Map<String, Value> = update
        .annotations
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(value))
        .map(|(key, value)| (key.clone(), value.clone().into()))
        .collect();
    json!({
        "metadata": {
            "uid": update.live.uid(),
            "resourceVersion": update.live.resource_version(),
            "annotations": annotations,
        },
        "spec": {"replicas": update.replicas, "minReadySeconds": update.min_ready_seconds},
    })
}

fn announce_scaling(name: &str, from: i32, to: i32, cx: &Context) {
    let direction = if from < to { "up" } else { "down" };
    let note = format!("Scaled {direction} replica set {name} from {from} to {to}");
    cx.event(EventType::Normal, "ScalingReplicaSet", note);
}

async fn create(deployment: &Deployment, set: &ReplicaSet, cx: &Context) -> Result<Done, Error> {
    match cx.create(set).await {
        Ok(created) => {
            let replicas = status::replicas(&created);
            if replicas > 0 {
                announce_scaling(&created.name_any(), 0, replicas, cx);
            }
            Ok(Done::Continue)
        }
        Err(error) if is_already_exists(&error) => resolve_collision(deployment, set, cx).await,
        Err(error) if is_namespace_terminating(&error) => Ok(Done::Leave),
        Err(error) => {
            let note = format!("Failed to create new replica set \"{}\": {error}", set.name_any());
            cx.event(EventType::Warning, "ReplicaSetCreateError", note.clone());
            let status = status::creation_failed(deployment, &note, now(cx));
            report(&status, cx).await?;
            Err(error)
        }
    }
}

fn is_already_exists(error: &Error) -> bool {
    error.status().is_some_and(|status| status.reason == "AlreadyExists")
}

/// A ReplicaSet of that name exists. Either it is ours and the cache did not know it yet, or the
/// hashes of two templates collide; then another count goes into the hash, and the next attempt
/// has another name.
async fn resolve_collision(deployment: &Deployment, set: &ReplicaSet, cx: &Context) -> Result<Done, Error> {
    let api: Api<ReplicaSet> =
        Api::namespaced(cx.client().clone(), &deployment.namespace().unwrap_or_default());
    let Some(existing) = api.get_opt(&set.name_any()).await? else {
        return Err(Error::msg("the ReplicaSet exists and does not; trying again"));
    };
    let templates = |set: &ReplicaSet| set.spec.as_ref().and_then(|spec| spec.template.clone());
    let same = templates(&existing).zip(templates(set)).is_some_and(|(a, b)| template::same_template(&a, &b));
    let ours = controller_of(&existing.metadata)
        .is_some_and(|owner| Some(&owner.uid) == deployment.metadata.uid.as_ref());
    if ours && same {
        cx.remember(&existing);
        return Ok(Done::Continue);
    }
    let mut status: DeploymentStatus = deployment.status.clone().unwrap_or_default();
    status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
    report(&status, cx).await?;
    Ok(Done::Collision)
}

/// Writes the revision of the current ReplicaSet on the Deployment, where `kubectl rollout
/// history` and people look for it.
async fn show_revision(deployment: &Deployment, revision: i64, cx: &Context) -> Result<(), Error> {
    if revision == 0 || template::revision(&deployment.metadata) == revision {
        return Ok(());
    }
    let patch = json!({"metadata": {
        "uid": deployment.uid(), "annotations": {template::REVISION: revision.to_string()}}});
    cx.patch::<Deployment, _>(cx.key(), &Patch::Merge(&patch)).await?;
    Ok(())
}
