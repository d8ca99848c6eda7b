//! The tables, and how they came to be what they are.

use tokio_postgres::Client;

use super::super::names::number;
use super::super::state::FIRST;

/// What takes a database from each format to the next; the first makes everything.
///
/// The state is in `objects`, and apart from it what has happened lately in `history`: of each write
/// what it replaced, so that nothing is stored twice and a prefix can be dropped without a look at
/// the rest.
const MIGRATIONS: [&str; 1] = ["
    CREATE TABLE steersman_store.storages (
        id bigint PRIMARY KEY,
        name text NOT NULL UNIQUE,
        floor bigint NOT NULL
    );
    CREATE TABLE steersman_store.objects (
        created bigint PRIMARY KEY,
        revision bigint NOT NULL,
        storage bigint NOT NULL,
        namespace text NOT NULL,
        name text NOT NULL,
        value bytea NOT NULL
    );
    CREATE TABLE steersman_store.history (
        storage bigint NOT NULL,
        revision bigint NOT NULL,
        change bigint NOT NULL,
        created bigint NOT NULL,
        namespace text NOT NULL,
        name text NOT NULL,
        previous_revision bigint,
        previous bytea,
        last bytea,
        PRIMARY KEY (storage, revision)
    );
"];

/// The newest format that this version reads, and the one it writes.
pub(super) const FORMAT: i32 = MIGRATIONS.len() as i32;

/// Everything begins with the one row that says whose the database is and how far it has come.
const FIRST_TABLE: &str = "
    CREATE SCHEMA IF NOT EXISTS steersman_store;
    CREATE TABLE IF NOT EXISTS steersman_store.store (
        id integer PRIMARY KEY CHECK (id = 1),
        format integer NOT NULL,
        epoch bigint NOT NULL,
        holder text NOT NULL,
        holder_shown text NOT NULL,
        revision bigint NOT NULL
    );
";

/// Makes the tables what this version expects, each step whole or not at all. Gives the format that
/// was found where it is too new.
pub(super) async fn migrate(client: &mut Client) -> Result<Result<(), i32>, tokio_postgres::Error> {
    let found = format(client).await?;
    if found > FORMAT {
        return Ok(Err(found));
    }
    for (step, sql) in (1..).zip(MIGRATIONS).filter(|(step, _)| *step > found) {
        let transaction = client.transaction().await?;
        if step == 1 {
            transaction.batch_execute(FIRST_TABLE).await?;
            transaction
                .execute("INSERT INTO steersman_store.store VALUES (1, 0, 0, '', '', $1)", &[&number(FIRST)])
                .await?;
        }
        transaction.batch_execute(sql).await?;
        transaction.execute("UPDATE steersman_store.store SET format = $1", &[&step]).await?;
        transaction.commit().await?;
    }
    Ok(Ok(()))
}

/// The format of the tables; 0 where there are none.
async fn format(client: &Client) -> Result<i32, tokio_postgres::Error> {
    let there = "SELECT to_regclass('steersman_store.store') IS NOT NULL";
    if !client.query_one(there, &[]).await?.get::<_, bool>(0) {
        return Ok(0);
    }
    let row = client.query_opt("SELECT format FROM steersman_store.store", &[]).await?;
    Ok(row.map_or(0, |row| row.get(0)))
}
