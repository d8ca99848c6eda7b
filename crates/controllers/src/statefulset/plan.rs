//! What a StatefulSet should do next, and what it reports, decided without any I/O.
//!
//! Pods have places. With the policy `OrderedReady` one place is dealt with at a time: they are
//! filled from the first, each only when all before it are available, and emptied from the last. With
//! `Parallel` nobody waits for anybody. A new template replaces pods from the last place down to the
//! partition, as many at a time as may be unavailable.

use super::identity::{ordinal, revision, start};
use crate::pods::{Availability, availability, is_ready, is_terminal, phase};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One write to a pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Create the pod of this place.
    Create(i32, Template),
    /// Delete a pod.
    Delete(Arc<Pod>),
}

/// From which template a pod is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Template {
    /// The one that was there before the change under way.
    Current,
    /// The one that is there now.
    Update,
}

/// The names of the two revisions between which a StatefulSet moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Revisions {
    pub(super) current: String,
    pub(super) update: String,
}

/// The pods of a StatefulSet by their place.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// The places that are to be filled, with their pods.
    wanted: BTreeMap<i32, Option<Arc<Pod>>>,
    /// Pods whose place is no more, by place.
    condemned: BTreeMap<i32, Arc<Pod>>,
}

/// Sorts pods by their place.
pub(super) fn places(set: &StatefulSet, pods: &[Arc<Pod>]) -> Places {
    let spec = set.spec.clone().unwrap_or_default();
    let first = start(&spec);
    let last = first.saturating_add(replicas(&spec));
    let mut wanted: BTreeMap<i32, Option<Arc<Pod>>> = (first..last).map(|place| (place, None)).collect();
    let mut condemned = BTreeMap::new();
    for pod in pods {
        let Some(place) = ordinal(&set.name_any(), &pod.name_any()) else { continue };
        match wanted.get_mut(&place) {
            Some(slot) => *slot = Some(Arc::clone(pod)),
            None => {
                condemned.insert(place, Arc::clone(pod));
            }
        }
    }
    Places { wanted, condemned }
}

fn replicas(spec: &StatefulSetSpec) -> i32 {
    spec.replicas.unwrap_or(1).max(0)
}

fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// The writes that come next; more follow when what they cause has happened.
pub(super) fn plan(set: &StatefulSet, places: &Places, revisions: &Revisions, now: Timestamp) -> Vec<Action> {
    if set.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let spec = set.spec.clone().unwrap_or_default();
    let one_by_one = spec.pod_management_policy.as_deref() != Some("Parallel");
    let serves = |pod: &Pod| {
        !is_leaving(pod)
            && phase(pod) == "Running"
            && availability(pod, spec.min_ready_seconds.unwrap_or(0), now) == Availability::Available
    };
    let mut actions = Vec::new();
    for (place, pod) in &places.wanted {
        let next = match pod {
            None => Some(Action::Create(*place, template(&spec, *place))),
            Some(pod) if is_terminal(pod) && !is_leaving(pod) => Some(Action::Delete(Arc::clone(pod))),
            Some(pod) if one_by_one && !serves(pod) => return actions,
            Some(_) => None,
        };
        if let Some(action) = next {
            actions.push(action);
            if one_by_one {
                return actions;
            }
        }
    }
    // A pod that does not serve may go although others wait; the first such one, at least.
    let unhealthy = |pod: &Pod| is_leaving(pod) || phase(pod) != "Running" || !is_ready(pod);
    let all = places.wanted.values().flatten().chain(places.condemned.values());
    let first_unhealthy = all.filter(|pod| unhealthy(pod)).map(|pod| pod.name_any()).next();
    for pod in places.condemned.values().rev() {
        if is_leaving(pod) {
            if one_by_one {
                return actions;
            }
            continue;
        }
        if one_by_one && unhealthy(pod) && first_unhealthy.as_deref() != Some(pod.name_any().as_str()) {
            return actions;
        }
        actions.push(Action::Delete(Arc::clone(pod)));
        if one_by_one {
            return actions;
        }
    }
    if actions.is_empty() {
        actions.extend(replacements(&spec, places, &revisions.update, serves));
    }
    actions
}

/// Pods of an older template that go now, from the last place.
fn replacements(
    spec: &StatefulSetSpec,
    places: &Places,
    update: &str,
    serves: impl Fn(&Pod) -> bool,
) -> Vec<Action> {
    let strategy = spec.update_strategy.clone().unwrap_or_default();
    if strategy.type_.as_deref() == Some("OnDelete") {
        return Vec::new();
    }
    let rolling = strategy.rolling_update.unwrap_or_default();
    let may_miss = allowed(rolling.max_unavailable.as_ref(), places.wanted.len());
    let missing = places.wanted.values().filter(|pod| !pod.as_ref().is_some_and(|pod| serves(pod))).count();
    let mut room = may_miss.saturating_sub(missing);
    let mut found = Vec::new();
    let lowest = start(spec).saturating_add(rolling.partition.unwrap_or(0));
    for (_, pod) in places.wanted.range(lowest..).rev() {
        let Some(pod) = pod else { continue };
        if revision(pod) == update || is_leaving(pod) {
            continue;
        }
        // One that does not serve costs nothing.
        if !serves(pod) {
            found.push(Action::Delete(Arc::clone(pod)));
        } else if room > 0 {
            room -= 1;
            found.push(Action::Delete(Arc::clone(pod)));
        } else {
            break;
        }
        if found.len() >= may_miss {
            break;
        }
    }
    found
}

/// How many may be missing during an update; at least one, or nothing would move.
fn allowed(value: Option<&IntOrString>, all: usize) -> usize {
    let number = match value {
        None => 1,
        Some(IntOrString::Int(number)) => usize::try_from(*number).unwrap_or(1),
        Some(IntOrString::String(text)) => {
            let percent = text.trim_end_matches('%').parse::<usize>().unwrap_or(0);
            (all * percent).div_ceil(100)
        }
    };
    number.max(1)
}

/// Below the partition a place keeps the template that was there before.
fn template(spec: &StatefulSetSpec, place: i32) -> Template {
    let rolling = spec.update_strategy.as_ref().filter(|one| one.type_.as_deref() != Some("OnDelete"));
    let partition = rolling.and_then(|one| one.rolling_update.as_ref()?.partition).unwrap_or(0);
    match place < start(spec).saturating_add(partition) {
        true => Template::Current,
        false => Template::Update,
    }
}

/// The places of claims that nobody needs any more: beyond those that are to be filled, and empty.
pub(super) fn is_abandoned(places: &Places, place: i32) -> bool {
    !places.wanted.contains_key(&place) && !places.condemned.contains_key(&place)
}

/// The status, and after how long it changes by itself.
pub(super) fn report(
    set: &StatefulSet,
    places: &Places,
    mut revisions: Revisions,
    collisions: Option<i32>,
    now: Timestamp,
) -> (StatefulSetStatus, Option<SignedDuration>) {
    let spec = set.spec.clone().unwrap_or_default();
    let min_ready = spec.min_ready_seconds.unwrap_or(0);
    let pods: Vec<&Arc<Pod>> = places.wanted.values().flatten().chain(places.condemned.values()).collect();
    let count = |condition: &dyn Fn(&Pod) -> bool| -> i32 {
        i32::try_from(pods.iter().filter(|pod| condition(pod)).count()).unwrap_or(i32::MAX)
    };
    let ready = |pod: &Pod| phase(pod) == "Running" && is_ready(pod) && !is_leaving(pod);
    let ready_replicas = count(&ready);
    let available = count(&|pod| ready(pod) && availability(pod, min_ready, now) == Availability::Available);
    let updated = count(&|pod| !is_leaving(pod) && revision(pod) == revisions.update);
    let total = count(&|_| true);
    let whole = replicas(&spec);
    // The change is through once every place has the new template and serves.
    if updated == whole && ready_replicas == whole && total == whole && below(&spec) == 0 {
        revisions.current = revisions.update.clone();
    }
    let current = count(&|pod| !is_leaving(pod) && revision(pod) == revisions.current);
    let wait = pods.iter().filter_map(|pod| match availability(pod, min_ready, now) {
        Availability::In(left) => Some(left),
        _ => None,
    });
    let next = wait.min();
    let status = StatefulSetStatus {
        observed_generation: set.metadata.generation,
        replicas: total,
        ready_replicas: Some(ready_replicas),
        available_replicas: Some(available),
        current_replicas: Some(current),
        updated_replicas: Some(updated),
        current_revision: Some(revisions.current),
        update_revision: Some(revisions.update),
        collision_count: collisions.or(Some(0)),
        conditions: None,
    };
    (status, next)
}

/// How many places the partition keeps back.
fn below(spec: &StatefulSetSpec) -> i32 {
    let rolling = spec.update_strategy.as_ref().and_then(|one| one.rolling_update.as_ref());
    rolling.and_then(|one| one.partition).unwrap_or(0).max(0)
}
