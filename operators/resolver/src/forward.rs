//! The way of one request: whose it is, a pod for it, there and back.

use crate::body::{Answer, Carried, Lent, Running};
use crate::directory::Directory;
use crate::headers;
use crate::line::Client;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::outgoing::Outgoing;
use crate::pool::Pool;
use crate::ports::Door;
use crate::send::{Sent, Upgrade};
use crate::target::{Limits, Mode, Permit, Refused, Target};
use crate::tunnel;
use hyper::body::{Body, Incoming};
use hyper::ext::Protocol;
use hyper::header::{CONNECTION, HOST, HeaderValue, RETRY_AFTER, UPGRADE};
use hyper::http::request::Parts;
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How often a request may come back to the service that it came from.
const ROUNDS: usize = 5;

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
    /// Where wake-up calls are made, whichever thread needs one.
    pub(crate) home: Handle,
}

/// What is remembered of a request while its answer is on its way.
struct Asked {
    version: Version,
    leaves: Option<Leaves>,
    running: Running,
}

/// How a request asks to leave HTTP.
enum Leaves {
    /// With `Upgrade`, which `101` grants.
    Upgrade(OnUpgrade),
    /// With `CONNECT` and a protocol (RFC 8441, as WebSocket over HTTP/2), which `200` grants.
    Connect(OnUpgrade),
}

impl Leaves {
    /// The client's side, if this answer grants what was asked for.
    fn granted(self, status: StatusCode) -> Option<OnUpgrade> {
        match self {
            Self::Upgrade(client) => (status == StatusCode::SWITCHING_PROTOCOLS).then_some(client),
            Self::Connect(client) => status.is_success().then_some(client),
        }
    }
}

impl Forwarder {
    /// Answers a request, in whatever way.
    pub(crate) async fn handle(
        self: &Arc<Self>,
        request: Request<Incoming>,
        client: &Client,
    ) -> Response<Answer> {
        let began = Instant::now();
        let method = request.method().clone();
        let (target, port) = match self.whose(&request, client) {
            Ok(found) => found,
            Err(refused) => return refused,
        };
        if let Some(probes) = target.probes() {
            let fits = probes.iter().find(|probe| probe.matches(&method, request.uri(), request.headers()));
            if let Some(probe) = fits {
                return probe.answer();
            }
        }
        let response = if method == Method::CONNECT && !names_protocol(&request) {
            refuse(StatusCode::METHOD_NOT_ALLOWED, "CONNECT is not served here")
        } else if headers::rounds(request.headers(), target.label()) >= ROUNDS {
            let why =
                format!("the request came {ROUNDS} times through {}: its pods ask themselves", target.key());
            refuse(StatusCode::LOOP_DETECTED, &why)
        } else if let Some(port) = target.port(port) {
            self.carry(request, client, &target, port, began).await
        } else {
            refuse(StatusCode::NOT_FOUND, &format!("service {} has no such port", target.key()))
        };
        target.stats.answered(&method, response.status(), began.elapsed());
        response
    }

    /// The service that a request is for, and its port.
    #[allow(clippy::result_large_err)] // an answer, made once
    fn whose(
        &self,
        request: &Request<Incoming>,
        client: &Client,
    ) -> Result<(Arc<Target>, Option<u16>), Response<Answer>> {
        if !is_plain(request) {
            return Err(refuse(StatusCode::BAD_REQUEST, "a request must name its host once"));
        }
        let found = match &client.door {
            Door::Own(behind) => {
                self.directory.get(&behind.service).map(|target| (target, Some(behind.port)))
            }
            Door::Shared => {
                let host = self.host(request);
                host.as_deref().and_then(|host| self.directory.find(host, &self.options.cluster_domain))
            }
        };
        match found {
            Some(found) => {
                self.metrics.hosts_found.fetch_add(1, Ordering::Relaxed);
                Ok(found)
            }
            None => {
                self.metrics.hosts_unknown.fetch_add(1, Ordering::Relaxed);
                let host = self.host(request).unwrap_or_default();
                let why = format!("no ElastiService stands for the host {host:?}");
                Err(refuse(StatusCode::NOT_FOUND, &why))
            }
        }
    }

    /// The name that the client used.
    fn host<'a>(&self, request: &'a Request<Incoming>) -> Option<Cow<'a, str>> {
        let by_header = self.options.host_header.as_ref().and_then(|name| request.headers().get(name));
        let given = by_header.or_else(|| request.headers().get(HOST));
        match request.uri().authority() {
            // A name in the request line is the one that counts.
            Some(authority) if by_header.is_none() => Some(authority.as_str().into()),
            _ => given.and_then(|host| host.to_str().ok()).map(Cow::from),
        }
    }

    async fn carry(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        client: &Client,
        target: &Arc<Target>,
        port: u16,
        began: Instant,
    ) -> Response<Answer> {
        let deadline = began + self.options.hold;
        let running = Running::begin(Arc::clone(target), began);
        let version = request.version();
        let protocol = (version == Version::HTTP_11 && headers::is_upgrade(request.headers()))
            .then(|| request.headers().get(UPGRADE).cloned())
            .flatten();
        let leaves = if protocol.is_some() {
            Some(Leaves::Upgrade(hyper::upgrade::on(&mut request)))
        } else if names_protocol(&request) {
            Some(Leaves::Connect(hyper::upgrade::on(&mut request)))
        } else {
            None
        };
        let upgrade = if protocol.is_some() { Upgrade::Asked } else { Upgrade::No };
        let (parts, body) = request.into_parts();
        let mut parts = prepare(parts, &client.address, target.header());
        if let Some(protocol) = protocol {
            parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            parts.headers.insert(UPGRADE, protocol);
        }
        let asked = Asked { version, leaves, running };
        let mut request = Request::from_parts(parts, Outgoing::new(body));
        loop {
            let wake = || self.begin_waking(target);
            let unread = version < Version::HTTP_2 && !request.body().is_end_stream();
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
            match self.send(request, &permit, upgrade).await {
                Sent::Answer(response, lent) => {
                    if let Some(rise) = target.answered() {
                        self.metrics.rose(&rise);
                    }
                    return self.answer(response, lent, asked, target, permit);
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

    /// Turns the answer of a pod into ours.
    fn answer(
        &self,
        mut response: Response<Incoming>,
        lent: Lent,
        asked: Asked,
        target: &Arc<Target>,
        permit: Permit,
    ) -> Response<Answer> {
        let Asked { version, leaves, running } = asked;
        let status = response.status();
        let client = leaves.and_then(|leaves| leaves.granted(status));
        if status == StatusCode::SWITCHING_PROTOCOLS && client.is_none() {
            return refuse(StatusCode::BAD_GATEWAY, "the pod changed the protocol unasked");
        }
        if let Some(client) = client {
            let pod = hyper::upgrade::on(&mut response);
            let protocol = response.headers().get(UPGRADE).cloned();
            let tunnel = tunnel::upgraded(client, pod, Carried { running, permit, lent });
            self.tasks.spawn(self.abort.clone().run_until_cancelled_owned(tunnel));
            headers::strip(response.headers_mut());
            if let Some(protocol) = protocol.filter(|_| status == StatusCode::SWITCHING_PROTOCOLS) {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
                response.headers_mut().insert(UPGRADE, protocol);
            }
            return response.map(|_| Answer::Text(None));
        }
        headers::strip(response.headers_mut());
        if target.mode() == Mode::Serve && version < Version::HTTP_2 {
            // Pods serve directly by now; a new connection will find them.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        *response.version_mut() = version;
        response.map(|body| Answer::streaming(body, Carried { running, permit, lent }))
    }

    /// Asks for pods until one comes or nobody waits any more.
    pub(crate) fn begin_waking(self: &Arc<Self>, target: &Arc<Target>) {
        const FIRST: Duration = Duration::from_millis(100);
        const LONGEST: Duration = Duration::from_secs(5);
        let (this, target) = (Arc::clone(self), Arc::clone(target));
        let asking = async move {
            let mut pause = FIRST;
            while target.still_waking() {
                let delay = match this.options.wake.wake(target.key()).await {
                    Ok(()) => {
                        this.metrics.woken.fetch_add(1, Ordering::Relaxed);
                        target.notified();
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
        self.tasks.spawn_on(self.abort.clone().run_until_cancelled_owned(asking), &self.home);
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

/// Whether a request asks for another protocol on its stream of HTTP/2.
fn names_protocol(request: &Request<Incoming>) -> bool {
    request.version() == Version::HTTP_2
        && request.method() == Method::CONNECT
        && request.extensions().get::<Protocol>().is_some()
}

/// Whether a request names its host once. Of two names a pod might believe the other one.
fn is_plain(request: &Request<Incoming>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    let agrees =
        |authority: &str| first.is_none_or(|host| host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()));
    // The request line of HTTP/1.1 overrides the header, and the pod is told only of it.
    let authority = request.uri().authority().filter(|_| request.version() == Version::HTTP_2);
    second.is_none() && authority.is_none_or(|authority| agrees(authority.as_str()))
}

/// The head of the request as the pod gets it, in the protocol that the client chose.
fn prepare(mut parts: Parts, client: &HeaderValue, service: &HeaderValue) -> Parts {
    headers::strip(&mut parts.headers);
    let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let named = parts.uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    let host = named.clone().or_else(|| parts.headers.get(HOST).cloned());
    headers::forward(&mut parts.headers, client, host, service);
    if parts.version == Version::HTTP_2 {
        // The other side of HTTP/2 wants to hear the name again.
        let mut uri = parts.uri.clone().into_parts();
        uri.scheme = Some(Scheme::HTTP);
        uri.path_and_query = Some(path);
        if let Ok(uri) = Uri::from_parts(uri) {
            parts.uri = uri;
        }
    } else {
        if let Some(named) = named {
            parts.headers.insert(HOST, named);
        }
        parts.uri = Uri::from(path);
        parts.version = Version::HTTP_11;
    }
    parts
}
