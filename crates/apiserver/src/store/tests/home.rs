//! Where the stores of tests live: in memory, in a file, in a database of a real PostgreSQL.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio_postgres::{Client, NoTls};
use xtask::parts::{self, Postgres};

use super::super::OpenError;
use super::*;

/// A PostgreSQL that tests share while any of them needs it.
fn server() -> Option<Arc<Postgres>> {
    static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.upgrade() {
        return Some(server);
    }
    let server = Arc::new(parts::or_skip(parts::postgres())?);
    *shared = Arc::downgrade(&server);
    Some(server)
}

/// Where a store stays when it is closed.
#[derive(Clone)]
pub(super) enum Home {
    File { file: PathBuf, _folder: Arc<tempfile::TempDir> },
    Database { url: String, _server: Arc<Postgres> },
}

impl Home {
    pub(super) fn file() -> Home {
        let folder = tempfile::tempdir().expect("a folder");
        Home::File { file: folder.path().join("state.db"), _folder: Arc::new(folder) }
    }

    /// An empty database, unless there is no PostgreSQL here.
    pub(super) async fn database() -> Option<Home> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let server = tokio::task::spawn_blocking(server).await.expect("no panic")?;
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let client = connect(&server.url()).await;
        client.batch_execute(&format!("DROP DATABASE IF EXISTS {name}")).await.expect("drops");
        client.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("creates");
        let url = server.url();
        let url = format!("{}/{name}", url.strip_suffix("/postgres").expect("a database in the address"));
        Some(Home::Database { url, _server: server })
    }

    pub(super) async fn try_open(&self, options: StoreOptions) -> Result<Store, OpenError> {
        match self {
            Home::File { file, .. } => Store::sqlite(file, options),
            Home::Database { url, .. } => Store::postgres(url, options).await,
        }
    }

    pub(super) async fn open(&self) -> Store {
        self.try_open(StoreOptions::default()).await.expect("opens")
    }

    /// Runs a statement in it, and gives the number that it answers, if any.
    pub(super) async fn sql(&self, statement: &str) -> i64 {
        match self {
            Home::File { file, .. } => {
                let file = rusqlite::Connection::open(file).expect("opens");
                if statement.starts_with("SELECT") {
                    file.query_row(statement, [], |row| row.get(0)).expect("a number")
                } else {
                    file.execute_batch(&format!("PRAGMA foreign_keys = OFF; {statement}")).expect("runs");
                    0
                }
            }
            Home::Database { url, .. } => {
                let client = connect(url).await;
                client.batch_execute("SET search_path = steersman_store").await.expect("a schema");
                if statement.starts_with("SELECT") {
                    client.query_one(statement, &[]).await.expect("a row").get(0)
                } else {
                    client.batch_execute(statement).await.expect("runs");
                    0
                }
            }
        }
    }
}

/// A connection of the test's own.
pub(super) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connects");
    tokio::spawn(connection);
    client
}

/// One of each sort that survives a restart.
pub(super) async fn homes() -> Vec<Home> {
    let mut homes = vec![Home::file()];
    homes.extend(Home::database().await);
    homes
}

/// An empty store of each sort, with what keeps it alive.
pub(super) async fn stores() -> Vec<(Store, Option<Home>)> {
    let mut stores = vec![(Store::memory(StoreOptions::default()), None)];
    for home in homes().await {
        stores.push((home.open().await, Some(home)));
    }
    stores
}
