//! StatefulSets: pods that each have a name, a place in an order and claims of their own.

mod identity;
mod plan;
#[cfg(test)]
mod plan_tests;
mod revision;

use crate::owner::{Claim, claim, controller_of, controller_reference, orphaned_in};
use crate::replicaset::is_namespace_terminating;
use crate::status::report;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::Patch;
use kube::core::Selector;
use kube::{Api, ResourceExt};
use plan::{Action, Revisions, Template};
use revision::Wanted;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use steersman::cache::Cache;
use steersman::{Context, Controller, Error, EventType, Key, Outcome, Reconciler};

/// The index of pods that nobody controls, by namespace.
const ORPHANS: &str = "orphaned-pods-of-statefulsets";

/// Keeps the pods of StatefulSets in their places.
#[derive(Debug)]
pub(crate) struct StatefulSets;

/// The controller that runs StatefulSets.
pub(crate) fn controller() -> Controller<StatefulSets> {
    Controller::new("statefulset-controller", StatefulSets)
        .owns::<Pod>()
        .owns::<ControllerRevision>()
        .reads::<PersistentVolumeClaim>()
        .watches::<Pod>(adopters)
        .index::<Pod>(ORPHANS, |pod| orphaned_in(&pod.metadata))
        .concurrency(8)
}

/// The StatefulSets that may want to adopt a pod that nobody controls.
fn adopters(pod: &Pod, cache: &Cache) -> Vec<Key> {
    if controller_of(&pod.metadata).is_some() || pod.labels().is_empty() {
        return Vec::new();
    }
    let sets = cache.view::<StatefulSet>().list_in(&pod.namespace().unwrap_or_default());
    sets.iter()
        .filter(|set| identity::ordinal(&set.name_any(), &pod.name_any()).is_some())
        .map(|set| Key::of(&**set))
        .collect()
}

impl Reconciler for StatefulSets {
    type Object = StatefulSet;

    async fn reconcile(&self, set: Arc<StatefulSet>, cx: &Context) -> Result<Outcome, Error> {
        let selector = set.spec.as_ref().and_then(|spec| Selector::try_from(spec.selector.clone()).ok());
        let Some(selector) = selector.filter(|selector| !selector.selects_all()) else {
            return Err(Error::terminal(
                "spec.selector selects no pods in particular; give it labels to match",
            ));
        };
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done);
        }
        let (revisions, collisions) = settle_revision(&set, cx).await?;
        let pods = claimed(&set, &selector, cx).await?;
        let places = plan::places(&set, &pods);
        let mut failure = None;
        for action in plan::plan(&set, &places, &revisions, cx.now()) {
            if let Err(error) = act(&set, action, &revisions, cx).await {
                failure = Some(error);
                break;
            }
        }
        // Looked up again: what was just created or deleted is to be reported.
        let pods = owned(&set, cx);
        let places = plan::places(&set, &pods);
        if identity::goes_when_scaled(&set) {
            release_claims(&set, &places, cx).await?;
        }
        let (status, next) = plan::report(&set, &places, revisions, collisions, cx.now());
        let in_use =
            [&status.current_revision, &status.update_revision].map(|name| name.clone().unwrap_or_default());
        let known = history(&set, cx);
        for old in revision::surplus(&set, &known, &pods, [&in_use[0], &in_use[1]]) {
            cx.delete(&*old).await?;
        }
        report(&status, cx).await?;
        match (failure, next) {
            (Some(error), _) => Err(error),
            (None, Some(left)) => {
                let left = Duration::try_from(left).unwrap_or_default() + Duration::from_millis(1);
                Ok(Outcome::RequeueAfter(left, "a pod becomes available"))
            }
            (None, None) => Ok(Outcome::Done),
        }
    }
}

/// The revisions of a StatefulSet.
fn history(set: &StatefulSet, cx: &Context) -> Vec<Arc<ControllerRevision>> {
    cx.cache::<ControllerRevision>().owned_by(&set.uid().unwrap_or_default())
}

/// Gives the present template a revision. Two templates whose hashes are the same are told apart by
/// counting how often that happened.
async fn settle_revision(set: &StatefulSet, cx: &Context) -> Result<(Revisions, Option<i32>), Error> {
    let known = history(set, cx);
    let status = set.status.clone().unwrap_or_default();
    let mut collisions = status.collision_count.filter(|count| *count > 0);
    let update = loop {
        match revision::wanted(set, &known, collisions) {
            Wanted::Known(known) => break known.name_any(),
            Wanted::Again(known, number) => {
                let patch = json!({"revision": number});
                cx.patch::<ControllerRevision, _>(&Key::of(&*known), &Patch::Merge(&patch)).await?;
                break known.name_any();
            }
            Wanted::New(new) => match cx.create(&*new).await {
                Ok(made) => break made.name_any(),
                Err(error) if error.has_code(409) && !is_own(set, &new.name_any(), cx).await? => {
                    collisions = Some(collisions.unwrap_or(0) + 1);
                }
                Err(error) if error.has_code(409) => break new.name_any(),
                Err(error) => return Err(error),
            },
        }
    };
    let current = status.current_revision.filter(|name| known.iter().any(|one| one.name_any() == *name));
    Ok((Revisions { current: current.unwrap_or_else(|| update.clone()), update }, collisions))
}

/// Whether a revision that is there already holds the present template: an earlier reconcile made it.
async fn is_own(set: &StatefulSet, name: &str, cx: &Context) -> Result<bool, Error> {
    let api: Api<ControllerRevision> =
        Api::namespaced(cx.client().clone(), &set.namespace().unwrap_or_default());
    let found = api.get_opt(name).await?;
    let template = set.spec.as_ref().map(|spec| spec.template.clone());
    Ok(found.is_some_and(|found| {
        let same = revision::held(&found)
            .zip(template)
            .is_some_and(|(held, template)| crate::deployment::same_template(&held, &template));
        same && controller_of(&found.metadata).map(|owner| &owner.uid) == set.metadata.uid.as_ref()
    }))
}

/// The pods that are controlled by a StatefulSet.
fn owned(set: &StatefulSet, cx: &Context) -> Vec<Arc<Pod>> {
    cx.cache::<Pod>().owned_by(&set.uid().unwrap_or_default())
}

/// Its pods, after those that nobody controls were adopted and those that match no longer let go.
async fn claimed(set: &StatefulSet, selector: &Selector, cx: &Context) -> Result<Vec<Arc<Pod>>, Error> {
    let mut mine = Vec::new();
    let orphans = cx.cache::<Pod>().by_index(ORPHANS, &set.namespace().unwrap_or_default());
    for pod in owned(set, cx).into_iter().chain(orphans) {
        if identity::ordinal(&set.name_any(), &pod.name_any()).is_none() {
            continue;
        }
        match claim(&set.metadata, selector, &pod.metadata) {
            Claim::Ours => mine.push(pod),
            Claim::Adopt if stays(set, cx).await? => {
                let mut owners = pod.owner_references().to_vec();
                owners.push(controller_reference(set));
                set_owners(&pod, &json!(owners), cx).await?;
                mine.push(pod);
            }
            Claim::Release => {
                let others = pod.owner_references().iter();
                let others = others.filter(|owner| Some(&owner.uid) != set.metadata.uid.as_ref());
                set_owners(&pod, &json!(others.collect::<Vec<_>>()), cx).await?;
            }
            Claim::Adopt | Claim::Foreign => {}
        }
    }
    Ok(mine)
}

/// Whether the StatefulSet is still there: a cached one may have been deleted with its pods orphaned on
/// purpose.
async fn stays(set: &StatefulSet, cx: &Context) -> Result<bool, Error> {
    let api: Api<StatefulSet> = Api::namespaced(cx.client().clone(), &set.namespace().unwrap_or_default());
    let live = api.get_opt(&set.name_any()).await?;
    Ok(live.is_some_and(|live| live.uid() == set.uid() && live.metadata.deletion_timestamp.is_none()))
}

async fn set_owners(pod: &Pod, owners: &serde_json::Value, cx: &Context) -> Result<(), Error> {
    let patch = json!({"metadata": {
        "uid": pod.uid(), "resourceVersion": pod.resource_version(), "ownerReferences": owners}});
    match cx.patch::<Pod, _>(&Key::of(pod), &Patch::Merge(&patch)).await {
        // Gone, or another by now.
        Err(error) if error.has_code(404) => Ok(()),
        other => other.map(drop),
    }
}

async fn act(set: &StatefulSet, action: Action, revisions: &Revisions, cx: &Context) -> Result<(), Error> {
    let name = set.name_any();
    match action {
        Action::Create(place, template) => {
            let pod = match template {
                Template::Update => identity::pod(set, place, &revisions.update),
                Template::Current => {
                    let before = revision::at(set, &history(set, cx), &revisions.current);
                    identity::pod(&before, place, &revisions.current)
                }
            };
            create_claims(set, place, cx).await?;
            match cx.create(&pod).await {
                Ok(pod) => {
                    let note = format!("create Pod {} in StatefulSet {name} successful", pod.name_any());
                    cx.event(EventType::Normal, "SuccessfulCreate", note);
                    Ok(())
                }
                // Everything in the namespace is about to go; nothing needs to be done.
                Err(error) if is_namespace_terminating(&error) => Ok(()),
                Err(error) => {
                    let note =
                        format!("create Pod {} in StatefulSet {name} failed error: {error}", pod.name_any());
                    cx.event(EventType::Warning, "FailedCreate", note);
                    Err(error)
                }
            }
        }
        Action::Delete(pod) => {
            let deleted = cx.delete(&*pod).await;
            let (kind, reason, outcome) = match &deleted {
                Ok(()) => (EventType::Normal, "SuccessfulDelete", "successful".to_owned()),
                Err(error) => (EventType::Warning, "FailedDelete", format!("failed error: {error}")),
            };
            cx.event(kind, reason, format!("delete Pod {} in StatefulSet {name} {outcome}", pod.name_any()));
            deleted
        }
    }
}

/// Makes the claims of a place that are not there.
async fn create_claims(set: &StatefulSet, place: i32, cx: &Context) -> Result<(), Error> {
    for claim in identity::claims(set, place) {
        if cx.cache::<PersistentVolumeClaim>().get(&Key::of(&claim)).is_some() {
            continue;
        }
        match cx.create(&claim).await {
            Err(error) if error.has_code(409) => {}
            other => {
                let claim = other?;
                let note =
                    format!("create Claim {} in StatefulSet {} success", claim.name_any(), set.name_any());
                cx.event(EventType::Normal, "SuccessfulCreate", note);
            }
        }
    }
    Ok(())
}

/// Deletes the claims of places that are no more and have no pod.
async fn release_claims(set: &StatefulSet, places: &plan::Places, cx: &Context) -> Result<(), Error> {
    let templates =
        set.spec.as_ref().and_then(|spec| spec.volume_claim_templates.as_deref()).unwrap_or_default();
    for claim in cx.cache::<PersistentVolumeClaim>().list_in(&set.namespace().unwrap_or_default()) {
        let place = templates.iter().find_map(|template| {
            identity::ordinal(&format!("{}-{}", template.name_any(), set.name_any()), &claim.name_any())
        });
        if place.is_some_and(|place| plan::is_abandoned(places, place))
            && claim.metadata.deletion_timestamp.is_none()
        {
            cx.delete(&*claim).await?;
        }
    }
    Ok(())
}
