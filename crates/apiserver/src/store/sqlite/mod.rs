//! Opening a database file: its lock, its format, and everything in it read into memory.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode};

use super::loading::{Damage, HistoryRow, Loaded, Loading, ObjectRow};
use super::names::number;
use super::options::StoreOptions;
use super::postgres::DatabaseError;
use super::state::{FIRST, State};

mod checkpoint;
mod disk;
mod lock;

use checkpoint::Checkpointer;
pub(super) use disk::Disk;
pub use lock::Holder;
use lock::Lock;

/// Marks a database as ours: `steE`.
const APPLICATION: i64 = 0x7374_6545;

/// The newest format that this version reads, and the one it writes.
const FORMAT: i64 = 1;

/// How long to wait for a tool that looks into the file.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// The state in `objects`, and apart from it what has happened lately in `history`: of each write
/// what it replaced, so that nothing is stored twice and a prefix can be dropped without a look at
/// the rest.
const SCHEMA: &str = "
    CREATE TABLE store (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        revision INTEGER NOT NULL
    );
    CREATE TABLE storages (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        floor INTEGER NOT NULL
    );
    CREATE TABLE objects (
        created INTEGER PRIMARY KEY,
        revision INTEGER NOT NULL,
        storage INTEGER NOT NULL REFERENCES storages (id),
        namespace TEXT NOT NULL,
        name TEXT NOT NULL,
        value BLOB NOT NULL
    );
    CREATE TABLE history (
        storage INTEGER NOT NULL REFERENCES storages (id),
        revision INTEGER NOT NULL,
        change INTEGER NOT NULL,
        created INTEGER NOT NULL,
        namespace TEXT NOT NULL,
        name TEXT NOT NULL,
        previous_revision INTEGER,
        previous BLOB,
        last BLOB,
        PRIMARY KEY (storage, revision)
    ) WITHOUT ROWID;
";

/// Why a database cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{} is in use by {holder}: stop that one first, or choose another data folder", path.display())]
    Locked {
        /// The database.
        path: PathBuf,
        /// Who has it.
        holder: Holder,
    },
    /// The file or its folder cannot be read or written.
    #[error("cannot use {}: {source}; check that the folder exists and can be written", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is a file of something else.
    #[error("{} is not a database of this server: choose another path, or move the file away", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It was written by a newer version.
    #[error(
        "{} has format {found}, and this version reads up to format {supported}: use the newer version that wrote it",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// What this version reads.
        supported: i64,
    },
    /// Its contents contradict themselves.
    #[error("{} is damaged: {what}; restore it from a backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// There is no room for it.
    #[error("cannot open {}: its disk is full; free some space, or put it elsewhere", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// SQLite failed.
    #[error("cannot open {}: {source}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// The database server cannot be used.
    #[error(transparent)]
    Postgres(#[from] DatabaseError),
    /// The writer could not be started.
    #[error("cannot start the store's writer: {0}")]
    Thread(#[source] std::io::Error),
}

/// Opens a database and reads it.
pub(super) fn open(path: &Path, options: StoreOptions) -> Result<(Disk, State), OpenError> {
    let lock = Lock::take(path)?;
    make_private(path).map_err(|source| OpenError::Unusable { path: path.to_owned(), source })?;
    let failed = |source: rusqlite::Error| match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => OpenError::Full { path: path.to_owned() },
        Some(ErrorCode::NotADatabase) => OpenError::Foreign { path: path.to_owned() },
        Some(ErrorCode::DatabaseCorrupt) => {
            OpenError::Damaged { path: path.to_owned(), what: source.to_string() }
        }
        _ => OpenError::Sqlite { path: path.to_owned(), source },
    };
    let mut connection = Connection::open(path).map_err(failed)?;
    check_format(&connection, path).map_err(failed)??;
    prepare(&mut connection, options.file_limit).map_err(failed)?;
    let Loaded { names, revision, collections } = load(&connection).map_err(|error| match error {
        LoadError::Sqlite(source) => failed(source),
        LoadError::Damaged(Damage(what)) => OpenError::Damaged { path: path.to_owned(), what },
    })?;
    let state = State::restore(options.history, revision, collections);
    let checkpointer = Checkpointer::start(path).map_err(failed)?;
    Ok((Disk::new(connection, checkpointer, names, lock), state))
}

/// Makes the file if need be, readable by its owner alone: it will hold secrets.
fn make_private(path: &Path) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new();
    file.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut file, 0o600);
    file.open(path).map(drop)
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

fn check_format(connection: &Connection, path: &Path) -> rusqlite::Result<Result<(), OpenError>> {
    connection.busy_timeout(PATIENCE)?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let (application, found) = (pragma(connection, "application_id")?, pragma(connection, "user_version")?);
    let path = path.to_owned();
    Ok(match (tables, application) {
        (0, 0) => Ok(()),
        (_, APPLICATION) if found > FORMAT => Err(OpenError::Newer { path, found, supported: FORMAT }),
        (_, APPLICATION) => Ok(()),
        _ => Err(OpenError::Foreign { path }),
    })
}

fn prepare(connection: &mut Connection, file_limit: Option<u64>) -> rusqlite::Result<()> {
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Checkpoints are ours, at moments when nobody waits.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "journal_size_limit", 16 << 20)?;
    connection.pragma_update(None, "cache_size", -8192)?;
    if let Some(limit) = file_limit {
        let page = pragma(connection, "page_size")?.max(1);
        let pages = i64::try_from(limit).unwrap_or(i64::MAX) / page;
        connection.pragma_update_and_check(None, "max_page_count", pages.max(1), |_| Ok(()))?;
    }
    if pragma(connection, "user_version")? == 0 {
        let transaction = connection.transaction()?;
        transaction.execute_batch(SCHEMA)?;
        transaction.execute("INSERT INTO store (id, revision) VALUES (1, ?1)", [number(FIRST)])?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", FORMAT)?;
        transaction.commit()?;
    }
    Ok(())
}

#[derive(Debug)]
enum LoadError {
    Sqlite(rusqlite::Error),
    Damaged(Damage),
}

impl From<rusqlite::Error> for LoadError {
    fn from(error: rusqlite::Error) -> Self {
        LoadError::Sqlite(error)
    }
}

impl From<Damage> for LoadError {
    fn from(damage: Damage) -> Self {
        LoadError::Damaged(damage)
    }
}

fn load(connection: &Connection) -> Result<Loaded, LoadError> {
    let mut loading =
        Loading::new(connection.query_row("SELECT revision FROM store", [], |row| row.get(0))?)?;
    let mut statement = connection.prepare("SELECT id, name, floor FROM storages")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        loading.storage(row.get(0)?, text(row, 1)?, row.get(2)?)?;
    }
    let mut statement =
        connection.prepare("SELECT created, revision, storage, namespace, name, value FROM objects")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        loading.object(&ObjectRow {
            created: row.get(0)?,
            revision: row.get(1)?,
            storage: row.get(2)?,
            namespace: text(row, 3)?,
            name: text(row, 4)?,
            value: row.get_ref(5)?.as_blob().map_err(rusqlite::Error::from)?,
        })?;
    }
    let mut statement = connection.prepare(
        "SELECT storage, revision, change, created, namespace, name, previous_revision, previous, last
         FROM history ORDER BY storage, revision DESC",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let blob = |column| row.get_ref(column)?.as_blob_or_null().map_err(rusqlite::Error::from);
        loading.past(&HistoryRow {
            storage: row.get(0)?,
            revision: row.get(1)?,
            change: row.get(2)?,
            created: row.get(3)?,
            namespace: text(row, 4)?,
            name: text(row, 5)?,
            previous_revision: row.get(6)?,
            previous: blob(7)?,
            last: blob(8)?,
        })?;
    }
    Ok(loading.finish())
}

fn text<'row>(row: &'row rusqlite::Row<'_>, column: usize) -> rusqlite::Result<&'row str> {
    row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)
}
