//! A gate between a candidate and the API server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(120);

/// Passes on what comes, and notes it; when it is shut, nothing comes back.
pub(crate) struct Gate {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

/// A write to something else than a lease.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) at: Instant,
    pub(crate) body: String,
    /// What the server answered, once it has.
    pub(crate) status: Option<u16>,
}

struct State {
    open: watch::Sender<bool>,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    requests: usize,
    /// How often a lease was written.
    renewals: usize,
    writes: Vec<Written>,
    /// When the holder of a lease was last taken out of it.
    released: Option<Instant>,
}

impl Gate {
    pub(crate) async fn open(client: Client) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State { open: watch::channel(true).0, log: Mutex::default() });
        let task = tokio::spawn(serve(listener, client, Arc::clone(&state)));
        Self { address, state, task }
    }

    /// From now on requests are noted, but not passed on, and no answer comes back.
    pub(crate) fn shut(&self) {
        self.state.open.send_replace(false);
    }

    pub(crate) fn reopen(&self) {
        self.state.open.send_replace(true);
    }

    pub(crate) fn writes(&self) -> Vec<Written> {
        self.state.log().writes.clone()
    }

    /// Forgets what came through so far.
    pub(crate) fn forget(&self) {
        *self.state.log() = Log::default();
    }

    /// Waits for the first write that was accepted and names this candidate.
    pub(crate) async fn wait_for_write(&self, candidate: &str) -> Written {
        let accepted = |write: &Written| {
            write.body.contains(candidate) && write.status.is_some_and(|status| status < 300)
        };
        self.wait("a write", |log| log.writes.iter().find(|write| accepted(write)).cloned()).await
    }

    /// Waits until the candidate has been heard of.
    pub(crate) async fn wait_for_requests(&self) {
        self.wait("a request", |log| (log.requests > 1).then_some(())).await;
    }

    /// Waits until the lease has been renewed twice more.
    pub(crate) async fn wait_for_renewals(&self) {
        let before = self.state.log().renewals;
        self.wait("renewals", |log| (log.renewals >= before + 2).then_some(())).await;
    }

    pub(crate) async fn wait_for_release(&self) -> Instant {
        self.wait("the release", |log| log.released).await
    }

    async fn wait<T>(&self, what: &str, found: impl Fn(&Log) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = found(&self.state.log()) {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "{what} did not come through the gate");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn until_open(&self) {
        // The sender lives as long as we do.
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }
}

async fn serve(listener: TcpListener, client: Client, state: Arc<State>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (client, state) = (client.clone(), Arc::clone(&state));
        connections.spawn(async move {
            let service = service_fn(|request| pass(request, client.clone(), Arc::clone(&state)));
            // A connection that broke is the candidate's concern.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn pass(
    request: Request<Incoming>,
    client: Client,
    state: Arc<State>,
) -> Result<Response<Body>, Infallible> {
    let (mut head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let write = !matches!(head.method, Method::GET | Method::HEAD);
    let lease = head.uri.path().contains("/leases");
    let text = String::from_utf8_lossy(&body).into_owned();
    let mut noted = None;
    {
        let mut log = state.log();
        log.requests += 1;
        log.renewals += usize::from(write && lease);
        if write && !lease {
            noted = Some(log.writes.len());
            log.writes.push(Written { at: Instant::now(), body: text.clone(), status: None });
        }
    }
    state.until_open().await;
    head.headers.remove(http::header::HOST);
    let answer = client.send(Request::from_parts(head, Body::from(body))).await;
    let Ok(answer) = answer else {
        let mut unavailable = Response::new(Body::empty());
        *unavailable.status_mut() = http::StatusCode::BAD_GATEWAY;
        return Ok(unavailable);
    };
    if lease && write && text.contains("\"holderIdentity\":\"\"") {
        state.log().released = Some(Instant::now());
    }
    if let Some(at) = noted
        && let Some(written) = state.log().writes.get_mut(at)
    {
        written.status = Some(answer.status().as_u16());
    }
    state.until_open().await;
    Ok(answer)
}
