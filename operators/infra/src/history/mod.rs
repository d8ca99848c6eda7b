//! Every attempt ever made, in a database of the operator's own.
//!
//! ```text
//!   attempts ──▶ History ──▶ SQLite: a file
//!                  │    └──▶ PostgreSQL: reconciliation_history, and beside it, for people,
//!                  │                     resource_types, resources, locks (catalog)
//!                  └── the database does not answer: kept in memory until it does
//! ```
//! It is for people: no decision is made from it. What the controller must know is in the
//! resource's status.

mod catalog;
mod database;
mod link;
mod postgres;
mod record;
mod sqlite;
mod tls;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use catalog::Catalog;
use database::Database;
pub use database::HistoryError;
pub use link::PostgresOptions;
pub use record::Record;
pub use tls::Tls;

/// How many records wait for a database that does not answer; older ones are let go.
const WAITING: usize = 10_000;

/// The history of all resources, also of those that are gone.
#[derive(Clone, Debug)]
pub struct History {
    database: Arc<dyn Database>,
    waiting: Arc<Mutex<VecDeque<Record>>>,
}

impl History {
    /// The history in a file, which is made if it is not there.
    ///
    /// # Errors
    /// When the file is no database, or one of a later version.
    pub fn open(path: &Path) -> Result<Self, HistoryError> {
        Ok(Self::on(sqlite::Sqlite::open(path)?))
    }

    /// A history that goes with the process.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn memory() -> Result<Self, HistoryError> {
        Ok(Self::on(sqlite::Sqlite::memory()?))
    }

    /// The history in a PostgreSQL database, whose tables are made or brought up to date with the
    /// first connection. Nothing is connected yet; a server that is not there is asked again
    /// whenever it is needed.
    ///
    /// # Errors
    /// When secure connections are asked for and cannot be made.
    pub fn postgres(options: &PostgresOptions) -> Result<Self, HistoryError> {
        Ok(Self::on(postgres::Postgres::new(options)?))
    }

    fn on(database: impl Database + 'static) -> Self {
        Self { database: Arc::new(database), waiting: Arc::default() }
    }

    /// Records how an attempt ended; a second time changes nothing.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn record(&self, record: Record) -> Result<(), HistoryError> {
        self.database.record(&record).await
    }

    /// Records how an attempt ended, now or as soon as the database answers again.
    pub(crate) async fn remember(&self, record: Record) {
        let Err(error) = self.database.record(&record).await else {
            return;
        };
        tracing::warn!(%error, attempt = record.attempt, "an attempt cannot be recorded yet");
        let mut waiting = self.lock();
        if waiting.len() == WAITING
            && let Some(lost) = waiting.pop_front()
        {
            tracing::error!(attempt = lost.attempt, "an attempt is missing from the history");
        }
        waiting.push_back(record);
    }

    /// Writes what waits, as far as the database takes it.
    pub(crate) async fn settle(&self) -> Result<(), HistoryError> {
        loop {
            let Some(record) = self.lock().front().cloned() else {
                return Ok(());
            };
            self.database.record(&record).await?;
            // Told twice is recorded once, so it does not matter who else has been here.
            let mut waiting = self.lock();
            if waiting.front().is_some_and(|first| first.attempt == record.attempt) {
                waiting.pop_front();
            }
        }
    }

    /// How many records wait for the database.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().len()
    }

    /// The newest attempts for a resource, older than the entry `before` if one is given.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn of(
        &self,
        resource_id: i64,
        limit: u32,
        before: Option<i64>,
    ) -> Result<Vec<(i64, Record)>, HistoryError> {
        self.database.of(resource_id, limit, before).await
    }

    /// Whether anything is known about a resource.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn knows(&self, resource_id: i64) -> Result<bool, HistoryError> {
        self.database.knows(resource_id).await
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// When it does not, with what to look at.
    pub async fn check(&self) -> Result<(), HistoryError> {
        self.database.check().await
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Record>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
