//! One process per database: a lock file beside it, freed by the system when its holder ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::OpenError;

/// How long to try for a lock.
const PATIENCE: Duration = Duration::from_millis(500);

/// A held lock.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of a database, or says who has it.
    pub(super) fn take(database: &Path) -> Result<Lock, OpenError> {
        let path = lock_path(database);
        let unusable = |source| OpenError::Unusable { path: path.clone(), source };
        let mut file = (OpenOptions::new().read(true).write(true).create(true).truncate(false))
            .open(&path)
            .map_err(unusable)?;
        match patient_lock(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Who holds it is a help for the reader of the error, nothing more.
                let _ = file.take(32).read_to_string(&mut holder);
                return Err(OpenError::Locked { path: database.to_owned(), holder: Holder::parse(&holder) });
            }
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
        // A disk too full for a line of text must not keep a store from being read.
        if let Err(error) = name_holder(&mut file) {
            tracing::warn!(path = %path.display(), %error, "cannot name this process in the lock file");
        }
        Ok(Lock { _file: file })
    }
}

/// A process that is being started holds the files of the one that starts it for a moment, also those
/// that were closed meanwhile.
fn patient_lock(file: &File) -> Result<(), TryLockError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

fn name_holder(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn lock_path(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

/// Who holds a lock, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// A process of this id.
    Process(u32),
    /// Someone.
    Unknown,
}

impl Holder {
    fn parse(text: &str) -> Holder {
        text.trim().parse().map_or(Holder::Unknown, Holder::Process)
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Holder::Process(id) => write!(f, "process {id}"),
            Holder::Unknown => f.write_str("another process"),
        }
    }
}
