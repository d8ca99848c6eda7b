//! Our control plane beside the real one, on this machine, in one run; then ours with many objects.
//!
//! `make bench` runs all of it; `-- beside` and `-- many` a part. Figures go into `bench/README.md` with the
//! command that made them.

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
use support::usage::{busy, cpu_seconds, peak_kib, resident_kib};

/// Clients at a time, and how many objects they create; 5,000 in all.
const CREATES: [(usize, usize); 3] = [(1, 200), (8, 800), (32, 4_000)];
const GETS: usize = 8_000;
const LISTED: usize = 5_000;
const WATCHERS: usize = 100;
const FAN_OUT: usize = 320;
const DELIVERIES: usize = 400;
const IDLE: Duration = Duration::from_secs(10);
const MANY: usize = 100_000;
/// Watchers that want something else.
const STRANGERS: usize = 1_000;

/// What is better.
#[derive(Clone, Copy)]
enum Better {
    More,
    Less,
}

/// One figure of a control plane.
struct Figure {
    what: String,
    value: f64,
    unit: &'static str,
    better: Better,
    /// The ratio to the other that is aimed at.
    aim: Option<f64>,
}

impl Figure {
    fn less(what: impl Into<String>, value: f64, unit: &'static str, aim: Option<f64>) -> Self {
        Self { what: what.into(), value, unit, better: Better::Less, aim }
    }

    fn more(what: impl Into<String>, value: f64, unit: &'static str, aim: Option<f64>) -> Self {
        Self { what: what.into(), value, unit, better: Better::More, aim }
    }
}

#[tokio::main]
async fn main() {
    // `cargo test --benches` runs every target once; a benchmark has nothing to show there.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let only = |part: &str| {
        let named = |name: &str| std::env::args().any(|argument| argument == name);
        named(part) || !(named("beside") || named("many"))
    };
    let folder = tempfile::tempdir().unwrap();
    if only("beside") {
        beside(folder.path()).await;
    }
    if only("many") {
        many(&folder.path().join("many")).await;
    }
}

/// Both control planes, one after the other.
async fn beside(folder: &Path) {
    let ours = ours(&folder.join("state")).await;
    let theirs = match xtask::parts::kubernetes() {
        Ok(kubernetes) => {
            let client = support::client(kubernetes.kubeconfig()).await;
            measure(kubernetes.start_time(), &kubernetes.pids(), &client).await
        }
        Err(missing) => {
            println!("the real control plane was not measured: {missing}");
            Vec::new()
        }
    };
    println!("| | `steer up` | Kubernetes | ratio | aim |\n|---|---|---|---|---|");
    for (at, Figure { what, value, unit, better, aim }) in ours.iter().enumerate() {
        let (mut other, mut ratio, mut aimed) = (String::new(), String::new(), String::new());
        if let Some(theirs) = theirs.get(at) {
            let times = match better {
                Better::More => value / theirs.value,
                Better::Less => theirs.value / value,
            };
            other = format!("{:.1} {unit}", theirs.value);
            ratio = format!("{times:.1} x");
            if let Some(aim) = aim {
                aimed = format!("{aim} x{}", if times < *aim { ": **missed**" } else { "" });
            }
        }
        println!("| {what} | {value:.1} {unit} | {other} | {ratio} | {aimed} |");
    }
}

async fn ours(dir: &Path) -> Vec<Figure> {
    // Once for certificates and database, then again: people start it more than once.
    support::Up::start(dir).stop();
    let (up, client, start) = started(dir).await;
    let figures = measure(start, &[u32::try_from(up.pid().as_raw()).unwrap()], &client).await;
    up.stop();
    figures
}

async fn started(dir: &Path) -> (support::Up, Client, Duration) {
    let begin = Instant::now();
    let up = support::Up::start(dir);
    let client = support::client(&up.kubeconfig()).await;
    loop {
        let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
        if client.request_text(request).await.is_ok() {
            return (up, client, begin.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn measure(start: Duration, pids: &[u32], client: &Client) -> Vec<Figure> {
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (cpu, begin) = (cpu_seconds(pids), Instant::now());
    tokio::time::sleep(IDLE).await;
    let idle = (cpu_seconds(pids) - cpu) / begin.elapsed().as_secs_f64() * 100.0;
    let memory: u64 = pids.iter().map(|pid| resident_kib(*pid)).sum();
    let mut figures = vec![
        Figure::less("start to ready", start.as_secs_f64() * 1e3, "ms", Some(20.0)),
        Figure::less("memory, idle", memory as f64 / 1024.0, "MiB", Some(6.0)),
        Figure::less("processor, idle", idle, "% of a core", None),
    ];
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    for ((clients, count), aim) in CREATES.into_iter().zip([1.5, 3.0, 3.0]) {
        let (used, begin) = (busy(pids), Instant::now());
        create_all(&maps, &format!("map-{clients}"), count, clients).await;
        let rate = count as f64 / begin.elapsed().as_secs_f64();
        let each = micros(busy(pids) - used) / count as f64;
        let what = if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
        figures.push(Figure::more(format!("durable creates, {what}"), rate, "/s", Some(aim)));
        figures.push(Figure::less(format!("processor per create, {what}"), each, "µs", None));
    }
    figures.extend(gets(client, pids).await);
    figures.extend(lists(client, pids).await);
    figures.extend(fan_out(client, pids, &maps).await);
    figures.push(deliveries(client, &maps).await);
    figures
}

/// Reads of one object each.
async fn gets(client: &Client, pids: &[u32]) -> [Figure; 2] {
    const CLIENTS: usize = 8;
    let (used, begin) = (busy(pids), Instant::now());
    let readers = (0..CLIENTS).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            for number in 0..GETS / CLIENTS {
                let path = format!("/api/v1/namespaces/default/configmaps/map-1-0-{}", number % 200);
                let request = http::Request::get(path).body(Vec::new()).unwrap();
                assert!(client.request_text(request).await.unwrap().len() > 1000);
            }
        })
    });
    for reader in join_all(readers).await {
        reader.unwrap();
    }
    let rate = GETS as f64 / begin.elapsed().as_secs_f64();
    let each = micros(busy(pids) - used) / GETS as f64;
    [
        Figure::more(format!("GET, {CLIENTS} clients"), rate, "/s", Some(5.0)),
        Figure::less("processor per GET", each, "µs", Some(5.0)),
    ]
}

/// Lists of all objects in one answer, which is only read.
async fn lists(client: &Client, pids: &[u32]) -> [Figure; 2] {
    const ROUNDS: usize = 9;
    let mut times = Vec::new();
    let used = busy(pids);
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let size = read(client, "/api/v1/namespaces/default/configmaps").await;
        assert!(size > LISTED * 1000, "{size} bytes are too few for {LISTED} objects");
        times.push(begin.elapsed());
    }
    let each = micros(busy(pids) - used) / 1e3 / ROUNDS as f64;
    times.sort();
    let median = times[ROUNDS / 2].as_secs_f64() * 1e3;
    [
        Figure::less(format!("list of {LISTED} objects"), median, "ms", Some(5.0)),
        Figure::less("processor per such list", each, "ms", Some(5.0)),
    ]
}

/// How many bytes an answer has.
async fn read(client: &Client, path: &str) -> usize {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    let mut answer = pin!(client.request_stream(request).await.unwrap());
    let (mut size, mut buffer) = (0, vec![0; 256 << 10]);
    loop {
        match answer.read(&mut buffer).await.unwrap() {
            0 => return size,
            read => size += read,
        }
    }
}

async fn watch(client: &Client, path: &str, version: &str) -> impl futures::AsyncRead + use<> {
    let path = format!("{path}?watch=true&resourceVersion={version}");
    client.request_stream(http::Request::get(&path).body(Vec::new()).unwrap()).await.unwrap()
}

async fn version(maps: &Api<ConfigMap>) -> String {
    let list = maps.list(&ListParams::default().limit(1)).await.unwrap();
    list.metadata.resource_version.unwrap()
}

/// Events per second that arrive at many watchers of the same resource.
///
/// Watchers only count lines, so that the server is measured and not the client's decoding; what is left of the
/// client's part is the same for both servers, so the server's processor time is told beside.
async fn fan_out(client: &Client, pids: &[u32], maps: &Api<ConfigMap>) -> [Figure; 2] {
    let version = version(maps).await;
    let watchers =
        join_all((0..WATCHERS).map(|_| watch(client, "/api/v1/namespaces/default/configmaps", &version)))
            .await;
    let (used, begin) = (busy(pids), Instant::now());
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
    create_all(maps, "fan", FAN_OUT, 32).await;
    for reader in readers {
        reader.await.unwrap();
    }
    let events = (WATCHERS * FAN_OUT) as f64;
    let rate = events / begin.elapsed().as_secs_f64();
    let each = micros(busy(pids) - used) / events;
    [
        Figure::more(format!("watch fan-out to {WATCHERS} watchers"), rate, "events/s", Some(5.0)),
        Figure::less("processor per event and watcher, creates included", each, "µs", Some(5.0)),
    ]
}

/// From sending a create to its event, one after the other.
async fn deliveries(client: &Client, maps: &Api<ConfigMap>) -> Figure {
    let version = version(maps).await;
    let mut watcher = pin!(watch(client, "/api/v1/namespaces/default/configmaps", &version).await);
    let (mut times, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    for number in 0..DELIVERIES {
        let map = config_map(&format!("delivered-{number}"));
        let (begin, parameters) = (Instant::now(), PostParams::default());
        let create = maps.create(&parameters, &map);
        let arrives = async {
            loop {
                let read = watcher.read(&mut buffer).await.unwrap();
                assert!(read > 0, "the watch ended early");
                if buffer[..read].contains(&b'\n') {
                    return begin.elapsed();
                }
            }
        };
        let (created, arrived) = futures::join!(create, arrives);
        created.unwrap();
        times.push(arrived);
    }
    times.sort();
    let p99 = times[DELIVERIES * 99 / 100].as_secs_f64() * 1e3;
    Figure::less("create sent to watch event, p99", p99, "ms", Some(1.0))
}

/// Ours with a hundred thousand objects.
async fn many(dir: &Path) {
    let (up, client, _) = started(dir).await;
    let pid = |up: &support::Up| u32::try_from(up.pid().as_raw()).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let cost = async |up: &support::Up, client: &Client, prefix: &str| {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        create_all(&maps, &format!("{prefix}-warm"), 500, 1).await;
        let used = busy(&[pid(up)]);
        create_all(&maps, prefix, 1_000, 1).await;
        micros(busy(&[pid(up)]) - used) / 1e3
    };
    let few = cost(&up, &client, "few").await;
    let empty = resident_kib(pid(&up));
    let begin = Instant::now();
    create_all(&maps, "many", MANY, 32).await;
    let rate = MANY as f64 / begin.elapsed().as_secs_f64();
    let size = read(&client, "/api/v1/namespaces/default/configmaps").await;
    let filled = resident_kib(pid(&up));
    up.stop();

    let (up, client, restart) = started(dir).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (restarted, peak) = (resident_kib(pid(&up)), peak_kib(pid(&up)));
    let begin = Instant::now();
    read(&client, "/api/v1/namespaces/default/configmaps").await;
    let (listed, second) = (begin.elapsed(), peak_kib(pid(&up)).saturating_sub(peak.max(restarted)));
    let full = cost(&up, &client, "full").await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let version = version(&maps).await;
    let mut strangers = Vec::new();
    for _ in 0..STRANGERS / 50 {
        let some = (0..50).map(|_| watch(&client, "/api/v1/namespaces/kube-system/secrets", &version));
        strangers.extend(join_all(some).await);
    }
    let watched = cost(&up, &client, "watched").await;
    drop(strangers);
    up.stop();

    let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
    let times = |kib: u64| kib as f64 * 1024.0 / size as f64;
    println!("\n| {MANY} objects | | aim |\n|---|---|---|");
    println!("| their JSON | {:.1} MiB | |", mib(size));
    println!("| creates, 32 clients | {rate:.0} /s | |");
    println!(
        "| memory more than before, after the creates | {:.2} x their JSON | 1.5 x |",
        times(filled - empty)
    );
    println!("| memory in all, after a restart | {:.2} x their JSON | 1.5 x |", times(restarted));
    println!("| restart to ready | {:.2} s | 3 s |", restart.as_secs_f64());
    println!("| list of all | {:.0} ms | |", listed.as_secs_f64() * 1e3);
    println!("| more memory at the peak of that list | {:.2} x their JSON | no second copy |", times(second));
    println!("| processor per create with 1,500 objects | {few:.0} µs | |");
    println!("| the same with {MANY} | {full:.0} µs | does not grow |");
    println!(
        "| the same with {STRANGERS} watchers of something else too | {watched:.0} µs | does not grow |"
    );
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
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
