//! ReplicaSets: keep a number of equal pods running.

mod plan;

use crate::fleet;
use crate::owner::{controller_of, controller_reference, orphaned_in};
use crate::status::report;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Patch;
use kube::core::{Selector, SelectorExt};
use kube::{Api, ResourceExt};
use plan::{Action, Sorted};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use steersman::cache::Cache;
use steersman::{Context, Controller, Error, Key, Outcome, Reconciler};

/// The index of pods that nobody controls, by namespace.
const ORPHANS: &str = "orphaned-pods";

/// Keeps the pods of ReplicaSets at their number.
#[derive(Debug)]
pub(crate) struct ReplicaSets;

/// The controller that runs ReplicaSets.
pub(crate) fn controller() -> Controller<ReplicaSets> {
    Controller::new("replicaset-controller", ReplicaSets)
        .owns::<Pod>()
        .watches::<Pod>(adopters)
        .index::<Pod>(ORPHANS, |pod| orphaned_in(&pod.metadata))
        .concurrency(8)
}

/// The ReplicaSets that may want to adopt a pod that nobody controls.
fn adopters(pod: &Pod, cache: &Cache) -> Vec<Key> {
    if controller_of(&pod.metadata).is_some() || pod.labels().is_empty() {
        return Vec::new();
    }
    let sets = cache.view::<ReplicaSet>().list_in(&pod.namespace().unwrap_or_default());
    sets.iter()
        .filter(|set| selector(set).is_some_and(|selector| selector.matches(pod.labels())))
        .map(|set| Key::of(&**set))
        .collect()
}

/// The selector of a ReplicaSet; one that selects everything or is invalid selects nothing.
fn selector(set: &ReplicaSet) -> Option<Selector> {
    let selector: Selector = set.spec.as_ref()?.selector.clone().try_into().ok()?;
    (!selector.selects_all()).then_some(selector)
}

impl Reconciler for ReplicaSets {
    type Object = ReplicaSet;

    async fn reconcile(&self, set: Arc<ReplicaSet>, cx: &Context) -> Result<Outcome, Error> {
        let Some(selector) = selector(&set) else {
            return Err(Error::terminal(
                "spec.selector selects no pods in particular; give it labels to match",
            ));
        };
        let sorted = plan::sort(&set, &selector, candidates(&set, cx));
        let actions = plan::plan(&set, &sorted);
        let more = plan::is_burst(&actions);
        let mut failure = None;
        for action in actions {
            if let Err(error) = act(&set, action, cx).await {
                failure = Some(error);
                break;
            }
        }
        // Looked up again: what was just created or deleted is to be reported.
        let sorted: Sorted = plan::sort(&set, &selector, candidates(&set, cx));
        let said = failure.as_ref().map(ToString::to_string);
        let (status, next) = plan::report(&set, &sorted, said.as_deref(), cx.now());
        report(&status, cx).await?;
        match (failure, next) {
            (Some(error), _) => Err(error),
            (None, _) if more => Ok(Outcome::Requeue("more pods than one burst")),
            (None, Some(left)) => {
                let left = Duration::try_from(left).unwrap_or_default() + Duration::from_millis(1);
                Ok(Outcome::RequeueAfter(left, "a pod becomes available"))
            }
            (None, None) => Ok(Outcome::Done),
        }
    }
}

/// The pods a ReplicaSet could care for: its own, and those nobody controls.
fn candidates(set: &ReplicaSet, cx: &Context) -> Vec<Arc<Pod>> {
    let pods = cx.cache::<Pod>();
    let mut found = pods.owned_by(&set.uid().unwrap_or_default());
    let orphans = pods.by_index(ORPHANS, &set.namespace().unwrap_or_default());
    found.extend(orphans);
    found
}

async fn act(set: &ReplicaSet, action: Action, cx: &Context) -> Result<(), Error> {
    match action {
        Action::Adopt(pod) => adopt(set, &pod, cx).await,
        Action::Release(pod) => release(set, &pod, cx).await,
        Action::Create(count) => fleet::create(&vec![&plan::pod(set); count], cx).await,
        Action::Delete(pods) => fleet::delete(&pods, cx).await,
    }
}

/// Whether a write was refused because its namespace is being deleted.
pub(crate) fn is_namespace_terminating(error: &Error) -> bool {
    let causes = error.status().and_then(|status| status.details.as_ref()).map(|details| &details.causes);
    causes.is_some_and(|causes| causes.iter().any(|cause| cause.reason == "NamespaceTerminating"))
}

/// Becomes the controller of a pod, after making sure that the ReplicaSet is still there: a cached
/// one may have been deleted with its pods orphaned on purpose.
async fn adopt(set: &ReplicaSet, pod: &Pod, cx: &Context) -> Result<(), Error> {
    let sets: Api<ReplicaSet> = Api::namespaced(cx.client().clone(), &set.namespace().unwrap_or_default());
    let live = sets.get_opt(&set.name_any()).await?;
    let stays =
        live.is_some_and(|live| live.uid() == set.uid() && live.metadata.deletion_timestamp.is_none());
    if !stays {
        return Ok(());
    }
    let mut owners = pod.owner_references().to_vec();
    owners.push(controller_reference(set));
    set_owners(pod, &json!(owners), cx).await
}

async fn release(set: &ReplicaSet, pod: &Pod, cx: &Context) -> Result<(), Error> {
    let owners = pod.owner_references().iter().filter(|owner| Some(&owner.uid) != set.metadata.uid.as_ref());
    set_owners(pod, &json!(owners.collect::<Vec<_>>()), cx).await
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
