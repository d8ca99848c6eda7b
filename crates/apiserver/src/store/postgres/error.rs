//! What can be wrong with a database before it is open.

/// Why a PostgreSQL database cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The address makes no sense.
    #[error(
        "{why}: the address of a PostgreSQL store looks like postgres://user:password@host:5432/database"
    )]
    Address {
        /// What is wrong with it.
        why: String,
    },
    /// Nobody answers, or not to us.
    #[error(
        "cannot reach PostgreSQL at {place}: {why}; check that it runs there, and the user, password and database of the address"
    )]
    Unreachable {
        /// The database, without its password.
        place: String,
        /// What happened.
        why: String,
    },
    /// Another process has it.
    #[error("{place} is in use by {holder}: stop that one first, or choose another database")]
    Locked {
        /// The database.
        place: String,
        /// Who has it, as far as is known.
        holder: String,
    },
    /// It was written by a newer version.
    #[error(
        "{place} has format {found}, and this version reads up to format {supported}: use the newer version that wrote it"
    )]
    Newer {
        /// The database.
        place: String,
        /// Its format.
        found: i32,
        /// What this version reads.
        supported: i32,
    },
    /// Its contents contradict themselves.
    #[error("{place} is damaged: {what}; restore it from a backup")]
    Damaged {
        /// The database.
        place: String,
        /// What was found.
        what: String,
    },
    /// The tables cannot be made or read.
    #[error("cannot use {place}: {why}; the user needs the right to create a schema in this database")]
    Refused {
        /// The database.
        place: String,
        /// What PostgreSQL says.
        why: String,
    },
    /// No connection can be waited for here.
    #[error("cannot set up the connection to PostgreSQL: {0}")]
    Runtime(#[source] std::io::Error),
}

/// What an error of the client says, with what PostgreSQL says.
pub(super) fn say(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(told) => told.message().to_owned(),
        None => {
            let mut said = error.to_string();
            let mut source = std::error::Error::source(error);
            while let Some(cause) = source {
                let cause_said = cause.to_string();
                if !said.contains(&cause_said) {
                    said = format!("{said}: {cause_said}");
                }
                source = cause.source();
            }
            said
        }
    }
}
