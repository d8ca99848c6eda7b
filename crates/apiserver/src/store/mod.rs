//! Objects as bytes, one writer, one revision per write.
//!
//! ```text
//!   write ──► queue ──► writer: check ► number ► commit + fsync ► publish ► answer
//!                                                                 │
//!   get, list ◄── persistent maps in memory ◄─────────────────────┤
//!   watch     ◄── history in memory ◄─────────────────────────────┘
//! ```
//!
//! Reads never touch the disk and never see a write that is not durable. The writer takes what
//! waits in its queue as one batch, so many writers share one `fsync`. Batches go into an SQLite
//! file or a PostgreSQL database. The store in memory takes the same path without queue, thread
//! and disk: a write is done when its call returns.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::{oneshot, watch};
use tokio::task::coop::consume_budget;

use crate::object::{Key, Revision, Stored};
use crate::watch::{Expired, Subscription};

mod backup;
mod batch;
mod durable;
mod health;
mod history;
mod loading;
mod names;
mod options;
mod postgres;
mod snapshot;
mod sqlite;
mod state;
mod write;
mod writer;

#[cfg(test)]
mod tests;

pub use backup::{Backup, BackupError, Restored};
pub use health::Health;
pub use options::{HistoryOptions, StoreOptions};
pub use postgres::DatabaseError;
pub use snapshot::Snapshot;
pub use sqlite::{Holder, OpenError};
pub use write::{Fence, Operation, Write, WriteError};

use batch::Batch;
use durable::Durable;
use state::State;
use write::Prepared;
use writer::Writer;

/// The objects of one API server. Cheap to clone; the last clone that goes closes it.
///
/// ```
/// use steersman_apiserver::object::Key;
/// use steersman_apiserver::store::{Operation, Store, StoreOptions, Write};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Store::memory(StoreOptions::default());
/// let mut watch = store.watch("pods", Some("default"), store.revision())?;
///
/// let key = Key::new("pods", "default", "web");
/// let bytes = br#"{"kind":"Pod","metadata":{"name":"web","namespace":"default"}}"#.to_vec();
/// let stored = store.write(Write { key: key.clone(), operation: Operation::Create, bytes, fence: None }).await?;
///
/// assert_eq!(store.get(&key).map(|pod| pod.revision), Some(stored.revision));
/// assert_eq!(watch.next().await.expect("open")?.revision(), stored.revision);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    writer: Option<Writer>,
}

impl Store {
    /// A store that lives in memory and dies with its last handle. It needs no runtime and no
    /// thread, so that it works under a paused clock.
    #[must_use]
    pub fn memory(options: StoreOptions) -> Store {
        let shared = Arc::new(Shared::new(State::new(options.history)));
        Store { inner: Arc::new(Inner { shared, writer: None }) }
    }

    /// The store in an SQLite file, which is made if it is not there.
    ///
    /// # Errors
    /// When another process has it open, when it is not ours or of a newer format, and when it
    /// cannot be read or written.
    pub fn sqlite(path: &Path, options: StoreOptions) -> Result<Store, OpenError> {
        let queue = options.queue;
        let (disk, state) = sqlite::open(path, options)?;
        let shared = Arc::new(Shared::new(state));
        let writers = Arc::clone(&shared);
        let writer = Writer::start(queue, move || Some((Box::new(disk) as Box<dyn Durable>, writers)));
        let writer = writer.map_err(OpenError::Thread)?;
        Ok(Store { inner: Arc::new(Inner { shared, writer: Some(writer) }) })
    }

    /// The store in a PostgreSQL database, in tables of its own that are made if they are not there.
    ///
    /// One process at a time has it. When the database goes away, reads and watches go on, writes
    /// are refused with [`WriteError::Unreachable`], and everything goes on when it is back; when
    /// another process has taken it meanwhile, this store is closed and [`Store::deposed`] says so.
    ///
    /// # Errors
    /// When the address makes no sense or nobody answers there, when another process has the
    /// database open, and when its tables are of a newer format or damaged.
    pub async fn postgres(url: &str, options: StoreOptions) -> Result<Store, OpenError> {
        let place = postgres::Place::parse(url)?;
        let (opened, opening) = oneshot::channel();
        let queue = options.queue;
        let writer = Writer::start(queue, move || match postgres::Database::open(place, options) {
            Ok((database, state, health)) => {
                let shared = Arc::new(Shared::with_health(state, health));
                opened.send(Ok(Arc::clone(&shared))).ok()?;
                Some((Box::new(database), shared))
            }
            Err(error) => {
                let _ = opened.send(Err(error));
                None
            }
        });
        let writer = writer.map_err(OpenError::Thread)?;
        let shared = opening.await.map_err(|_| OpenError::Thread(std::io::Error::other("it panicked")))??;
        Ok(Store { inner: Arc::new(Inner { shared, writer: Some(writer) }) })
    }

    /// Everything as it is now, but for leases. Costs little: nothing is copied.
    #[must_use]
    pub fn backup(&self) -> Backup {
        Backup::of(&self.inner.shared.read())
    }

    /// Makes the store what a backup shows, all of it or nothing, while it is in use.
    ///
    /// # Errors
    /// When it cannot be made durable; then nothing has changed.
    pub async fn restore(&self, backup: Backup) -> Result<Restored, WriteError> {
        match &self.inner.writer {
            Some(writer) => writer.restore(backup).await,
            None => self.inner.shared.restore_through(&backup),
        }
    }

    /// Whether writes can be made durable now.
    #[must_use]
    pub fn health(&self) -> Health {
        self.inner.shared.health.borrow().clone()
    }

    /// Waits until another process has taken the database over, and says who. Never ends where
    /// that cannot happen.
    pub async fn deposed(&self) -> String {
        let mut health = self.inner.shared.health.subscribe();
        loop {
            if let Health::Deposed { by } = &*health.borrow_and_update() {
                return by.clone();
            }
            if health.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The revision of the newest write that can be read. Never 0, which clients take to mean "any".
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.inner.shared.read().revision()
    }

    /// The newest version of an object.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<Stored>> {
        self.inner.shared.read().get(key).cloned()
    }

    /// All objects of a storage, or of one namespace of it, as they are now.
    #[must_use]
    pub fn list(&self, storage: &str, namespace: Option<&str>) -> Snapshot {
        self.inner.shared.read().snapshot(storage, namespace)
    }

    /// All objects of a storage, or of one namespace of it, as they were at a revision.
    ///
    /// # Errors
    /// When the revision is older than the history that is kept, or not reached yet.
    pub fn list_at(
        &self,
        storage: &str,
        namespace: Option<&str>,
        revision: Revision,
    ) -> Result<Snapshot, Expired> {
        let past = self.inner.shared.read().past(storage, namespace, revision)?;
        Ok(past.rebuild())
    }

    /// The storages that hold objects, in order.
    #[must_use]
    pub fn storages(&self) -> Vec<Arc<str>> {
        self.inner.shared.read().storages()
    }

    /// Writes one object: checks the expectation, numbers the write, makes it durable, publishes it
    /// to readers and watchers, and returns what is stored now (for a deletion, what was published).
    ///
    /// A write whose future is dropped may still happen.
    ///
    /// # Errors
    /// When the expectation does not hold, or the write cannot be made durable; then nothing has
    /// changed.
    pub async fn write(&self, write: Write) -> Result<Arc<Stored>, WriteError> {
        // A caller that only ever writes would otherwise never let another task run.
        consume_budget().await;
        let prepared = Prepared::new(write)?;
        match &self.inner.writer {
            Some(writer) => writer.write(prepared).await,
            None => self.inner.shared.write_through(prepared),
        }
    }

    /// Waits until reads are at least as fresh as a revision. Bound it by a timeout: the revision
    /// may never come.
    pub async fn wait_for(&self, revision: Revision) {
        let mut published = self.inner.shared.published.subscribe();
        let reached = published.wait_for(|newest| *newest >= revision).await.is_ok();
        debug_assert!(reached, "the sender lives as long as the store");
    }

    /// Every write to a storage, or to one namespace of it, after a revision. With the revision of a
    /// snapshot nothing is missed and nothing comes twice.
    ///
    /// # Errors
    /// When the revision is older than the history that is kept.
    pub fn watch(
        &self,
        storage: &str,
        namespace: Option<&str>,
        after: Revision,
    ) -> Result<Subscription, Expired> {
        let shared = Arc::clone(&self.inner.shared);
        let (storage, bell) = shared.write().bell(storage, after)?;
        Ok(Subscription::new(shared, storage, namespace.map(Arc::from), after, bell))
    }

    /// Finishes the writes that wait, ends all watches and closes the file. Writes that come later
    /// are refused; reads still work.
    ///
    /// # Errors
    /// When the file could not be closed properly. What was acknowledged is durable all the same.
    pub async fn close(self) -> Result<(), WriteError> {
        let result = match &self.inner.writer {
            Some(writer) => writer.close().await,
            None => Ok(()),
        };
        self.inner.shared.close();
        result
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(writer) = &mut self.writer {
            writer.stop();
        }
        self.shared.close();
    }
}

/// What readers, watchers and the writer share.
#[derive(Debug)]
pub(crate) struct Shared {
    state: RwLock<State>,
    published: watch::Sender<Revision>,
    health: Arc<watch::Sender<Health>>,
}

impl Shared {
    fn new(state: State) -> Shared {
        Shared::with_health(state, Arc::new(watch::Sender::new(Health::Well)))
    }

    fn with_health(state: State, health: Arc<watch::Sender<Health>>) -> Shared {
        let published = watch::Sender::new(state.revision());
        Shared { state: RwLock::new(state), published, health }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a batch to readers, then wakes whom it concerns.
    fn publish(&self, batch: Batch) {
        if batch.is_empty() {
            return;
        }
        let (revision, bells) = {
            let mut state = self.write();
            let bells = state.publish(batch);
            (state.revision(), bells)
        };
        self.announce(revision, &bells);
    }

    /// Checks and publishes one write at once, with no disk between.
    fn write_through(&self, prepared: Prepared) -> Result<Arc<Stored>, WriteError> {
        let (event, revision, bells) = {
            let mut state = self.write();
            if state.is_closed() {
                return Err(WriteError::Closed);
            }
            let mut batch = Batch::after(state.revision());
            let event = batch.admit(&state, prepared)?;
            let bells = state.publish(batch);
            (event, state.revision(), bells)
        };
        self.announce(revision, &bells);
        Ok(Arc::clone(&event.object))
    }

    /// The same for a whole backup.
    fn restore_through(&self, backup: &Backup) -> Result<Restored, WriteError> {
        let (restored, revision, bells) = {
            let mut state = self.write();
            if state.is_closed() {
                return Err(WriteError::Closed);
            }
            let (batch, restored) = backup.batch(&state)?;
            if batch.is_empty() {
                return Ok(restored);
            }
            let bells = state.publish(batch);
            (restored, state.revision(), bells)
        };
        self.announce(revision, &bells);
        Ok(restored)
    }

    fn announce(&self, revision: Revision, bells: &[watch::Sender<()>]) {
        self.published.send_replace(revision);
        bells.iter().for_each(|bell| {
            bell.send_replace(());
        });
    }

    fn close(&self) {
        self.write().close();
    }
}
