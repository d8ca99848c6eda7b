//! The one writer of a store, on a thread of its own.

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use super::Shared;
use super::backup::{Backup, Restored};
use super::batch::Batch;
use super::durable::{CommitError, Durable, Fate, Waiting, Wake};
use super::state::EVERYTHING;
use super::write::{Prepared, WriteError};
use crate::object::Stored;

/// The most writes that share a commit.
const BATCH_WRITES: usize = 256;

/// The most bytes that share a commit, but for one write that is larger.
const BATCH_BYTES: usize = 2 << 20;

/// Forgotten events that are worth a delete on disk. Few enough that no commit is held up by it.
const FORGET_AT_ONCE: usize = 1024;

type Answer<T> = oneshot::Sender<Result<T, WriteError>>;

/// What is asked of the writer.
#[derive(Debug)]
pub(super) enum Request {
    Write(Box<Prepared>, Answer<Arc<Stored>>),
    Restore(Box<Backup>, Answer<Restored>),
    Close(Answer<()>),
}

/// The way to the writer.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread; `open` runs on it first and gives it its work, or nothing to end at once.
    pub(super) fn start(
        queue: usize,
        open: impl FnOnce() -> Option<(Box<dyn Durable>, Arc<Shared>)> + Send + 'static,
    ) -> std::io::Result<Writer> {
        let (queue, requests) = mpsc::channel(queue.max(1));
        let work = move || {
            if let Some((durable, shared)) = open() {
                Work { durable, shared, requests, unsettled: None }.run();
            }
        };
        let thread = std::thread::Builder::new().name("store-writer".into()).spawn(work)?;
        Ok(Writer { queue: Some(queue), thread: Some(thread) })
    }

    pub(super) async fn write(&self, prepared: Prepared) -> Result<Arc<Stored>, WriteError> {
        self.ask(|answer| Request::Write(Box::new(prepared), answer)).await
    }

    pub(super) async fn restore(&self, backup: Backup) -> Result<Restored, WriteError> {
        self.ask(|answer| Request::Restore(Box::new(backup), answer)).await
    }

    pub(super) async fn close(&self) -> Result<(), WriteError> {
        match self.ask(Request::Close).await {
            // Someone else has closed it already.
            Err(WriteError::Closed) => Ok(()),
            result => result,
        }
    }

    /// Lets the writer finish what waits, and waits for it.
    pub(super) fn stop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the store's writer has panicked");
        }
    }

    async fn ask<T>(&self, request: impl FnOnce(Answer<T>) -> Request) -> Result<T, WriteError> {
        let queue = self.queue.as_ref().ok_or(WriteError::Closed)?;
        let (answer, answered) = oneshot::channel();
        queue.send(request(answer)).await.map_err(|_| WriteError::Closed)?;
        answered.await.map_err(|_| WriteError::Closed)?
    }
}

type Waiters = Vec<(Answer<Arc<Stored>>, Result<Arc<Stored>, WriteError>)>;

/// What the thread works with.
struct Work {
    durable: Box<dyn Durable>,
    shared: Arc<Shared>,
    requests: mpsc::Receiver<Request>,
    /// A batch that may be durable or not. Nothing is written before that is known.
    unsettled: Option<Batch>,
}

/// What comes after a batch.
enum After {
    Close(Answer<()>),
    Restore(Box<Backup>, Answer<Restored>),
}

/// Whether the writer goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Going {
    On,
    /// The database is somebody else's.
    Deposed,
}

impl Work {
    fn run(mut self) {
        let mut closing = None;
        loop {
            let going = match self.durable.next(&mut self.requests) {
                Wake::End => break,
                Wake::Deposed => Going::Deposed,
                Wake::Reachable => self.settle().map_or_else(|error| going(&error), |()| Going::On),
                Wake::Request(Request::Restore(backup, answer)) => {
                    let result = self.restore(&backup);
                    let going = result.as_ref().map_or_else(going, |_| Going::On);
                    let _ = answer.send(result);
                    going
                }
                Wake::Request(first) => {
                    let mut writes = Vec::new();
                    let after = self.collect(first, &mut writes);
                    let mut going = if writes.is_empty() { Going::On } else { self.commit(writes) };
                    match after {
                        Some(After::Close(answer)) => {
                            closing = Some(answer);
                            break;
                        }
                        Some(After::Restore(backup, answer)) if going == Going::On => {
                            let result = self.restore(&backup);
                            going = result.as_ref().map_or_else(self::going, |_| Going::On);
                            let _ = answer.send(result);
                        }
                        Some(After::Restore(..)) | None => {}
                    }
                    let waiting = if self.requests.is_empty() { Waiting::Nobody } else { Waiting::Writers };
                    self.durable.tidy(waiting);
                    going
                }
            };
            if going == Going::Deposed {
                // Those who wait are told, readers and watchers must go elsewhere.
                self.requests.close();
                self.shared.close();
                break;
            }
        }
        let result = self.durable.close();
        if let Some(answer) = closing {
            // Whoever asked may have stopped waiting.
            let _ = answer.send(result);
        } else if let Err(error) = result {
            tracing::warn!(%error, "cannot close the database properly; nothing acknowledged is lost");
        }
    }

    /// Takes what waits, up to the size of a batch. What is no write ends the batch.
    fn collect(
        &mut self,
        first: Request,
        writes: &mut Vec<(Prepared, Answer<Arc<Stored>>)>,
    ) -> Option<After> {
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(request) = next {
            match request {
                Request::Close(answer) => return Some(After::Close(answer)),
                Request::Restore(backup, answer) => return Some(After::Restore(backup, answer)),
                Request::Write(prepared, answer) => {
                    bytes += prepared.bytes.len();
                    writes.push((*prepared, answer));
                }
            }
            let full = writes.len() >= BATCH_WRITES || bytes >= BATCH_BYTES;
            next = if full { None } else { self.requests.try_recv().ok() };
        }
        None
    }

    fn commit(&mut self, writes: Vec<(Prepared, Answer<Arc<Stored>>)>) -> Going {
        if let Err(error) = self.settle() {
            return refuse(writes.into_iter().map(|(_, answer)| answer), &error);
        }
        let mut answers = Vec::with_capacity(writes.len());
        let (batch, floors, forgotten) = {
            let state = self.shared.read();
            let mut batch = Batch::after(state.revision());
            for (prepared, answer) in writes {
                let result = batch.admit(&state, prepared).map(|event| Arc::clone(&event.object));
                answers.push((answer, result));
            }
            let forgotten = state.forgotten();
            let floors = if forgotten >= FORGET_AT_ONCE { state.floors() } else { Vec::new() };
            (batch, floors, forgotten)
        };
        let committed = if batch.is_empty() { Ok(()) } else { self.durable.commit(&batch, &floors) };
        match committed {
            Ok(()) => {
                if !floors.is_empty() && !batch.is_empty() {
                    self.shared.write().settle_forgotten(forgotten);
                }
                self.publish(batch, answers)
            }
            // A refusal may rest on a write of the same batch that did not happen, so that all of
            // them get the error.
            Err(CommitError::Failed(error)) => refuse(answers.into_iter().map(|(answer, _)| answer), &error),
            Err(CommitError::Unknown(error)) => {
                self.unsettled = Some(batch);
                refuse(answers.into_iter().map(|(answer, _)| answer), &error)
            }
        }
    }

    /// Makes the store what a backup shows, in one batch however large.
    fn restore(&mut self, backup: &Backup) -> Result<Restored, WriteError> {
        self.settle()?;
        let (batch, restored) = backup.batch(&self.shared.read())?;
        if batch.is_empty() {
            return Ok(restored);
        }
        // A jump forgets what was before, in every storage there is and will be.
        let floors: Vec<_> = batch.jumped().map(|floor| (Arc::from(EVERYTHING), floor)).into_iter().collect();
        match self.durable.commit(&batch, &floors) {
            Ok(()) => {
                self.shared.publish(batch);
                Ok(restored)
            }
            Err(CommitError::Failed(error)) => Err(error),
            Err(CommitError::Unknown(error)) => {
                self.unsettled = Some(batch);
                Err(error)
            }
        }
    }

    fn publish(&self, batch: Batch, answers: Waiters) -> Going {
        self.shared.publish(batch);
        for (answer, result) in answers {
            let _ = answer.send(result);
        }
        Going::On
    }

    /// Finds out what became of a batch, and shows it to readers if it happened.
    fn settle(&mut self) -> Result<(), WriteError> {
        let Some(batch) = self.unsettled.take() else { return Ok(()) };
        match self.durable.settle(batch.revision()) {
            Ok(Fate::Kept) => self.shared.publish(batch),
            Ok(Fate::Lost) => {}
            Err(error) => {
                self.unsettled = Some(batch);
                return Err(error);
            }
        }
        Ok(())
    }
}

fn going(error: &WriteError) -> Going {
    match error {
        WriteError::Deposed { .. } => Going::Deposed,
        _ => Going::On,
    }
}

fn refuse(answers: impl Iterator<Item = Answer<Arc<Stored>>>, error: &WriteError) -> Going {
    let mut count = 0;
    for answer in answers {
        let _ = answer.send(Err(error.clone()));
        count += 1;
    }
    tracing::error!(%error, writes = count, "writes failed");
    going(error)
}
