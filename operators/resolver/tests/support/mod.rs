//! A resolver, pods and clients on the loopback interface.

#![allow(dead_code, reason = "each test uses some of it")]

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use steersman_resolver::{
    Backend, Directory, Mode, Options, Probe, Route, ServiceKey, ServicePort, Wake, WakeError, Waking, serve,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The name under which the one service is asked for.
pub(crate) const HOST: &str = "web.shop.svc.cluster.local";

/// Counts the calls, and fails the first few.
#[derive(Default)]
pub(crate) struct Calls {
    pub(crate) made: AtomicUsize,
    pub(crate) fail_first: usize,
}

impl Wake for Calls {
    fn wake<'a>(&'a self, _: &'a ServiceKey) -> Waking<'a> {
        let number = self.made.fetch_add(1, Ordering::SeqCst);
        Box::pin(
            async move { if number < self.fail_first { Err(WakeError("not yet".into())) } else { Ok(()) } },
        )
    }
}

/// A resolver that runs beside the test.
pub(crate) struct Resolver {
    pub(crate) address: SocketAddr,
    pub(crate) internal: SocketAddr,
    pub(crate) directory: Directory,
    pub(crate) calls: Arc<Calls>,
    pub(crate) probes: Arc<[Probe]>,
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<std::io::Result<()>>,
}

impl Resolver {
    pub(crate) async fn start(change: impl FnOnce(&mut Options)) -> Self {
        Self::with(Calls::default(), change).await
    }

    pub(crate) async fn with(calls: Calls, change: impl FnOnce(&mut Options)) -> Self {
        let calls = Arc::new(calls);
        let mut options = Options::new(Arc::clone(&calls) as Arc<dyn Wake>);
        options.shutdown_delay = Duration::from_millis(50);
        options.hold = PATIENCE;
        options.pending_per_service = 20_000;
        change(&mut options);
        let proxy = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let internal = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (address, inside) = (proxy.local_addr().expect("bound"), internal.local_addr().expect("bound"));
        let (directory, stop) = (Directory::new(), CancellationToken::new());
        let task = tokio::spawn(serve(proxy, internal, directory.clone(), options, stop.clone()));
        let resolver =
            Self { address, internal: inside, directory, calls, probes: Arc::default(), stop, task };
        resolver.sleep();
        resolver
    }

    /// No pods.
    pub(crate) fn sleep(&self) {
        self.set(&[], Mode::Proxy);
    }

    /// These pods are ready.
    pub(crate) fn set(&self, pods: &[SocketAddr], mode: Mode) {
        let backend =
            |pod: &SocketAddr| Backend { address: pod.ip(), ports: BTreeMap::from([(80, pod.port())]) };
        let route = Route {
            ports: vec![ServicePort { number: 80, name: "http".into() }],
            backends: pods.iter().map(backend).collect(),
            mode,
            probes: Arc::clone(&self.probes),
        };
        self.directory.set(&ServiceKey::new("shop", "web"), route);
    }

    /// Gives the service a port of its own, and says which.
    pub(crate) async fn own_port(&self) -> u16 {
        let port = xtask::parts::free_port().expect("a port");
        self.directory.listen(&ServiceKey::new("shop", "web"), &BTreeMap::from([(80, port)]));
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            assert!(tokio::time::Instant::now() < deadline, "port {port} did not open");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        port
    }

    /// How many requests wait.
    pub(crate) fn pending(&self) -> usize {
        self.directory.get(&ServiceKey::new("shop", "web")).map_or(0, |target| target.pending())
    }

    /// Waits until this many requests wait.
    pub(crate) async fn wait_pending(&self, count: usize) {
        until(&format!("{count} held requests"), || self.pending() == count).await;
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "{what} did not come to pass");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Starts a pod that answers every request with `answer`.
pub(crate) async fn pod<F, T, B>(answer: F) -> SocketAddr
where
    F: Fn(Request<Incoming>) -> T + Clone + Send + Sync + 'static,
    T: Future<Output = Response<B>> + Send + 'static,
    B: hyper::body::Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let answer = answer(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

/// A pod that says which path it was asked for.
pub(crate) async fn echo() -> SocketAddr {
    pod(|request| async move {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        Response::new(Full::new(Bytes::from(format!("{path} {}", body.len()))))
    })
    .await
}

/// Sends one request over a connection of its own.
pub(crate) async fn send<B>(address: SocketAddr, request: Request<B>) -> Result<(u16, String), String>
where
    B: hyper::body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let driver = tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    driver.abort();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

/// A GET of a path of the one service.
pub(crate) fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).header("host", HOST).body(Full::default()).expect("a request")
}
