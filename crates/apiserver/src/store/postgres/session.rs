//! One connection that holds the lock of a database and an epoch of its own.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Statement};

use super::error::{DatabaseError, say};
use super::place::Place;
use super::rows::{COMMIT, Counts, Rows};
use super::schema;

/// The advisory lock of a database that is in use; `steersma` in ASCII.
const LOCK: i64 = 0x7374_6565_7273_6d61;

/// How long to wait at the start for a process that has just ended.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// Who this process is to others.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    /// Unique.
    pub(super) id: String,
    /// For people.
    pub(super) shown: String,
}

impl Identity {
    pub(super) fn new() -> Identity {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = if host.trim().is_empty() { "an unnamed host" } else { host.trim() };
        let shown = format!("process {} on {host}", std::process::id());
        Identity { id: uuid::Uuid::new_v4().to_string(), shown }
    }
}

/// Which of the server's processes serves a connection, so that it can be ended from another one.
#[derive(Debug, Clone)]
pub(super) struct Backend {
    pid: i32,
    started: String,
}

/// A connection that has the database.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) backend: Backend,
    commit: Statement,
    /// Ends when the connection does.
    pub(super) connection: JoinHandle<()>,
}

/// What a session found when it took the database.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) session: Session,
    pub(super) epoch: i64,
    pub(super) revision: i64,
}

/// Why the database could not be taken again.
#[derive(Debug)]
pub(super) enum TakeError {
    /// Not now.
    Unreachable(String),
    /// Never again: this one has it.
    Deposed(String),
}

impl From<tokio_postgres::Error> for TakeError {
    fn from(error: tokio_postgres::Error) -> Self {
        TakeError::Unreachable(say(&error))
    }
}

impl Session {
    /// Takes a database at the start: makes its tables if need be, and deposes whoever had it and is
    /// no longer connected.
    pub(super) async fn open(place: &Place, identity: &Identity) -> Result<Taken, DatabaseError> {
        let refused = |error: tokio_postgres::Error| DatabaseError::Refused {
            place: place.to_string(),
            why: say(&error),
        };
        let unreachable = |error: tokio_postgres::Error| DatabaseError::Unreachable {
            place: place.to_string(),
            why: say(&error),
        };
        let (mut client, connection) = connect(place).await.map_err(unreachable)?;
        let deadline = tokio::time::Instant::now() + START_PATIENCE;
        while !try_lock(&client).await.map_err(refused)? {
            if tokio::time::Instant::now() >= deadline {
                let holder = holder(&client).await.map_or("another process".to_owned(), |(_, shown)| shown);
                return Err(DatabaseError::Locked { place: place.to_string(), holder });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if let Err(found) = schema::migrate(&mut client).await.map_err(refused)? {
            let supported = schema::FORMAT;
            return Err(DatabaseError::Newer { place: place.to_string(), found, supported });
        }
        warn_of_careless_settings(&client).await.map_err(refused)?;
        let taken = "UPDATE steersman_store.store SET epoch = epoch + 1, holder = $1, holder_shown = $2
                     RETURNING epoch, revision";
        let row = client.query_opt(taken, &[&identity.id, &identity.shown]).await.map_err(refused)?;
        let Some(row) = row else {
            let what = "the row that says whose it is has gone".to_owned();
            return Err(DatabaseError::Damaged { place: place.to_string(), what });
        };
        let (epoch, revision) = (row.get(0), row.get(1));
        let session = Session::ready(client, connection).await.map_err(refused)?;
        Ok(Taken { session, epoch, revision })
    }

    /// Takes a database again that this process had, unless somebody else has taken it meanwhile.
    pub(super) async fn again(
        place: Place,
        identity: Identity,
        last: Option<Backend>,
    ) -> Result<Taken, TakeError> {
        let (client, connection) = connect(&place).await?;
        if let Some(last) = last {
            // The server may not know yet that the old connection is dead, and keeps its lock.
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                       WHERE pid = $1 AND backend_start::text = $2";
            client.execute(end, &[&last.pid, &last.started]).await?;
        }
        if !try_lock(&client).await? {
            return Err(match holder(&client).await {
                Some((id, shown)) if id != identity.id => TakeError::Deposed(shown),
                _ => TakeError::Unreachable("its last connection has not ended yet".to_owned()),
            });
        }
        // Waits for a statement of ours that is still under way; after this it can change nothing.
        let taken = "UPDATE steersman_store.store SET epoch = epoch + 1 WHERE holder = $1
                     RETURNING epoch, revision";
        match client.query_opt(taken, &[&identity.id]).await? {
            Some(row) => {
                let (epoch, revision) = (row.get(0), row.get(1));
                Ok(Taken { session: Session::ready(client, connection).await?, epoch, revision })
            }
            None => {
                let by = holder(&client).await.map_or("another process".to_owned(), |(_, shown)| shown);
                Err(TakeError::Deposed(by))
            }
        }
    }

    async fn ready(client: Client, connection: JoinHandle<()>) -> Result<Session, tokio_postgres::Error> {
        let me = "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()";
        let row = client.query_one(me, &[]).await?;
        let backend = Backend { pid: row.get(0), started: row.get(1) };
        let commit = client.prepare(COMMIT).await?;
        Ok(Session { client, backend, commit, connection })
    }

    /// Writes a batch. Nothing where the epoch or the revision is another.
    pub(super) async fn commit(
        &self,
        epoch: i64,
        rows: &Rows<'_>,
    ) -> Result<Option<Counts>, tokio_postgres::Error> {
        let row = self.client.query_one(&self.commit, &rows.parameters(&epoch)).await?;
        let held: i64 = row.get(0);
        Ok((held == 1).then(|| Counts { removed: row.get(1), written: row.get(2), remembered: row.get(3) }))
    }

    /// Whose the database is now.
    pub(super) async fn holder(&self) -> Option<(String, String)> {
        holder(&self.client).await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Whether PostgreSQL has no room left.
pub(super) fn is_full(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::DISK_FULL)
}

pub(super) async fn connect(place: &Place) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
    let (client, connection) = place.config.connect(place.tls.clone()).await?;
    let connection = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::warn!(error = say(&error), "the connection to PostgreSQL has ended");
        }
    });
    // No statement of ours takes long; one that hangs must not hang for ever. An acknowledged write
    // is durable, also where the server is set up not to care.
    client
        .batch_execute(
            "SET statement_timeout = '60s'; SET lock_timeout = '30s';
             SELECT set_config('synchronous_commit', 'on', false)
             WHERE current_setting('synchronous_commit') = 'off'",
        )
        .await?;
    Ok((client, connection))
}

async fn try_lock(client: &Client) -> Result<bool, tokio_postgres::Error> {
    Ok(client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK]).await?.get(0))
}

async fn holder(client: &Client) -> Option<(String, String)> {
    let row = client.query_opt("SELECT holder, holder_shown FROM steersman_store.store", &[]).await;
    row.ok().flatten().map(|row| (row.get(0), row.get(1)))
}

async fn warn_of_careless_settings(client: &Client) -> Result<(), tokio_postgres::Error> {
    for setting in ["fsync", "full_page_writes"] {
        let row = client.query_one("SELECT current_setting($1)", &[&setting]).await?;
        if row.get::<_, String>(0) == "off" {
            tracing::warn!(
                setting,
                "PostgreSQL has this switched off: a crash of its machine may lose writes"
            );
        }
    }
    Ok(())
}
