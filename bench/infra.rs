//! How long infrastructure takes from a request to its action, and how much of it one machine bears.
//!
//! `cargo bench --package steersman-steer --bench infra`. Figures go into `bench/README.md`.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::{
    collections::HashMap,
    convert::Infallible,
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::stream::{self, StreamExt as _};
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Bytes, body::Incoming, service::service_fn};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use serde_json::{Value, json};
use support::Up;

const IDLE: usize = 10_000;
const RETRIES: usize = 5_000;
const TYPES: usize = 5_000;
const SAMPLES: usize = 200;

#[tokio::main]
async fn main() {
    // `cargo test --benches` runs every target once; a benchmark has nothing to show there.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    latency_and_drift(folder.path()).await;
    user_behind_retries(folder.path()).await;
    many_types(folder.path()).await;
}

/// From POST to the first request that changes something, alone and beside 10,000 others; then how
/// many of those can be held against the world per second.
async fn latency_and_drift(folder: &Path) {
    let bench = Bench::start(folder, "latency", &[("DRIFT_INTERVAL", "3600")]).await;
    bench.kind("Disk").await;
    bench.print_latency("POST to action, nothing else there").await;
    let begin = Instant::now();
    bench.create("idle", IDLE).await;
    bench.world.wait(IDLE).await;
    let rate = IDLE as f64 / begin.elapsed().as_secs_f64();
    println!("{:<48} {rate:>10.0} /s", "resources created and applied, 32 clients");
    bench.settle().await;
    bench.print_latency(&format!("POST to action, {IDLE} idle resources")).await;
    println!("{:<48} {:>10.1} MiB", format!("memory of `steer up` with {IDLE} resources"), bench.memory());
    let dir = bench.up.dir.clone();
    let seen = Arc::clone(&bench.world.reads);
    bench.up.stop();
    // The same resources, all of them due for a drift check all the time.
    let variables = variables(&[("DRIFT_INTERVAL", "1")]);
    let up = Up::start_env(&dir, &["--runtime", "fake"], &variables);
    while seen.load(Ordering::Relaxed) < IDLE as u64 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (before, begin) = (seen.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let rate = (seen.load(Ordering::Relaxed) - before) as f64 / begin.elapsed().as_secs_f64();
    println!("{:<48} {rate:>10.0} /s", "reconciles that find nothing to do (http action)");
    drop(up);
}

/// From POST to action while 5,000 resources fail and are repeated without a pause.
async fn user_behind_retries(folder: &Path) {
    let variables = [("BACKOFF_BASE_DELAY", "1"), ("BACKOFF_MAX_DELAY", "1")];
    let bench = Bench::start(folder, "retries", &variables).await;
    bench.kind("Disk").await;
    bench.create("fails", RETRIES).await;
    let failed = Arc::clone(&bench.world.failed);
    while failed.load(Ordering::Relaxed) < RETRIES as u64 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (before, begin) = (failed.load(Ordering::Relaxed), Instant::now());
    bench.print_latency(&format!("POST to action behind {RETRIES} retries")).await;
    let rate = (failed.load(Ordering::Relaxed) - before) as f64 / begin.elapsed().as_secs_f64();
    println!("{:<48} {rate:>10.0} /s", "retries meanwhile");
}

/// What 5,000 types cost.
async fn many_types(folder: &Path) {
    let bench = Bench::start(folder, "types", &[]).await;
    let before = bench.memory();
    let begin = Instant::now();
    let all = stream::iter(0..TYPES).map(|index| bench.kind_of(format!("Kind{index}")));
    all.buffer_unordered(32).collect::<Vec<()>>().await;
    let rate = TYPES as f64 / begin.elapsed().as_secs_f64();
    println!("{:<48} {rate:>10.0} /s", "types created, 32 clients");
    bench.kind("Disk").await;
    bench.settle().await;
    let each = (bench.memory() - before) * 1024.0 / TYPES as f64;
    println!("{:<48} {each:>10.1} KiB", format!("memory per type, with {TYPES} of them"));
    bench.print_latency(&format!("POST to action, {TYPES} types")).await;
}

/// A `steer up` and the world that its resources are about.
struct Bench {
    up: Up,
    address: String,
    client: Client<HttpConnector, Full<Bytes>>,
    world: World,
    counter: AtomicU64,
}

fn variables(more: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    more.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

impl Bench {
    async fn start(folder: &Path, name: &str, more: &[(&'static str, &str)]) -> Self {
        let world = World::start().await;
        let up = Up::start_env(&folder.join(name), &["--runtime", "fake"], &variables(more));
        let address = fs::read_to_string(up.dir.join("rest")).unwrap().trim().to_owned();
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { up, address, client, world, counter: AtomicU64::new(0) }
    }

    async fn post(&self, path: &str, body: &Value) {
        let request =
            Request::post(format!("{}{path}", self.address)).body(Full::from(body.to_string())).unwrap();
        let answer = self.client.request(request).await.unwrap();
        let code = answer.status();
        let answer = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(code, 201, "{}", String::from_utf8_lossy(&answer));
    }

    async fn kind(&self, name: &str) {
        self.kind_of(name.to_owned()).await;
    }

    async fn kind_of(&self, name: String) {
        let call = |method: &str| json!({"method": method, "path": "/disks/{{ name }}"});
        let http = json!({"base_url": self.world.address, "apply": call("PUT"), "destroy": call("DELETE"),
            "read": {"path": "/disks/{{ name }}"}});
        let schema = json!({"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 10}, "tier": {"type": "string", "default": "small"},
            "engine": {"type": "string", "enum": ["postgres", "mysql"], "default": "postgres"}}});
        let body = json!({"name": name, "version": "v1", "schema": schema, "metadata": {"action_defaults": {"http": http}}});
        self.post("/api/v1/resource-types", &body).await;
    }

    fn disk(name: &str) -> Value {
        json!({"name": name, "resource_type_name": "Disk", "resource_type_version": "v1",
            "action_plugin": "http", "spec": {"size": 10}})
    }

    async fn create(&self, prefix: &str, count: usize) {
        let all = stream::iter(0..count).map(|index| async move {
            self.post("/api/v1/resources", &Self::disk(&format!("{prefix}-{index}"))).await;
        });
        all.buffer_unordered(32).collect::<Vec<()>>().await;
    }

    /// Waits until the process has nothing to do.
    async fn settle(&self) {
        let pid = self.up.pid();
        let ticks = || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            let fields: Vec<u64> = stat
                .rsplit(')')
                .next()
                .unwrap()
                .split_whitespace()
                .filter_map(|it| it.parse().ok())
                .collect();
            fields[9] + fields[10]
        };
        for _ in 0..120 {
            let before = ticks();
            tokio::time::sleep(Duration::from_secs(1)).await;
            if ticks() - before <= 5 {
                return;
            }
        }
    }

    /// Resident memory in MiB.
    fn memory(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.up.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
    }

    async fn print_latency(&self, what: &str) {
        let mut all = Vec::new();
        for _ in 0..SAMPLES {
            let number = self.counter.fetch_add(1, Ordering::Relaxed);
            let name = format!("sample-{number}");
            let begin = Instant::now();
            self.post("/api/v1/resources", &Self::disk(&name)).await;
            let acted = self.world.acted(&name).await;
            all.push(acted.duration_since(begin));
            // One after the other, so that each finds an idle operator.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        all.sort();
        let at = |share: f64| all[((all.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0;
        println!("{what:<48} {:>7.2} ms p50 {:>7.2} ms p99", at(0.5), at(0.99));
    }
}

/// Disks behind an API that keeps them, counts, and lets those whose name says so fail.
struct World {
    address: String,
    disks: Arc<Mutex<HashMap<String, (Bytes, Instant)>>>,
    reads: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
}

impl World {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let world = Self { address, disks: Arc::default(), reads: Arc::default(), failed: Arc::default() };
        let (disks, reads, failed) =
            (Arc::clone(&world.disks), Arc::clone(&world.reads), Arc::clone(&world.failed));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                let (disks, reads, failed) = (Arc::clone(&disks), Arc::clone(&reads), Arc::clone(&failed));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (disks, reads, failed) =
                        (Arc::clone(&disks), Arc::clone(&reads), Arc::clone(&failed));
                    async move {
                        let at = Instant::now();
                        let (head, body) = request.into_parts();
                        let name = head.uri.path().trim_start_matches("/disks/").to_owned();
                        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                        let mut answer = Response::new(Full::default());
                        if head.method == "GET" {
                            reads.fetch_add(1, Ordering::Relaxed);
                            match disks.lock().unwrap().get(&name) {
                                Some((disk, _)) => *answer.body_mut() = Full::new(disk.clone()),
                                None => *answer.status_mut() = hyper::StatusCode::NOT_FOUND,
                            }
                        } else if name.starts_with("fails") {
                            failed.fetch_add(1, Ordering::Relaxed);
                            *answer.status_mut() = hyper::StatusCode::SERVICE_UNAVAILABLE;
                        } else {
                            disks.lock().unwrap().entry(name).or_insert((body, at));
                        }
                        Ok::<_, Infallible>(answer)
                    }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
        world
    }

    /// When the first change of a disk came in.
    async fn acted(&self, name: &str) -> Instant {
        loop {
            if let Some((_, at)) = self.disks.lock().unwrap().get(name) {
                return *at;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn wait(&self, count: usize) {
        while self.disks.lock().unwrap().len() < count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
