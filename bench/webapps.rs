//! A thousand WebApps at once: how long until all are ready, and what that costs.
//!
//! `cargo bench --package steersman-steer --bench webapps`. Figures go into `bench/README.md`.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use futures::future::join_all;
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use serde_json::json;
use steersman_webapp::{Phase, WebApp};
use support::{
    Up,
    usage::{cpu_seconds, resident_kib},
};
use xtask::parts::{Kubernetes, KubernetesOptions};

const WEBAPPS: usize = 1_000;
const CLIENTS: usize = 32;
const PATIENCE: Duration = Duration::from_secs(300);

#[tokio::main]
async fn main() {
    // `cargo test --benches` runs every target once; a benchmark has nothing to show there.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    println!("| {WEBAPPS} WebApps at once | |\n|---|---|");
    everything(folder.path()).await;
    let options =
        KubernetesOptions { controller_manager: false, scheduler: false, ..KubernetesOptions::default() };
    match Kubernetes::start(&options) {
        Ok(kubernetes) => operator_alone(folder.path(), &kubernetes).await,
        Err(missing) => println!("the operator beside a real API server was not measured: {missing}"),
    }
}

/// `steer up`, whose pods do nothing: API server on disk, controllers, node and operators in one process.
async fn everything(folder: &Path) {
    let up = Up::start_with(&folder.join("state"), &["--runtime", "fake", "--max-pods", "2000"]);
    let client = support::client(&up.kubeconfig()).await;
    let pid = u32::try_from(up.pid().as_raw()).unwrap();
    let (cpu, memory, begin) = (cpu_seconds(&[pid]), resident_kib(pid), Instant::now());
    create_all(&client).await;
    let created = begin.elapsed();
    wait(&client, |webapp| phase(webapp) == Some(Phase::Ready)).await;
    row("`steer up`: all created, 32 clients", &format!("{:.2} s", created.as_secs_f64()));
    row("`steer up`: all Ready, from the first create", &format!("{:.2} s", begin.elapsed().as_secs_f64()));
    row("`steer up`: processor time of everything, each", &per_webapp(cpu_seconds(&[pid]) - cpu));
    row("`steer up`: memory of everything, before and after", &memories(memory, resident_kib(pid)));
    let address = metrics_of(&up.log(), "http://", "/metrics");
    let (owned, status) = writes(&http_get(&address).await);
    row("`steer up`: writes of the operator, each", &writes_row(owned, status));
    up.stop();
}

/// The operator in a process of its own. Nobody runs its Deployments: it declares them and says so.
async fn operator_alone(folder: &Path, kubernetes: &Kubernetes) {
    let client = support::client(kubernetes.kubeconfig()).await;
    let log = folder.join("operator.log");
    let file = fs::File::create(&log).unwrap();
    let operator = Command::new(support::steer())
        .args(["run", "webapp", "--install-crds", "--kubeconfig"])
        .arg(kubernetes.kubeconfig())
        .args(["--metrics-address", "127.0.0.1:0", "--health-address", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    let operator = Ended(operator);
    let pid = operator.0.id();
    support::eventually("the operator leads", || {
        fs::read_to_string(&log).unwrap_or_default().contains("leading").then_some(())
    });
    let (cpu, memory, begin) = (cpu_seconds(&[pid]), resident_kib(pid), Instant::now());
    create_all(&client).await;
    wait(&client, |webapp| phase(webapp) == Some(Phase::Reconciling)).await;
    row("operator alone, kube-apiserver: all declared", &format!("{:.2} s", begin.elapsed().as_secs_f64()));
    row("operator alone: processor time, each", &per_webapp(cpu_seconds(&[pid]) - cpu));
    row("operator alone: memory, before and after", &memories(memory, resident_kib(pid)));
    let address = metrics_of(&fs::read_to_string(&log).unwrap(), "metrics=\"", "\"");
    let (owned, status) = writes(&http_get(&address).await);
    row("operator alone: writes, each", &writes_row(owned, status));
}

/// Killed when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn create_all(client: &Client) {
    let api: Api<WebApp> = Api::namespaced(client.clone(), "default");
    let writers = (0..CLIENTS).map(|writer| {
        let api = api.clone();
        tokio::spawn(async move {
            for number in (writer..WEBAPPS).step_by(CLIENTS) {
                let webapp: WebApp = serde_json::from_value(json!({
                    "apiVersion": "example.com/v1", "kind": "WebApp", "metadata": {"name": format!("web-{number}")},
                    "spec": {"image": "steersman.io/steer:v1"},
                }))
                .unwrap();
                api.create(&PostParams::default(), &webapp).await.unwrap();
            }
        })
    });
    for writer in join_all(writers).await {
        writer.unwrap();
    }
}

/// Waits until every WebApp is as it should be.
async fn wait(client: &Client, is: impl Fn(&WebApp) -> bool) {
    let api: Api<WebApp> = Api::namespaced(client.clone(), "default");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let all = api.list(&ListParams::default()).await.unwrap();
        let done = all.items.iter().filter(|webapp| is(webapp)).count();
        if done == WEBAPPS {
            return;
        }
        assert!(Instant::now() < deadline, "gave up with {done} of {WEBAPPS}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn phase(webapp: &WebApp) -> Option<Phase> {
    webapp.status.as_ref()?.phase
}

/// An address out of a log, between two texts.
fn metrics_of(log: &str, before: &str, after: &str) -> String {
    let line = log.lines().find(|line| line.contains("metrics") && line.contains(before)).unwrap();
    let rest = line.split_once(before).unwrap().1;
    rest.split_once(after).unwrap().0.to_owned()
}

async fn http_get(address: &str) -> String {
    let address = address.to_owned();
    let get = move || {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    tokio::task::spawn_blocking(get).await.unwrap()
}

/// Writes of owned objects and of statuses that were sent.
fn writes(metrics: &str) -> (f64, f64) {
    let sent = metrics.lines().filter(|line| {
        line.starts_with("controller_reconcile_writes_total{")
            && line.contains("controller=\"webapp\"")
            && line.contains("noop=\"false\"")
    });
    let mut counted = (0.0, 0.0);
    for line in sent {
        let value: f64 = line.rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap_or_default();
        match line.contains("verb=\"apply_status\"") {
            true => counted.1 += value,
            false => counted.0 += value,
        }
    }
    counted
}

fn writes_row(owned: f64, status: f64) -> String {
    let each = WEBAPPS as f64;
    format!("{:.2} owned, {:.2} status (aim: at most 2 and 2)", owned / each, status / each)
}

fn per_webapp(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1e3 / WEBAPPS as f64)
}

fn memories(before: u64, after: u64) -> String {
    format!("{:.1} MiB, {:.1} MiB", before as f64 / 1024.0, after as f64 / 1024.0)
}

fn row(what: &str, figure: &str) {
    println!("| {what} | {figure} |");
}
