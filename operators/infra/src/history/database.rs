//! What a database must be able to do to keep the history.

use std::fmt;

use futures::future::BoxFuture;

use super::Record;
use super::catalog::Row;

/// What a database answers, later.
pub(super) type Answer<'a, T> = BoxFuture<'a, Result<T, HistoryError>>;

/// A database that keeps the history.
pub(super) trait Database: fmt::Debug + Send + Sync {
    /// Keeps a record, unless there is one of the same attempt.
    fn record<'a>(&'a self, record: &'a Record) -> Answer<'a, ()>;

    /// The newest records of a resource, older than the entry `before` if one is given.
    fn of(&self, resource_id: i64, limit: u32, before: Option<i64>) -> Answer<'_, Vec<(i64, Record)>>;

    /// Whether anything is known about a resource.
    fn knows(&self, resource_id: i64) -> Answer<'_, bool>;

    /// Whether it answers at all.
    fn check(&self) -> Answer<'_, ()>;

    /// The part that shows what there is, where people look for it.
    fn catalog(&self) -> Option<&dyn Shelf> {
        None
    }
}

/// Tables of the types and resources that there are.
pub(super) trait Shelf: Send + Sync {
    /// Writes rows, or takes them away.
    fn put<'a>(&'a self, rows: &'a [Row]) -> Answer<'a, ()>;

    /// Takes away all rows but those of these names.
    fn keep<'a>(&'a self, types: &'a [String], resources: &'a [String]) -> Answer<'a, ()>;
}

/// Why the history cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// SQLite said no.
    #[error("the history cannot be used: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// PostgreSQL said no.
    #[error("the history cannot be used: {}", sentence(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// PostgreSQL is not there.
    #[error(
        "PostgreSQL at {address} cannot be reached: {reason}; check DB_HOST, DB_PORT, DB_NAME, DB_USER and DB_PASSWORD"
    )]
    Unreachable {
        /// Where it should be.
        address: String,
        /// Why not.
        reason: String,
    },
    /// Secure connections cannot be made.
    #[error("no secure connection to PostgreSQL can be made: {0}")]
    Tls(String),
    /// Somebody else's tables are in the way.
    #[error(
        "the database holds tables that are not of this program ({0}); create an empty one and name it in DB_NAME"
    )]
    Foreign(String),
    /// The database is of a later version.
    #[error(
        "the history was written by a later version ({found}, this one knows {known}); use that version, or another database"
    )]
    TooNew {
        /// The version found.
        found: i64,
        /// The newest one that is known.
        known: usize,
    },
    /// The process is ending.
    #[error("the history was closed")]
    Closed,
}

/// What PostgreSQL said, where it said something; its client's own words are "db error".
pub(super) fn sentence(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(said), _) => said.message().to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}
