//! From a trigger to the reconcile, and what ten thousand reconciles in flight cost.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::stream;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use steersman::{Context, Controller, Error, Key, Outcome, Reconciler};
use steersman_test::Cluster;
use tokio::sync::mpsc;

const TRIGGERS: usize = 2000;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let Ok(runtime) = runtime else { return };
    runtime.block_on(async {
        idle().await;
        written().await;
        let (few, many) = (in_flight(1_000).await, in_flight(10_000).await);
        println!("reconciles in flight at once, each waiting for 2 s: processor time for each");
        println!("   1,000: {few:>8.1} µs\n  10,000: {many:>8.1} µs ({:.2} x)", many / few.max(0.1));
    });
}

/// Notes when reconciles begin.
struct Begins {
    asked: Mutex<HashMap<String, Instant>>,
    waits: Mutex<Vec<Duration>>,
}

impl Begins {
    fn new() -> Arc<Self> {
        Arc::new(Self { asked: Mutex::default(), waits: Mutex::default() })
    }

    fn ask(&self, name: &str) {
        lock(&self.asked).insert(name.to_owned(), Instant::now());
    }

    fn count(&self) -> usize {
        lock(&self.waits).len()
    }

    fn print(&self, what: &str) {
        let mut waits = lock(&self.waits).clone();
        waits.sort();
        let at = |share: f64| waits.get((waits.len() as f64 * share) as usize).copied().unwrap_or_default();
        println!("{what}: p50 {:?}, p99 {:?}", at(0.5), at(0.99));
    }
}

struct Watching(Arc<Begins>);

impl Reconciler for Watching {
    type Object = ConfigMap;

    async fn reconcile(&self, _: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
        self.gone(cx.key(), cx).await?;
        Ok(Outcome::Done)
    }

    async fn gone(&self, key: &Key, _: &Context) -> Result<(), Error> {
        let began = Instant::now();
        if let Some(asked) = lock(&self.0.asked).remove(key.name()) {
            lock(&self.0.waits).push(began - asked);
        }
        Ok(())
    }
}

/// A key that is sent to an operator with nothing else to do.
async fn idle() {
    let cluster = Cluster::start_in_real_time().await;
    let (sender, receiver) = mpsc::channel::<Key>(16);
    let keys = stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
    let begins = Begins::new();
    let controller = Controller::new("idle", Watching(Arc::clone(&begins))).triggered_by(keys);
    let _running = cluster.run(controller);
    for number in 0..TRIGGERS {
        let name = number.to_string();
        begins.ask(&name);
        if sender.send(Key::new("default", &name)).await.is_err() {
            return;
        }
        settle(&begins, number + 1).await;
    }
    begins.print("trigger to reconcile, idle");
}

/// A write to the API server in the same process, seen through the watch.
async fn written() {
    let cluster = Cluster::start_in_real_time().await;
    let begins = Begins::new();
    let _running = cluster.run(Controller::new("written", Watching(Arc::clone(&begins))));
    cluster.create_json::<ConfigMap>(json!({"metadata": {"name": "a"}})).await;
    for number in 0..TRIGGERS {
        begins.ask("a");
        cluster.patch::<ConfigMap>("a", json!({"data": {"number": number.to_string()}})).await;
        settle(&begins, number + 1).await;
    }
    begins.print("write to reconcile, idle, API server and watch included");
}

async fn settle(begins: &Begins, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while begins.count() < count && Instant::now() < deadline {
        // Long enough that the workers are asleep when the next one comes.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

struct Slow(Arc<AtomicUsize>);

impl Reconciler for Slow {
    type Object = ConfigMap;

    async fn reconcile(&self, _: Arc<ConfigMap>, _: &Context) -> Result<Outcome, Error> {
        Ok(Outcome::Done)
    }

    async fn gone(&self, _: &Key, _: &Context) -> Result<(), Error> {
        tokio::time::sleep(Duration::from_secs(2)).await;
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Microseconds of processor time for each of so many reconciles that all wait at once.
async fn in_flight(count: usize) -> f64 {
    let cluster = Cluster::start_in_real_time().await;
    let done = Arc::new(AtomicUsize::new(0));
    let keys: Vec<Key> =
        (0..count).map(|number| Key::new(&format!("ns-{}", number % 50), &number.to_string())).collect();
    let before = processor_time();
    let controller =
        Controller::new("slow", Slow(Arc::clone(&done))).concurrency(count).triggered_by(stream::iter(keys));
    let _running = cluster.run(controller);
    let deadline = Instant::now() + Duration::from_secs(60);
    while done.load(Ordering::Relaxed) < count && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (processor_time() - before) * 1e6 / count as f64
}

/// Seconds of processor time of this process, where `/proc` tells it.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let field = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (field(11) + field(12)) / 100.0
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
