//! A real Prometheus server decides.

#[allow(dead_code)] // each test file uses a part of it
mod support;

use http_body_util::Full;
use hyper::Response;
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use steersman_elasti::ElastiService;
use steersman_elasti::types::Mode;
use support::{cluster, condition, elasti, mode, operator, quick, replicas, web};
use tokio::net::TcpListener;
use xtask::parts;

/// An application with one figure that Prometheus scrapes.
async fn application(load: Arc<AtomicU32>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let load = Arc::clone(&load);
            tokio::spawn(async move {
                let service = service_fn(move |_| {
                    let text = format!("# TYPE load gauge\nload {}\n", load.load(Ordering::Relaxed));
                    async move {
                        let answer = Response::builder().header("content-type", "text/plain; version=0.0.4");
                        Ok::<_, Infallible>(answer.body(Full::new(Bytes::from(text))).expect("an answer"))
                    }
                });
                let server = hyper::server::conn::http1::Builder::new();
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_prometheus_puts_it_to_sleep_wakes_it_and_changes_nothing_when_it_dies() {
    let load = Arc::new(AtomicU32::new(5));
    let address = application(Arc::clone(&load)).await;
    let started = tokio::task::spawn_blocking(move || parts::prometheus(&address.to_string())).await;
    let Some(mut prometheus) = parts::or_skip(started.expect("no panic")) else { return };
    let (cluster, _controllers) = cluster().await;
    web(&cluster, 1).await;
    let _operator = operator(&cluster, quick());
    let triggers = json!([{"type": "prometheus", "metadata": {"query": "sum(load)", "threshold": "1",
        "serverAddress": prometheus.url(), "uptimeFilter": "job=\"prometheus\""}}]);
    elasti(&cluster, "web", json!({"triggers": triggers, "cooldownPeriod": 2})).await;
    let healthy = |one: &ElastiService| condition(one, "TriggerHealthy").0 == "True";
    cluster.wait_until::<ElastiService>("web", healthy).await;
    cluster.wait_until::<ElastiService>("web", |one| mode(one) == Some(Mode::Serve)).await;

    load.store(0, Ordering::Relaxed);
    cluster.wait_until::<Deployment>("web", |web| replicas(web) == 0).await;
    load.store(7, Ordering::Relaxed);
    cluster.wait_until::<Deployment>("web", |web| replicas(web) == 1).await;
    cluster.wait_until::<ElastiService>("web", |one| mode(one) == Some(Mode::Serve)).await;

    prometheus.kill();
    cluster.wait_until::<ElastiService>("web", |one| condition(one, "TriggerHealthy").0 == "False").await;
    assert_eq!(replicas(&cluster.get::<Deployment>("web").await.expect("there")), 1);
}
