//! The history in one file, or in memory.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::Record;
use super::database::{Answer, Database, HistoryError};

/// One step per version of the database, applied in order and never changed.
const MIGRATIONS: [&str; 1] = ["
    CREATE TABLE reconciliation_history (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        attempt TEXT NOT NULL UNIQUE,
        resource_id INTEGER NOT NULL,
        resource_uid TEXT NOT NULL,
        resource_name TEXT NOT NULL,
        resource_type TEXT NOT NULL,
        action_plugin TEXT NOT NULL,
        generation INTEGER NOT NULL,
        success INTEGER NOT NULL,
        phase TEXT NOT NULL,
        error_message TEXT,
        resources_created INTEGER NOT NULL,
        resources_updated INTEGER NOT NULL,
        resources_deleted INTEGER NOT NULL,
        plan_output TEXT,
        apply_output TEXT,
        trigger_reason TEXT NOT NULL,
        drift_detected INTEGER NOT NULL,
        duration_seconds REAL NOT NULL,
        reconcile_time TEXT NOT NULL
    );
    CREATE INDEX history_by_resource ON reconciliation_history (resource_id, id);
"];

/// A connection that blocking threads take turns with.
#[derive(Debug)]
pub(super) struct Sqlite(Arc<Mutex<Connection>>);

impl Sqlite {
    pub(super) fn open(path: &Path) -> Result<Self, HistoryError> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // Another process, such as a standby, may be writing.
        connection.busy_timeout(Duration::from_secs(5))?;
        Self::prepare(connection)
    }

    pub(super) fn memory() -> Result<Self, HistoryError> {
        Self::prepare(Connection::open_in_memory()?)
    }

    fn prepare(mut connection: Connection) -> Result<Self, HistoryError> {
        let known = MIGRATIONS.len();
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let found: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let done = usize::try_from(found).ok().filter(|found| *found <= known);
        let done = done.ok_or(HistoryError::TooNew { found, known })?;
        for migration in &MIGRATIONS[done..] {
            transaction.execute_batch(migration)?;
        }
        transaction.pragma_update(None, "user_version", i64::try_from(known).unwrap_or(i64::MAX))?;
        transaction.commit()?;
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    /// Databases wait for disks, so they do it on a thread that may wait.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, HistoryError> {
        let connection = Arc::clone(&self.0);
        let work = move || work(&connection.lock().unwrap_or_else(PoisonError::into_inner));
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => Ok(result?),
            Err(_) => Err(HistoryError::Closed),
        }
    }
}

impl Database for Sqlite {
    fn record<'a>(&'a self, record: &'a Record) -> Answer<'a, ()> {
        let record = record.clone();
        self.with(move |connection| {
            let mut statement = connection.prepare_cached(
                "INSERT OR IGNORE INTO reconciliation_history (attempt, resource_id, resource_uid, resource_name,
                    resource_type, action_plugin, generation, success, phase, error_message, resources_created,
                    resources_updated, resources_deleted, plan_output, apply_output, trigger_reason,
                    drift_detected, duration_seconds, reconcile_time)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
            )?;
            statement.execute(params![
                record.attempt,
                record.resource_id,
                record.resource_uid,
                record.resource_name,
                record.resource_type,
                record.action_plugin,
                record.generation,
                record.success,
                record.phase,
                record.error_message,
                record.created,
                record.updated,
                record.deleted,
                record.plan,
                record.apply,
                record.trigger,
                record.drift,
                record.duration.as_secs_f64(),
                record.time.to_string(),
            ])?;
            Ok(())
        })
        .boxed()
    }

    fn of(&self, resource_id: i64, limit: u32, before: Option<i64>) -> Answer<'_, Vec<(i64, Record)>> {
        self.with(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT id, attempt, resource_id, resource_uid, resource_name, resource_type, action_plugin,
                    generation, success, phase, error_message, resources_created, resources_updated,
                    resources_deleted, plan_output, apply_output, trigger_reason, drift_detected,
                    duration_seconds, reconcile_time
                 FROM reconciliation_history WHERE resource_id = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3",
            )?;
            let rows = statement.query_map(params![resource_id, before.unwrap_or(i64::MAX), limit], read)?;
            rows.collect()
        })
        .boxed()
    }

    fn knows(&self, resource_id: i64) -> Answer<'_, bool> {
        self.with(move |connection| {
            let found = connection
                .query_row(
                    "SELECT 1 FROM reconciliation_history WHERE resource_id = ?1 LIMIT 1",
                    [resource_id],
                    |_| Ok(()),
                )
                .optional()?;
            Ok(found.is_some())
        })
        .boxed()
    }

    fn check(&self) -> Answer<'_, ()> {
        self.with(|connection| connection.query_row("SELECT 1", [], |_| Ok(()))).boxed()
    }
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<(i64, Record)> {
    let time: String = row.get(19)?;
    let record = Record {
        attempt: row.get(1)?,
        resource_id: row.get(2)?,
        resource_uid: row.get(3)?,
        resource_name: row.get(4)?,
        resource_type: row.get(5)?,
        action_plugin: row.get(6)?,
        generation: row.get(7)?,
        success: row.get(8)?,
        phase: row.get(9)?,
        error_message: row.get(10)?,
        created: row.get(11)?,
        updated: row.get(12)?,
        deleted: row.get(13)?,
        plan: row.get(14)?,
        apply: row.get(15)?,
        trigger: row.get(16)?,
        drift: row.get(17)?,
        duration: Duration::try_from_secs_f64(row.get(18)?).unwrap_or_default(),
        time: time.parse().unwrap_or(Timestamp::UNIX_EPOCH),
    };
    Ok((row.get(0)?, record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::History;

    #[test]
    fn a_file_that_is_no_database_or_too_new_is_refused_with_a_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("history.db");
        std::fs::write(&path, "this is no database, and it is longer than a header").expect("written");
        assert!(History::open(&path).is_err());
        let path = folder.path().join("newer.db");
        drop(History::open(&path).expect("a history"));
        Connection::open(&path).and_then(|db| db.pragma_update(None, "user_version", 99)).expect("changed");
        let error = History::open(&path).expect_err("too new").to_string();
        assert!(error.contains("later version (99, this one knows 1)"), "{error}");
    }
}
