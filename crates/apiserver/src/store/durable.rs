//! What makes writes outlive the process.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::batch::Batch;
use super::write::WriteError;
use super::writer::Request;
use crate::object::Revision;

/// Up to where the history of each storage is forgotten.
pub(super) type Floors = [(Arc<str>, Revision)];

/// A place that keeps batches. Only the writer has it.
pub(super) trait Durable {
    /// Waits until there is something for the writer to do.
    fn next(&mut self, requests: &mut mpsc::Receiver<Request>) -> Wake;

    /// Makes a batch durable, and forgets the history up to the floors, now or soon.
    fn commit(&mut self, batch: &Batch, floors: &Floors) -> Result<(), CommitError>;

    /// Says what became of the last batch, whose fate was unknown when its commit ended.
    fn settle(&mut self, last: Revision) -> Result<Fate, WriteError>;

    /// Tidies up between batches.
    fn tidy(&mut self, waiting: Waiting);

    /// Closes the place; what was committed is in it.
    fn close(self: Box<Self>) -> Result<(), WriteError>;
}

/// Why the writer wakes.
#[derive(Debug)]
pub(super) enum Wake {
    /// Somebody wants something.
    Request(Request),
    /// The place can be reached again.
    Reachable,
    /// Another process has taken the place over.
    Deposed,
    /// Nobody can want anything any more.
    End,
}

/// Why a batch is not known to be durable.
#[derive(Debug)]
pub(super) enum CommitError {
    /// Nothing has changed.
    Failed(WriteError),
    /// It may be durable or not; [`Durable::settle`] will know.
    Unknown(WriteError),
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is durable.
    Kept,
    /// It never happened.
    Lost,
}

/// Whether someone waits while the place tidies up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    Nobody,
    Writers,
}
