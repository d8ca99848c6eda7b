//! The database while it is open: commits, and what became of those that broke off.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::super::batch::Batch;
use super::super::durable::{CommitError, Durable, Fate, Floors, Waiting, Wake};
use super::super::health::Health;
use super::super::names::{Names, number};
use super::super::options::StoreOptions;
use super::super::state::State;
use super::super::write::WriteError;
use super::super::writer::Request;
use super::compact::Compactor;
use super::error::{DatabaseError, say};
use super::link::{Down, Link, Step};
use super::load::load;
use super::place::Place;
use super::rows::Rows;
use super::session::{Identity, Session, is_full};
use crate::object::Revision;

/// How long writes wait for a database that has gone, before they are refused: long enough for a
/// server that restarts, short enough for a client to be told.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a statement may take before the connection is given up.
const STATEMENT: Duration = Duration::from_secs(30);

/// An open database. Only the writer has it.
#[derive(Debug)]
pub(in crate::store) struct Database {
    runtime: Runtime,
    link: Link,
    names: Names,
    compactor: Compactor,
}

impl Database {
    /// Takes a database and reads it.
    pub(in crate::store) fn open(
        place: Place,
        options: StoreOptions,
    ) -> Result<(Database, State, Arc<watch::Sender<Health>>), DatabaseError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(DatabaseError::Runtime)?;
        let identity = Identity::new();
        let health = Arc::new(watch::Sender::new(Health::Well));
        let (link, loaded, compactor) = runtime.block_on(async {
            let taken = Session::open(&place, &identity).await?;
            let loaded = load(&taken.session.client, taken.revision, &place).await?;
            let compactor = Compactor::start(place.clone());
            Ok((Link::new(place, identity, taken, Arc::clone(&health)), loaded, compactor))
        })?;
        let state = State::restore(options.history, loaded.revision, loaded.collections);
        Ok((Database { runtime, link, names: loaded.names, compactor }, state, health))
    }
}

impl Durable for Database {
    fn next(&mut self, requests: &mut mpsc::Receiver<Request>) -> Wake {
        let Database { runtime, link, .. } = self;
        runtime.block_on(async {
            loop {
                tokio::select! {
                    request = requests.recv() => return request.map_or(Wake::End, Wake::Request),
                    step = link.step() => match step {
                        Step::Up => return Wake::Reachable,
                        Step::Deposed => return Wake::Deposed,
                        Step::Down => {}
                    },
                }
            }
        })
    }

    fn commit(&mut self, batch: &Batch, floors: &Floors) -> Result<(), CommitError> {
        let mut names = self.names.clone();
        let rows = Rows::of(batch, &mut names);
        self.runtime.block_on(commit(&mut self.link, &rows))?;
        for (storage, floor) in floors {
            if let Some(id) = names.get(storage)
                && names.floor(storage) < *floor
            {
                self.compactor.forget(id, *floor);
                names.insert(Arc::clone(storage), id, *floor);
            }
        }
        self.names = names;
        Ok(())
    }

    fn settle(&mut self, last: Revision) -> Result<Fate, WriteError> {
        let (_, _, revision) = self.runtime.block_on(self.link.session(PATIENCE)).map_err(unreachable)?;
        // Names that the batch gave to new storages count only when it was kept; those of a batch
        // that was lost were never taken over.
        if revision == number(last) { Ok(Fate::Kept) } else { Ok(Fate::Lost) }
    }

    fn tidy(&mut self, _waiting: Waiting) {}

    /// Disconnects, which frees the lock.
    fn close(self: Box<Self>) -> Result<(), WriteError> {
        let Database { runtime, link, compactor, .. } = *self;
        drop(compactor);
        drop(link);
        runtime.shutdown_timeout(Duration::from_secs(5));
        Ok(())
    }
}

/// Sends a batch until it is known what became of it, or patience ends.
async fn commit(link: &mut Link, rows: &Rows<'_>) -> Result<(), CommitError> {
    /// Whether the server may have got the batch.
    enum Sent {
        Never,
        Perhaps,
    }
    let mut sent = Sent::Never;
    let mut refused = None;
    loop {
        let (session, epoch, revision) = match link.session(PATIENCE).await {
            Ok(session) => session,
            Err(down) => {
                let error = unreachable(down);
                return Err(match sent {
                    Sent::Never => CommitError::Failed(error),
                    Sent::Perhaps => CommitError::Unknown(error),
                });
            }
        };
        if matches!(sent, Sent::Perhaps) && revision == number(rows.after) {
            return Ok(());
        }
        if revision != number(rows.before) {
            let why = format!("its revision is {revision} where {} was expected", rows.before);
            return Err(CommitError::Failed(WriteError::Storage(Arc::new(std::io::Error::other(why)))));
        }
        // The same refusal on two connections is not the connection's.
        if let Some(error) = refused.take_if(|(_, times)| *times > 1) {
            let (error, _): (tokio_postgres::Error, u32) = error;
            return Err(CommitError::Failed(match is_full(&error) {
                true => WriteError::Full,
                false => WriteError::Storage(Arc::new(error)),
            }));
        }
        sent = Sent::Perhaps;
        match timeout(STATEMENT, session.commit(epoch, rows)).await {
            Ok(Ok(Some(counts))) => {
                if counts != rows.counts() {
                    tracing::error!(?counts, expected = ?rows.counts(), "somebody else has written to the tables of the store");
                }
                link.committed(number(rows.after));
                return Ok(());
            }
            Ok(Ok(None)) => {
                let holder = session.holder().await;
                match holder {
                    Some((id, by)) if id != link.identity().id => {
                        link.depose(by.clone());
                        return Err(CommitError::Failed(WriteError::Deposed { by }));
                    }
                    _ => link.lose("its epoch is not the expected one".to_owned()),
                }
            }
            Ok(Err(error)) => {
                let why = say(&error);
                if error.as_db_error().is_some() {
                    let times = refused.take().map_or(1, |(_, times)| times + 1);
                    refused = Some((error, times));
                }
                link.lose(why);
            }
            Err(_) => link.lose("it does not answer".to_owned()),
        }
    }
}

fn unreachable(down: Down) -> WriteError {
    match down {
        Down::Unreachable(why) => WriteError::Unreachable { why },
        Down::Deposed(by) => WriteError::Deposed { by },
    }
}
