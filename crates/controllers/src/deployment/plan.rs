//! What a Deployment should do next, decided from what is there, without any I/O.
//!
//! One plan is one careful step: scale the new ReplicaSet up, or the old ones down, never both
//! beyond the budget. The ReplicaSets' answer triggers the next plan, until nothing is left to do.

use super::budget::{Budget, Strategy};
use super::status::{Report, available, is_complete, replicas};
use super::template::{
    DESIRED_REPLICAS, MAX_REPLICAS, annotated, counted, new_replica_set, revision, same_template, with_sizes,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use kube::ResourceExt;
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One write to a ReplicaSet.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Create the ReplicaSet of the current template.
    Create(Box<ReplicaSet>),
    /// Scale a ReplicaSet or bring its annotations up to date.
    Update(Update),
    /// Delete a ReplicaSet that history no longer needs.
    Delete(Arc<ReplicaSet>),
}

/// A change to a ReplicaSet that exists.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Update {
    /// The ReplicaSet as it is.
    pub(super) live: Arc<ReplicaSet>,
    /// The size it should have.
    pub(super) replicas: i32,
    /// All annotations it should have.
    pub(super) annotations: BTreeMap<String, String>,
    /// The Deployment's minReadySeconds, for the current ReplicaSet.
    pub(super) min_ready_seconds: Option<i32>,
}

/// Everything one reconcile of a Deployment does.
#[derive(Debug)]
pub(super) struct Plan {
    /// Writes to ReplicaSets, in order.
    pub(super) actions: Vec<Action>,
    /// The revision to show on the Deployment; zero when it has none yet.
    pub(super) revision: i64,
    /// The status to report.
    pub(super) status: DeploymentStatus,
    /// When to look again although nothing changes.
    pub(super) check_after: Option<SignedDuration>,
}

/// A ReplicaSet and what is planned for it.
#[derive(Clone, Debug)]
struct Set {
    live: Arc<ReplicaSet>,
    fresh: bool,
    replicas: i32,
    annotations: BTreeMap<String, String>,
    min_ready_seconds: Option<i32>,
}

impl Set {
    fn of(live: Arc<ReplicaSet>) -> Self {
        Self {
            fresh: false,
            replicas: replicas(&live),
            annotations: live.annotations().clone(),
            min_ready_seconds: live.spec.as_ref().and_then(|spec| spec.min_ready_seconds),
            live,
        }
    }

    /// Whether the ReplicaSet has yet to report on the size it was last given. What it says until
    /// then is about pods that may be gone: it could have been scaled down and up again since.
    fn is_stale(&self) -> bool {
        let reported = self.live.status.as_ref().and_then(|status| status.observed_generation);
        reported < self.live.metadata.generation
    }

    /// Available pods that can be counted on once the planned size is reached.
    fn available(&self) -> i32 {
        if self.is_stale() { 0 } else { available(&self.live).min(replicas(&self.live)).min(self.replicas) }
    }

    fn scale(&mut self, to: i32, budget: Budget) {
        if self.replicas != to {
            self.replicas = to;
            self.size(budget);
        }
    }

    fn size(&mut self, budget: Budget) {
        self.annotations = with_sizes(std::mem::take(&mut self.annotations), budget);
    }

    fn action(self) -> Option<Action> {
        if self.fresh {
            let mut set = Arc::unwrap_or_clone(self.live);
            set.metadata.annotations = Some(self.annotations);
            set.spec.get_or_insert_default().replicas = Some(self.replicas);
            return Some(Action::Create(Box::new(set)));
        }
        let unchanged = self.replicas == replicas(&self.live)
            && self.annotations == *self.live.annotations()
            && self.min_ready_seconds.unwrap_or(0)
                == self.live.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0);
        let Self { live, replicas, annotations, min_ready_seconds, .. } = self;
        (!unchanged).then_some(Action::Update(Update { live, replicas, annotations, min_ready_seconds }))
    }

    fn by_age(&self, other: &Self) -> Ordering {
        let created = |set: &Self| set.live.metadata.creation_timestamp.clone();
        created(self).cmp(&created(other)).then_with(|| self.live.name_any().cmp(&other.live.name_any()))
    }
}

/// Plans the next step of a Deployment.
///
/// `sets` are the ReplicaSets it controls; `has_pods` says whether any pod of a ReplicaSet is
/// still there and not finished, which a Recreate must wait for.
pub(super) fn plan(
    deployment: &Deployment,
    sets: Vec<Arc<ReplicaSet>>,
    has_pods: impl Fn(&ReplicaSet) -> bool,
    now: Timestamp,
) -> Plan {
    let mut rollout = Rollout::new(deployment, sets, now);
    if deployment.metadata.deletion_timestamp.is_some() {
        return rollout.finish(Judgement::CountsOnly);
    }
    rollout.report.pause(deployment);
    rollout.annotate_new();
    let paused = deployment.spec.as_ref().and_then(|spec| spec.paused).unwrap_or(false);
    if paused || rollout.was_scaled() {
        rollout.scale_in_proportion();
        if paused {
            rollout.forget_old();
        }
        return rollout.finish(Judgement::CountsOnly);
    }
    match Strategy::of(deployment) {
        Strategy::Rolling => rollout.roll(),
        Strategy::Recreate => rollout.recreate(has_pods),
    }
    rollout.finish(Judgement::Progress)
}

/// What the status says besides counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Judgement {
    CountsOnly,
    Progress,
}

struct Rollout<'a> {
    deployment: &'a Deployment,
    budget: Budget,
    new: Option<Set>,
    old: Vec<Set>,
    doomed: Vec<Arc<ReplicaSet>>,
    next_revision: i64,
    report: Report,
}

impl<'a> Rollout<'a> {
    fn new(deployment: &'a Deployment, sets: Vec<Arc<ReplicaSet>>, now: Timestamp) -> Self {
        let mut old: Vec<Set> = sets.into_iter().map(Set::of).collect();
        old.sort_by(Set::by_age);
        let template = deployment.spec.as_ref().map(|spec| &spec.template);
        let is_current = |set: &Set| {
            let theirs = set.live.spec.as_ref().and_then(|spec| spec.template.as_ref());
            template.zip(theirs).is_some_and(|(ours, theirs)| same_template(ours, theirs))
        };
        // Of several with the same template the oldest is it.
        let new = old.iter().position(is_current).map(|position| old.remove(position));
        let newest = old.iter().map(|set| revision(&set.live.metadata)).max().unwrap_or(0);
        Self {
            deployment,
            budget: Budget::of(deployment),
            new,
            old,
            doomed: Vec::new(),
            next_revision: newest + 1,
            report: Report::new(deployment, now),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Set> {
        self.old.iter().chain(&self.new)
    }

    fn total(&self) -> i32 {
        self.all().map(|set| set.replicas).sum()
    }

    /// Gives the current ReplicaSet its revision and the Deployment's annotations.
    fn annotate_new(&mut self) {
        let Some(new) = self.new.as_mut() else { return };
        let mut annotations = annotated(self.deployment, &new.live.metadata, self.next_revision);
        std::mem::swap(&mut new.annotations, &mut annotations);
        new.min_ready_seconds = self.deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
        self.report.found(&new.live.name_any());
    }

    /// Whether the Deployment's size changed since its ReplicaSets were last scaled.
    fn was_scaled(&self) -> bool {
        self.all().filter(|set| set.replicas > 0).any(|set| {
            counted(&set.live.metadata, DESIRED_REPLICAS)
                .is_some_and(|desired| desired != self.budget.desired)
        })
    }

    /// Spreads a change of size over all ReplicaSets in proportion, so that scaling in the middle
    /// of a rollout neither hastens nor reverts it.
    fn scale_in_proportion(&mut self) {
        let budget = self.budget;
        let active = self.all().filter(|set| set.replicas > 0).count();
        if active <= 1 {
            self.scale_only_one(active);
            return;
        }
        if self.new.as_ref().is_some_and(|new| is_saturated(new, budget)) {
            self.old.iter_mut().for_each(|set| set.scale(0, budget));
            return;
        }
        if Strategy::of(self.deployment) == Strategy::Recreate {
            return;
        }
        let allowed = if budget.desired > 0 { budget.ceiling() } else { 0 };
        let to_add = allowed - self.total();
        let status_replicas = self.deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or(0);
        let mut sets: Vec<&mut Set> =
            self.old.iter_mut().chain(&mut self.new).filter(|set| set.replicas > 0).collect();
        // Largest first; of equals the newer grows and the older shrinks.
        sets.sort_by(|a, b| {
            let age = if to_add > 0 { b.by_age(a) } else { a.by_age(b) };
            Reverse(a.replicas).cmp(&Reverse(b.replicas)).then(age)
        });
        let mut added = 0;
        let mut sizes = Vec::with_capacity(sets.len());
        for set in &sets {
            let share = share(set, budget, status_replicas, to_add, added);
            added += share;
            sizes.push(set.replicas + share);
        }
        if let Some(first) = sizes.first_mut() {
            *first = (*first + to_add - added).max(0);
        }
        for (set, size) in sets.into_iter().zip(sizes) {
            set.scale(size, budget);
            set.size(budget);
        }
    }

    /// With one ReplicaSet at work, or none, there is nothing to share.
    fn scale_only_one(&mut self, active: usize) {
        let budget = self.budget;
        let newest = self.new.as_mut().map_or_else(|| self.old.last_mut(), Some);
        let one = if active == 0 {
            newest
        } else {
            self.old.iter_mut().chain(&mut self.new).find(|set| set.replicas > 0)
        };
        if let Some(set) = one {
            set.scale(budget.desired, budget);
        }
    }

    fn roll(&mut self) {
        self.ensure_new();
        if self.grow_new() || self.shrink_old() {
            return;
        }
        self.forget_old_when_complete();
    }

    fn recreate(&mut self, has_pods: impl Fn(&ReplicaSet) -> bool) {
        let budget = self.budget;
        let mut shrunk = false;
        for set in self.old.iter_mut().filter(|set| set.replicas > 0) {
            set.scale(0, budget);
            shrunk = true;
        }
        let runs = |set: &Set| {
            set.live.status.as_ref().is_some_and(|status| status.replicas > 0) || has_pods(&set.live)
        };
        if shrunk || self.old.iter().any(runs) {
            return;
        }
        self.ensure_new();
        if let Some(new) = self.new.as_mut() {
            new.scale(budget.desired, budget);
        }
        self.forget_old_when_complete();
    }

    /// Makes sure there is a ReplicaSet for the template, as large as the budget allows.
    fn ensure_new(&mut self) {
        if self.new.is_some() {
            return;
        }
        let live = Arc::new(new_replica_set(self.deployment, self.next_revision));
        self.report.created(&live.name_any());
        let mut new = Set { fresh: true, ..Set::of(live) };
        new.replicas = match Strategy::of(self.deployment) {
            Strategy::Recreate => self.budget.desired,
            Strategy::Rolling => (self.budget.ceiling() - self.total()).clamp(0, self.budget.desired),
        };
        self.new = Some(new);
    }

    /// Scales the new ReplicaSet towards the Deployment's size. True when it changed.
    fn grow_new(&mut self) -> bool {
        let (budget, total) = (self.budget, self.total());
        let Some(new) = self.new.as_mut() else { return false };
        let before = new.replicas;
        if before > budget.desired {
            new.scale(budget.desired, budget);
        } else {
            let room = (budget.ceiling() - total).max(0);
            new.scale(before + room.min(budget.desired - before), budget);
        }
        new.replicas != before
    }

    /// Scales old ReplicaSets down as far as availability allows, unhealthy pods first. True when
    /// any changed.
    fn shrink_old(&mut self) -> bool {
        let budget = self.budget;
        let before: i32 = self.old.iter().map(|set| set.replicas).sum();
        let Some(new) = self.new.as_ref() else { return false };
        // A report that is under way decides what may go; it triggers the next plan.
        if self.old.iter().any(|set| set.replicas > 0 && set.is_stale()) {
            return false;
        }
        // Pods of the new ReplicaSet that are not available yet must not be counted on.
        let mut spare = self.total() - budget.floor() - (new.replicas - new.available());
        if before == 0 || spare <= 0 {
            return false;
        }
        for set in &mut self.old {
            let unhealthy = (set.replicas - set.available()).clamp(0, spare);
            spare -= unhealthy;
            set.scale(set.replicas - unhealthy, budget);
        }
        let available: i32 = self.all().map(Set::available).sum();
        let mut spare = (available - budget.floor()).max(0);
        for set in &mut self.old {
            let share = spare.min(set.replicas);
            spare -= share;
            set.scale(set.replicas - share, budget);
        }
        self.old.iter().map(|set| set.replicas).sum::<i32>() < before
    }

    fn forget_old_when_complete(&mut self) {
        let status = self.deployment.status.clone().unwrap_or_default();
        let observed = status.observed_generation >= self.deployment.metadata.generation;
        if observed && is_complete(&status, self.budget.desired) {
            self.forget_old();
        }
    }

    /// Lets go of the oldest revisions beyond the limit, when nothing runs under them any more.
    fn forget_old(&mut self) {
        let limit = self.deployment.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
        if limit == i32::MAX {
            return;
        }
        let mut alive: Vec<&Set> =
            self.old.iter().filter(|set| set.live.metadata.deletion_timestamp.is_none()).collect();
        alive.sort_by(|a, b| {
            let number = |set: &Set| revision(&set.live.metadata);
            number(a).cmp(&number(b)).then_with(|| a.by_age(b))
        });
        let surplus = alive.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        let doomed: Vec<_> =
            alive[..surplus].iter().filter(|set| is_idle(set)).map(|set| set.live.clone()).collect();
        self.old.retain(|set| !doomed.iter().any(|live| live.metadata.uid == set.live.metadata.uid));
        self.doomed = doomed;
    }

    fn finish(self, judgement: Judgement) -> Plan {
        let old: Vec<Arc<ReplicaSet>> = self.old.iter().map(|set| set.live.clone()).collect();
        let old: Vec<&ReplicaSet> = old.iter().map(AsRef::as_ref).collect();
        let new = self.new.as_ref().map(|set| set.live.clone());
        let revision = self.new.as_ref().map_or(0, |set| {
            set.annotations.get(super::template::REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
        });
        let (status, check_after) = match judgement {
            Judgement::CountsOnly => (self.report.counts(self.deployment, new.as_deref(), &old), None),
            Judgement::Progress => self.report.rollout(self.deployment, new.as_deref(), &old),
        };
        let mut actions: Vec<Action> = self.new.into_iter().chain(self.old).filter_map(Set::action).collect();
        actions.extend(self.doomed.into_iter().map(Action::Delete));
        Plan { actions, revision, status, check_after }
    }
}

/// Whether the new ReplicaSet carries the whole Deployment by itself.
fn is_saturated(new: &Set, budget: Budget) -> bool {
    counted(&new.live.metadata, DESIRED_REPLICAS) == Some(budget.desired)
        && new.replicas == budget.desired
        && available(&new.live) == budget.desired
}

/// Whether a ReplicaSet has no pods, wants none, and has said so for its latest generation.
fn is_idle(set: &Set) -> bool {
    let status = set.live.status.as_ref();
    set.replicas == 0
        && status.is_none_or(|status| status.replicas == 0)
        && set.live.metadata.generation <= status.and_then(|status| status.observed_generation)
}

/// The part of a change of size that falls to one ReplicaSet.
fn share(set: &Set, budget: Budget, status_replicas: i32, to_add: i32, added: i32) -> i32 {
    if set.replicas == 0 || to_add == 0 || to_add == added {
        return 0;
    }
    let fraction = fraction(set, budget, status_replicas);
    let left = to_add - added;
    if to_add > 0 { fraction.min(left) } else { fraction.max(left) }
}

/// How much a ReplicaSet would change if it kept its part of the Deployment.
fn fraction(set: &Set, budget: Budget, status_replicas: i32) -> i32 {
    if budget.desired == 0 {
        return -set.replicas;
    }
    let before = counted(&set.live.metadata, MAX_REPLICAS).filter(|before| *before > 0);
    match before.unwrap_or(status_replicas) {
        0 => 0,
        before => {
            let exact = f64::from(set.replicas) * f64::from(budget.ceiling()) / f64::from(before);
            // Sizes are far below where a float would lose whole numbers.
            #[allow(clippy::cast_possible_truncation)]
            let rounded = exact.round() as i32;
            rounded - set.replicas
        }
    }
}
