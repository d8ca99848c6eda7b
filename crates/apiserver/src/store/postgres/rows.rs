//! A batch as the arrays of one statement.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::types::ToSql;

use super::super::batch::Batch;
use super::super::names::{Names, code, number};
use super::super::state::EVERYTHING;
use crate::object::{Change, Revision, Stored};
use crate::watch::Event;

/// Writes a batch, if the epoch is still ours and the revision the one that the batch follows.
///
/// The end of the statement is the commit. It waits for a statement of an older epoch that is still
/// under way, and then finds the epoch as that one or whoever deposed it has left it.
pub(super) const COMMIT: &str = "
    WITH fence AS (
        UPDATE steersman_store.store SET revision = $3 WHERE epoch = $1 AND revision = $2 RETURNING 1
    ), named AS (
        INSERT INTO steersman_store.storages (id, name, floor)
        SELECT n.* FROM fence, unnest($4::bigint[], $5::text[], $22::bigint[]) AS n
        ON CONFLICT (id) DO UPDATE SET floor = excluded.floor
    ), removed AS (
        DELETE FROM steersman_store.objects USING fence WHERE created = ANY ($6::bigint[]) RETURNING 1
    ), written AS (
        INSERT INTO steersman_store.objects (created, revision, storage, namespace, name, value)
        SELECT o.* FROM fence, unnest($7::bigint[], $8::bigint[], $9::bigint[], $10::text[], $11::text[],
            $12::bytea[]) AS o
        ON CONFLICT (created) DO UPDATE SET revision = excluded.revision, value = excluded.value
        RETURNING 1
    ), remembered AS (
        INSERT INTO steersman_store.history
            (storage, revision, change, created, namespace, name, previous_revision, previous, last)
        SELECT h.* FROM fence, unnest($13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::text[],
            $18::text[], $19::bigint[], $20::bytea[], $21::bytea[]) AS h
        RETURNING 1
    )
    SELECT (SELECT count(*) FROM fence), (SELECT count(*) FROM removed), (SELECT count(*) FROM written),
        (SELECT count(*) FROM remembered)
";

/// The parameters of [`COMMIT`] but for the epoch.
#[derive(Debug)]
pub(super) struct Rows<'a> {
    /// The revision before the batch.
    pub(super) before: Revision,
    /// The revision after it.
    pub(super) after: Revision,
    numbers: [i64; 2],
    names: (Vec<i64>, Vec<&'a str>, Vec<i64>),
    removed: Vec<i64>,
    written: Written<'a>,
    history: Remembered<'a>,
}

#[derive(Debug, Default)]
struct Written<'a> {
    created: Vec<i64>,
    revision: Vec<i64>,
    storage: Vec<i64>,
    namespace: Vec<&'a str>,
    name: Vec<&'a str>,
    value: Vec<&'a [u8]>,
}

#[derive(Debug, Default)]
struct Remembered<'a> {
    storage: Vec<i64>,
    revision: Vec<i64>,
    change: Vec<i64>,
    created: Vec<i64>,
    namespace: Vec<&'a str>,
    name: Vec<&'a str>,
    previous_revision: Vec<Option<i64>>,
    previous: Vec<Option<&'a [u8]>>,
    last: Vec<Option<&'a [u8]>>,
}

/// How many rows a commit has touched.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) removed: i64,
    pub(super) written: i64,
    pub(super) remembered: i64,
}

impl<'a> Rows<'a> {
    /// The rows of a batch; storages that are new get a number in `names`.
    pub(super) fn of(batch: &'a Batch, names: &mut Names) -> Rows<'a> {
        let events = batch.events();
        let (before, after) = (batch.base(), batch.revision());
        let mut rows = Rows {
            before,
            after,
            numbers: [number(before), number(after)],
            names: Default::default(),
            removed: Vec::new(),
            written: Written::default(),
            history: Remembered::default(),
        };
        if let Some(floor) = batch.jumped() {
            let everything = Arc::from(EVERYTHING);
            let id = names.get(EVERYTHING).unwrap_or_else(|| names.add(&everything));
            names.insert(everything, id, floor);
            rows.names.0.push(id);
            rows.names.1.push(EVERYTHING);
            rows.names.2.push(number(floor));
        }
        // A statement may touch a row once, so that only what a batch leaves of an object is written.
        let mut left: HashMap<Revision, (&Event, IsNew)> = HashMap::new();
        for event in events {
            let object = &*event.object;
            let storage = names.get(&object.key.storage).unwrap_or_else(|| {
                let id = names.add(&object.key.storage);
                rows.names.0.push(id);
                rows.names.1.push(&object.key.storage);
                rows.names.2.push(0);
                id
            });
            rows.history.push(storage, event);
            let new = match left.get(&object.created) {
                Some((_, new)) => *new,
                None if event.kind == Change::Added => IsNew::Yes,
                None => IsNew::No,
            };
            left.insert(object.created, (event, new));
        }
        for event in events {
            let object = &*event.object;
            let Some((last, new)) = left.remove(&object.created) else { continue };
            match (last.kind, new) {
                (Change::Deleted, IsNew::No) => rows.removed.push(number(object.created)),
                (Change::Deleted, IsNew::Yes) => {}
                _ => rows.written.push(names.get(&object.key.storage).unwrap_or_default(), &last.object),
            }
        }
        rows
    }

    /// What the statement should count.
    pub(super) fn counts(&self) -> Counts {
        let count = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
        Counts {
            removed: count(self.removed.len()),
            written: count(self.written.created.len()),
            remembered: count(self.history.storage.len()),
        }
    }

    /// The parameters, in the order of the statement.
    pub(super) fn parameters<'p>(&'p self, epoch: &'p i64) -> [&'p (dyn ToSql + Sync); 22] {
        let (written, history) = (&self.written, &self.history);
        [
            epoch,
            &self.numbers[0],
            &self.numbers[1],
            &self.names.0,
            &self.names.1,
            &self.removed,
            &written.created,
            &written.revision,
            &written.storage,
            &written.namespace,
            &written.name,
            &written.value,
            &history.storage,
            &history.revision,
            &history.change,
            &history.created,
            &history.namespace,
            &history.name,
            &history.previous_revision,
            &history.previous,
            &history.last,
            &self.names.2,
        ]
    }
}

/// Whether an object is made by the batch at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IsNew {
    Yes,
    No,
}

impl<'a> Written<'a> {
    fn push(&mut self, storage: i64, object: &'a Stored) {
        self.created.push(number(object.created));
        self.revision.push(number(object.revision));
        self.storage.push(storage);
        self.namespace.push(&object.key.namespace);
        self.name.push(&object.key.name);
        self.value.push(&object.bytes);
    }
}

impl<'a> Remembered<'a> {
    fn push(&mut self, storage: i64, event: &'a Event) {
        let (object, previous) = (&*event.object, event.previous.as_deref());
        self.storage.push(storage);
        self.revision.push(number(object.revision));
        self.change.push(code(event.kind));
        self.created.push(number(object.created));
        self.namespace.push(&object.key.namespace);
        self.name.push(&object.key.name);
        self.previous_revision.push(previous.map(|previous| number(previous.revision)));
        self.previous.push(previous.map(|previous| &*previous.bytes));
        self.last.push((event.kind == Change::Deleted).then_some(&*object.bytes));
    }
}
