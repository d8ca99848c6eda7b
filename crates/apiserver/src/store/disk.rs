//! The database file while it is open: commits, and tidying up between them.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, ErrorCode, TransactionBehavior, params};

use super::batch::Batch;
use super::checkpoint::{self, Checkpointer};
use super::lock::Lock;
use super::open::{code, number};
use super::write::WriteError;
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
pub(super) struct Disk {
    connection: Connection,
    checkpointer: Checkpointer,
    names: Names,
    _lock: Lock,
}

/// Whether someone waits while the disk tidies up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    Nobody,
    Writers,
}

impl Disk {
    pub(super) fn new(connection: Connection, checkpointer: Checkpointer, names: Names, lock: Lock) -> Disk {
        Disk { connection, checkpointer, names, _lock: lock }
    }

    /// Makes a batch durable, and forgets the history up to the floors. All or nothing: after an
    /// error the file is as it was.
    pub(super) fn commit(
        &mut self,
        batch: &Batch,
        floors: &[(Arc<str>, Revision)],
    ) -> Result<(), WriteError> {
        let names = self.try_commit(batch, floors).map_err(|error| match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => WriteError::Full,
            _ => WriteError::Storage(Arc::new(error)),
        })?;
        self.names = names;
        Ok(())
    }

    fn try_commit(&mut self, batch: &Batch, floors: &[(Arc<str>, Revision)]) -> rusqlite::Result<Names> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut names = self.names.clone();
        for event in batch.events() {
            let storage = names.id(&transaction, &event.object.key.storage)?;
            write_object(&transaction, storage, event)?;
            write_history(&transaction, storage, event)?;
        }
        for (storage, floor) in floors {
            if names.floor(storage) >= *floor {
                continue;
            }
            let id = names.id(&transaction, storage)?;
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

    /// Has the write-ahead log moved into the file, and gives free pages back, when it is time to.
    pub(super) fn tidy(&self, waiting: Waiting) {
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
    pub(super) fn close(mut self) -> Result<(), WriteError> {
        self.checkpointer.stop();
        let moved = checkpoint::truncate(&self.connection);
        let closed = self.connection.close().map_err(|(_, error)| error);
        moved.and(closed).map_err(|error| WriteError::Storage(Arc::new(error)))
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

/// The storages that the file knows: their numbers, and up to where their history is forgotten.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    known: Arc<HashMap<Arc<str>, (i64, Revision)>>,
}

impl Names {
    pub(super) fn insert(&mut self, storage: Arc<str>, id: i64, floor: Revision) {
        Arc::make_mut(&mut self.known).insert(storage, (id, floor));
    }

    pub(super) fn floor(&self, storage: &str) -> Revision {
        self.known.get(storage).map_or(Revision(0), |(_, floor)| *floor)
    }

    /// The number of a storage, which is given one if it is new.
    fn id(&mut self, connection: &Connection, storage: &Arc<str>) -> rusqlite::Result<i64> {
        if let Some((id, _)) = self.known.get(storage) {
            return Ok(*id);
        }
        (connection.prepare_cached("INSERT INTO storages (name, floor) VALUES (?1, 0)")?)
            .execute([&**storage])?;
        let id = connection.last_insert_rowid();
        self.insert(Arc::clone(storage), id, Revision(0));
        Ok(id)
    }
}
