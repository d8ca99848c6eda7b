//! What is in a queue, for people.

use serde::Serialize;
use tokio::time::Instant;

use super::{Phase, Queue, Slot};

/// One key of a queue.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EntryReport {
    /// The key.
    pub key: String,
    /// `ready`, `running`, `running again` (it changed while it ran) or `delayed`.
    pub state: &'static str,
    /// How urgent it is: 0, -50 or -100.
    pub priority: i32,
    /// Why it is there; for a running key, why it will run again.
    pub reasons: String,
    /// How many attempts in a row have failed.
    pub failures: u32,
    /// Seconds in this state.
    pub since_seconds: f64,
    /// Seconds until a delayed key is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_in_seconds: Option<f64>,
}

impl Queue {
    /// The keys that are in the queue or being worked on, at most `limit` of them.
    pub fn entries(&self, limit: usize) -> Vec<EntryReport> {
        let now = Instant::now();
        let state = self.lock();
        let slots = state.slots.iter().filter(|slot| slot.phase != Phase::Free);
        slots.take(limit).map(|slot| slot.report(now)).collect()
    }
}

impl Slot {
    fn report(&self, now: Instant) -> EntryReport {
        EntryReport {
            key: self.key.to_string(),
            state: match self.phase {
                Phase::Ready => "ready",
                Phase::Running => "running",
                Phase::Dirty => "running again",
                Phase::Delayed | Phase::Free => "delayed",
            },
            priority: self.priority.number(),
            reasons: self.reasons.to_string(),
            failures: self.failures,
            since_seconds: (now - self.since).as_secs_f64(),
            due_in_seconds: (self.phase == Phase::Delayed)
                .then(|| self.due.saturating_duration_since(now).as_secs_f64()),
        }
    }
}
