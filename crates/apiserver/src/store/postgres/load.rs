//! Everything in a database, read into memory.

use futures::TryStreamExt as _;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use super::super::loading::{Damage, HistoryRow, Loaded, Loading, ObjectRow};
use super::error::{DatabaseError, say};
use super::place::Place;

/// Reads a database that nobody else writes.
pub(super) async fn load(client: &Client, revision: i64, place: &Place) -> Result<Loaded, DatabaseError> {
    read(client, revision).await.map_err(|error| match error {
        LoadError::Damaged(Damage(what)) => DatabaseError::Damaged { place: place.to_string(), what },
        LoadError::Database(error) => DatabaseError::Refused { place: place.to_string(), why: say(&error) },
    })
}

enum LoadError {
    Damaged(Damage),
    Database(tokio_postgres::Error),
}

impl From<Damage> for LoadError {
    fn from(damage: Damage) -> Self {
        LoadError::Damaged(damage)
    }
}

impl From<tokio_postgres::Error> for LoadError {
    fn from(error: tokio_postgres::Error) -> Self {
        LoadError::Database(error)
    }
}

async fn read(client: &Client, revision: i64) -> Result<Loaded, LoadError> {
    let mut loading = Loading::new(revision)?;
    for row in client.query("SELECT id, name, floor FROM steersman_store.storages", &[]).await? {
        loading.storage(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)?;
    }
    let objects = "SELECT created, revision, storage, namespace, name, value FROM steersman_store.objects";
    each(client, objects, |row| {
        loading.object(&ObjectRow {
            created: row.try_get(0)?,
            revision: row.try_get(1)?,
            storage: row.try_get(2)?,
            namespace: row.try_get(3)?,
            name: row.try_get(4)?,
            value: row.try_get(5)?,
        })?;
        Ok(())
    })
    .await?;
    let history =
        "SELECT storage, revision, change, created, namespace, name, previous_revision, previous, last
                   FROM steersman_store.history ORDER BY storage, revision DESC";
    each(client, history, |row| {
        loading.past(&HistoryRow {
            storage: row.try_get(0)?,
            revision: row.try_get(1)?,
            change: row.try_get(2)?,
            created: row.try_get(3)?,
            namespace: row.try_get(4)?,
            name: row.try_get(5)?,
            previous_revision: row.try_get(6)?,
            previous: row.try_get(7)?,
            last: row.try_get(8)?,
        })?;
        Ok(())
    })
    .await?;
    Ok(loading.finish())
}

/// Row by row, so that the whole answer is never in memory a second time.
async fn each(
    client: &Client,
    query: &str,
    mut take: impl FnMut(&Row) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    let none: [&(dyn ToSql + Sync); 0] = [];
    let rows = client.query_raw(query, none).await?;
    futures::pin_mut!(rows);
    while let Some(row) = rows.try_next().await? {
        take(&row)?;
    }
    Ok(())
}
