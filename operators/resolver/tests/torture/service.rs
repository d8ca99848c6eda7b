//! A service that falls asleep and wakes, and the operator that makes it.

use crate::pods::Pod;
use crate::{LAG, World, lock};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Where the service proxy leads connections.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    Pods(Vec<SocketAddr>),
    Resolvers,
}

/// A service.
pub(crate) struct Service {
    pub(crate) name: String,
    world: Arc<World>,
    /// What resolvers are told: the pods that are ready, and whether they serve directly.
    pub(crate) route: watch::Sender<(Vec<SocketAddr>, bool)>,
    /// What the proxy was told, and when.
    ways: Mutex<Vec<(Instant, Way)>>,
    woken: Notify,
}

impl Service {
    pub(crate) fn new(name: String, world: Arc<World>) -> Arc<Self> {
        let ways = Mutex::new(vec![(Instant::now() - LAG * 2, Way::Resolvers)]);
        Arc::new(Self {
            name,
            world,
            route: watch::Sender::new((Vec::new(), false)),
            ways,
            woken: Notify::new(),
        })
    }

    pub(crate) fn host(&self) -> String {
        format!("{}.shop.svc.cluster.local", self.name)
    }

    /// Where the proxy leads who connects now, as far as it knows.
    pub(crate) fn way(&self) -> Way {
        let lag = Duration::from_millis(self.world.random(LAG.as_millis() as u64));
        let seen = Instant::now() - lag;
        let ways = lock(&self.ways);
        let way = ways.iter().rev().find(|(since, _)| *since <= seen).or(ways.first());
        way.map_or(Way::Resolvers, |(_, way)| way.clone())
    }

    fn lead(&self, way: Way) {
        let mut ways = lock(&self.ways);
        let old = ways.len().saturating_sub(3);
        ways.drain(..old);
        ways.push((Instant::now(), way));
        self.world.flips.fetch_add(1, Ordering::Relaxed);
    }

    /// Sleeps, wakes, serves and sleeps again.
    pub(crate) async fn live(self: Arc<Self>) {
        loop {
            self.woken.notified().await;
            self.world.pause(20, 300).await;
            let pods = [Pod::start(&self.world).await, Pod::start(&self.world).await];
            let addresses: Vec<_> = pods.iter().map(|pod| pod.address).collect();
            self.route.send_replace((addresses.clone(), false));
            self.world.pause(10, 500).await;
            self.route.send_replace((addresses.clone(), true));
            self.lead(Way::Pods(addresses.clone()));
            self.world.pause(500, 3000).await;
            // To sleep: first everyone must know the way to the resolver, then the pods go.
            self.route.send_replace((addresses, false));
            self.lead(Way::Resolvers);
            tokio::time::sleep(LAG + Duration::from_millis(200)).await;
            self.route.send_replace((Vec::new(), false));
            drop(pods);
        }
    }
}

/// Takes wake-up calls, and is away every now and then.
pub(crate) async fn operator(services: &[Arc<Service>], world: &Arc<World>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let (services, world) = (services.to_vec(), Arc::clone(world));
    tokio::spawn(async move {
        let (began, phase) = (Instant::now(), world.random(7));
        while let Ok((stream, _)) = listener.accept().await {
            // Away for a second out of seven.
            if (began.elapsed().as_secs() + phase) % 7 == 0 {
                continue;
            }
            let services = services.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| wake(request, services.clone()));
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    address
}

async fn wake(
    request: Request<Incoming>,
    services: Vec<Arc<Service>>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let named = serde_json::from_slice::<serde_json::Value>(&body).unwrap_or_default();
    let service = services.iter().find(|service| named["svc"] == service.name.as_str());
    let mut response = Response::new(Empty::new());
    match service {
        Some(service) => service.woken.notify_one(),
        None => *response.status_mut() = StatusCode::NOT_FOUND,
    }
    Ok(response)
}
