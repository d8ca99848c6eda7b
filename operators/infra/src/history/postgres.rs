//! The history in PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use serde_json::Value;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Json;
use tokio_postgres::{Client, Row as Found};

use super::Record;
use super::catalog::{ResourceRow, Row, TypeRow};
use super::database::{Answer, Database, HistoryError, Shelf, sentence};
use super::link::{Link, PostgresOptions};

/// One step per version of the database, applied in order and never changed.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/1.sql")];
/// So that two processes do not migrate at the same time.
const MIGRATION_LOCK: i64 = 0x7374_6565_7273;

/// A database that several replicas of the operator share.
#[derive(Debug)]
pub(super) struct Postgres(Link);

impl Postgres {
    pub(super) fn new(options: &PostgresOptions) -> Result<Self, HistoryError> {
        Ok(Self(Link::new(options)?))
    }

    async fn client(&self) -> Result<Arc<Client>, HistoryError> {
        self.0.client(migrate).await
    }
}

/// Brings the tables up to date.
async fn migrate(client: Arc<Client>) -> Result<(), HistoryError> {
    client.batch_execute("BEGIN").await?;
    let result = steps(&client).await;
    client.batch_execute(if result.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
    result
}

async fn steps(client: &Client) -> Result<(), HistoryError> {
    client.execute("SELECT pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK]).await?;
    client
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS schema_migrations (
                version BIGINT PRIMARY KEY, applied_at TIMESTAMPTZ NOT NULL DEFAULT now())",
        )
        .await?;
    let known = MIGRATIONS.len();
    let found: i64 =
        client.query_one("SELECT coalesce(max(version), 0) FROM schema_migrations", &[]).await?.get(0);
    let done = usize::try_from(found).ok().filter(|found| *found <= known);
    let done = done.ok_or(HistoryError::TooNew { found, known })?;
    for (version, migration) in (1_i64..).zip(MIGRATIONS).skip(done) {
        client.batch_execute(migration).await.map_err(|error| match error.code() {
            Some(code) if *code == SqlState::DUPLICATE_TABLE => HistoryError::Foreign(sentence(&error)),
            _ => error.into(),
        })?;
        client.execute("INSERT INTO schema_migrations (version) VALUES ($1)", &[&version]).await?;
    }
    Ok(())
}

impl Database for Postgres {
    fn record<'a>(&'a self, record: &'a Record) -> Answer<'a, ()> {
        async move {
            let client = self.client().await?;
            let insert = async {
            client.execute(
                "INSERT INTO reconciliation_history (attempt, resource_id, resource_uid, resource_name,
                    resource_type, action_plugin, generation, success, phase, error_message, resources_created,
                    resources_updated, resources_deleted, plan_output, apply_output, trigger_reason,
                    drift_detected, duration_seconds, reconcile_time)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
                 ON CONFLICT (attempt) DO NOTHING",
                &[
                    &record.attempt,
                    &record.resource_id,
                    &record.resource_uid,
                    &record.resource_name,
                    &record.resource_type,
                    &record.action_plugin,
                    &record.generation,
                    &record.success,
                    &record.phase,
                    &text(record.error_message.as_deref()),
                    &i64::from(record.created),
                    &i64::from(record.updated),
                    &i64::from(record.deleted),
                    &text(record.plan.as_deref()),
                    &text(record.apply.as_deref()),
                    &record.trigger,
                    &record.drift,
                    &record.duration.as_secs_f64(),
                    &record.time,
                ],
            ).await
            };
            self.0.ask(insert).await.map(drop)
        }
        .boxed()
    }

    fn of(&self, resource_id: i64, limit: u32, before: Option<i64>) -> Answer<'_, Vec<(i64, Record)>> {
        async move {
            let client = self.client().await?;
            let (before, limit) = (before.unwrap_or(i64::MAX), i64::from(limit));
            let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&resource_id, &before, &limit];
            let select = client.query(
                "SELECT id, attempt, resource_id, resource_uid, resource_name, resource_type, action_plugin,
                    generation, success, phase, error_message, resources_created, resources_updated,
                    resources_deleted, plan_output, apply_output, trigger_reason, drift_detected,
                    duration_seconds, reconcile_time
                 FROM reconciliation_history WHERE resource_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3",
                &parameters,
            );
            self.0.ask(select).await?.iter().map(read).collect()
        }
        .boxed()
    }

    fn knows(&self, resource_id: i64) -> Answer<'_, bool> {
        async move {
            let client = self.client().await?;
            let sql = "SELECT 1 FROM reconciliation_history WHERE resource_id = $1 LIMIT 1";
            Ok(self.0.ask(client.query_opt(sql, &[&resource_id])).await?.is_some())
        }
        .boxed()
    }

    fn check(&self) -> Answer<'_, ()> {
        async move {
            let client = self.client().await?;
            self.0.ask(client.simple_query("SELECT 1")).await.map(drop)
        }
        .boxed()
    }

    fn catalog(&self) -> Option<&dyn Shelf> {
        Some(self)
    }
}

impl Shelf for Postgres {
    fn put<'a>(&'a self, rows: &'a [Row]) -> Answer<'a, ()> {
        async move {
            let client = self.client().await?;
            let writes = rows.iter().map(|row| write(&client, row));
            // All sent at once, and answered one after the other.
            self.0.ask(futures::future::try_join_all(writes)).await.map(drop)
        }
        .boxed()
    }

    fn keep<'a>(&'a self, types: &'a [String], resources: &'a [String]) -> Answer<'a, ()> {
        async move {
            let client = self.client().await?;
            let sql = "DELETE FROM resources WHERE NOT (namespace || '/' || object_name = ANY ($1))";
            self.0.ask(client.execute(sql, &[&resources])).await?;
            let sql = "DELETE FROM resource_types WHERE NOT (object_name = ANY ($1))";
            self.0.ask(client.execute(sql, &[&types])).await.map(drop)
        }
        .boxed()
    }
}

async fn write(client: &Client, row: &Row) -> Result<u64, tokio_postgres::Error> {
    match row {
        Row::Type(row) => write_type(client, row).await,
        Row::Resource(row) => write_resource(client, row).await,
        Row::NoType(object) => {
            client.execute("DELETE FROM resource_types WHERE object_name = $1", &[object]).await
        }
        Row::NoResource { namespace, object } => {
            let sql = "DELETE FROM resources WHERE namespace = $1 AND object_name = $2";
            client.execute(sql, &[namespace, object]).await
        }
    }
}

async fn write_type(client: &Client, row: &TypeRow) -> Result<u64, tokio_postgres::Error> {
    client
        .execute(
            "INSERT INTO resource_types (object_name, id, name, version, schema, description, status, metadata,
                created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
             ON CONFLICT (object_name) DO UPDATE SET id = EXCLUDED.id, name = EXCLUDED.name,
                version = EXCLUDED.version, schema = EXCLUDED.schema, description = EXCLUDED.description,
                status = EXCLUDED.status, metadata = EXCLUDED.metadata, created_at = EXCLUDED.created_at,
                updated_at = now()",
            &[
                &row.object,
                &row.id,
                &row.name,
                &row.version,
                &json(&row.schema),
                &text(row.description.as_deref()),
                &row.status,
                &json(&row.metadata),
                &row.created_at,
            ],
        )
        .await
}

async fn write_resource(client: &Client, row: &ResourceRow) -> Result<u64, tokio_postgres::Error> {
    client
        .execute(
            "INSERT INTO resources (namespace, object_name, id, name, resource_type_name, resource_type_version,
                action_plugin, spec, metadata, outputs, status, status_message, generation, observed_generation,
                retry_count, created_at, last_reconcile_time, next_reconcile_time, attempt, attempt_phase,
                attempt_started_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
             ON CONFLICT (namespace, object_name) DO UPDATE SET id = EXCLUDED.id, name = EXCLUDED.name,
                resource_type_name = EXCLUDED.resource_type_name,
                resource_type_version = EXCLUDED.resource_type_version, action_plugin = EXCLUDED.action_plugin,
                spec = EXCLUDED.spec, metadata = EXCLUDED.metadata, outputs = EXCLUDED.outputs,
                status = EXCLUDED.status, status_message = EXCLUDED.status_message,
                generation = EXCLUDED.generation, observed_generation = EXCLUDED.observed_generation,
                retry_count = EXCLUDED.retry_count, created_at = EXCLUDED.created_at, updated_at = now(),
                last_reconcile_time = EXCLUDED.last_reconcile_time,
                next_reconcile_time = EXCLUDED.next_reconcile_time, attempt = EXCLUDED.attempt,
                attempt_phase = EXCLUDED.attempt_phase, attempt_started_at = EXCLUDED.attempt_started_at",
            &[
                &row.namespace,
                &row.object,
                &row.id,
                &row.name,
                &row.type_name,
                &row.type_version,
                &row.action_plugin,
                &json(&row.spec),
                &json(&row.metadata),
                &json(&row.outputs),
                &row.status,
                &text(row.status_message.as_deref()),
                &row.generation,
                &row.observed_generation,
                &row.retry_count,
                &row.created_at,
                &row.last_reconcile_time,
                &row.next_reconcile_time,
                &row.attempt,
                &row.attempt_phase,
                &row.attempt_started_at,
            ],
        )
        .await
}

/// PostgreSQL knows no NUL in texts; what a plugin printed may hold one.
fn text(text: Option<&str>) -> Option<String> {
    text.map(|text| text.replace('\0', "\u{fffd}"))
}

/// The same for JSON.
fn json(value: &Value) -> Json<Value> {
    fn clean(value: &Value) -> Value {
        match value {
            Value::String(it) => Value::String(it.replace('\0', "\u{fffd}")),
            Value::Array(items) => items.iter().map(clean).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (name.replace('\0', "\u{fffd}"), clean(value))).collect()
            }
            other => other.clone(),
        }
    }
    Json(clean(value))
}

fn read(row: &Found) -> Result<(i64, Record), HistoryError> {
    let count = |column: usize| -> Result<u32, HistoryError> {
        Ok(u32::try_from(row.try_get::<_, i64>(column)?).unwrap_or(u32::MAX))
    };
    let record = Record {
        attempt: row.try_get(1)?,
        resource_id: row.try_get(2)?,
        resource_uid: row.try_get(3)?,
        resource_name: row.try_get(4)?,
        resource_type: row.try_get(5)?,
        action_plugin: row.try_get(6)?,
        generation: row.try_get(7)?,
        success: row.try_get(8)?,
        phase: row.try_get(9)?,
        error_message: row.try_get(10)?,
        created: count(11)?,
        updated: count(12)?,
        deleted: count(13)?,
        plan: row.try_get(14)?,
        apply: row.try_get(15)?,
        trigger: row.try_get(16)?,
        drift: row.try_get(17)?,
        duration: Duration::try_from_secs_f64(row.try_get(18)?).unwrap_or_default(),
        time: row.try_get(19)?,
    };
    Ok((row.try_get(0)?, record))
}
