//! Every write, to everyone who asked, in revision order.
//!
//! A watcher is a cursor into the history that all of them share, and a bell that rings when
//! there is more. There is no queue per watcher: a slow one costs nothing, and learns that it
//! [`Lagged`] when the history it still needs is gone.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::coop::consume_budget;

use crate::object::{Change, Revision, Stored};
use crate::store::Shared;

/// One write, as watchers see it.
#[derive(Debug)]
pub struct Event {
    /// What happened.
    pub kind: Change,
    /// The object after the write; for a deletion its last state, at the deletion's revision.
    pub object: Arc<Stored>,
    /// The object before the write; none when it was created. A watcher with a selector needs it to
    /// see objects come into and go out of its selection.
    pub previous: Option<Arc<Stored>>,
}

impl Event {
    /// The write's revision.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.object.revision
    }
}

/// A revision that cannot be read from, because it is too old or not yet there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expired {
    /// What was asked for.
    pub requested: Revision,
    /// The oldest revision that can be read from.
    pub oldest: Revision,
    /// The newest revision there is.
    pub newest: Revision,
}

impl std::error::Error for Expired {}

impl std::fmt::Display for Expired {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Expired { requested, oldest, newest } = self;
        if requested > newest {
            write!(f, "revision {requested} is not reached yet: the newest is {newest}")
        } else {
            write!(f, "revision {requested} is no longer kept: the oldest is {oldest}, list again")
        }
    }
}

/// A watcher was so slow that events it has not seen are no longer kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the watch at revision {cursor} fell behind: the oldest kept is {oldest}, list and watch again")]
pub struct Lagged {
    /// Up to where the watcher had come.
    pub cursor: Revision,
    /// The oldest revision that can be read from.
    pub oldest: Revision,
}

/// A watch of one storage, or of one namespace of it.
#[derive(Debug)]
pub struct Subscription {
    shared: Arc<Shared>,
    storage: Arc<str>,
    namespace: Option<Arc<str>>,
    cursor: Revision,
    bell: watch::Receiver<()>,
}

impl Subscription {
    pub(crate) fn new(
        shared: Arc<Shared>,
        storage: Arc<str>,
        namespace: Option<Arc<str>>,
        after: Revision,
        bell: watch::Receiver<()>,
    ) -> Self {
        Subscription { shared, storage, namespace, cursor: after, bell }
    }

    /// The next event, as soon as there is one; nothing once the store is closed.
    ///
    /// After [`Lagged`] there is nothing more to be had: list and watch again. Dropping the future
    /// loses no event.
    pub async fn next(&mut self) -> Option<Result<Arc<Event>, Lagged>> {
        // A reader that always finds something would otherwise never let another task run.
        consume_budget().await;
        loop {
            self.bell.borrow_and_update();
            match self.try_next() {
                Some(found) => return Some(found),
                None => self.bell.changed().await.ok()?,
            }
        }
    }

    /// The next event, if it is already there.
    pub fn try_next(&mut self) -> Option<Result<Arc<Event>, Lagged>> {
        let state = self.shared.read();
        match state.event_after(&self.storage, self.namespace.as_deref(), self.cursor) {
            Ok(Some(event)) => {
                self.cursor = event.revision();
                Some(Ok(event))
            }
            Ok(None) => {
                self.cursor = self.cursor.max(state.revision());
                None
            }
            Err(oldest) => Some(Err(Lagged { cursor: self.cursor, oldest })),
        }
    }

    /// A revision up to which every event of this watch has been handed out: what a bookmark may say.
    #[must_use]
    pub fn progress(&self) -> Revision {
        let state = self.shared.read();
        match state.event_after(&self.storage, self.namespace.as_deref(), self.cursor) {
            Ok(None) => self.cursor.max(state.revision()),
            _ => self.cursor,
        }
    }
}
