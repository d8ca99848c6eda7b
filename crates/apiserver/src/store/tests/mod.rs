//! The store from outside: what a write promises, what a watch sees, what a crash leaves.

use std::sync::Arc;
use std::time::Duration;

use super::{Operation, Store, StoreOptions, Write, WriteError};
use crate::object::{Key, Revision, Stored};
use crate::watch::{Event, Subscription};

mod backups;
mod crash;
mod durability;
mod encrypted;
mod home;
mod model;
mod outage;
mod proxy;
mod watching;
mod writing;

use home::{Home, homes, stores};

fn pod(name: &str) -> Key {
    Key::new("pods", "default", name)
}

fn body(payload: &str) -> Vec<u8> {
    format!(r#"{{"kind":"Pod","metadata":{{"labels":{{"app":"a"}}}},"spec":"{payload}"}}"#).into_bytes()
}

async fn put(
    store: &Store,
    key: &Key,
    operation: Operation,
    payload: &str,
) -> Result<Arc<Stored>, WriteError> {
    store.write(Write { key: key.clone(), operation, bytes: body(payload), fence: None }).await
}

async fn create(store: &Store, key: &Key, payload: &str) -> Result<Arc<Stored>, WriteError> {
    put(store, key, Operation::Create, payload).await
}

async fn update(
    store: &Store,
    key: &Key,
    expected: Revision,
    payload: &str,
) -> Result<Arc<Stored>, WriteError> {
    put(store, key, Operation::Update { expected }, payload).await
}

async fn delete(store: &Store, key: &Key, expected: Revision) -> Result<Arc<Stored>, WriteError> {
    put(store, key, Operation::Delete { expected }, "gone").await
}

/// The payload that [`body`] put in.
fn payload(stored: &Stored) -> String {
    let object: serde_json::Value = serde_json::from_slice(&stored.bytes).expect("stored bytes are JSON");
    assert_eq!(object["metadata"]["resourceVersion"], stored.revision.to_string().as_str());
    object["spec"].as_str().expect("a payload").to_owned()
}

/// The next event, which must come soon.
async fn soon(subscription: &mut Subscription) -> Arc<Event> {
    tokio::time::timeout(Duration::from_secs(60), subscription.next())
        .await
        .expect("an event in time")
        .expect("an open store")
        .expect("a watch that keeps up")
}

/// Waits until a condition holds, which it must within a minute.
async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap_or_else(|_| panic!("{what}"));
}
