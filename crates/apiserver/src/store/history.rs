//! The recent writes of one storage, oldest first.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::object::{Change, Revision};
use crate::watch::Event;

/// What an event costs besides the versions it holds.
const OVERHEAD: usize = 128;

/// Recent writes. Everything after `floor` is there.
#[derive(Debug, Default)]
pub(super) struct History {
    events: VecDeque<Arc<Event>>,
    floor: Revision,
    bytes: usize,
}

impl History {
    /// A history from its parts, oldest event first.
    pub(super) fn restore(floor: Revision, events: VecDeque<Arc<Event>>) -> History {
        let bytes = events.iter().map(|event| cost(event)).sum();
        History { events, floor, bytes }
    }

    /// The newest revision whose event is no longer there.
    pub(super) fn floor(&self) -> Revision {
        self.floor
    }

    /// How many bytes only the history keeps.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    pub(super) fn push(&mut self, event: Arc<Event>) {
        self.bytes += cost(&event);
        self.events.push_back(event);
    }

    /// Forgets everything up to a revision.
    pub(super) fn forget(&mut self, floor: Revision) -> usize {
        let before = self.events.len();
        while let Some(event) = self.events.front().filter(|event| event.revision() <= floor) {
            self.bytes -= cost(event);
            self.events.pop_front();
        }
        self.floor = self.floor.max(floor);
        before - self.events.len()
    }

    /// Forgets the oldest events until no more than this is kept; says how many it forgot.
    pub(super) fn trim(&mut self, events: usize, bytes: usize) -> usize {
        let before = self.events.len();
        while self.events.len() > events || self.bytes > bytes {
            let Some(event) = self.events.pop_front() else { break };
            self.bytes -= cost(&event);
            self.floor = event.revision();
        }
        before - self.events.len()
    }

    /// The events after a revision, oldest first.
    pub(super) fn after(&self, revision: Revision) -> impl DoubleEndedIterator<Item = &Arc<Event>> + '_ {
        let start = match self.events.back() {
            Some(newest) if newest.revision() > revision => {
                self.events.partition_point(|event| event.revision() <= revision)
            }
            _ => self.events.len(),
        };
        self.events.range(start..)
    }
}

/// The bytes that an event alone keeps in memory: the version it replaced, and a deleted object's
/// last state. The version it made is either alive or what a later event replaced.
fn cost(event: &Event) -> usize {
    let replaced = event.previous.as_ref().map_or(0, |previous| previous.bytes.len());
    let removed = if event.kind == Change::Deleted { event.object.bytes.len() } else { 0 };
    OVERHEAD + replaced + removed
}
