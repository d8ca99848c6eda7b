//! Writes that are checked and numbered, but not yet visible.

use std::collections::HashMap;
use std::sync::Arc;

use super::state::State;
use super::write::{Fence, Operation, Prepared, WriteError};
use crate::object::{Change, Key, Revision, Stored, Version};
use crate::watch::Event;

/// Writes that will become visible together. Each is checked against what those before it leave
/// behind.
#[derive(Debug)]
pub(super) struct Batch {
    /// The store's revision before it.
    base: Revision,
    /// Where the writes begin, when revisions jump.
    jump: Option<Revision>,
    revision: Revision,
    /// What the batch leaves behind at the keys it touches; none where it removes.
    pending: HashMap<Key, Option<Arc<Stored>>>,
    events: Vec<Arc<Event>>,
}

impl Batch {
    /// An empty batch whose first write follows `revision`.
    pub(super) fn after(revision: Revision) -> Batch {
        Batch { base: revision, jump: None, revision, pending: HashMap::new(), events: Vec::new() }
    }

    /// Lets an empty batch begin after a later revision. What was before is forgotten: nobody can go
    /// on from there.
    pub(super) fn jump(&mut self, to: Revision) {
        if self.events.is_empty() && to > self.revision {
            self.revision = to;
            self.jump = Some(to);
        }
    }

    /// The store's revision before the batch.
    pub(super) fn base(&self) -> Revision {
        self.base
    }

    /// The revision that the batch jumps to, if it does.
    pub(super) fn jumped(&self) -> Option<Revision> {
        self.jump
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The revision of the last write, or of the store where there is none.
    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    /// The writes, in revision order.
    pub(super) fn events(&self) -> &[Arc<Event>] {
        &self.events
    }

    /// The writes, in revision order, to keep.
    pub(super) fn into_events(self) -> Vec<Arc<Event>> {
        self.events
    }

    /// Checks a write and gives it the next revision.
    pub(super) fn admit(&mut self, state: &State, write: Prepared) -> Result<Arc<Event>, WriteError> {
        if let Some(fence) = &write.fence {
            self.check_fence(state, fence)?;
        }
        let current = self.current(state, &write.key);
        let change = match (write.operation, &current) {
            (Operation::Create, None) => Change::Added,
            (Operation::Create, Some(_)) => return Err(WriteError::Exists),
            (_, None) => return Err(WriteError::NotFound),
            (Operation::Update { expected } | Operation::Delete { expected }, Some(current))
                if current.revision != expected =>
            {
                return Err(WriteError::Conflict { current: Arc::clone(current) });
            }
            (Operation::Update { .. }, Some(_)) => Change::Modified,
            (Operation::Delete { .. }, Some(_)) => Change::Deleted,
        };
        let revision = self.revision.next();
        let created = current.as_ref().map_or(revision, |current| current.created);
        let key = current.as_ref().map_or(write.key, |current| current.key.clone());
        let version = Version { key: key.clone(), revision, created, change };
        let object = Arc::new(Stored::splice(version, write.header, write.layout, &write.bytes));
        let event = Arc::new(Event { kind: change, object: Arc::clone(&object), previous: current });

        self.revision = revision;
        self.pending.insert(key, (change != Change::Deleted).then_some(object));
        self.events.push(Arc::clone(&event));
        Ok(event)
    }

    fn current(&self, state: &State, key: &Key) -> Option<Arc<Stored>> {
        match self.pending.get(key) {
            Some(pending) => pending.clone(),
            None => state.get(key).cloned(),
        }
    }

    fn check_fence(&self, state: &State, fence: &Fence) -> Result<(), WriteError> {
        let current = self.current(state, &fence.key()).and_then(|lease| Fence::term(&lease));
        if current == Some(fence.transitions) {
            Ok(())
        } else {
            Err(WriteError::Fenced { fence: fence.clone(), current })
        }
    }
}
