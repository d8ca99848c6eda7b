//! Everything in a store as one file, and back.
//!
//! A backup is a consistent snapshot, taken while the store is in use, and knows nothing of where
//! the store keeps its objects: what was backed up from SQLite can be restored into PostgreSQL. It is
//! a gzip stream of a line that says what it is, each object with a line before it, and a checksum.
//!
//! Restoring is a write like any other, only large: objects that are not in the backup are deleted,
//! others are created or changed, in one batch and with new revisions. Readers see all of it or none,
//! watchers see what changed, and clients need no restart. Leases are left as they are: they say who
//! is alive now.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::batch::Batch;
use super::state::State;
use super::write::{LEASES, Operation, Prepared, Write as StoreWrite, WriteError};
use crate::object::{Header, Key, Revision, Stored};

/// The newest format that this version reads, and the one it writes.
const FORMAT: u32 = 1;

/// How far revisions jump in a store that is behind the backup: further than the store that was lost
/// can have come since, so that no client takes a new revision for one that it has seen.
const JUMP: u64 = 1_000_000_000;

/// The longest line before an object.
const LINE: u64 = 64 << 10;

/// The most bytes that an object may have; more is no backup of ours.
const OBJECT: usize = 64 << 20;

/// The objects of a store at one revision.
#[derive(Clone)]
pub struct Backup {
    revision: Revision,
    objects: Vec<(Key, Content)>,
}

impl std::fmt::Debug for Backup {
    /// Without the objects: there are secrets among them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (revision, objects) = (self.revision, self.objects.len());
        f.debug_struct("Backup").field("revision", &revision).field("objects", &objects).finish()
    }
}

#[derive(Clone)]
enum Content {
    Alive(Arc<Stored>),
    Read(Vec<u8>),
}

impl Content {
    fn bytes(&self) -> &[u8] {
        match self {
            Content::Alive(stored) => &stored.bytes,
            Content::Read(bytes) => bytes,
        }
    }
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Title {
    steersman: String,
    format: u32,
    revision: u64,
    objects: u64,
}

/// The line before an object.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    storage: String,
    namespace: String,
    name: String,
    bytes: usize,
}

/// The last line.
#[derive(Debug, Serialize, Deserialize)]
struct Seal {
    sha256: String,
}

/// Why a file is no backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// It cannot be read.
    #[error("cannot read the backup: {0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("this is no backup: {0}; give a file that `steer backup` has written")]
    Foreign(String),
    /// It was written by a newer version.
    #[error(
        "the backup has format {found}, and this version reads up to format {FORMAT}: use a newer version"
    )]
    Newer {
        /// Its format.
        found: u32,
    },
    /// It is not whole.
    #[error("the backup is damaged: {0}; use another one")]
    Damaged(String),
}

/// What a restore has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Restored {
    /// Objects that were made.
    pub created: usize,
    /// Objects that were changed back.
    pub updated: usize,
    /// Objects that were removed.
    pub deleted: usize,
    /// Objects that were as in the backup already.
    pub unchanged: usize,
}

impl Backup {
    pub(super) fn of(state: &State) -> Backup {
        let mut objects = Vec::new();
        for storage in state.storages().into_iter().filter(|storage| **storage != *LEASES) {
            let snapshot = state.snapshot(&storage, None);
            objects.extend(
                snapshot.iter().map(|stored| (stored.key.clone(), Content::Alive(Arc::clone(stored)))),
            );
        }
        Backup { revision: state.revision(), objects }
    }

    /// The revision that it shows.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// How many objects it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Writes it as a file.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        let mut out = Summing { inner: GzEncoder::new(out, Compression::fast()), sum: Sha256::new() };
        let title = Title {
            steersman: "backup".to_owned(),
            format: FORMAT,
            revision: self.revision.0,
            objects: self.objects.len() as u64,
        };
        line(&mut out, &title)?;
        for (key, content) in &self.objects {
            let bytes = content.bytes();
            let entry = Entry {
                storage: key.storage.to_string(),
                namespace: key.namespace.to_string(),
                name: key.name.to_string(),
                bytes: bytes.len(),
            };
            line(&mut out, &entry)?;
            out.write_all(bytes)?;
            out.write_all(b"\n")?;
        }
        let seal = Seal { sha256: hex(&out.sum.clone().finalize()) };
        line(&mut out, &seal)?;
        out.inner.finish()?.flush()
    }

    /// Reads a file, and checks that it is whole.
    ///
    /// # Errors
    /// When it is no backup, of a newer format, or damaged.
    pub fn read(input: impl Read) -> Result<Backup, BackupError> {
        let mut input = BufReader::new(GzDecoder::new(input));
        let mut sum = Sha256::new();
        let foreign = |error: &dyn std::fmt::Display| BackupError::Foreign(error.to_string());
        let first = take_line(&mut input).map_err(|error| foreign(&error))?;
        let title: Title = serde_json::from_slice(&first).map_err(|error| foreign(&error))?;
        if title.steersman != "backup" {
            return Err(foreign(&"it is of another kind"));
        }
        if title.format > FORMAT {
            return Err(BackupError::Newer { found: title.format });
        }
        sum.update(&first);
        let damaged = |error: &dyn std::fmt::Display| BackupError::Damaged(error.to_string());
        let mut objects = Vec::new();
        for _ in 0..title.objects {
            let header = take_line(&mut input).map_err(|error| damaged(&error))?;
            let entry: Entry = serde_json::from_slice(&header).map_err(|error| damaged(&error))?;
            if entry.bytes > OBJECT {
                return Err(damaged(&"an object is too large"));
            }
            let mut bytes = vec![0; entry.bytes + 1];
            input.read_exact(&mut bytes).map_err(|error| damaged(&error))?;
            sum.update(&header);
            sum.update(&bytes);
            bytes.pop();
            Header::scan(&bytes).map_err(|error| damaged(&error))?;
            let key = Key::new(entry.storage, entry.namespace, entry.name);
            objects.push((key, Content::Read(bytes)));
        }
        let last = take_line(&mut input).map_err(|error| damaged(&error))?;
        let seal: Seal = serde_json::from_slice(&last).map_err(|error| damaged(&error))?;
        if seal.sha256 != hex(&sum.finalize()) {
            return Err(damaged(&"the checksum is another"));
        }
        // Also the end of the gzip stream must be there, and the end of the file.
        if input.read(&mut [0]).map_err(|error| damaged(&error))? != 0 {
            return Err(damaged(&"something follows its end"));
        }
        Ok(Backup { revision: Revision(title.revision), objects })
    }

    /// The batch that makes a store what this backup shows.
    pub(super) fn batch(&self, state: &State) -> Result<(Batch, Restored), WriteError> {
        let mut batch = Batch::after(state.revision());
        if state.revision() < self.revision {
            batch.jump(Revision(self.revision.0.saturating_add(JUMP)));
        }
        let mut restored = Restored::default();
        let mut wanted: HashMap<&Key, &[u8]> =
            self.objects.iter().map(|(key, content)| (key, content.bytes())).collect();
        for storage in state.storages().into_iter().filter(|storage| **storage != *LEASES) {
            for current in state.snapshot(&storage, None).iter() {
                let key = current.key.clone();
                let expected = current.revision;
                match wanted.remove(&key) {
                    None => {
                        put(&mut batch, state, key, Operation::Delete { expected }, &current.bytes)?;
                        restored.deleted += 1;
                    }
                    Some(bytes) => match likeness(current, bytes)? {
                        Likeness::Same => restored.unchanged += 1,
                        Likeness::Changed => {
                            put(&mut batch, state, key, Operation::Update { expected }, bytes)?;
                            restored.updated += 1;
                        }
                        Likeness::Other => {
                            put(
                                &mut batch,
                                state,
                                key.clone(),
                                Operation::Delete { expected },
                                &current.bytes,
                            )?;
                            put(&mut batch, state, key, Operation::Create, bytes)?;
                            restored.updated += 1;
                        }
                    },
                }
            }
        }
        // In the order of the backup, so that two restores of it do the same.
        for (key, content) in self.objects.iter().filter(|(key, _)| *key.storage != *LEASES) {
            if wanted.remove(key).is_some() {
                put(&mut batch, state, key.clone(), Operation::Create, content.bytes())?;
                restored.created += 1;
            }
        }
        Ok((batch, restored))
    }
}

/// How an object relates to its place in a backup.
enum Likeness {
    /// It is the same but for its revision.
    Same,
    /// It has changed since.
    Changed,
    /// It is another object of the same name.
    Other,
}

fn likeness(current: &Stored, bytes: &[u8]) -> Result<Likeness, WriteError> {
    let (header, layout) = Header::scan(bytes)?;
    let (_, own) = Header::scan(&current.bytes)?;
    Ok(if own.around_revision(&current.bytes) == layout.around_revision(bytes) {
        Likeness::Same
    } else if header.uid == current.header.uid {
        Likeness::Changed
    } else {
        Likeness::Other
    })
}

fn put(
    batch: &mut Batch,
    state: &State,
    key: Key,
    operation: Operation,
    bytes: &[u8],
) -> Result<(), WriteError> {
    let write = StoreWrite { key, operation, bytes: bytes.to_vec(), fence: None };
    batch.admit(state, Prepared::new(write)?).map(drop)
}

fn line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    out.write_all(&text)
}

fn take_line(input: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    input.take(LINE).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends too early"));
    }
    Ok(line)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sums what is written up.
struct Summing<W> {
    inner: W,
    sum: Sha256,
}

impl<W: Write> Write for Summing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
