//! Resolvers as processes of their own, which end in both ways that processes do.

use crate::service::Service;
use crate::{LAG, World, lock};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use steersman_resolver::{
    Backend, Directory, HttpWake, Mode, Options, Route, ServiceKey, ServicePort, serve,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A resolver as the service proxy knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed(pub(crate) SocketAddr);

/// The resolver's process: told on its standard input how services look.
pub(crate) async fn run(operator: String) {
    let directory = Directory::new();
    let mut options = Options::new(Arc::new(HttpWake::new(operator, None)));
    // Longer than the proxy may go on leading connections here.
    options.shutdown_delay = LAG * 2;
    options.wake_again = Duration::from_secs(1);
    let proxy = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let internal = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = proxy.local_addr().expect("bound");
    let stop = CancellationToken::new();
    let mut asked =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).expect("signals");
    let stopping = stop.clone();
    tokio::spawn(async move {
        asked.recv().await;
        stopping.cancel();
    });
    let told = directory.clone();
    let known = std::env::var("TORTURE_KNOWN").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    std::thread::spawn(move || {
        let mut ready = false;
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let mut words = line.split_whitespace();
            let (Some(service), Some(mode)) = (words.next(), words.next()) else { continue };
            let pods = words.filter_map(|word| word.parse::<SocketAddr>().ok());
            let backends = pods
                .map(|pod| Backend { address: pod.ip(), ports: BTreeMap::from([(80, pod.port())]) })
                .collect();
            let ports = vec![ServicePort { number: 80, name: String::new() }];
            let mode = if mode == "serve" { Mode::Serve } else { Mode::Proxy };
            told.set(&ServiceKey::new("shop", service), Route { ports, backends, mode, ..Route::default() });
            // Ready once all services are known, as the real one.
            if told.all().len() == known && !ready {
                ready = true;
                let mut out = std::io::stdout();
                writeln!(out, "{address}").and_then(|()| out.flush()).expect("written");
            }
        }
        // The test has ended, in whatever way.
        std::process::exit(0);
    });
    serve(proxy, internal, directory, options, stop).await.expect("served");
    std::process::exit(0);
}

/// Keeps one resolver running, and ends it now and then.
pub(crate) async fn keep(world: Arc<World>, services: Vec<Arc<Service>>, operator: SocketAddr) {
    let list = |address| lock(&world.resolvers).push(Listed(address));
    let unlist = |address| lock(&world.resolvers).retain(|listed| listed.0 != address);
    let (mut child, mut address) = start(&services, operator).await;
    list(address);
    loop {
        world.pause(3000, 12_000).await;
        if world.random(3) == 0 {
            world.kills.fetch_add(1, Ordering::Relaxed);
            world.replacing.fetch_add(1, Ordering::SeqCst);
            child.kill().await.expect("killed");
            // Until somebody notices, connections are led into the void.
            world.pause(0, 500).await;
            unlist(address);
            (child, address) = start(&services, operator).await;
            list(address);
            *lock(&world.killed) = Some(Instant::now());
            world.replacing.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        // Another one comes first, as with a Deployment.
        let (next, next_address) = start(&services, operator).await;
        list(next_address);
        let (mut old, old_address) = (std::mem::replace(&mut child, next), address);
        address = next_address;
        let pid = old.id().expect("running").to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status().await.expect("kill is there");
        assert!(told.success());
        // Not ready any more, of which the proxy learns late.
        tokio::time::sleep(Duration::from_millis(world.random(LAG.as_millis() as u64))).await;
        unlist(old_address);
        let ended = tokio::time::timeout(Duration::from_secs(60), old.wait()).await;
        let status = ended.expect("a stopped resolver ends").expect("ended");
        assert!(status.success(), "a stopped resolver ended with {status}");
        world.stops.fetch_add(1, Ordering::Relaxed);
    }
}

async fn start(services: &[Arc<Service>], operator: SocketAddr) -> (Child, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .env("TORTURE_RESOLVER", operator.to_string())
        .env("TORTURE_KNOWN", services.len().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("started");
    let input = child.stdin.take().expect("its input");
    tokio::spawn(feed(services.to_vec(), input));
    let mut line = String::new();
    let output = child.stdout.take().expect("its output");
    BufReader::new(output).read_line(&mut line).await.expect("an address");
    (child, line.trim().parse().expect("an address"))
}

/// Tells a resolver how services look, a moment after they do.
async fn feed(services: Vec<Arc<Service>>, mut input: ChildStdin) {
    let mut routes: Vec<_> = services.iter().map(|service| (service, service.route.subscribe())).collect();
    for (_, route) in &mut routes {
        route.mark_changed();
    }
    loop {
        for (service, route) in &mut routes {
            if !route.has_changed().unwrap_or(false) {
                continue;
            }
            let (pods, serving) = route.borrow_and_update().clone();
            let pods: Vec<String> = pods.iter().map(ToString::to_string).collect();
            let mode = if serving { "serve" } else { "proxy" };
            let line = format!("{} {mode} {}\n", service.name, pods.join(" "));
            if input.write_all(line.as_bytes()).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}
