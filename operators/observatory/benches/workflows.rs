//! How fast one task follows another, and how the cost of a workflow grows with its size.
//!
//! Everything runs in this process: the API server (in memory), the operator and pods that end as
//! soon as they have started. So CPU and memory are those of all three.
//!
//! `cargo bench -p steersman-observatory --bench workflows -- [largest number of tasks]`
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use steersman_observatory::{Observatory, Phase, controllers, crd};
use steersman_test::{Cluster, Running};

type Shape = fn(usize) -> Vec<Vec<usize>>;

const SHAPES: [(&str, Shape); 4] = [
    ("chain", |n| (0..n).map(|task| task.checked_sub(1).into_iter().collect()).collect()),
    ("fan", |n| {
        let inner = 1..n - 1;
        (0..n)
            .map(|task| match task {
                0 => Vec::new(),
                _ if task == n - 1 => inner.clone().collect(),
                _ => vec![0],
            })
            .collect()
    }),
    ("lattice", |n| {
        let side = n.isqrt();
        (0..side * side)
            .map(|task| {
                let left = (task % side > 0).then(|| task - 1);
                left.into_iter().chain(task.checked_sub(side)).collect()
            })
            .collect()
    }),
    ("random", |n| {
        let mut state = 42u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        (0..n)
            .map(|task| {
                let mut above: Vec<usize> = (0..3.min(task)).map(|_| random(task)).collect();
                above.sort_unstable();
                above.dedup();
                above
            })
            .collect()
    }),
];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let largest = std::env::args().filter_map(|arg| arg.parse::<usize>().ok()).next().unwrap_or(2000);
    println!("shape     tasks   wall s    CPU s  tasks/s  writes/task  hop p50 ms  hop p99 ms  RSS MiB");
    for (name, shape) in SHAPES {
        let mut points = Vec::new();
        let mut tasks = 500;
        while tasks <= largest {
            points.push(measure(name, &shape(tasks)).await);
            tasks *= 2;
        }
        if let (Some(first), Some(last)) = (points.first(), points.last())
            && points.len() > 1
        {
            let exponent = (last.1 / first.1).ln() / (last.0 / first.0).ln();
            println!("{name}: CPU grows as n^{exponent:.2}");
        }
    }
}

/// Runs one workflow; returns its number of tasks and the seconds of CPU.
async fn measure(name: &str, dependencies: &[Vec<usize>]) -> (f64, f64) {
    let cluster = Cluster::start().await;
    cluster.create(&crd()).await;
    let api: kube::Api<Observatory> = kube::Api::all(cluster.client());
    cluster.wait_for("the definition", || async { api.list(&Default::default()).await.ok() }).await;
    cluster.pods().schedule_all().succeed("", Duration::ZERO);
    let operator = cluster.run_manager(controllers(cluster.manager(cluster.options("observatory"))));
    let tasks: Vec<Value> = dependencies
        .iter()
        .enumerate()
        .map(|(task, above)| {
            let above: Vec<String> = above.iter().map(|other| format!("t{other}")).collect();
            json!({"name": format!("t{task}"), "image": "i", "dependencies": above})
        })
        .collect();
    let (count, began, before) = (tasks.len(), Instant::now(), cpu_seconds());
    cluster
        .create_json::<Observatory>(json!({
            "apiVersion": "workflow.seventh-horizon.io/v1alpha1", "kind": "Observatory",
            "metadata": {"name": "w"}, "spec": {"tasks": tasks, "maxConcurrent": 100},
        }))
        .await;
    let status = loop {
        let found = cluster.get::<Observatory>("w").await.and_then(|found| found.status);
        if let Some(status) = found.filter(|status| status.phase().is_over()) {
            break status;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    assert_eq!(status.phase(), Phase::Succeeded);
    let (wall, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - before);
    let size = count as f64;
    println!(
        "{name:<8} {count:>6} {wall:>8.1} {cpu:>8.1} {:>8.0} {:>12.2} {:>11} {:>11} {:>8.0}",
        size / wall,
        cluster.faults().writes() as f64 / size,
        quantile(&operator, 0.5),
        quantile(&operator, 0.99),
        resident_mib(),
    );
    operator.stop().await;
    (size, cpu)
}

/// The upper bound of the bucket in which a share of the hops ends, in milliseconds.
fn quantile(operator: &Running, share: f64) -> String {
    let text = operator.metrics().encode();
    let prefix = "observatory_dependency_resolution_duration_seconds_bucket{le=\"";
    let buckets: Vec<(String, f64)> = text
        .lines()
        .filter_map(|line| {
            let (bound, count) = line.strip_prefix(prefix)?.split_once("\"} ")?;
            Some((bound.to_owned(), count.split(' ').next()?.parse().ok()?))
        })
        .collect();
    let total = buckets.last().map_or(0.0, |(_, count)| *count);
    let found = buckets.iter().find(|(_, count)| *count >= total * share);
    match found.and_then(|(bound, _)| bound.parse::<f64>().ok()) {
        Some(bound) if bound.is_finite() => format!("≤ {:.1}", bound * 1000.0),
        _ => "-".to_owned(),
    }
}

fn cpu_seconds() -> f64 {
    const TICKS: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / TICKS
}

fn resident_mib() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}
