//! What there is, in tables for people who look into the database.
//!
//! ```text
//!   reconcilers ── saw, gone ──▶ newest row per object ──▶ batches ──▶ resource_types, resources
//! ```
//! The tables follow the objects, a moment behind; nothing reads them but people.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use prometheus_client::metrics::gauge::Gauge;
use serde_json::{Value, json};
use steersman::CancellationToken;
use tokio::sync::Notify;

use super::{History, HistoryError, Record};
use crate::types::{ID, Resource, ResourceType};

/// How many rows are written at once.
const BATCH: usize = 200;
/// How long a database that does not answer is left alone.
const PAUSE: Duration = Duration::from_secs(2);

/// A row to be written or taken away.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Row {
    Type(Box<TypeRow>),
    Resource(Box<ResourceRow>),
    NoType(String),
    NoResource { namespace: String, object: String },
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct TypeRow {
    pub(super) object: String,
    pub(super) id: Option<i64>,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) schema: Value,
    pub(super) description: Option<String>,
    pub(super) status: &'static str,
    pub(super) metadata: Value,
    pub(super) created_at: Option<Timestamp>,
}

/// A resource, without the configuration of its plugin: that may hold secrets.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ResourceRow {
    pub(super) namespace: String,
    pub(super) object: String,
    pub(super) id: Option<i64>,
    pub(super) name: String,
    pub(super) type_name: String,
    pub(super) type_version: String,
    pub(super) action_plugin: String,
    pub(super) spec: Value,
    pub(super) metadata: Value,
    pub(super) outputs: Value,
    pub(super) status: &'static str,
    pub(super) status_message: Option<String>,
    pub(super) generation: i64,
    pub(super) observed_generation: i64,
    pub(super) retry_count: i64,
    pub(super) created_at: Option<Timestamp>,
    pub(super) last_reconcile_time: Option<Timestamp>,
    pub(super) next_reconcile_time: Option<Timestamp>,
    pub(super) attempt: Option<String>,
    pub(super) attempt_phase: Option<String>,
    pub(super) attempt_started_at: Option<Timestamp>,
}

/// Keeps the tables of types and resources, where the database has them, and hands on what the
/// history could not write at once.
#[derive(Clone, Debug)]
pub(crate) struct Catalog {
    history: History,
    changed: Arc<Mutex<HashMap<String, Row>>>,
    wake: Arc<Notify>,
    waiting: Gauge,
}

impl Catalog {
    /// `waiting` shows how many records wait for the database.
    pub(crate) fn new(history: History, waiting: Gauge) -> Self {
        Self { history, changed: Arc::default(), wake: Arc::default(), waiting }
    }

    /// Records how an attempt ended, now or as soon as the database answers again.
    pub(crate) async fn remember(&self, record: Record) {
        self.history.remember(record).await;
        if self.count() > 0 {
            self.wake.notify_one();
        }
    }

    /// A resource is like this now.
    pub(crate) fn saw(&self, resource: &Resource) {
        self.note(format!("resource {}", place(resource)), || {
            Row::Resource(Box::new(resource_row(resource)))
        });
    }

    /// A resource is no more.
    pub(crate) fn gone(&self, namespace: &str, object: &str) {
        let row = || Row::NoResource { namespace: namespace.to_owned(), object: object.to_owned() };
        self.note(format!("resource {namespace}/{object}"), row);
    }

    /// A type is like this now.
    pub(crate) fn saw_type(&self, known: &ResourceType) {
        self.note(format!("type {}", known.name_any()), || Row::Type(Box::new(type_row(known))));
    }

    /// A type is no more.
    pub(crate) fn type_gone(&self, object: &str) {
        self.note(format!("type {object}"), || Row::NoType(object.to_owned()));
    }

    fn note(&self, key: String, row: impl FnOnce() -> Row) {
        if self.history.database.catalog().is_some() {
            self.lock().insert(key, row());
            self.wake.notify_one();
        }
    }

    /// Writes what it is told until `stop`; first takes away what has gone unseen.
    pub(crate) async fn run(self, types: Vec<String>, resources: Vec<String>, stop: CancellationToken) {
        let mut known = Some((types, resources));
        loop {
            let written = self.write(&mut known).await;
            let pause = match &written {
                Ok(()) => Duration::from_secs(3600),
                Err(error) => {
                    tracing::debug!(%error, "the database is behind");
                    PAUSE
                }
            };
            // A record that waits is tried again without being told.
            let pause = if self.count() > 0 { PAUSE } else { pause };
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.wake.notified(), if written.is_ok() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        // The last words, if the database listens.
        let _ = self.write(&mut known).await;
        let lost = self.count();
        if lost > 0 {
            tracing::error!(lost, "attempts are missing from the history: its database does not answer");
        }
    }

    fn count(&self) -> usize {
        let count = self.history.waiting();
        self.waiting.set(i64::try_from(count).unwrap_or(i64::MAX));
        count
    }

    async fn write(&self, known: &mut Option<(Vec<String>, Vec<String>)>) -> Result<(), HistoryError> {
        self.history.settle().await?;
        let Some(shelf) = self.history.database.catalog() else {
            return Ok(());
        };
        if let Some((types, resources)) = known {
            shelf.keep(types, resources).await?;
            *known = None;
        }
        loop {
            let batch: HashMap<String, Row> = {
                let mut changed = self.lock();
                let keys: Vec<String> = changed.keys().take(BATCH).cloned().collect();
                keys.into_iter().filter_map(|key| changed.remove_entry(&key)).collect()
            };
            if batch.is_empty() {
                return Ok(());
            }
            let rows: Vec<Row> = batch.values().cloned().collect();
            if let Err(error) = shelf.put(&rows).await {
                // Newer ones have come meanwhile, or these are still the newest.
                let mut changed = self.lock();
                for (key, row) in batch {
                    changed.entry(key).or_insert(row);
                }
                return Err(error);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Row>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(resource: &Resource) -> String {
    format!("{}/{}", resource.namespace().unwrap_or_default(), resource.name_any())
}

fn type_row(known: &ResourceType) -> TypeRow {
    let spec = &known.spec;
    TypeRow {
        object: known.name_any(),
        id: known.labels().get(ID).and_then(|id| id.parse().ok()),
        name: spec.name.clone(),
        version: spec.version.clone(),
        schema: spec.schema.clone(),
        description: spec.description.clone(),
        status: if spec.deprecated { "deprecated" } else { "active" },
        metadata: json!(spec.metadata),
        created_at: known.creation_timestamp().map(|time| time.0),
    }
}

fn resource_row(resource: &Resource) -> ResourceRow {
    let (spec, status) = (&resource.spec, resource.status.clone().unwrap_or_default());
    let attempt = status.attempt.as_ref();
    let phase = attempt.and_then(|attempt| Some(json!(attempt.phase).as_str()?.to_owned()));
    ResourceRow {
        namespace: resource.namespace().unwrap_or_default(),
        object: resource.name_any(),
        id: resource.id(),
        name: resource.short_name().to_owned(),
        type_name: spec.type_name.clone(),
        type_version: spec.type_version.clone(),
        action_plugin: spec.action_plugin.clone(),
        spec: json!(spec.parameters),
        metadata: json!(spec.metadata),
        outputs: json!(status.outputs.clone().unwrap_or_default()),
        status: resource.state().as_str(),
        status_message: status.message.clone(),
        generation: resource.metadata.generation.unwrap_or(1),
        observed_generation: status.last_reconciled_generation.unwrap_or(0),
        retry_count: i64::from(status.failures),
        created_at: resource.creation_timestamp().map(|time| time.0),
        last_reconcile_time: status.last_reconcile_time,
        next_reconcile_time: status.next_attempt_at,
        attempt: attempt.map(|attempt| attempt.id.clone()),
        attempt_phase: phase,
        attempt_started_at: attempt.map(|attempt| attempt.started_at),
    }
}
