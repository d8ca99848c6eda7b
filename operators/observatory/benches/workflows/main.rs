//! How fast one task follows another, and how the cost of a workflow grows with its size.
//!
//! Everything runs in this process: the API server (in memory), the operator, and pods that end
//! after a given time, if they are to end at all. The operator has threads of its own; what they use is its CPU,
//! together with the API server's work for its requests, which are function calls here.
//!
//! `cargo bench -p steersman-observatory --bench workflows -- [largest number of tasks] [part]`
//! with `shapes`, `many`, `restart` or `makespan` as the part.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

mod pods;
mod process;
mod shapes;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use serde_json::json;
use steersman_observatory::{Observatory, Phase, controllers, crd};
use steersman_test::{Cluster, Running};
use tokio::runtime::Runtime;

use self::pods::Pods;
use self::process::{cpu_of_threads, resident_mib};
use self::shapes::{SHAPES, critical_path, depth, random, workflow};

const SIZES: [usize; 5] = [500, 1000, 2000, 5000, 10_000];
/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(900);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let largest = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(10_000);
    let parts = ["shapes", "many", "restart", "makespan"];
    let chosen: Vec<&str> =
        parts.into_iter().filter(|part| arguments.iter().any(|one| one == part)).collect();
    let wanted = |part: &str| chosen.is_empty() || chosen.contains(&part);
    let server = runtime("server");
    server.block_on(async {
        if wanted("shapes") {
            all_shapes(largest).await;
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
        let _here = threads.enter();
        cluster.run_manager(controllers(cluster.manager(cluster.options("observatory"))))
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

async fn all_shapes(largest: usize) {
    println!("shape     tasks   wall s  operator CPU s  ms/task  writes/task  hop p50 ms  p99 ms  MiB more");
    for (name, shape) in SHAPES {
        let mut points = Vec::new();
        for tasks in SIZES.into_iter().filter(|size| *size <= largest) {
            points.push(measure(name, &shape(tasks)).await);
        }
        if points.len() > 1 {
            println!("{name:<8} operator CPU grows as n^{:.2}", exponent(&points));
        }
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
        "{name:<8} {:>6} {wall:>8.1} {cpu:>15.2} {:>8.2} {:>12.2} {:>11.1} {:>7.1} {:>9.0}",
        graph.len(),
        cpu * 1000.0 / tasks,
        world.cluster.faults().writes() as f64 / tasks,
        world.hop(0.5),
        world.hop(0.99),
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
        "{count} workflows of one task: {wall:.1} s, {:.0} a minute, {:.2} ms of operator CPU and {:.2} writes each",
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
    graph.push(vec![0]);
    world.cluster.create_json::<Observatory>(workflow("w", &graph, count + 1)).await;
    let running = |pod: &Pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Running"));
    let deadline = Instant::now() + PATIENCE;
    while world.cluster.list::<Pod>().await.iter().filter(|pod| running(pod)).count() < count {
        assert!(Instant::now() < deadline, "the pods take longer than {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let World { cluster, threads, name, operator } = world;
    operator.kill().await;
    let end = json!({"status": {"phase": "Succeeded"}});
    cluster.patch_status::<Pod>("w-t0", end).await;
    let began = Instant::now();
    let operator = World::operator(&cluster, &threads);
    let next = format!("w-t{count}");
    while cluster.get::<Pod>(&next).await.is_none() {
        assert!(began.elapsed() < PATIENCE, "the restart takes longer than {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!(
        "restart with {count} tasks that run: the next starts after {:.3} s",
        began.elapsed().as_secs_f64()
    );
    World { cluster, threads, name, operator }.stop().await;
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
        "{tasks} tasks of about {length:?}, {at_once} at once: {took:.2} s; no schedule beats {:.2} s, Graham's bound is {graham:.2} s, with hops {allowed:.2} s",
        critical.max(work / machines),
    );
    world.stop().await;
}
