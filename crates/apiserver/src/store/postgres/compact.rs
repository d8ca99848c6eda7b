//! Forgotten history leaves the database beside the writer, on a connection of its own.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::super::names::number;
use super::error::say;
use super::place::Place;
use super::session::connect;
use crate::object::Revision;

/// Rows that go in one statement: few enough that none takes long.
const AT_ONCE: i64 = 1000;

/// Wishes that may wait. One that finds no room comes again, with a higher floor.
const WISHES: usize = 256;

/// How long to leave a database alone that refused.
const BACK_OFF: Duration = Duration::from_secs(5);

/// The floor first: rows below it are not read any more, so that they may go at any time.
const FLOOR: &str = "UPDATE steersman_store.storages SET floor = $2 WHERE id = $1 AND floor < $2";

/// The oldest rows up to the floor, by their place in the primary key.
const DELETE: &str = "
    DELETE FROM steersman_store.history WHERE storage = $1 AND revision <= LEAST($2, COALESCE((
        SELECT revision FROM steersman_store.history WHERE storage = $1 ORDER BY revision OFFSET $3 LIMIT 1
    ), $2))
";

#[derive(Debug)]
struct Wish {
    storage: i64,
    floor: Revision,
}

/// The task that deletes. Needs a runtime that is driven.
#[derive(Debug)]
pub(super) struct Compactor {
    wishes: mpsc::Sender<Wish>,
    task: JoinHandle<()>,
}

impl Compactor {
    pub(super) fn start(place: Place) -> Compactor {
        let (wishes, wished) = mpsc::channel(WISHES);
        Compactor { wishes, task: tokio::spawn(run(place, wished)) }
    }

    /// Asks for the history of a storage to go up to a floor.
    pub(super) fn forget(&self, storage: i64, floor: Revision) {
        let _ = self.wishes.try_send(Wish { storage, floor });
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(place: Place, mut wishes: mpsc::Receiver<Wish>) {
    let mut connected: Option<(Client, JoinHandle<()>)> = None;
    while let Some(wish) = wishes.recv().await {
        let client = match connected.take().filter(|(client, _)| !client.is_closed()) {
            Some(client) => Ok(client),
            None => connect(&place).await,
        };
        let result = match client {
            Ok(client) => {
                let result = fulfil(&client.0, &wish).await;
                connected = Some(client);
                result
            }
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            tracing::warn!(error = say(&error), "cannot delete forgotten history; will try again");
            tokio::time::sleep(BACK_OFF).await;
        }
    }
}

async fn fulfil(client: &Client, wish: &Wish) -> Result<(), tokio_postgres::Error> {
    let floor = number(wish.floor);
    client.execute(FLOOR, &[&wish.storage, &floor]).await?;
    loop {
        let gone = client.execute(DELETE, &[&wish.storage, &floor, &(AT_ONCE - 1)]).await?;
        if gone < AT_ONCE.unsigned_abs() {
            return Ok(());
        }
    }
}
