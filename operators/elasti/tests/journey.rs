//! Operator and resolver together: real requests over the loopback interface, through the slices
//! as a Service's clients would find them.

#[allow(dead_code)] // each test file uses a part of it
mod support;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use steersman::CancellationToken;
use steersman_elasti::{ElastiOptions, ElastiService, ResolverOptions, crd, run_resolver};
use steersman_test::{Cluster, Running};
use support::{Prometheus, condition, elasti, operator, quick, replicas};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A cluster, a resolver, an operator, and a pod that comes and goes with the Deployment.
struct World {
    cluster: Arc<Cluster>,
    done: Arc<Mutex<HashMap<String, usize>>>,
    resolver: SocketAddr,
    tasks: JoinSet<()>,
    _operator: Running,
}

impl World {
    async fn start() -> Self {
        // Tests that run at the same time must not have the same ports.
        Self::start_with(RangeInclusive::new(1, 0)).await
    }

    async fn start_with(own_ports: RangeInclusive<u16>) -> Self {
        let cluster = Arc::new(Cluster::start().await);
        cluster.create_json::<Namespace>(json!({"metadata": {"name": "elasti"}})).await;
        cluster.create(&crd()).await;
        let (proxy, internal) = (listener().await, listener().await);
        let (resolver, inside) = (address(&proxy), address(&internal));
        let options = ElastiOptions {
            proxy_port: resolver.port(),
            resolver_port: inside.port(),
            own_ports: own_ports.clone(),
            ..quick()
        };
        support::resolver(&cluster, &["127.0.0.1"]).await;
        support::web(&cluster, 0).await;
        let mut tasks = JoinSet::new();
        let client = cluster.client();
        tasks.spawn(async move {
            let stop = CancellationToken::new();
            if let Err(error) = run_resolver(client, proxy, internal, ResolverOptions::default(), stop).await
            {
                panic!("the resolver ended: {error}");
            }
        });
        let done = Arc::new(Mutex::new(HashMap::new()));
        let pod = pod(Arc::clone(&done), &mut tasks).await;
        tasks.spawn(kubelet(Arc::clone(&cluster), pod));
        let operator = operator(&cluster, options);
        Self { cluster, done, resolver, tasks, _operator: operator }
    }
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("a port")
}

fn address(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().expect("bound")
}

/// A pod that counts how often it did what it was asked.
async fn pod(done: Arc<Mutex<HashMap<String, usize>>>, tasks: &mut JoinSet<()>) -> SocketAddr {
    let listener = listener().await;
    let address = address(&listener);
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let done = Arc::clone(&done);
            connections.spawn(async move {
                let service = service_fn(move |request: Request<Incoming>| {
                    let done = Arc::clone(&done);
                    async move {
                        let path = request.uri().path().to_owned();
                        let _ = request.into_body().collect().await;
                        *done.lock().expect("no panic").entry(path).or_default() += 1;
                        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"done"))))
                    }
                });
                let server = hyper::server::conn::http1::Builder::new();
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

/// Lists the pod in the Service's slice while the Deployment has replicas. The pod itself lives
/// on, as one does that ends gracefully.
async fn kubelet(cluster: Arc<Cluster>, pod: SocketAddr) {
    let slice = |ready: bool| {
        let endpoints: Vec<Value> = match ready {
            true => vec![json!({"addresses": [pod.ip().to_string()], "conditions": {"ready": true}})],
            false => Vec::new(),
        };
        json!({"metadata": {"name": "web-1", "namespace": "default",
            "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
            "ports": [{"name": "http", "port": pod.port()}, {"name": "admin", "port": pod.port()}],
            "endpoints": endpoints})
    };
    cluster.create_json::<EndpointSlice>(slice(false)).await;
    let mut listed = false;
    loop {
        let wanted = cluster.get::<Deployment>("web").await.is_some_and(|one| replicas(&one) > 0);
        if wanted != listed {
            cluster.patch::<EndpointSlice>("web-1", slice(wanted)).await;
            listed = wanted;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Sends a request to an address.
async fn send(address: SocketAddr, path: &str) -> Result<u16, String> {
    ask(address, "web.default.svc.cluster.local", path).await
}

async fn ask(address: SocketAddr, host: &str, path: &str) -> Result<u16, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let request = Request::post(path)
        .header("host", host)
        .body(Full::new(Bytes::from_static(b"order")))
        .expect("a request");
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    response.into_body().collect().await.map_err(|error| error.to_string())?;
    connection.abort();
    Ok(status)
}

/// Where the Service leads at the moment.
async fn endpoints(cluster: &Cluster) -> Vec<SocketAddr> {
    let slices = cluster.list::<EndpointSlice>().await;
    slices
        .iter()
        .filter(|slice| slice.labels().get("kubernetes.io/service-name").is_some_and(|name| name == "web"))
        .flat_map(|slice| {
            let port = slice.ports.iter().flatten().find_map(|port| u16::try_from(port.port?).ok());
            let endpoints = slice.endpoints.iter().flatten();
            endpoints
                .filter_map(move |one| Some(SocketAddr::new(one.addresses.first()?.parse().ok()?, port?)))
        })
        .collect()
}

#[tokio::test]
async fn a_client_that_does_not_say_whose_it_is_comes_in_by_the_services_own_port() {
    let own = listener().await;
    let port = address(&own).port();
    drop(own);
    let world = World::start_with(port..=port).await;
    let cluster = &world.cluster;
    elasti(cluster, "web", json!({"triggers": [{"type": "resolver"}], "cooldownPeriod": 3600})).await;
    let leads = || async {
        endpoints(cluster).await.contains(&SocketAddr::from(([127, 0, 0, 1], port))).then_some(())
    };
    cluster.wait_for("the slice leads to the port", leads).await;
    let told = cluster.get::<ElastiService>("web").await.and_then(|one| one.status).unwrap_or_default();
    assert_eq!(
        told.resolver_ports.iter().map(|one| (one.port, one.resolver_port)).collect::<Vec<_>>(),
        [(80, port)]
    );
    assert_eq!(ask(SocketAddr::from(([127, 0, 0, 1], port)), "127.0.0.1", "/first").await, Ok(200));
    assert_eq!(replicas(&cluster.get::<Deployment>("web").await.expect("there")), 1);
}

#[tokio::test]
async fn a_request_wakes_it_and_silence_puts_it_to_sleep_again() {
    let mut world = World::start().await;
    let cluster = &world.cluster;
    elasti(cluster, "web", json!({"triggers": [{"type": "resolver"}], "cooldownPeriod": 1})).await;
    let asleep = |one: &ElastiService| condition(one, "Ready").1 == "Asleep";
    cluster.wait_until::<ElastiService>("web", asleep).await;
    for _ in 0..2 {
        assert_eq!(send(world.resolver, "/first").await, Ok(200));
        assert_eq!(replicas(&cluster.get::<Deployment>("web").await.expect("there")), 1);
        cluster.wait_until::<Deployment>("web", |deployment| replicas(deployment) == 0).await;
        cluster.wait_until::<ElastiService>("web", asleep).await;
    }
    world.tasks.abort_all();
}

#[tokio::test]
async fn no_request_is_lost_or_done_twice_while_it_falls_asleep_and_wakes() {
    let mut world = World::start().await;
    let prometheus = Prometheus::start("0").await;
    elasti(&world.cluster, "web", json!({"triggers": prometheus.trigger()})).await;
    let reached = || async { (!endpoints(&world.cluster).await.is_empty()).then_some(()) };
    world.cluster.wait_for("the resolver behind the Service", reached).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for client in 0..6_usize {
        let (cluster, stop) = (Arc::clone(&world.cluster), Arc::clone(&stop));
        clients.spawn(async move {
            let mut number = 0_usize;
            while !stop.load(Ordering::Relaxed) {
                let all = endpoints(&cluster).await;
                let chosen = all.get((client + number) % all.len().max(1)).expect("somebody takes requests");
                // What the service proxies of a cluster know is a little old.
                tokio::time::sleep(Duration::from_millis(7 * client as u64)).await;
                let path = format!("/{client}-{number}");
                let sent = tokio::time::timeout(Duration::from_secs(20), send(*chosen, &path));
                assert_eq!(sent.await, Ok(Ok(200)), "request {client}-{number}");
                number += 1;
            }
            number
        });
    }
    // Each round sees it fall asleep, be woken by a request that is held, and serve.
    for round in 0..6 {
        prometheus.say("0");
        let slept = |one: &ElastiService| {
            let status = one.status.clone().unwrap_or_default();
            status.replicas == Some(0) || status.switched_time.is_some()
        };
        world.cluster.wait_until::<ElastiService>("web", slept).await;
        tokio::time::sleep(Duration::from_millis(40 * round)).await;
        prometheus.say("9");
        let serving = |one: &ElastiService| condition(one, "Ready").1 == "Serving";
        world.cluster.wait_until::<ElastiService>("web", serving).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut sent = 0;
    while let Some(client) = clients.join_next().await {
        sent += client.expect("every request of this client was answered");
    }
    let done = world.done.lock().expect("no panic").clone();
    assert_eq!((done.len(), done.values().all(|times| *times == 1)), (sent, true));
    world.tasks.abort_all();
}

#[tokio::test]
async fn a_service_without_an_elasti_service_is_not_reached_through_the_resolver() {
    let mut world = World::start().await;
    assert_eq!(send(world.resolver, "/").await, Ok(404));
    assert!(world.cluster.get::<Service>("web").await.is_some());
    world.tasks.abort_all();
}
