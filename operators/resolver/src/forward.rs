//! The way of one request: whose it is, a pod for it, there and back.

use crate::body::{Answer, Carried, Outgoing, Running};
use crate::directory::Directory;
use crate::headers;
use crate::line::Client;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::pool::{Connection, Pool, Used};
use crate::target::{Limits, Mode, Permit, Refused, Target};
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HOST, HeaderValue, RETRY_AFTER, UPGRADE};
use hyper::http::request::Parts;
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What all requests share.
pub(crate) struct Forwarder {
    pub(crate) options: Options,
    pub(crate) directory: Directory,
    pub(crate) limits: Arc<Limits>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) pool: Pool,
    pub(crate) tasks: TaskTracker,
    /// Ends what has outlived the drain.
    pub(crate) abort: CancellationToken,
}

/// What came back for a request that was sent, or not.
enum Sent {
    Answer(Response<Incoming>, Connection),
    /// The request as it was: the pod cannot have seen it.
    Unsent(Request<Outgoing>),
    Failed(String),
}

impl Forwarder {
    /// Answers a request, in whatever way.
    pub(crate) async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        client: &Client,
    ) -> Response<Answer> {
        let began = Instant::now();
        let method = request.method().clone();
        let host = self.host(&request);
        let found = host.as_deref().and_then(|host| self.directory.find(host, &self.options.cluster_domain));
        let Some((target, port)) = found else {
            self.metrics.hosts_unknown.fetch_add(1, Ordering::Relaxed);
            return refuse(
                StatusCode::NOT_FOUND,
                &format!("no ElastiService stands for the host {:?}", host.unwrap_or_default()),
            );
        };
        self.metrics.hosts_found.fetch_add(1, Ordering::Relaxed);
        let host = host.unwrap_or_default();
        let probes = target.probes();
        let probe = probes.iter().find(|probe| probe.matches(&method, request.uri(), request.headers()));
        if let Some(probe) = probe {
            return probe.answer();
        }
        let response = if method == Method::CONNECT {
            refuse(StatusCode::METHOD_NOT_ALLOWED, "CONNECT is not served here")
        } else if let Some(port) = target.port(port) {
            self.carry(request, client, &host, &target, port).await
        } else {
            refuse(StatusCode::NOT_FOUND, &format!("service {} has no such port", target.key()))
        };
        target.stats.answered(&method, response.status(), began.elapsed());
        response
    }

    /// The name that the client used.
    fn host(&self, request: &Request<Incoming>) -> Option<String> {
        let by_header = self.options.host_header.as_ref().and_then(|name| request.headers().get(name));
        let given = by_header.or_else(|| request.headers().get(HOST));
        match request.uri().authority() {
            // A name in the request line is the one that counts.
            Some(authority) if by_header.is_none() => Some(authority.as_str().to_owned()),
            _ => given.and_then(|host| host.to_str().ok()).map(str::to_owned),
        }
    }

    async fn carry(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        client: &Client,
        host: &str,
        target: &Arc<Target>,
        port: u16,
    ) -> Response<Answer> {
        let began = Instant::now();
        let deadline = began + self.options.hold;
        let running = Running::begin(Arc::clone(target));
        let upgrade = headers::is_upgrade(request.headers()) && request.version() == Version::HTTP_11;
        let protocol = request.headers().get(UPGRADE).filter(|_| upgrade).cloned();
        let on_upgrade = upgrade.then(|| hyper::upgrade::on(&mut request));
        let client_version = request.version();
        let (parts, body) = request.into_parts();
        let mut parts = prepare(parts, client.address.ip(), host);
        if let Some(protocol) = protocol {
            parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            parts.headers.insert(UPGRADE, protocol);
        }
        let mut request = Request::from_parts(parts, Outgoing::Streaming(body));
        let mut held = false;
        loop {
            held |= target.ready() == 0;
            let wake = || self.begin_waking(target, began);
            let unread = client_version < Version::HTTP_2 && !request.body().is_end_stream();
            let permit = tokio::select! {
                biased;
                permit = target.acquire(port, deadline, &self.limits, wake) => match permit {
                    Ok(permit) => permit,
                    Err(refused) => return self.refused(refused, target),
                },
                () = client.left(), if unread => {
                    return refuse(StatusCode::BAD_REQUEST, "the client left before a pod was ready");
                }
            };
            let released = Instant::now();
            match self.send(request, &permit).await {
                Sent::Answer(response, connection) => {
                    if held {
                        self.metrics.cold("ready", released - began);
                        self.metrics.cold("first_byte", released.elapsed());
                    }
                    return self.answer(
                        response,
                        connection,
                        on_upgrade,
                        client_version,
                        target,
                        running,
                        permit,
                    );
                }
                Sent::Unsent(again) => {
                    request = again;
                    permit.unreachable();
                }
                Sent::Failed(why) => {
                    tracing::debug!(service = %target.key(), why, "a request failed");
                    return refuse(StatusCode::BAD_GATEWAY, &why);
                }
            }
            if Instant::now() >= deadline {
                return self.refused(Refused::TimedOut, target);
            }
        }
    }

    /// Sends a request to the pod of a permit.
    async fn send(&self, request: Request<Outgoing>, permit: &Permit) -> Sent {
        let address = permit.address;
        let two = request.version() == Version::HTTP_2;
        let connection = if two { self.pool.two(address).await } else { self.pool.one(address).await };
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => {
                tracing::debug!(%address, %error, "a pod cannot be reached");
                return Sent::Unsent(request);
            }
        };
        permit.reached();
        let spare = spare(&request, &connection);
        let sent = exchange(connection, request, address).await;
        let again = match (sent, spare) {
            // The pod closed an idle connection at the wrong moment.
            (Sent::Unsent(request), _) => request,
            (Sent::Failed(_), Some(spare)) => spare,
            (other, _) => return other,
        };
        let connection = if two { self.pool.two(address).await } else { self.pool.fresh(address).await };
        match connection {
            Ok(connection) => exchange(connection, again, address).await,
            Err(_) => Sent::Unsent(again),
        }
    }

    /// Turns the answer of a pod into ours.
    #[allow(clippy::too_many_arguments)] // one answer is about all of these, and nothing else is
    fn answer(
        &self,
        mut response: Response<Incoming>,
        connection: Connection,
        on_upgrade: Option<hyper::upgrade::OnUpgrade>,
        client: Version,
        target: &Arc<Target>,
        running: Running,
        permit: Permit,
    ) -> Response<Answer> {
        let switching = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if let Some(on_upgrade) = on_upgrade.filter(|_| switching) {
            let pod = hyper::upgrade::on(&mut response);
            let protocol = response.headers().get(UPGRADE).cloned();
            let tunnel =
                self.abort.clone().run_until_cancelled_owned(tunnel(on_upgrade, pod, (running, permit)));
            self.tasks.spawn(tunnel);
            headers::strip(response.headers_mut());
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
            if let Some(protocol) = protocol {
                response.headers_mut().insert(UPGRADE, protocol);
            }
            return response.map(|_| Answer::Text(None));
        }
        if switching {
            return refuse(StatusCode::BAD_GATEWAY, "the pod changed the protocol unasked");
        }
        headers::strip(response.headers_mut());
        if target.mode() == Mode::Serve && client < Version::HTTP_2 {
            // Pods serve directly by now; a new connection will find them.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let lent = match connection {
            Connection::One(sender, _) => self.pool.lent(permit.address, Some(sender)),
            Connection::Two(_) => self.pool.lent(permit.address, None),
        };
        *response.version_mut() = client;
        response.map(|body| {
            let carried = Carried { running, permit, lent };
            if body.is_end_stream() {
                carried.lent.give_back();
                return Answer::Text(None);
            }
            Answer::Streaming(body, Some(carried))
        })
    }

    /// Asks for pods until one comes or nobody waits any more.
    fn begin_waking(self: &Arc<Self>, target: &Arc<Target>, since: Instant) {
        const FIRST: Duration = Duration::from_millis(100);
        const LONGEST: Duration = Duration::from_secs(5);
        let (this, target) = (Arc::clone(self), Arc::clone(target));
        let asking = async move {
            let mut pause = FIRST;
            let mut told = false;
            while target.still_waking() {
                let delay = match this.options.wake.wake(target.key()).await {
                    Ok(()) => {
                        this.metrics.woken.fetch_add(1, Ordering::Relaxed);
                        if !told {
                            this.metrics.cold("notify", since.elapsed());
                        }
                        told = true;
                        this.options.wake_again
                    }
                    Err(error) => {
                        this.metrics.wake_failed.fetch_add(1, Ordering::Relaxed);
                        tracing::warn!(service = %target.key(), %error, "a wake-up call failed");
                        pause = (pause * 2).min(LONGEST);
                        pause
                    }
                };
                if !target.keep_waking(delay).await {
                    break;
                }
            }
        };
        self.tasks.spawn(self.abort.clone().run_until_cancelled_owned(asking));
    }

    fn refused(&self, refused: Refused, target: &Target) -> Response<Answer> {
        let key = target.key();
        match refused {
            Refused::Full => {
                let mut response = refuse(
                    StatusCode::SERVICE_UNAVAILABLE,
                    &format!("too many requests wait for {key} to wake; try again"),
                );
                let seconds = self.options.retry_after.as_secs().max(1);
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
                response
            }
            Refused::TimedOut => refuse(
                StatusCode::GATEWAY_TIMEOUT,
                &format!("no pod of {key} became ready within {:?}", self.options.hold),
            ),
            Refused::Gone => {
                refuse(StatusCode::SERVICE_UNAVAILABLE, &format!("{key} is no longer an ElastiService"))
            }
        }
    }
}

/// An answer of our own.
pub(crate) fn refuse(status: StatusCode, why: &str) -> Response<Answer> {
    let body = serde_json::json!({"error": why}).to_string();
    let mut response = Response::new(Answer::text(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    response
}

/// The head of the request as the pod gets it, in the protocol that the client chose.
fn prepare(mut parts: Parts, client: IpAddr, host: &str) -> Parts {
    headers::strip(&mut parts.headers);
    headers::forward(&mut parts.headers, client, host);
    let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    if parts.version == Version::HTTP_2 {
        // The other side of HTTP/2 wants to hear the name again.
        let mut uri = parts.uri.clone().into_parts();
        uri.scheme = Some(Scheme::HTTP);
        uri.path_and_query = Some(path);
        if let Ok(uri) = Uri::from_parts(uri) {
            parts.uri = uri;
        }
    } else {
        if let Some(authority) = parts.uri.authority()
            && let Ok(value) = HeaderValue::from_str(authority.as_str())
        {
            parts.headers.insert(HOST, value);
        }
        parts.uri = Uri::from(path);
        parts.version = Version::HTTP_11;
    }
    parts
}

/// A copy of a request that may be sent again although the pod may have seen it: on a connection
/// that was used before, without a body, and with a method that says that twice is like once.
fn spare(request: &Request<Outgoing>, connection: &Connection) -> Option<Request<Outgoing>> {
    let used = matches!(connection, Connection::One(_, Used::Before));
    let bodiless = request.body().is_end_stream();
    if !used || !bodiless || !request.method().is_idempotent() {
        return None;
    }
    let mut copy = Request::new(Outgoing::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

async fn exchange(connection: Connection, request: Request<Outgoing>, address: std::net::SocketAddr) -> Sent {
    let failed = |error: &hyper::Error| Sent::Failed(format!("the pod at {address} did not answer: {error}"));
    match connection {
        Connection::One(mut sender, used) => match sender.try_send_request(request).await {
            Ok(response) => Sent::Answer(response, Connection::One(sender, used)),
            Err(mut error) => match error.take_message() {
                Some(request) => Sent::Unsent(request),
                None => failed(error.error()),
            },
        },
        Connection::Two(mut sender) => {
            if sender.ready().await.is_err() {
                return Sent::Unsent(request);
            }
            match sender.try_send_request(request).await {
                Ok(response) => Sent::Answer(response, Connection::Two(sender)),
                Err(mut error) => match error.take_message() {
                    Some(request) => Sent::Unsent(request),
                    None => failed(error.error()),
                },
            }
        }
    }
}

/// Copies bytes both ways between a client and a pod that have left HTTP.
async fn tunnel(client: hyper::upgrade::OnUpgrade, pod: hyper::upgrade::OnUpgrade, held: (Running, Permit)) {
    let (running, permit) = held;
    // A tunnel lives long and says nothing of load: the pod has room for another request.
    drop(permit);
    match tokio::try_join!(client, pod) {
        Ok((client, pod)) => {
            let (mut client, mut pod) = (TokioIo::new(client), TokioIo::new(pod));
            if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut pod).await {
                tracing::debug!(%error, "a tunnel ended");
            }
        }
        Err(error) => tracing::debug!(%error, "an upgrade did not come about"),
    }
    drop(running);
}
