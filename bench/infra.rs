//! How long infrastructure takes from a request to its action, and how much of it one machine bears.
//!
//! `cargo bench --package steersman-steer --bench infra`, with `-- short` for a tenth of it, and
//! `-- latency`, `-- retries` or `-- types` for a part. Prints the rows of a table in `bench/README.md`.

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

/// How much of everything there is.
struct Sizes {
    idle: usize,
    retries: usize,
    types: usize,
    samples: usize,
}

const WHOLE: Sizes = Sizes { idle: 10_000, retries: 5_000, types: 5_000, samples: 500 };
const SHORT: Sizes = Sizes { idle: 1_000, retries: 500, types: 500, samples: 100 };

/// How long anything may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(180);

#[tokio::main]
async fn main() {
    let asked = |what: &str| std::env::args().any(|argument| argument == what);
    // `cargo test --benches` runs every target once; a benchmark has nothing to show there.
    if !asked("--bench") {
        return;
    }
    let sizes = if asked("short") { SHORT } else { WHOLE };
    let folder = tempfile::tempdir().unwrap();
    println!("| | | aim |\n|---|---|---|");
    let whole = !["latency", "retries", "types"].into_iter().any(asked);
    if whole || asked("latency") {
        latency_and_drift(folder.path(), &sizes).await;
    }
    if whole || asked("retries") {
        user_behind_retries(folder.path(), &sizes).await;
    }
    if whole || asked("types") {
        many_types(folder.path(), &sizes).await;
    }
}

/// A row of the table in `bench/README.md`.
fn row(what: &str, figure: &str, aim: &str) {
    println!("| {what} | {figure} | {aim} |");
}

/// From POST to the first request that changes something, alone and beside idle resources; then how
/// many of those can be held against the world per second.
async fn latency_and_drift(folder: &Path, sizes: &Sizes) {
    let idle = sizes.idle;
    let bench = Bench::start(folder, "latency", &[("DRIFT_INTERVAL", "3600")]).await;
    bench.kind("Disk").await;
    bench.print_latency("POST to action, nothing else there", AIM, sizes.samples).await;
    let begin = Instant::now();
    bench.create("idle", idle).await;
    bench.world.wait(idle + sizes.samples).await;
    let rate = idle as f64 / begin.elapsed().as_secs_f64();
    bench.settle().await;
    bench.print_latency(&format!("POST to action, {idle} idle resources"), AIM, sizes.samples).await;
    row("resources created and applied, 32 clients", &format!("{rate:.0} /s"), "");
    row(&format!("memory of `steer up` with {idle} resources"), &format!("{:.1} MiB", bench.memory()), "");
    let (dir, seen) = (bench.up.dir.clone(), Arc::clone(&bench.world.reads));
    bench.up.stop();
    // The same resources, all of them due for a drift check all the time.
    let up = Up::start_env(&dir, &["--runtime", "fake"], &variables(&[("DRIFT_INTERVAL", "1")]));
    let start = seen.load(Ordering::Relaxed);
    reach("a drift check of each", &seen, start + idle as u64).await;
    let (before, begin) = (seen.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let rate = (seen.load(Ordering::Relaxed) - before) as f64 / begin.elapsed().as_secs_f64();
    row("reconciles that find nothing to do, action `http`", &format!("{rate:.0} /s"), "above 1,000 /s");
    drop(up);
}

/// From POST to action while many resources fail and are repeated without a pause.
async fn user_behind_retries(folder: &Path, sizes: &Sizes) {
    let variables = [("BACKOFF_BASE_DELAY", "1"), ("BACKOFF_MAX_DELAY", "1")];
    let bench = Bench::start(folder, "retries", &variables).await;
    bench.kind("Disk").await;
    bench.create("fails", sizes.retries).await;
    let failed = Arc::clone(&bench.world.failed);
    reach("a failure of each", &failed, sizes.retries as u64).await;
    let (before, begin) = (failed.load(Ordering::Relaxed), Instant::now());
    let what = format!("POST to action behind {} retries", sizes.retries);
    bench.print_latency(&what, "p99 under 100 ms", sizes.samples).await;
    let rate = (failed.load(Ordering::Relaxed) - before) as f64 / begin.elapsed().as_secs_f64();
    row("retries meanwhile", &format!("{rate:.0} /s"), "");
}

/// What many types cost.
async fn many_types(folder: &Path, sizes: &Sizes) {
    let types = sizes.types;
    let bench = Bench::start(folder, "types", &[]).await;
    bench.settle().await;
    let before = bench.memory();
    let begin = Instant::now();
    let all = stream::iter(0..types).map(|index| bench.kind_of(format!("Kind{index}")));
    all.buffer_unordered(32).collect::<Vec<()>>().await;
    let rate = types as f64 / begin.elapsed().as_secs_f64();
    bench.kind("Disk").await;
    bench.settle().await;
    let memory = bench.memory();
    row("types created, 32 clients", &format!("{rate:.0} /s"), "");
    let each = (memory - before) * 1024.0 / types as f64;
    row(
        &format!("memory of `steer up` with {types} types"),
        &format!("{memory:.1} MiB, {each:.1} KiB a type"),
        "",
    );
    bench.print_latency(&format!("POST to action, {types} types"), AIM, sizes.samples).await;
}

/// What `POST` to action should take.
const AIM: &str = "p50 under 5 ms, p99 under 50 ms";

/// Waits until a count is reached.
async fn reach(what: &str, count: &AtomicU64, goal: u64) {
    let begin = Instant::now();
    while count.load(Ordering::Relaxed) < goal {
        let now = count.load(Ordering::Relaxed);
        assert!(begin.elapsed() < PATIENCE, "gave up waiting for {what}: {now} of {goal}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
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
        let address = support::eventually("the address of the REST API", || {
            let written = fs::read_to_string(up.dir.join("rest")).ok()?;
            (!written.trim().is_empty()).then(|| written.trim().to_owned())
        });
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
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
            // The time in user space and in the kernel, counted from the state behind the name.
            fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
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

    /// The times from `POST` to its answer and to the action, one resource after the other.
    async fn print_latency(&self, what: &str, aim: &str, samples: usize) {
        let (mut answered, mut acted) = (Vec::new(), Vec::new());
        for _ in 0..samples {
            let number = self.counter.fetch_add(1, Ordering::Relaxed);
            let name = format!("sample-{number}");
            let begin = Instant::now();
            self.post("/api/v1/resources", &Self::disk(&name)).await;
            answered.push(begin.elapsed());
            acted.push(self.world.acted(&name).await.duration_since(begin));
            // Each finds an idle operator.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let at = |all: &mut Vec<Duration>, share: f64| {
            all.sort();
            all[((all.len() - 1) as f64 * share).round() as usize].as_secs_f64() * 1000.0
        };
        let figure = format!(
            "p50 {:.1} ms, p99 {:.1} ms (answer: {:.1}, {:.1})",
            at(&mut acted, 0.5),
            at(&mut acted, 0.99),
            at(&mut answered, 0.5),
            at(&mut answered, 0.99)
        );
        row(what, &figure, aim);
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
        let begin = Instant::now();
        loop {
            if let Some((_, at)) = self.disks.lock().unwrap().get(name) {
                return *at;
            }
            assert!(begin.elapsed() < PATIENCE, "gave up waiting for {name}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn wait(&self, count: usize) {
        let begin = Instant::now();
        while self.disks.lock().unwrap().len() < count {
            let now = self.disks.lock().unwrap().len();
            assert!(begin.elapsed() < PATIENCE, "gave up waiting for actions: {now} of {count}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
