//! Opening a database file: its lock, its format, and everything in it read into memory.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, ErrorCode};

use super::checkpoint::Checkpointer;
use super::disk::{Disk, Names};
use super::history::History;
use super::lock::{Holder, Lock};
use super::options::StoreOptions;
use super::snapshot::Objects;
use super::state::{Collection, FIRST, State};
use crate::object::{Change, HeaderError, Key, Revision, Stored, Version};
use crate::watch::Event;

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
    /// SQLite failed.
    #[error("cannot open {}: {source}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// The writer could not be started.
    #[error("cannot start the store's writer: {0}")]
    Thread(#[source] std::io::Error),
}

/// Opens a database and reads it.
pub(super) fn open(path: &Path, options: StoreOptions) -> Result<(Disk, State), OpenError> {
    let lock = Lock::take(path)?;
    make_private(path).map_err(|source| OpenError::Unusable { path: path.to_owned(), source })?;
    let failed = |source: rusqlite::Error| match source.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::Foreign { path: path.to_owned() },
        _ => OpenError::Sqlite { path: path.to_owned(), source },
    };
    let mut connection = Connection::open(path).map_err(failed)?;
    check_format(&connection, path).map_err(failed)??;
    prepare(&mut connection, options.file_limit).map_err(failed)?;
    let Loaded { names, revision, collections } = load(&connection).map_err(|error| match error {
        LoadError::Sqlite(source) => failed(source),
        LoadError::Damaged(what) => OpenError::Damaged { path: path.to_owned(), what },
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

/// A revision as SQLite keeps numbers.
pub(super) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

/// A change as SQLite keeps it.
pub(super) fn code(change: Change) -> i64 {
    match change {
        Change::Added => 1,
        Change::Modified => 2,
        Change::Deleted => 3,
    }
}

struct Loaded {
    names: Names,
    revision: Revision,
    collections: HashMap<Arc<str>, Collection>,
}

#[derive(Debug)]
enum LoadError {
    Sqlite(rusqlite::Error),
    Damaged(String),
}

impl From<rusqlite::Error> for LoadError {
    fn from(error: rusqlite::Error) -> Self {
        LoadError::Sqlite(error)
    }
}

impl LoadError {
    fn object(key: &Key, error: &HeaderError) -> LoadError {
        LoadError::Damaged(format!("{key}: {error}"))
    }
}

fn load(connection: &Connection) -> Result<Loaded, LoadError> {
    let revision = connection.query_row("SELECT revision FROM store", [], |row| revision(row, 0))?;
    let mut names = Names::default();
    let mut storages: HashMap<i64, Arc<str>> = HashMap::new();
    let mut statement = connection.prepare("SELECT id, name, floor FROM storages")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (id, name): (i64, Arc<str>) = (row.get(0)?, row.get(1)?);
        names.insert(Arc::clone(&name), id, self::revision(row, 2)?);
        storages.insert(id, name);
    }
    let mut objects = load_objects(connection, &storages)?;
    let mut collections = HashMap::new();
    for (id, storage) in storages {
        let objects = objects.remove(&id).unwrap_or_else(Objects::new_sync);
        let history = load_history(connection, id, &storage, names.floor(&storage), &objects)?;
        collections.insert(storage, Collection::restore(objects, history));
    }
    Ok(Loaded { names, revision, collections })
}

fn load_objects(
    connection: &Connection,
    storages: &HashMap<i64, Arc<str>>,
) -> Result<HashMap<i64, Objects>, LoadError> {
    let mut objects: HashMap<i64, Objects> = HashMap::new();
    let mut namespaces: HashMap<Box<str>, Arc<str>> = HashMap::new();
    let mut statement =
        connection.prepare("SELECT created, revision, storage, namespace, name, value FROM objects")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(2)?;
        let Some(storage) = storages.get(&id) else {
            return Err(LoadError::Damaged(format!("an object is in storage {id}, which does not exist")));
        };
        let namespace: Box<str> = row.get(3)?;
        let namespace = namespaces.entry(namespace).or_insert_with_key(|namespace| Arc::from(&**namespace));
        let key = Key::new(Arc::clone(storage), Arc::clone(namespace), row.get::<_, Arc<str>>(4)?);
        let (created, revision) = (revision(row, 0)?, revision(row, 1)?);
        let change = if created == revision { Change::Added } else { Change::Modified };
        let version = Version { key: key.clone(), revision, created, change };
        let bytes = row.get_ref(5)?.as_blob().map_err(rusqlite::Error::from)?;
        let stored = Stored::load(version, bytes).map_err(|error| LoadError::object(&key, &error))?;
        let objects = objects.entry(id).or_insert_with(Objects::new_sync);
        if objects.contains_key(&key) {
            return Err(LoadError::Damaged(format!("{key} is there twice")));
        }
        objects.insert_mut(key, Arc::new(stored));
    }
    Ok(objects)
}

/// Walks back from the objects as they are: each row says what its write replaced, so that the
/// version which it made is the one that the walk holds.
fn load_history(
    connection: &Connection,
    id: i64,
    storage: &Arc<str>,
    floor: Revision,
    objects: &Objects,
) -> Result<History, LoadError> {
    let mut events = VecDeque::new();
    let mut walked: HashMap<Key, Option<Arc<Stored>>> = HashMap::new();
    let mut statement = connection.prepare(
        "SELECT revision, change, created, namespace, name, previous_revision, previous, last
         FROM history WHERE storage = ?1 AND revision > ?2 ORDER BY revision DESC",
    )?;
    let mut rows = statement.query([id, number(floor)])?;
    while let Some(row) = rows.next()? {
        let (revision, created) = (revision(row, 0)?, self::revision(row, 2)?);
        let key = Key::new(Arc::clone(storage), row.get::<_, Arc<str>>(3)?, row.get::<_, Arc<str>>(4)?);
        let key = objects.get_key_value(&key).map_or(key, |(own, _)| own.clone());
        let held = match walked.get(&key) {
            Some(held) => held.clone(),
            None => objects.get(&key).cloned(),
        };
        let kind = match row.get::<_, i64>(1)? {
            1 => Change::Added,
            2 => Change::Modified,
            3 => Change::Deleted,
            other => {
                return Err(LoadError::Damaged(format!("revision {revision} is a change of kind {other}")));
            }
        };
        let load = |revision, change, column| -> Result<Arc<Stored>, LoadError> {
            let version = Version { key: key.clone(), revision, created, change };
            let bytes = row.get_ref(column)?.as_blob().map_err(rusqlite::Error::from)?;
            let stored = Stored::load(version, bytes).map_err(|error| LoadError::object(&key, &error))?;
            Ok(Arc::new(stored))
        };
        let object = match (kind, held) {
            (Change::Deleted, None) => load(revision, Change::Deleted, 7)?,
            (Change::Added | Change::Modified, Some(held)) if held.revision == revision => held,
            _ => {
                return Err(LoadError::Damaged(format!("{key} has lost its version of revision {revision}")));
            }
        };
        let previous = match kind {
            Change::Added => None,
            Change::Modified | Change::Deleted => {
                let before = self::revision(row, 5)?;
                let change = if before == created { Change::Added } else { Change::Modified };
                Some(load(before, change, 6)?)
            }
        };
        walked.insert(key.clone(), previous.clone());
        events.push_front(Arc::new(Event { kind, object, previous }));
    }
    Ok(History::restore(floor, events))
}

fn revision(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Revision> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map(Revision).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}
