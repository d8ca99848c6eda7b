//! How fast one task follows another, and how the cost of a workflow grows with its size.
//!
//! Everything runs in this process: the API server (in memory), the operator, and pods that end
//! after a given time, if they are to end at all. The operator has threads of its own, and what they use is its
//! CPU; its requests are worked on by the threads of the server.
//!
//! `cargo bench -p steersman-observatory --bench workflows -- [largest number of tasks] [part]`
//! with `shapes`, `many`, `restart` or `makespan` as the part, or one shape alone. What it prints are rows for
//! `bench/README.md`; all of it takes about five minutes.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

mod apart;
mod pods;
mod process;
mod shapes;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use serde_json::json;
use steersman::Manager;
use steersman_observatory::{Observatory, Phase, controllers, crd};
use steersman_test::{Cluster, Running};
use tokio::runtime::{Handle, Runtime};

use self::apart::apart;
use self::pods::Pods;
use self::process::{cpu_of_threads, resident_mib};
use self::shapes::{SHAPES, Shape, critical_path, depth, random, workflow};

const SIZES: [usize; 3] = [500, 2000, 10_000];
/// How often a restart is measured.
const RESTARTS: usize = 5;
/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(900);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let largest = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(10_000);
    let parts = ["shapes", "many", "restart", "makespan"];
    let chosen: Vec<&str> =
        parts.into_iter().filter(|part| arguments.iter().any(|one| one == part)).collect();
    let only = SHAPES.into_iter().find(|(name, _)| arguments.iter().any(|one| one == name));
    let wanted = |part: &str| (chosen.is_empty() && only.is_none()) || chosen.contains(&part);
    let server = runtime("server");
    server.block_on(async {
        if let Some(shape) = only {
            shapes(&[shape], largest).await;
        }
        if wanted("shapes") {
            shapes(&SHAPES, largest).await;
        }
        if wanted("many") {
            many(2000.min(largest)).await;
        }
        if wanted("restart") {
            restart(5000.min(largest)).await;
        }
        if wanted("makespan") {
            makespan(1000.min(largest), 20, Duration::from_millis(200)).await;
        }
    });
}

fn runtime(name: &str) -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).thread_name(name).enable_all().build().expect("a runtime")
}

/// A cluster and the operator on it, each with its own threads.
struct World {
    cluster: Cluster,
    threads: Runtime,
    /// Their name; those of an earlier world may still be about to end.
    name: String,
    operator: Running,
}

impl World {
    async fn start() -> Self {
        let cluster = Cluster::start().await;
        cluster.create(&crd()).await;
        let api: kube::Api<Observatory> = kube::Api::all(cluster.client());
        cluster.wait_for("the definition", || async { api.list(&Default::default()).await.ok() }).await;
        static WORLDS: AtomicUsize = AtomicUsize::new(0);
        let name = format!("operator-{}", WORLDS.fetch_add(1, Ordering::Relaxed));
        let threads = runtime(&name);
        let operator = Self::operator(&cluster, &threads);
        Self { cluster, threads, name, operator }
    }

    /// Seconds of CPU that the operator has used.
    fn cpu(&self) -> f64 {
        cpu_of_threads(&self.name)
    }

    fn operator(cluster: &Cluster, threads: &Runtime) -> Running {
        let server = Handle::current();
        let _here = threads.enter();
        let client = cluster.faults().between(&apart(&cluster.client(), &server));
        cluster.run_manager(controllers(Manager::new(client, cluster.options("observatory"))))
    }

    async fn succeeded(&self, name: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.cluster.get::<Observatory>(name).await.and_then(|found| found.status);
            if let Some(status) = found.filter(|status| status.phase().is_over()) {
                assert_eq!(status.phase(), Phase::Succeeded, "{:?}", status.message);
                return;
            }
            assert!(Instant::now() < deadline, "workflow {name} takes longer than {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until the operator has let go of so many pods.
    async fn released(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        let free = |pod: &Pod| pod.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
        while self.cluster.list::<Pod>().await.iter().filter(|pod| free(pod)).count() < count {
            assert!(Instant::now() < deadline, "pods are held for longer than {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn stop(self) {
        self.operator.stop().await;
        self.threads.shutdown_background();
    }

    /// The bound under which a share of the hops stays, in milliseconds.
    fn hop(&self, share: f64) -> f64 {
        let text = self.operator.metrics().encode();
        let prefix = "observatory_dependency_resolution_duration_seconds_bucket{le=\"";
        let buckets: Vec<(f64, f64)> = text
            .lines()
            .filter_map(|line| {
                let (bound, count) = line.strip_prefix(prefix)?.split_once("\"} ")?;
                let bound = bound.parse().unwrap_or(f64::INFINITY);
                Some((bound, count.split(' ').next()?.parse().ok()?))
            })
            .collect();
        let total = buckets.last().map_or(0.0, |(_, count)| *count);
        let found = buckets.iter().find(|(_, count)| *count >= total * share);
        found.map_or(f64::NAN, |(bound, _)| bound * 1000.0)
    }
}

async fn shapes(chosen: &[(&str, Shape)], largest: usize) {
    println!("| shape | tasks | hop p50 | p99 | writes a task | operator CPU a task | memory | wall |");
    println!("|---|---|---|---|---|---|---|---|");
    let mut growth = Vec::new();
    for (name, shape) in chosen {
        let mut points = Vec::new();
        for tasks in SIZES.into_iter().filter(|size| *size <= largest) {
            points.push(measure(name, &shape(tasks)).await);
        }
        if points.len() > 1 {
            growth.push(format!("{name} n^{:.2}", exponent(&points)));
        }
    }
    println!();
    if !growth.is_empty() {
        println!("| operator CPU grows as | {} |", growth.join(", "));
    }
}

/// Runs one workflow; returns its number of tasks and the operator's seconds of CPU.
async fn measure(name: &str, graph: &[Vec<usize>]) -> (f64, f64) {
    let memory = resident_mib();
    let world = World::start().await;
    // Many at once that end at once would measure how long their queue is.
    let length = if name == "chain" { Duration::ZERO } else { Duration::from_millis(250) };
    let _pods = Pods::ending_after(&world.cluster, length).await;
    let (began, before) = (Instant::now(), world.cpu());
    world.cluster.create_json::<Observatory>(workflow("w", graph, 50)).await;
    world.succeeded("w").await;
    let wall = began.elapsed().as_secs_f64();
    world.released(graph.len()).await;
    let cpu = world.cpu() - before;
    let tasks = graph.len() as f64;
    println!(
        "| {name} | {} | {} ms | {} ms | {:.2} | {:.2} ms | {:.0} MiB | {wall:.1} s |",
        graph.len(),
        world.hop(0.5),
        world.hop(0.99),
        world.cluster.faults().writes() as f64 / tasks,
        cpu * 1000.0 / tasks,
        resident_mib() - memory,
    );
    world.stop().await;
    (tasks, cpu)
}

/// The slope of a line through the points, both axes logarithmic.
fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len() as f64;
    let (mean_x, mean_y) = (
        logs.iter().map(|log| log.0).sum::<f64>() / count,
        logs.iter().map(|log| log.1).sum::<f64>() / count,
    );
    let products: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let squares: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    products / squares
}

/// Many workflows of one task, submitted at once.
async fn many(count: usize) {
    let world = World::start().await;
    let _pods = Pods::ending_after(&world.cluster, Duration::ZERO).await;
    let api: kube::Api<Observatory> = kube::Api::namespaced(world.cluster.client(), "default");
    let (began, before) = (Instant::now(), world.cpu());
    let submitted = futures::stream::iter(0..count).map(|number| {
        let api = &api;
        let one = serde_json::from_value(workflow(&format!("w{number}"), &[Vec::new()], 1));
        async move { api.create(&PostParams::default(), &one.expect("an Observatory")).await }
    });
    submitted.buffer_unordered(32).for_each(|result| async { drop(result.expect("it is taken")) }).await;
    let deadline = began + PATIENCE;
    loop {
        let found = world.operator.cache().view::<Observatory>().list();
        let over = |one: &Observatory| one.status.as_ref().is_some_and(|status| status.phase().is_over());
        if found.iter().filter(|one| over(one)).count() == count {
            break;
        }
        assert!(Instant::now() < deadline, "the workflows take longer than {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (wall, cpu) = (began.elapsed().as_secs_f64(), world.cpu() - before);
    println!(
        "| {count} workflows of one task at once | {wall:.1} s: {:.0} a minute, {:.2} ms of operator CPU and {:.2} writes each |",
        count as f64 * 60.0 / wall,
        cpu * 1000.0 / count as f64,
        world.cluster.faults().writes() as f64 / count as f64,
    );
    world.stop().await;
}

/// How long a new operator takes to go on with a workflow of which so many tasks run.
async fn restart(count: usize) {
    let world = World::start().await;
    let _pods = Pods::running(&world.cluster).await;
    let mut graph = vec![Vec::new(); count];
    graph.extend((0..RESTARTS).map(|round| vec![round]));
    world.cluster.create_json::<Observatory>(workflow("w", &graph, count + RESTARTS)).await;
    let running = |pod: &Pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Running"));
    let deadline = Instant::now() + PATIENCE;
    while world.cluster.list::<Pod>().await.iter().filter(|pod| running(pod)).count() < count {
        assert!(Instant::now() < deadline, "the pods take longer than {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let mut world = world;
    let mut times = Vec::new();
    for round in 0..RESTARTS {
        let World { cluster, threads, name, operator } = world;
        operator.kill().await;
        let end = json!({"status": {"phase": "Succeeded"}});
        cluster.patch_status::<Pod>(&format!("w-t{round}"), end).await;
        let began = Instant::now();
        let operator = World::operator(&cluster, &threads);
        let next = format!("w-t{}", count + round);
        while cluster.get::<Pod>(&next).await.is_none() {
            assert!(began.elapsed() < PATIENCE, "the restart takes longer than {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        times.push(began.elapsed().as_secs_f64());
        world = World { cluster, threads, name, operator };
    }
    let shown: Vec<String> = times.iter().map(|time| format!("{time:.2}")).collect();
    println!(
        "| {RESTARTS} restarts with {count} tasks that run | the next task starts after {} s |",
        shown.join(", ")
    );
    world.stop().await;
}

/// How long a workflow takes, beside what no schedule can beat and what a greedy one without delays
/// never exceeds.
async fn makespan(tasks: usize, at_once: usize, length: Duration) {
    let world = World::start().await;
    let _pods = Pods::ending_after(&world.cluster, length).await;
    let graph = random(tasks);
    world.cluster.create_json::<Observatory>(workflow("warm-up", &[Vec::new()], 1)).await;
    world.succeeded("warm-up").await;
    let began = Instant::now();
    world.cluster.create_json::<Observatory>(workflow("w", &graph, at_once)).await;
    world.succeeded("w").await;
    let took = began.elapsed().as_secs_f64();
    let lengths: Vec<f64> =
        (0..tasks).map(|task| pods::about(length, &format!("w-t{task}")).as_secs_f64()).collect();
    let (work, machines) = (lengths.iter().sum::<f64>(), at_once as f64);
    let critical = critical_path(&graph, &lengths);
    let graham = work / machines + (1.0 - 1.0 / machines) * critical;
    let allowed = graham + depth(&graph) * world.hop(0.99) / 1000.0;
    println!(
        "| makespan of {tasks} tasks of about {length:?}, {at_once} at once | {took:.2} s; no schedule beats {:.2} s, Graham's bound is {graham:.2} s, with hops {allowed:.2} s |",
        critical.max(work / machines),
    );
    world.stop().await;
}
