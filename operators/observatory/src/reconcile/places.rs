//! How many tasks run at the same time over all workflows, and which workflow comes next.
//!
//! A place is taken before a pod is created and is free again when the pod has ended. What
//! exists is counted from the cache of pods, so a restart counts the same; what is being
//! created is counted by its run.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use steersman::{Key, View};

use super::inbox::workflow_of;
use crate::run::observe::{Sight, observe};

/// How many tasks may run at the same time, beyond what each workflow says itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Of all workflows together. Any number by default.
    pub tasks: Option<usize>,
    /// Of the workflows of one namespace together. Any number by default.
    pub tasks_per_namespace: Option<usize>,
}

impl Limits {
    /// What a workflow waits for, in a sentence.
    pub(super) fn describe(self) -> String {
        let total = self.tasks.map(|most| format!("at most {most} tasks of all workflows"));
        let own = self.tasks_per_namespace.map(|most| format!("at most {most} tasks of a namespace"));
        let limits: Vec<String> = total.into_iter().chain(own).collect();
        format!("{} run at the same time, and all places are taken", limits.join(" and "))
    }
}

/// The places of all workflows.
#[derive(Clone, Debug)]
pub(super) struct Places {
    limits: Limits,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether the pods that were there at the start have been counted.
    counted: bool,
    /// Pods that have not ended.
    pods: HashSet<Key>,
    /// How many of them, and of those that are being created, are in a namespace.
    used: HashMap<String, usize>,
    /// How many pods of a workflow are being created.
    creating: HashMap<Key, usize>,
    total: usize,
    waiting: BTreeMap<Rank, Claim>,
    ranks: HashMap<Key, Rank>,
    arrivals: u64,
}

/// Higher priority goes first, then who has waited longer.
type Rank = (Reverse<i32>, u64);

#[derive(Debug)]
struct Claim {
    workflow: Key,
    /// How many places it would take.
    wanted: usize,
}

impl Places {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, state: Arc::default() }
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    fn is_unlimited(&self) -> bool {
        self.limits == Limits::default()
    }

    /// Counts the pods that are there, the first time.
    pub(super) fn count(&self, pods: impl FnOnce() -> View<Pod>) {
        if self.is_unlimited() || self.lock().counted {
            return;
        }
        // The cache is read under the lock, here and in `see`: whoever reads last is right.
        let mut state = self.lock();
        for pod in pods().list() {
            state.see(&Key::of(&*pod), Some(&pod));
        }
        state.counted = true;
    }

    /// Takes in that a pod changed or went. Returns the workflows whose turn it is.
    pub(super) fn see(&self, pod: &Key, pods: &View<Pod>) -> Vec<Key> {
        if self.is_unlimited() {
            return Vec::new();
        }
        let mut state = self.lock();
        let before = state.total;
        state.see(pod, pods.get(pod).as_deref());
        if state.total < before { state.next(self.limits) } else { Vec::new() }
    }

    /// Takes a place for a workflow, unless there is none or others come first.
    pub(super) fn take(&self, workflow: &Key, priority: i32) -> bool {
        if self.is_unlimited() {
            return true;
        }
        let mut state = self.lock();
        let rank = state.ranks.get(workflow).copied().unwrap_or((Reverse(priority), u64::MAX));
        if !state.has_place(self.limits, workflow, rank) {
            return false;
        }
        *state.creating.entry(workflow.clone()).or_default() += 1;
        state.add(namespace(workflow));
        // Whoever got a place lets the others of its priority go first.
        if let Some(mut claim) = state.waiting.remove(&rank) {
            claim.wanted = claim.wanted.saturating_sub(1);
            state.arrivals += 1;
            let rank = (rank.0, state.arrivals);
            state.ranks.insert(workflow.clone(), rank);
            state.waiting.insert(rank, claim);
        }
        true
    }

    /// How many pods of a workflow are really being created.
    pub(super) fn creating(&self, workflow: &Key, count: usize) {
        if self.is_unlimited() {
            return;
        }
        let mut state = self.lock();
        let before = match count {
            0 => state.creating.remove(workflow).unwrap_or(0),
            _ => state.creating.insert(workflow.clone(), count).unwrap_or(0),
        };
        for _ in count..before {
            state.remove(namespace(workflow));
        }
        for _ in before..count {
            state.add(namespace(workflow));
        }
    }

    /// Puts a workflow on the list of those that wait; it keeps its turn if it is there.
    pub(super) fn wait(&self, workflow: &Key, priority: i32, wanted: usize) {
        let mut state = self.lock();
        let arrival = match state.ranks.remove(workflow) {
            Some(rank) => {
                state.waiting.remove(&rank);
                rank.1
            }
            None => {
                state.arrivals += 1;
                state.arrivals
            }
        };
        let rank = (Reverse(priority), arrival);
        state.ranks.insert(workflow.clone(), rank);
        state.waiting.insert(rank, Claim { workflow: workflow.clone(), wanted });
    }

    /// A workflow waits no longer.
    pub(super) fn withdraw(&self, workflow: &Key) {
        if self.is_unlimited() {
            return;
        }
        let mut state = self.lock();
        if let Some(rank) = state.ranks.remove(workflow) {
            state.waiting.remove(&rank);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn see(&mut self, key: &Key, pod: Option<&Pod>) {
        let lives =
            pod.is_some_and(|pod| workflow_of(pod).is_some() && !matches!(observe(pod), Sight::Ended(_)));
        if lives && self.pods.insert(key.clone()) {
            self.add(namespace(key));
        }
        if !lives && self.pods.remove(key) {
            self.remove(namespace(key));
        }
    }

    fn add(&mut self, namespace: &str) {
        self.total += 1;
        *self.used.entry(namespace.to_owned()).or_default() += 1;
    }

    fn remove(&mut self, namespace: &str) {
        self.total = self.total.saturating_sub(1);
        if let Some(used) = self.used.get_mut(namespace) {
            *used = used.saturating_sub(1);
            if *used == 0 {
                self.used.remove(namespace);
            }
        }
    }

    fn free_in(&self, limits: Limits, namespace: &str) -> usize {
        let used = self.used.get(namespace).copied().unwrap_or(0);
        limits.tasks_per_namespace.map_or(usize::MAX, |most| most.saturating_sub(used))
    }

    /// Whether a place remains for a workflow when those of higher priority have all they want and
    /// those of its own that have waited longer have one each.
    fn has_place(&self, limits: Limits, workflow: &Key, rank: Rank) -> bool {
        let mut free = limits.tasks.map_or(usize::MAX, |most| most.saturating_sub(self.total));
        let own = namespace(workflow);
        let mut own_free = self.free_in(limits, own);
        for (other, claim) in self.waiting.range(..rank) {
            if free == 0 || own_free == 0 {
                return false;
            }
            let there = namespace(&claim.workflow);
            let place = if there == own { own_free } else { self.free_in(limits, there) };
            let wanted = if other.0 < rank.0 { claim.wanted } else { claim.wanted.min(1) };
            let taken = wanted.min(place).min(free);
            free -= taken;
            if there == own {
                own_free -= taken;
            }
        }
        free > 0 && own_free > 0
    }

    /// The workflows that may take the free places.
    fn next(&self, limits: Limits) -> Vec<Key> {
        let mut free = limits.tasks.map_or(usize::MAX, |most| most.saturating_sub(self.total));
        let mut keys = Vec::new();
        for claim in self.waiting.values() {
            if free == 0 {
                break;
            }
            if claim.wanted > 0 && self.free_in(limits, namespace(&claim.workflow)) > 0 {
                free -= 1;
                keys.push(claim.workflow.clone());
            }
        }
        keys
    }
}

fn namespace(key: &Key) -> &str {
    key.namespace().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("n", name)
    }

    fn places(tasks: Option<usize>, tasks_per_namespace: Option<usize>) -> Places {
        Places::new(Limits { tasks, tasks_per_namespace })
    }

    #[test]
    fn without_limits_there_is_always_a_place() {
        let places = places(None, None);
        assert!((0..1000).all(|_| places.take(&key("a"), 0)));
    }

    #[test]
    fn no_more_places_are_given_than_there_are() {
        let places = places(Some(3), Some(2));
        assert!(places.take(&key("a"), 0) && places.take(&key("a"), 0));
        assert!(!places.take(&key("a"), 0), "the namespace is full");
        assert!(places.take(&Key::new("m", "b"), 0));
        assert!(!places.take(&Key::new("m", "b"), 0), "all is full");
        places.creating(&key("a"), 1);
        assert!(places.take(&Key::new("m", "b"), 0), "one was given back");
    }

    #[test]
    fn who_waits_with_a_higher_priority_or_for_longer_comes_first() {
        let places = places(Some(1), None);
        assert!(places.take(&key("first"), 0));
        places.wait(&key("early"), 0, 1);
        places.wait(&key("urgent"), 5, 1);
        places.creating(&key("first"), 0);
        assert!(!places.take(&key("first"), 0), "it has had its turn");
        assert!(!places.take(&key("early"), 0), "another is more urgent");
        assert!(places.take(&key("urgent"), 5));
        places.withdraw(&key("urgent"));
        places.creating(&key("urgent"), 0);
        assert!(!places.take(&key("first"), 0));
        assert!(places.take(&key("early"), 0));
    }

    #[test]
    fn those_of_the_same_priority_take_turns_and_leave_no_place_empty() {
        let places = places(Some(3), None);
        places.wait(&key("a"), 0, 5);
        places.wait(&key("b"), 0, 5);
        assert!(places.take(&key("a"), 0) && places.take(&key("a"), 0), "one is left for b");
        assert!(!places.take(&key("a"), 0));
        assert!(places.take(&key("b"), 0));
        assert!(!places.take(&key("b"), 0));
    }

    #[test]
    fn a_claim_in_a_full_namespace_holds_up_no_other() {
        let places = places(Some(3), Some(1));
        assert!(places.take(&key("a"), 0));
        places.wait(&key("a"), 9, 5);
        assert!(places.take(&Key::new("m", "b"), 0));
    }
}
