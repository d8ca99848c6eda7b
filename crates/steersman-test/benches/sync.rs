//! From nothing to a cache of a hundred thousand pods, beside kube-rs and controller-runtime:
//! the same API server, each client in a process of its own.
#![allow(clippy::print_stdout)]

use std::convert::Infallible;
use std::error::Error as StdError;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use futures::{StreamExt, TryStreamExt, stream};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client, Config};
use kube_runtime::{WatchStreamExt, reflector, watcher};
use serde_json::json;
use steersman::{CancellationToken, Context, Controller, Error, Manager, Options, Outcome, Reconciler};
use steersman_apiserver::User;
use steersman_test::Cluster;
use tower::ServiceExt;

type Result<T> = std::result::Result<T, Box<dyn StdError + Send + Sync>>;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (what, server) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    runtime.block_on(async move {
        match what.as_str() {
            "ours" => ours(&server).await,
            "kube-rs" => kube_rs(&server).await,
            count => compare(count.parse().unwrap_or(100_000)).await,
        }
    })
}

/// Fills an API server, and lets one client after the other read it.
async fn compare(count: usize) -> Result<()> {
    let cluster = Cluster::start_in_real_time().await;
    let address = serve(&cluster).await?;
    let began = Instant::now();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    stream::iter((0..count).map(Ok))
        .try_for_each_concurrent(16, |number| {
            let pods = pods.clone();
            async move { pods.create(&PostParams::default(), &pod(number)?).await.map(drop).map_err(Into::into) }
        })
        .await
        .map_err(|error: Box<dyn StdError + Send + Sync>| error)?;
    let rate = count as f64 / began.elapsed().as_secs_f64();
    println!(
        "sync of {count} pods (created at {rate:.0} a second): until synced, processor, memory then, at most"
    );
    let program = std::env::current_exe()?;
    let url = format!("http://{address}");
    let mut rows = Vec::new();
    for name in ["ours", "kube-rs"] {
        rows.push((name, measure(Command::new(&program).args([name, &url])).await?));
    }
    let build = tempfile::tempdir()?;
    match peer(build.path()) {
        Ok(peer) => rows.push(("controller-runtime", measure(Command::new(peer).arg(&url)).await?)),
        Err(error) => println!("  controller-runtime is not there: {error}"),
    }
    let first = rows[0].1;
    for (name, row) in rows {
        let ratio: Vec<String> = (0..4).map(|at| format!("{:.1} x", row[at] / first[at])).collect();
        println!(
            "  {name:<20}{:>8.2} s{:>8.2} s{:>9.0} MiB{:>9.0} MiB   ({})",
            row[0],
            row[1],
            row[2],
            row[3],
            ratio.join(", ")
        );
    }
    Ok(())
}

/// The API server of the cluster on a port of its own.
async fn serve(cluster: &Cluster) -> Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let service = cluster.server().service(User::admin());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service.clone();
            let answer = service_fn(move |request| {
                let service = service.clone();
                async move {
                    Ok::<_, Infallible>(service.oneshot(request).await.unwrap_or_else(|never| match never {}))
                }
            });
            let _ = stream.set_nodelay(true);
            tokio::spawn(async move {
                let _ = auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), answer)
                    .await;
            });
        }
    });
    Ok(address)
}

/// Seconds until it says that it is synced, of the clock and of the processor, and MiB.
async fn measure(command: &mut Command) -> Result<[f64; 4]> {
    let began = Instant::now();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().ok_or("no output")?;
    let said = tokio::task::spawn_blocking(move || BufReader::new(output).lines().next()).await?;
    let took = began.elapsed().as_secs_f64();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id()))?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()))?;
    child.kill()?;
    child.wait()?;
    if said.transpose()?.as_deref() != Some("synced") {
        return Err("a client ended before it was synced".into());
    }
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(f64::NAN);
    let memory = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        kilobytes.unwrap_or(f64::NAN) / 1024.0
    };
    Ok([took, (ticks(11) + ticks(12)) / 100.0, memory("VmRSS:"), memory("VmHWM:")])
}

/// Builds the program with controller-runtime's cache.
fn peer(folder: &Path) -> Result<PathBuf> {
    let program = folder.join("sync_peer");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/sync_peer");
    let output =
        Command::new("go").args(["build", "-o"]).arg(&program).arg(".").current_dir(sources).output()?;
    if output.status.success() { Ok(program) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
}

async fn client(server: &str) -> Result<Client> {
    Ok(Client::try_from(Config::new(server.parse()?))?)
}

/// A controller of ours; it reconciles only once its cache is whole.
async fn ours(server: &str) -> Result<()> {
    struct Synced;
    impl Reconciler for Synced {
        type Object = Pod;

        async fn reconcile(&self, _: Arc<Pod>, _: &Context) -> std::result::Result<Outcome, Error> {
            println!("synced");
            std::future::pending().await
        }
    }
    let controller = Controller::new("pods", Synced).concurrency(1);
    let manager = Manager::new(client(server).await?, Options::named("sync")).controller(controller);
    Ok(manager.run(CancellationToken::new()).await?)
}

/// A reflector as kube-rs recommends it for many objects: without managed fields.
async fn kube_rs(server: &str) -> Result<()> {
    let (reader, writer) = reflector::store::<Pod>();
    let pods: Api<Pod> = Api::all(client(server).await?);
    let events = watcher(pods, watcher::Config::default())
        .default_backoff()
        .modify(|pod| pod.metadata.managed_fields = None);
    let mut events = std::pin::pin!(reflector(writer, events));
    let ready = tokio::spawn(async move {
        reader.wait_until_ready().await?;
        println!("synced");
        Ok::<_, reflector::store::WriterDropped>(reader)
    });
    while events.next().await.is_some() {}
    drop(ready.await??);
    Ok(())
}

fn pod(number: usize) -> serde_json::Result<Pod> {
    let environment: Vec<_> = (0..12)
        .map(|index| json!({"name": format!("SETTING_NUMBER_{index}"), "value": format!("value of setting {index}")}))
        .collect();
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("web-7d9c6b8f5-{number:06}"),
            "labels": {"app": "web", "pod-template-hash": "7d9c6b8f5", "team": "shop", "tier": "frontend"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
        },
        "spec": {"containers": [{
            "name": "web", "image": "registry.example.com/shop/web:1.2.3", "env": environment,
            "ports": [{"containerPort": 8080, "name": "http"}],
            "resources": {"limits": {"cpu": "1", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}},
        }]},
    }))
}
