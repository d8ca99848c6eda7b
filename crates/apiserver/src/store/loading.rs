//! Rows of a database, made into objects and history again, and checked while at it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::history::History;
use super::names::Names;
use super::snapshot::Objects;
use super::state::Collection;
use crate::object::{Change, HeaderError, Key, Revision, Stored, Version};
use crate::watch::Event;

/// A contradiction in the contents of a database.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Damage(pub(super) String);

impl Damage {
    fn object(key: &Key, error: &HeaderError) -> Damage {
        Damage(format!("{key}: {error}"))
    }
}

/// An object that is alive.
#[derive(Debug)]
pub(super) struct ObjectRow<'a> {
    pub(super) storage: i64,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) created: i64,
    pub(super) revision: i64,
    pub(super) value: &'a [u8],
}

/// A write that is remembered: what it replaced, and for a deletion the last state.
#[derive(Debug)]
pub(super) struct HistoryRow<'a> {
    pub(super) storage: i64,
    pub(super) revision: i64,
    pub(super) change: i64,
    pub(super) created: i64,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) previous_revision: Option<i64>,
    pub(super) previous: Option<&'a [u8]>,
    pub(super) last: Option<&'a [u8]>,
}

/// A database while it is read: storages first, then objects, then history, newest first.
#[derive(Debug)]
pub(super) struct Loading {
    revision: Revision,
    names: Names,
    parts: HashMap<i64, Part>,
    namespaces: HashMap<Box<str>, Arc<str>>,
}

/// What is read of one storage.
#[derive(Debug)]
struct Part {
    storage: Arc<str>,
    floor: Revision,
    objects: Objects,
    events: VecDeque<Arc<Event>>,
    /// Where the walk back through history stands for keys that it has met.
    walked: HashMap<Key, Option<Arc<Stored>>>,
}

/// A database in memory.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) names: Names,
    pub(super) revision: Revision,
    pub(super) collections: HashMap<Arc<str>, Collection>,
}

impl Loading {
    /// Begins with a database's newest revision.
    pub(super) fn new(newest: i64) -> Result<Loading, Damage> {
        let newest = revision(newest)?;
        Ok(Loading {
            revision: newest,
            names: Names::default(),
            parts: HashMap::new(),
            namespaces: HashMap::new(),
        })
    }

    pub(super) fn storage(&mut self, id: i64, name: &str, floor: i64) -> Result<(), Damage> {
        let (storage, floor): (Arc<str>, _) = (Arc::from(name), revision(floor)?);
        self.names.insert(Arc::clone(&storage), id, floor);
        let part = Part {
            storage,
            floor,
            objects: Objects::new_sync(),
            events: VecDeque::new(),
            walked: HashMap::new(),
        };
        self.parts.insert(id, part);
        Ok(())
    }

    pub(super) fn object(&mut self, row: &ObjectRow<'_>) -> Result<(), Damage> {
        let Some(part) = self.parts.get_mut(&row.storage) else {
            return Err(Damage(format!("an object is in storage {}, which does not exist", row.storage)));
        };
        let namespace = match self.namespaces.get(row.namespace) {
            Some(known) => Arc::clone(known),
            None => {
                let new: Arc<str> = Arc::from(row.namespace);
                self.namespaces.insert(row.namespace.into(), Arc::clone(&new));
                new
            }
        };
        let key = Key::new(Arc::clone(&part.storage), namespace, row.name);
        let (created, written) = (revision(row.created)?, revision(row.revision)?);
        if created > written || written > self.revision {
            let newest = self.revision;
            return Err(Damage(format!(
                "{key} was made at revision {created} and written at {written}, and the newest is {newest}"
            )));
        }
        let change = if created == written { Change::Added } else { Change::Modified };
        let version = Version { key: key.clone(), revision: written, created, change };
        let stored = Stored::load(version, row.value).map_err(|error| Damage::object(&key, &error))?;
        if part.objects.contains_key(&key) {
            return Err(Damage(format!("{key} is there twice")));
        }
        part.objects.insert_mut(key, Arc::new(stored));
        Ok(())
    }

    /// Walks back from the objects as they are: each row says what its write replaced, so that the
    /// version which it made is the one that the walk holds.
    pub(super) fn past(&mut self, row: &HistoryRow<'_>) -> Result<(), Damage> {
        let Some(part) = self.parts.get_mut(&row.storage) else {
            return Err(Damage(format!("a write is in storage {}, which does not exist", row.storage)));
        };
        let (written, created) = (revision(row.revision)?, revision(row.created)?);
        if written <= part.floor {
            return Ok(());
        }
        let key = Key::new(Arc::clone(&part.storage), row.namespace, row.name);
        let key = part.objects.get_key_value(&key).map_or(key, |(own, _)| own.clone());
        let held = match part.walked.get(&key) {
            Some(held) => held.clone(),
            None => part.objects.get(&key).cloned(),
        };
        let kind = match row.change {
            1 => Change::Added,
            2 => Change::Modified,
            3 => Change::Deleted,
            other => return Err(Damage(format!("revision {written} is a change of kind {other}"))),
        };
        let lost = || Damage(format!("{key} has lost its version of revision {written}"));
        let load = |revision, change, bytes: Option<&[u8]>| -> Result<Arc<Stored>, Damage> {
            let version = Version { key: key.clone(), revision, created, change };
            let stored = Stored::load(version, bytes.ok_or_else(lost)?);
            stored.map(Arc::new).map_err(|error| Damage::object(&key, &error))
        };
        let object = match (kind, held) {
            (Change::Deleted, None) => load(written, Change::Deleted, row.last)?,
            (Change::Added | Change::Modified, Some(held)) if held.revision == written => held,
            _ => return Err(lost()),
        };
        let previous = match kind {
            Change::Added => None,
            Change::Modified | Change::Deleted => {
                let before = revision(row.previous_revision.ok_or_else(lost)?)?;
                let change = if before == created { Change::Added } else { Change::Modified };
                Some(load(before, change, row.previous)?)
            }
        };
        part.walked.insert(key, previous.clone());
        part.events.push_front(Arc::new(Event { kind, object, previous }));
        Ok(())
    }

    pub(super) fn finish(self) -> Loaded {
        let collections = (self.parts.into_values())
            .map(|part| {
                let history = History::restore(part.floor, part.events);
                (part.storage, Collection::restore(part.objects, history))
            })
            .collect();
        Loaded { names: self.names, revision: self.revision, collections }
    }
}

fn revision(number: i64) -> Result<Revision, Damage> {
    u64::try_from(number).map(Revision).map_err(|_| Damage(format!("{number} is no revision")))
}
