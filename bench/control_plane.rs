//! Our control plane beside the real one, on this machine, in one run.
//!
//! `make bench` runs it. Figures go into `bench/README.md` with the command that made them.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::{
    path::Path,
    pin::pin,
    time::{Duration, Instant},
};

use futures::{AsyncReadExt as _, future::join_all};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use serde_json::json;
use support::usage::{cpu_seconds, resident_kib};

const CLIENTS: usize = 32;
const CREATES: usize = 3_200;
const WATCHERS: usize = 100;
const FAN_OUT: usize = 320;
const IDLE: Duration = Duration::from_secs(10);

/// What was measured of one control plane.
struct Figures {
    start: Duration,
    memory: u64,
    idle_cpu: f64,
    creates: f64,
    list: Duration,
    fan_out: f64,
}

#[tokio::main]
async fn main() {
    // `cargo test --benches` runs every target once; a benchmark has nothing to show there.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let ours = ours(folder.path()).await;
    print("steer up (everything: API server, controllers, node, operator)", &ours);
    match xtask::parts::kubernetes() {
        Ok(kubernetes) => {
            let theirs = measure(
                kubernetes.start_time(),
                &kubernetes.pids(),
                &support::client(kubernetes.kubeconfig()).await,
            )
            .await;
            print("etcd, kube-apiserver, kube-controller-manager, kube-scheduler", &theirs);
            println!("\nratios (theirs to ours; more is better for us)");
            let seconds = |d: Duration| d.as_secs_f64();
            for (what, ratio) in [
                ("start to ready", seconds(theirs.start) / seconds(ours.start)),
                ("memory, idle", theirs.memory as f64 / ours.memory as f64),
                ("durable creates/s", ours.creates / theirs.creates),
                ("list", seconds(theirs.list) / seconds(ours.list)),
                ("watch fan-out", ours.fan_out / theirs.fan_out),
            ] {
                println!("  {what:<22} {ratio:>8.1} x");
            }
        }
        Err(missing) => println!("the real control plane was not measured: {missing}"),
    }
}

async fn ours(folder: &Path) -> Figures {
    let dir = folder.join("state");
    // Once for certificates and database, then again: people start it more than once.
    support::Up::start(&dir).stop();
    let begin = Instant::now();
    let up = support::Up::start(&dir);
    let client = support::client(&up.kubeconfig()).await;
    ready(&client).await;
    let start = begin.elapsed();
    let figures = measure(start, &[u32::try_from(up.pid().as_raw()).unwrap()], &client).await;
    up.stop();
    figures
}

async fn ready(client: &Client) {
    loop {
        let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
        if client.request_text(request).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn measure(start: Duration, pids: &[u32], client: &Client) -> Figures {
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (cpu, begin) = (cpu_seconds(pids), Instant::now());
    tokio::time::sleep(IDLE).await;
    let idle_cpu = (cpu_seconds(pids) - cpu) / begin.elapsed().as_secs_f64() * 100.0;
    let memory = pids.iter().map(|pid| resident_kib(*pid)).sum();

    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let begin = Instant::now();
    create_all(&maps, "map", CREATES, CLIENTS).await;
    let creates = CREATES as f64 / begin.elapsed().as_secs_f64();

    let mut lists = Vec::new();
    for _ in 0..5 {
        let begin = Instant::now();
        let request = http::Request::get("/api/v1/namespaces/default/configmaps").body(Vec::new()).unwrap();
        let text = client.request_text(request).await.unwrap();
        assert!(text.len() > CREATES * 100);
        lists.push(begin.elapsed());
    }
    lists.sort();
    Figures { start, memory, idle_cpu, creates, list: lists[2], fan_out: fan_out(client, &maps).await }
}

/// Events per second that arrive at many watchers of the same resource.
///
/// Watchers only count lines, so that the server is measured and not the client's decoding.
async fn fan_out(client: &Client, maps: &Api<ConfigMap>) -> f64 {
    let list = maps.list(&ListParams::default().limit(1)).await.unwrap();
    let version = list.metadata.resource_version.unwrap();
    let path = format!("/api/v1/namespaces/default/configmaps?watch=true&resourceVersion={version}");
    let watchers = join_all((0..WATCHERS).map(|_| {
        let request = http::Request::get(&path).body(Vec::new()).unwrap();
        async move { client.request_stream(request).await.unwrap() }
    }))
    .await;
    let begin = Instant::now();
    let readers: Vec<_> = watchers
        .into_iter()
        .map(|watcher| {
            tokio::spawn(async move {
                let mut watcher = pin!(watcher);
                let (mut seen, mut buffer) = (0, vec![0; 64 << 10]);
                while seen < FAN_OUT {
                    let read = watcher.read(&mut buffer).await.unwrap();
                    assert!(read > 0, "the watch ended early");
                    seen += buffer[..read].iter().filter(|byte| **byte == b'\n').count();
                }
            })
        })
        .collect();
    create_all(maps, "fan", FAN_OUT, CLIENTS).await;
    for reader in readers {
        reader.await.unwrap();
    }
    (WATCHERS * FAN_OUT) as f64 / begin.elapsed().as_secs_f64()
}

/// Creates objects from many clients at once.
async fn create_all(maps: &Api<ConfigMap>, prefix: &str, count: usize, clients: usize) {
    let writers = (0..clients).map(|writer| {
        let (maps, prefix) = (maps.clone(), prefix.to_owned());
        tokio::spawn(async move {
            for number in 0..count / clients {
                let map = config_map(&format!("{prefix}-{writer}-{number}"));
                maps.create(&PostParams::default(), &map).await.unwrap();
            }
        })
    });
    for writer in join_all(writers).await {
        writer.unwrap();
    }
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(
        json!({"metadata": {"name": name, "labels": {"bench": "yes"}}, "data": {"key": "x".repeat(1000)}}),
    )
    .unwrap()
}

fn print(what: &str, figures: &Figures) {
    println!("\n{what}");
    println!("  start to ready         {:>8.3} s", figures.start.as_secs_f64());
    println!("  memory, idle           {:>8.1} MiB", figures.memory as f64 / 1024.0);
    println!("  CPU, idle              {:>8.2} % of a core", figures.idle_cpu);
    println!("  durable creates        {:>8.0} /s with {CLIENTS} clients", figures.creates);
    println!("  list {CREATES} objects      {:>8.1} ms", figures.list.as_secs_f64() * 1e3);
    println!("  watch fan-out          {:>8.0} events/s to {WATCHERS} watchers", figures.fan_out);
}
