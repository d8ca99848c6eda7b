//! The database file while it is open: commits, and tidying up between them.

use std::sync::Arc;

use rusqlite::{Connection, ErrorCode, TransactionBehavior, params};
use tokio::sync::mpsc;

use super::super::batch::Batch;
use super::super::durable::{CommitError, Durable, Fate, Floors, Waiting, Wake};
use super::super::names::{Names, code, number};
use super::super::write::WriteError;
use super::super::writer::Request;
use super::checkpoint::{self, Checkpointer};
use super::lock::Lock;
use crate::object::{Change, Revision};
use crate::watch::Event;

/// Pages in the write-ahead log from which on it is worth a checkpoint beside the writer: 4 MiB.
const CHECKPOINT_BESIDE: i64 = 1024;

/// Length of the write-ahead log from which on the writer moves the rest itself, so that the log can
/// start over: 32 MiB.
const CHECKPOINT_MYSELF: i64 = 8 * 1024;

/// Free pages from which on the file is made smaller, some at a time: 16 MiB.
const SHRINK_FROM: i64 = 4096;

/// An open database. Only the writer has it.
#[derive(Debug)]
pub(in crate::store) struct Disk {
    connection: Connection,
    checkpointer: Checkpointer,
    names: Names,
    _lock: Lock,
}

impl Disk {
    pub(super) fn new(connection: Connection, checkpointer: Checkpointer, names: Names, lock: Lock) -> Disk {
        Disk { connection, checkpointer, names, _lock: lock }
    }

    fn try_commit(&mut self, batch: &Batch, floors: &Floors) -> rusqlite::Result<Names> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut names = self.names.clone();
        for event in batch.events() {
            let storage = id(&mut names, &transaction, &event.object.key.storage)?;
            write_object(&transaction, storage, event)?;
            write_history(&transaction, storage, event)?;
        }
        for (storage, floor) in floors {
            if names.floor(storage) >= *floor {
                continue;
            }
            let id = id(&mut names, &transaction, storage)?;
            (transaction.prepare_cached("DELETE FROM history WHERE storage = ?1 AND revision <= ?2")?)
                .execute(params![id, number(*floor)])?;
            (transaction.prepare_cached("UPDATE storages SET floor = ?2 WHERE id = ?1")?)
                .execute(params![id, number(*floor)])?;
            names.insert(Arc::clone(storage), id, *floor);
        }
        (transaction.prepare_cached("UPDATE store SET revision = ?1")?)
            .execute([number(batch.revision())])?;
        transaction.commit()?;
        Ok(names)
    }

    fn shrink(&self) -> rusqlite::Result<()> {
        let count = |pragma| self.connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
        let (free, all) = (count("freelist_count")?, count("page_count")?);
        if free >= SHRINK_FROM && free >= all / 4 {
            self.connection.execute_batch("PRAGMA incremental_vacuum(1024)")?;
        }
        Ok(())
    }
}

impl Durable for Disk {
    fn next(&mut self, requests: &mut mpsc::Receiver<Request>) -> Wake {
        requests.blocking_recv().map_or(Wake::End, Wake::Request)
    }

    /// All or nothing: after an error the file is as it was.
    fn commit(&mut self, batch: &Batch, floors: &Floors) -> Result<(), CommitError> {
        let names = self.try_commit(batch, floors).map_err(|error| {
            CommitError::Failed(match error.sqlite_error_code() {
                Some(ErrorCode::DiskFull) => WriteError::Full,
                _ => WriteError::Storage(Arc::new(error)),
            })
        })?;
        self.names = names;
        Ok(())
    }

    fn settle(&mut self, _last: Revision) -> Result<Fate, WriteError> {
        Ok(Fate::Lost)
    }

    /// Has the write-ahead log moved into the file, and gives free pages back, when it is time to.
    fn tidy(&mut self, waiting: Waiting) {
        let result = checkpoint::measure(&self.connection).and_then(|log| {
            if log.pages >= CHECKPOINT_MYSELF && log.left > 0 {
                checkpoint::passive(&self.connection)?;
            } else if log.left >= CHECKPOINT_BESIDE {
                self.checkpointer.wish();
            } else {
                return Ok(());
            }
            match waiting {
                Waiting::Nobody => self.shrink(),
                Waiting::Writers => Ok(()),
            }
        });
        if let Err(error) = result {
            tracing::warn!(%error, "cannot tidy the database; will try again after the next write");
        }
    }

    /// Closes the file; what is committed is in it then, and the write-ahead log is empty.
    fn close(mut self: Box<Self>) -> Result<(), WriteError> {
        self.checkpointer.stop();
        let moved = checkpoint::truncate(&self.connection);
        let closed = self.connection.close().map_err(|(_, error)| error);
        moved.and(closed).map_err(|error| WriteError::Storage(Arc::new(error)))
    }
}

/// The number of a storage, which is given one if it is new.
fn id(names: &mut Names, connection: &Connection, storage: &Arc<str>) -> rusqlite::Result<i64> {
    if let Some(id) = names.get(storage) {
        return Ok(id);
    }
    let id = names.add(storage);
    (connection.prepare_cached("INSERT INTO storages (id, name, floor) VALUES (?1, ?2, 0)")?)
        .execute(params![id, &**storage])?;
    Ok(id)
}

fn write_object(connection: &Connection, storage: i64, event: &Event) -> rusqlite::Result<()> {
    let object = &event.object;
    let (created, revision) = (number(object.created), number(object.revision));
    let changed = match event.kind {
        Change::Added => (connection.prepare_cached(
            "INSERT INTO objects (created, revision, storage, namespace, name, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?)
        .execute(params![created, revision, storage, &*object.key.namespace, &*object.key.name, &*object.bytes])?,
        Change::Modified => {
            (connection.prepare_cached("UPDATE objects SET revision = ?2, value = ?3 WHERE created = ?1")?)
                .execute(params![created, revision, &*object.bytes])?
        }
        Change::Deleted => {
            (connection.prepare_cached("DELETE FROM objects WHERE created = ?1")?).execute([created])?
        }
    };
    if changed == 1 { Ok(()) } else { Err(rusqlite::Error::StatementChangedRows(changed)) }
}

fn write_history(connection: &Connection, storage: i64, event: &Event) -> rusqlite::Result<()> {
    let object = &event.object;
    let previous = event.previous.as_ref();
    let last = (event.kind == Change::Deleted).then_some(&*object.bytes);
    (connection.prepare_cached(
        "INSERT INTO history
         (storage, revision, change, created, namespace, name, previous_revision, previous, last)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?)
    .execute(params![
        storage,
        number(object.revision),
        code(event.kind),
        number(object.created),
        &*object.key.namespace,
        &*object.key.name,
        previous.map(|previous| number(previous.revision)),
        previous.map(|previous| &*previous.bytes),
        last,
    ])?;
    Ok(())
}
