//! The last reconciles, for people who ask what an operator is doing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::Serialize;

/// How many reconciles are remembered.
const REMEMBERED: usize = 256;
/// How many writes of one reconcile are.
const WRITES: usize = 32;

/// The last reconciles of a manager, of all its controllers. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Recent(Arc<Mutex<VecDeque<Reconciled>>>);

/// One reconcile that has ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reconciled {
    /// Tells reconciles apart; the same in logs.
    pub id: String,
    /// The controller.
    pub controller: String,
    /// What was reconciled.
    pub key: String,
    /// Why.
    pub reasons: String,
    /// When it began.
    pub began: Timestamp,
    /// How long it took.
    pub seconds: f64,
    /// What came of it: `done`, `requeue`, `requeue_after`, `waiting`, `error` or `terminal`.
    pub result: &'static str,
    /// What went wrong, or what it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What was written, such as `apply Deployment shop/web`; unchanged objects are not.
    pub writes: Vec<String>,
}

impl Recent {
    /// The last reconciles, the latest first.
    pub fn list(&self) -> Vec<Reconciled> {
        self.lock().iter().rev().cloned().collect()
    }

    pub(crate) fn add(&self, reconciled: Reconciled) {
        let mut all = self.lock();
        if all.len() == REMEMBERED {
            all.pop_front();
        }
        all.push_back(reconciled);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Reconciled>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one reconcile has written so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes(Arc<Mutex<Vec<String>>>);

impl Writes {
    pub(crate) fn add(&self, verb: &str, kind: &str, key: &str) {
        let mut writes = self.lock();
        match writes.len() {
            WRITES => writes.push("and more".to_owned()),
            full if full > WRITES => {}
            _ => writes.push(format!("{verb} {kind} {key}")),
        }
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
