//! The keys that wait for a reconcile.
//!
//! Every key is in the queue at most once and is never handed out twice at the same time:
//! ```text
//!              add                 pop                 done
//!   (absent) ───────▶ Ready ───────────────▶ Running ───────────▶ (absent)
//!                      ▲ ▲                    │   ▲ │
//!                      │ │ when due       add │   │ │ done: failed, or again later
//!                      │ │                    ▼   │ ▼
//!                      │ └──────────────── Dirty  │ Delayed
//!                      │        done              │   │
//!                      └──────────────────────────┴───┘ when due, or add
//! ```
//! Ready keys stand in three levels. Within a level namespaces take turns, and keys of one
//! namespace come out in the order in which they went in. A level that is passed over too often
//! gets a turn, so nothing starves.

mod levels;
mod report;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use hashbrown::HashTable;
use tokio::time::Instant;

use self::levels::Levels;
pub use self::report::EntryReport;
use super::sync::{Mutex, MutexGuard, Notify, PoisonError, sleep_until};
pub use crate::error::Retry;
use crate::jitter::Jitter;
use crate::key::Key;
use crate::metrics::QueueMetrics;
use crate::reason::{Reason, Reasons};

/// How urgent an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Something changed, and someone may be waiting for the effect.
    Interactive,
    /// Another attempt at something that failed or asked for one.
    Retry,
    /// Re-checks of everything, and what was there at the start.
    Resync,
}

impl Priority {
    /// Most urgent first.
    pub const ALL: [Priority; 3] = [Self::Interactive, Self::Retry, Self::Resync];

    /// The number under which dashboards of controller-runtime know this urgency.
    pub fn number(self) -> i32 {
        match self {
            Self::Interactive => 0,
            Self::Retry => -50,
            Self::Resync => -100,
        }
    }
}

/// How long to wait after failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// The delay after the first failure; it doubles with every further one. One second.
    pub first: Duration,
    /// The longest delay. Five minutes.
    pub longest: Duration,
}

impl Default for BackOff {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), longest: Duration::from_secs(300) }
    }
}

/// A key that was handed out; comes back through [`Queue::done`].
#[derive(Debug)]
pub struct Item {
    /// What to reconcile.
    pub key: Key,
    /// Why.
    pub reasons: Reasons,
    /// How many attempts in a row have failed.
    pub failures: u32,
    slot: u32,
}

/// What becomes of a key that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It went well.
    Forget,
    /// It went well, and wants to go again.
    Again(&'static str),
    /// It went well, and wants to go again after a while.
    After(Duration, &'static str),
    /// It failed.
    Failed(Retry),
}

/// The queue of one controller.
pub struct Queue {
    state: Mutex<State>,
    wake: Notify,
    back_off: BackOff,
    jitter: Jitter,
    metrics: QueueMetrics,
}

#[derive(Default)]
struct State {
    /// Slots by their keys. The keys are in the slots alone, with their hashes: neither growing
    /// nor forgetting looks at a key's text.
    index: HashTable<u32>,
    hasher: RandomState,
    slots: Vec<Slot>,
    free: Vec<u32>,
    levels: Levels,
    delayed: BinaryHeap<Reverse<(Instant, u64, u32)>>,
    tickets: u64,
    closed: bool,
}

struct Slot {
    key: Key,
    hash: u64,
    phase: Phase,
    priority: Priority,
    reasons: Reasons,
    failures: u32,
    /// When the back-off of the last failure ends. A run before that was caused by something
    /// else, and its failure does not count again.
    retry_at: Option<Instant>,
    /// Since when the entry is in its phase.
    since: Instant,
    /// When a delayed entry becomes ready.
    due: Instant,
    /// Marks the one valid place of the entry in levels and heap; others are skipped.
    ticket: u64,
    tenant: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Ready,
    Running,
    Dirty,
    Delayed,
    Free,
}

impl Queue {
    /// A queue outside of any controller, with figures that nobody scrapes.
    pub fn standalone(back_off: BackOff) -> Self {
        let metrics = crate::metrics::Metrics::new().queue("standalone");
        Self::new(back_off, Jitter::random(), metrics)
    }

    pub(crate) fn new(back_off: BackOff, jitter: Jitter, metrics: QueueMetrics) -> Self {
        Self { state: Mutex::default(), wake: Notify::new(), back_off, jitter, metrics }
    }

    /// Puts a key in, or merges the reason into the entry that is already there.
    pub fn add(&self, key: Key, priority: Priority, reason: Reason) {
        self.metrics.adds.inc();
        let now = Instant::now();
        let mut state = self.lock();
        if state.closed {
            return;
        }
        let at = state.slot(key, now);
        let slot = &mut state.slots[at as usize];
        slot.reasons.add(reason);
        match slot.phase {
            Phase::Ready if slot.priority <= priority => return,
            Phase::Ready => {}
            Phase::Running | Phase::Dirty => {
                if slot.phase == Phase::Running || priority < slot.priority {
                    slot.priority = priority;
                }
                slot.phase = Phase::Dirty;
                return;
            }
            Phase::Delayed | Phase::Free => {}
        }
        state.make_ready(at, priority, now);
        drop(state);
        self.wake.notify_one();
    }

    /// Puts a key in after a delay, unless it comes earlier anyway.
    pub fn add_after(&self, key: Key, delay: Duration, priority: Priority, reason: Reason) {
        if delay.is_zero() {
            return self.add(key, priority, reason);
        }
        self.metrics.adds.inc();
        self.metrics.retries.inc();
        let now = Instant::now();
        let due = now + delay;
        let mut state = self.lock();
        if state.closed {
            return;
        }
        let at = state.slot(key, now);
        let slot = &mut state.slots[at as usize];
        slot.reasons.add(reason);
        match slot.phase {
            // It runs before that, and then says itself when it wants to run again.
            Phase::Ready | Phase::Running | Phase::Dirty => return,
            Phase::Delayed if slot.due <= due => return,
            Phase::Delayed | Phase::Free => state.delay(at, due, priority, now),
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Forgets the failures of a key: what it is asked to do has changed.
    pub fn reset_failures(&self, key: &Key) {
        let mut state = self.lock();
        if let Some(at) = state.find(key) {
            let slot = &mut state.slots[at as usize];
            slot.failures = 0;
            slot.retry_at = None;
        }
    }

    /// The next key, once there is one; nothing after the queue was closed.
    pub async fn pop(&self) -> Option<Item> {
        loop {
            let due = {
                let now = Instant::now();
                let mut state = self.lock();
                if state.closed {
                    // The next waiting worker learns of it from us.
                    self.wake.notify_one();
                    return None;
                }
                state.promote(now);
                if let Some((item, waited)) = state.take(now) {
                    if !state.levels.is_empty() {
                        self.wake.notify_one();
                    }
                    drop(state);
                    self.metrics.waited.observe(waited.as_secs_f64());
                    return Some(item);
                }
                state.next_due()
            };
            match due {
                None => self.wake.notified().await,
                Some(due) => {
                    tokio::select! {
                        () = self.wake.notified() => {}
                        () = sleep_until(due) => {}
                    }
                }
            }
        }
    }

    /// Gives a key back.
    #[expect(clippy::needless_pass_by_value, reason = "an item comes back once")]
    pub fn done(&self, item: Item, next: Next) {
        let now = Instant::now();
        let mut state = self.lock();
        let at = item.slot;
        let slot = &mut state.slots[at as usize];
        let worked = now - slot.since;
        let dirty = slot.phase == Phase::Dirty;
        if let Next::Failed(retry) = next {
            let due = match retry {
                Retry::Never => {
                    slot.failures = 0;
                    slot.retry_at = None;
                    None
                }
                Retry::After(delay) | Retry::Wait(delay) => Some(now + delay),
                Retry::BackOff => Some(match slot.retry_at {
                    Some(retry_at) if retry_at > now => retry_at,
                    _ => {
                        slot.failures += 1;
                        let BackOff { first, longest } = self.back_off;
                        let due = now + self.jitter.back_off(first, longest, slot.failures);
                        slot.retry_at = Some(due);
                        due
                    }
                }),
            };
            match (due, dirty) {
                (None, false) => state.forget(at),
                (None, true) => {
                    let priority = slot.priority;
                    state.make_ready(at, priority, now);
                }
                (Some(due), false) => {
                    self.metrics.retries.inc();
                    slot.reasons.add(Reason::Retry);
                    state.delay(at, due, Priority::Retry, now);
                }
                // What it wrote itself may have made it dirty: going again at once would spin.
                (Some(due), true) => {
                    self.metrics.retries.inc();
                    slot.reasons.add(Reason::Retry);
                    let soon = due.min(now + self.back_off.first);
                    state.delay(at, soon, Priority::Retry, now);
                }
            }
        } else {
            slot.failures = 0;
            slot.retry_at = None;
            match next {
                _ if dirty => {
                    let priority = slot.priority;
                    state.make_ready(at, priority, now);
                }
                Next::Again(why) => {
                    self.metrics.adds.inc();
                    slot.reasons.add(Reason::Requested(why));
                    state.make_ready(at, Priority::Retry, now);
                }
                Next::After(delay, why) => {
                    self.metrics.retries.inc();
                    slot.reasons.add(Reason::Requested(why));
                    state.delay(at, now + delay, Priority::Resync, now);
                }
                Next::Forget | Next::Failed(_) => state.forget(at),
            }
        }
        let waits = state.slots[at as usize].phase != Phase::Free;
        drop(state);
        // Waking a worker for a key that is gone would cost more than the key did.
        if waits {
            self.wake.notify_one();
        }
        self.metrics.worked.observe(worked.as_secs_f64());
    }

    /// Hands out nothing more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

    /// How many keys of each priority are ready.
    pub fn depth(&self) -> [usize; 3] {
        self.lock().levels.depth()
    }

    /// The sum of the times that keys have been running, and the longest of them.
    pub(crate) fn running(&self) -> (Duration, Duration) {
        let now = Instant::now();
        let state = self.lock();
        let running = state
            .slots
            .iter()
            .filter(|slot| matches!(slot.phase, Phase::Running | Phase::Dirty))
            .map(|slot| now - slot.since);
        running.fold(Default::default(), |(sum, longest): (Duration, Duration), one| {
            (sum + one, longest.max(one))
        })
    }

    /// When the back-off of a key's last failure ends.
    #[cfg(test)]
    pub(crate) fn retry_at(&self, key: &Key) -> Option<Instant> {
        let state = self.lock();
        let at = state.find(key)?;
        state.slots[at as usize].retry_at
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&self, key: &Key) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.index.find(hash, |at| self.slots[*at as usize].key == *key).copied()
    }

    /// The slot of a key, a fresh one if it has none.
    fn slot(&mut self, key: Key, now: Instant) -> u32 {
        let hash = self.hasher.hash_one(&key);
        if let Some(at) = self.index.find(hash, |at| self.slots[*at as usize].key == key) {
            return *at;
        }
        let slot = Slot {
            tenant: self.levels.tenant(key.namespace().unwrap_or_default()),
            key,
            hash,
            phase: Phase::Free,
            priority: Priority::Resync,
            reasons: Reasons::default(),
            failures: 0,
            retry_at: None,
            since: now,
            due: now,
            ticket: 0,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
            }
        };
        let slots = &self.slots;
        self.index.insert_unique(hash, at, |at| slots[*at as usize].hash);
        at
    }

    fn make_ready(&mut self, at: u32, priority: Priority, now: Instant) {
        self.tickets += 1;
        let slot = &mut self.slots[at as usize];
        if slot.phase == Phase::Ready {
            self.levels.retract(slot.priority);
        } else {
            slot.since = now;
        }
        slot.phase = Phase::Ready;
        slot.priority = priority;
        slot.ticket = self.tickets;
        self.levels.push(priority, slot.tenant, at, slot.ticket);
    }

    fn delay(&mut self, at: u32, due: Instant, priority: Priority, now: Instant) {
        self.tickets += 1;
        let slot = &mut self.slots[at as usize];
        slot.phase = Phase::Delayed;
        slot.priority = priority;
        slot.since = now;
        slot.due = due;
        slot.ticket = self.tickets;
        self.delayed.push(Reverse((due, slot.ticket, at)));
    }

    /// Makes ready what is due.
    fn promote(&mut self, now: Instant) {
        while let Some(Reverse((due, ticket, at))) = self.delayed.peek().copied() {
            let valid = self.is_delayed(at, ticket);
            if valid && due > now {
                return;
            }
            self.delayed.pop();
            if valid {
                let priority = self.slots[at as usize].priority;
                self.make_ready(at, priority, now);
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.delayed.peek().map(|Reverse((due, _, _))| *due)
    }

    fn is_delayed(&self, at: u32, ticket: u64) -> bool {
        let slot = &self.slots[at as usize];
        slot.phase == Phase::Delayed && slot.ticket == ticket
    }

    fn take(&mut self, now: Instant) -> Option<(Item, Duration)> {
        let slots = &self.slots;
        let at = self.levels.pop(|at, ticket| {
            let slot = &slots[at as usize];
            slot.phase == Phase::Ready && slot.ticket == ticket
        })?;
        let slot = &mut self.slots[at as usize];
        let waited = now - slot.since;
        slot.phase = Phase::Running;
        slot.since = now;
        let item = Item {
            key: slot.key.clone(),
            reasons: std::mem::take(&mut slot.reasons),
            failures: slot.failures,
            slot: at,
        };
        Some((item, waited))
    }

    fn forget(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        slot.phase = Phase::Free;
        slot.ticket = 0;
        slot.reasons = Reasons::default();
        if let Ok(entry) = self.index.find_entry(slot.hash, |found| *found == at) {
            entry.remove();
        }
        self.free.push(at);
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Queue").field(&self.depth()).finish()
    }
}
