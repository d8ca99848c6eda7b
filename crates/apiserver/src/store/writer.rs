//! The one writer of a database, on a thread of its own.

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use super::Shared;
use super::batch::Batch;
use super::disk::{Disk, Waiting};
use super::write::{Prepared, WriteError};
use crate::object::Stored;

/// The most writes that share a commit.
const BATCH_WRITES: usize = 256;

/// The most bytes that share a commit, but for one write that is larger.
const BATCH_BYTES: usize = 2 << 20;

/// Forgotten events that are worth a delete on disk. Few enough that no commit is held up by it.
const FORGET_AT_ONCE: usize = 1024;

type Answer<T> = oneshot::Sender<Result<T, WriteError>>;

#[derive(Debug)]
enum Request {
    Write(Box<Prepared>, Answer<Arc<Stored>>),
    Close(Answer<()>),
}

/// The way to the writer.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(disk: Disk, shared: Arc<Shared>, queue: usize) -> std::io::Result<Writer> {
        let (queue, requests) = mpsc::channel(queue.max(1));
        let work = Work { disk, shared, requests };
        let thread = std::thread::Builder::new().name("store-writer".into()).spawn(move || work.run())?;
        Ok(Writer { queue: Some(queue), thread: Some(thread) })
    }

    pub(super) async fn write(&self, prepared: Prepared) -> Result<Arc<Stored>, WriteError> {
        self.ask(|answer| Request::Write(Box::new(prepared), answer)).await
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

/// What the thread works with.
struct Work {
    disk: Disk,
    shared: Arc<Shared>,
    requests: mpsc::Receiver<Request>,
}

impl Work {
    fn run(mut self) {
        let mut closing = None;
        while let Some(first) = self.requests.blocking_recv() {
            let mut writes = Vec::new();
            closing = self.collect(first, &mut writes);
            self.commit(writes);
            if closing.is_some() {
                break;
            }
            let waiting = if self.requests.is_empty() { Waiting::Nobody } else { Waiting::Writers };
            self.disk.tidy(waiting);
        }
        let result = self.disk.close();
        if let Some(answer) = closing {
            // Whoever asked may have stopped waiting.
            let _ = answer.send(result);
        } else if let Err(error) = result {
            tracing::warn!(%error, "cannot close the database properly; nothing acknowledged is lost");
        }
    }

    /// Takes what waits, up to the size of a batch. A wish to close ends the batch.
    fn collect(
        &mut self,
        first: Request,
        writes: &mut Vec<(Prepared, Answer<Arc<Stored>>)>,
    ) -> Option<Answer<()>> {
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(request) = next {
            match request {
                Request::Close(answer) => return Some(answer),
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

    fn commit(&mut self, writes: Vec<(Prepared, Answer<Arc<Stored>>)>) {
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
        let committed = if batch.is_empty() { Ok(()) } else { self.disk.commit(&batch, &floors) };
        match committed {
            Ok(()) => {
                if !floors.is_empty() && !batch.is_empty() {
                    self.shared.write().settle_forgotten(forgotten);
                }
                self.shared.publish(batch);
                for (answer, result) in answers {
                    let _ = answer.send(result);
                }
            }
            Err(error) => {
                // A refusal may rest on a write of the same batch that did not happen, so that all
                // of them get the error.
                tracing::error!(%error, writes = answers.len(), "writes failed");
                for (answer, _) in answers {
                    let _ = answer.send(Err(error.clone()));
                }
            }
        }
    }
}
