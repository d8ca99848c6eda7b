//! How many writes and reads per second the store takes, with a pod of usual size.
//!
//! `cargo bench -p steersman-apiserver --bench store [-- FOLDER]`; the folder is where the database
//! goes, because its disk decides.

#![allow(clippy::print_stdout, missing_docs)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use steersman_apiserver::object::{Key, Revision};
use steersman_apiserver::store::{Operation, Store, StoreOptions, Write};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// How long each figure is measured.
const SPAN: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> Outcome<()> {
    let folder = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).map(PathBuf::from);
    let temporary = tempfile::tempdir()?;
    let folder = folder.unwrap_or_else(|| temporary.path().to_owned());
    println!("{:<28}{:>12}{:>12}{:>12}", "", "per second", "p50 ms", "p99 ms");
    for writers in [1, 32, 256] {
        let store = open(&folder, &format!("create-{writers}"))?;
        writes(&format!("sqlite create, writers: {writers}"), &store, writers, Kind::Create).await?;
        store.close().await?;
        let store = open(&folder, &format!("update-{writers}"))?;
        writes(&format!("sqlite update, writers: {writers}"), &store, writers, Kind::Update).await?;
        store.close().await?;
    }
    let store = Store::memory(StoreOptions::default());
    writes("memory create, writers: 1", &store, 1, Kind::Create).await?;
    writes("memory create, writers: 32", &store, 32, Kind::Create).await?;
    let store = Store::memory(StoreOptions::default());
    watchers(&store, 100).await?;
    cold_start(&folder).await
}

fn open(folder: &Path, name: &str) -> Outcome<Store> {
    let file = folder.join(format!("{name}.db"));
    for ending in ["", "-wal", "-shm", ".lock"] {
        let mut old = file.clone().into_os_string();
        old.push(ending);
        match std::fs::remove_file(old) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(Store::sqlite(&file, StoreOptions::default())?)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Create,
    Update,
}

/// About what a pod weighs.
fn pod(name: &str) -> Vec<u8> {
    let filling = "x".repeat(2_700);
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"default","labels":{{"app":"a","tier":"b"}},"uid":"0c2d2c1e-54f7-4c8a-9d5f-6ef0cf9d7a11","creationTimestamp":"2026-01-01T00:00:00Z"}},"spec":{{"filling":"{filling}"}}}}"#
    )
    .into_bytes()
}

async fn writes(title: &str, store: &Store, writers: usize, kind: Kind) -> Outcome<()> {
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..writers {
        let store = store.clone();
        tasks.spawn(async move { write_for_a_while(&store, writer, kind, start + SPAN).await });
    }
    let mut latencies = Vec::new();
    for each in tasks.join_all().await {
        latencies.extend(each?);
    }
    report(title, latencies, start.elapsed());
    Ok(())
}

async fn write_for_a_while(
    store: &Store,
    writer: usize,
    kind: Kind,
    until: Instant,
) -> Outcome<Vec<Duration>> {
    let mut latencies = Vec::new();
    let mut last: Option<Revision> = None;
    for number in 0_u64.. {
        if Instant::now() >= until {
            break;
        }
        let number = if kind == Kind::Update { 0 } else { number };
        let name = format!("{}-{writer}-{number}", store.list("pods", None).len());
        let name = if kind == Kind::Update { writer.to_string() } else { name };
        let operation = match (kind, last) {
            (Kind::Update, Some(expected)) => Operation::Update { expected },
            _ => Operation::Create,
        };
        let bytes = pod(&name);
        let begun = Instant::now();
        let key = Key::new("pods", "default", name);
        last = Some(store.write(Write { key, operation, bytes, fence: None }).await?.revision);
        latencies.push(begun.elapsed());
    }
    Ok(latencies)
}

fn report(title: &str, mut latencies: Vec<Duration>, span: Duration) {
    latencies.sort();
    let at =
        |share: usize| latencies.get(latencies.len() * share / 100).map_or(0.0, Duration::as_secs_f64) * 1e3;
    let rate = latencies.len() as f64 / span.as_secs_f64();
    println!("{title:<28}{rate:>12.0}{:>12.2}{:>12.2}", at(50), at(99));
}

/// One writer, many watchers: events handed out per second.
async fn watchers(store: &Store, count: usize) -> Outcome<()> {
    let events = 5_000_u64;
    let mut tasks = tokio::task::JoinSet::new();
    let start = Instant::now();
    for _ in 0..count {
        let mut watch = store.watch("pods", None, store.revision())?;
        tasks.spawn(async move {
            for _ in 0..events {
                match watch.next().await {
                    Some(Ok(event)) => std::hint::black_box(event.object.frame().len()),
                    Some(Err(lagged)) => return Err(lagged.to_string()),
                    None => return Err("the store is closed".to_owned()),
                };
            }
            Ok(())
        });
    }
    for number in 0..events {
        let key = Key::new("pods", "default", number.to_string());
        let bytes = pod(&key.name);
        store.write(Write { key, operation: Operation::Create, bytes, fence: None }).await?;
    }
    tasks.join_all().await.into_iter().collect::<Result<(), String>>()?;
    let rate = events as f64 * count as f64 / start.elapsed().as_secs_f64();
    println!("{:<28}{rate:>12.0}", format!("memory fan-out, watchers: {count}"));
    Ok(())
}

/// How long it takes to open a database of ten thousand pods.
async fn cold_start(folder: &Path) -> Outcome<()> {
    let store = open(folder, "start")?;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..10_000 {
        let store = store.clone();
        tasks.spawn(async move {
            let key = Key::new("pods", "default", number.to_string());
            let bytes = pod(&key.name);
            store.write(Write { key, operation: Operation::Create, bytes, fence: None }).await.map(drop)
        });
    }
    tasks.join_all().await.into_iter().collect::<Result<(), _>>()?;
    store.close().await?;
    let start = Instant::now();
    let store = Store::sqlite(&folder.join("start.db"), StoreOptions::default())?;
    println!(
        "{:<28}{:>12.0} ms for {} objects",
        "sqlite open",
        start.elapsed().as_secs_f64() * 1e3,
        store.list("pods", None).len()
    );
    store.close().await?;
    Ok(())
}
