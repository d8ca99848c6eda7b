//! Moving the write-ahead log into the database, beside the writer and not in its way.
//!
//! A checkpoint of a long log takes a tenth of a second and more, in which a writer that does it
//! itself answers nobody. So a thread with a connection of its own moves most of it while writes go
//! on; only the rest, which keeps the log from starting over, is left to the writer.

use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

/// The thread that moves the log.
#[derive(Debug)]
pub(super) struct Checkpointer {
    wishes: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// How much is in the log, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Log {
    /// All of it.
    pub(super) pages: i64,
    /// What is not in the database yet.
    pub(super) left: i64,
}

impl Checkpointer {
    pub(super) fn start(path: &Path) -> rusqlite::Result<Checkpointer> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        let (wishes, wished) = sync_channel(1);
        let work = move || {
            while wished.recv().is_ok() {
                if let Err(error) = passive(&connection) {
                    tracing::warn!(%error, "cannot move the write-ahead log into the database; will try again");
                }
            }
        };
        let thread = std::thread::Builder::new().name("store-checkpoint".into()).spawn(work).ok();
        if thread.is_none() {
            tracing::warn!("cannot start the checkpoint thread; the writer will do its work");
        }
        Ok(Checkpointer { wishes: thread.is_some().then_some(wishes), thread })
    }

    /// Asks for a checkpoint, unless one is asked for already.
    pub(super) fn wish(&self) {
        if let Some(wishes) = &self.wishes {
            // A full channel is a wish that is still to be fulfilled.
            let _ = wishes.try_send(());
        }
    }

    /// Waits for a checkpoint under way, and ends the thread.
    pub(super) fn stop(&mut self) {
        self.wishes = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpoint thread has panicked");
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Looks at the log without touching it.
pub(super) fn measure(connection: &Connection) -> rusqlite::Result<Log> {
    (connection.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?).query_row([], |row| {
        let (pages, moved): (i64, i64) = (row.get(1)?, row.get(2)?);
        Ok(Log { pages, left: pages - moved })
    })
}

/// Moves what can be moved without waiting for anyone.
pub(super) fn passive(connection: &Connection) -> rusqlite::Result<()> {
    (connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?).query_row([], |_| Ok(()))
}

/// Moves everything and empties the log.
pub(super) fn truncate(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}
