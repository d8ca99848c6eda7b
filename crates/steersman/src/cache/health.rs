//! How a watch is doing.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How many unreadable objects are remembered by name.
const REMEMBERED: usize = 100;

/// What is known of one watch beside its objects.
#[derive(Debug)]
pub(crate) struct WatchHealth(Mutex<State>);

#[derive(Debug)]
struct State {
    problem: Option<String>,
    heard: Instant,
    /// Objects whose bytes could not be read, with the reason.
    quarantine: BTreeMap<String, String>,
}

impl Default for WatchHealth {
    fn default() -> Self {
        Self(Mutex::new(State { problem: None, heard: Instant::now(), quarantine: BTreeMap::new() }))
    }
}

impl WatchHealth {
    /// The error that keeps the watch from going on, if there is one.
    pub(crate) fn problem(&self) -> Option<String> {
        self.lock().problem.clone()
    }

    pub(super) fn set(&self, problem: Option<String>) {
        self.lock().problem = problem;
    }

    /// How long ago the server last said something.
    pub(crate) fn age(&self) -> Duration {
        self.lock().heard.elapsed()
    }

    pub(super) fn heard(&self) {
        self.lock().heard = Instant::now();
    }

    /// Notes that an object cannot be read.
    pub(super) fn quarantine(&self, object: String, error: String) {
        let mut state = self.lock();
        if state.quarantine.len() < REMEMBERED || state.quarantine.contains_key(&object) {
            state.quarantine.insert(object, error);
        }
    }

    /// An object that could not be read is readable or gone.
    pub(super) fn readable(&self, object: &str) {
        let mut state = self.lock();
        if !state.quarantine.is_empty() {
            state.quarantine.remove(object);
        }
    }

    /// The objects that cannot be read, and why.
    pub(crate) fn quarantined(&self) -> BTreeMap<String, String> {
        self.lock().quarantine.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
