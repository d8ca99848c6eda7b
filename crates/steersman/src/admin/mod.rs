//! `/metrics`, `/healthz`, `/readyz`, and what an operator is doing: `/debug/queue`,
//! `/debug/cache` and `/debug/reconciles`.

mod guard;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use self::guard::Guard;
pub use self::guard::SecureMetrics;
use crate::accept::accept;
use crate::cache::Cache;
use crate::checks::Checks;
use crate::metrics::Metrics;
use crate::queue::{EntryReport, Priority};
use crate::recent::Recent;
use crate::webhook::{Certified, Keeper, Serving, WebhookError};

/// Connections at the same time; a scraper and a prober need two.
const CONNECTIONS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);

/// How many keys of one queue are shown.
const KEYS: usize = 1000;
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// What one address answers, and to whom.
#[derive(Clone)]
pub(crate) enum Face {
    /// Everything, to everybody.
    Open,
    /// Only whether the process is well and ready; the rest is guarded at another address.
    Health,
    /// Everything, over TLS, to those whom the API server lets.
    Guarded { tls: TlsAcceptor, guard: Arc<Guard> },
}

impl Face {
    /// For those whom the API server lets, with a certificate that is kept fresh until stopped.
    pub(crate) async fn guarded(
        secure: &SecureMetrics,
        bound: SocketAddr,
        serving: Serving,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self, WebhookError> {
        let wanted = Certified { certificates: secure.certificates.clone(), names: secure.names(bound) };
        let guard = Arc::new(Guard::new(serving.client.clone(), secure.memory));
        let tls = Keeper::certify(wanted, serving, tasks).await?;
        Ok(Self::Guarded { tls, guard })
    }
}

/// Answers for one manager.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) metrics: Metrics,
    pub(crate) live: Checks,
    pub(crate) ready: Checks,
    pub(crate) cache: Cache,
    pub(crate) recent: Recent,
}

/// The queue of one controller, as `/debug/queue` shows it.
#[derive(Serialize)]
struct QueueReport {
    controller: String,
    /// Keys that are ready, by priority.
    depth: BTreeMap<i32, usize>,
    entries: Vec<EntryReport>,
}

impl Admin {
    /// Serves until stopped.
    pub(crate) async fn serve(self, listener: TcpListener, face: Face, stop: CancellationToken) {
        accept(listener, CONNECTIONS, &stop, |stream| {
            let (admin, face, stop) = (self.clone(), face.clone(), stop.clone());
            async move {
                tokio::select! {
                    () = admin.connection(stream, face) => {}
                    () = stop.cancelled() => {}
                }
            }
        })
        .await;
    }

    async fn connection(self, stream: TcpStream, face: Face) {
        let tls = match &face {
            Face::Guarded { tls, .. } => Some(tls.clone()),
            Face::Open | Face::Health => None,
        };
        match tls {
            None => self.talk(stream, face).await,
            Some(tls) => {
                if let Ok(Some(stream)) = timeout(PATIENCE, shake_hands(stream, &tls)).await {
                    self.talk(stream, face).await;
                }
            }
        }
    }

    async fn talk(self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, face: Face) {
        let service = service_fn(move |request: Request<Incoming>| {
            let (admin, face) = (self.clone(), face.clone());
            async move { Ok::<_, Infallible>(admin.respond(&request, &face).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .serve_connection(TokioIo::new(stream), service);
        // A caller that goes away is no concern of ours.
        let _ = connection.await;
    }

    async fn respond(&self, request: &Request<Incoming>, face: &Face) -> Response<Full<Bytes>> {
        // As `answer` reads it: what is asked about must be what is shown.
        let path = format!("/{}", request.uri().path().trim_matches('/'));
        match face {
            Face::Open => {}
            Face::Health => {
                if !matches!(path.split('/').nth(1), Some("healthz" | "livez" | "readyz")) {
                    let words = "there are /healthz and /readyz; the rest is at the address of metrics";
                    return text(StatusCode::NOT_FOUND, TEXT, words.to_owned());
                }
            }
            Face::Guarded { guard, .. } => {
                if let Err(refusal) = guard.admit(request.method(), &path, request.headers()).await {
                    let mut response = text(refusal.status, TEXT, refusal.words + "\n");
                    if refusal.status == StatusCode::UNAUTHORIZED {
                        let bearer = header::HeaderValue::from_static("Bearer");
                        response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
                    }
                    return response;
                }
            }
        }
        self.answer(request.method(), request.uri())
    }

    fn answer(&self, method: &Method, uri: &Uri) -> Response<Full<Bytes>> {
        const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        if !matches!(*method, Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET".to_owned());
        }
        let query = uri.query().unwrap_or_default();
        let mut parts = uri.path().trim_matches('/').splitn(2, '/');
        match (parts.next().unwrap_or_default(), parts.next()) {
            ("metrics", None) => text(StatusCode::OK, OPEN_METRICS, self.metrics.encode()),
            ("healthz" | "livez", name) => check(&self.live, name, query),
            ("readyz", name) => check(&self.ready, name, query),
            ("debug", Some("queue")) => json(&self.queues()),
            ("debug", Some("cache")) => json(&self.cache.report()),
            ("debug", Some("reconciles")) => json(&self.recent.list()),
            _ => text(
                StatusCode::NOT_FOUND,
                TEXT,
                "there are /metrics, /healthz, /readyz, /debug/queue, /debug/cache and /debug/reconciles"
                    .to_owned(),
            ),
        }
    }

    fn queues(&self) -> Vec<QueueReport> {
        let queues = self.metrics.queues();
        let reports = queues.into_iter().map(|(controller, queue)| QueueReport {
            controller,
            depth: Priority::ALL.iter().map(|level| level.number()).zip(queue.depth()).collect(),
            entries: queue.entries(KEYS),
        });
        reports.collect()
    }
}

/// Begins TLS; whoever speaks plain HTTP is told so instead of being cut off.
async fn shake_hands(mut stream: TcpStream, tls: &TlsAcceptor) -> Option<TlsStream<TcpStream>> {
    /// Every handshake begins with this byte, and no HTTP request does.
    const HANDSHAKE: u8 = 22;
    let mut first = [0];
    if stream.peek(&mut first).await.ok()? == 0 {
        return None;
    }
    if first != [HANDSHAKE] {
        let words = "metrics are served over HTTPS\n";
        let head = "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close";
        let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{words}", words.len());
        let _ = stream.write_all(answer.as_bytes()).await;
        // Read what was sent: closing before would reset the connection and lose the answer.
        let _ = stream.shutdown().await;
        let _ = tokio::io::copy(&mut stream.take(64 * 1024), &mut tokio::io::sink()).await;
        return None;
    }
    tls.accept(stream).await.ok()
}

/// Answers like Kubernetes' own endpoints: `?verbose` names every check, `?exclude=` leaves one
/// out.
fn check(checks: &Checks, name: Option<&str>, query: &str) -> Response<Full<Bytes>> {
    let left_out: Vec<&str> = query.split('&').filter_map(|pair| pair.strip_prefix("exclude=")).collect();
    let verbose = query.split('&').any(|pair| matches!(pair, "verbose" | "verbose=1" | "verbose=true"));
    match checks.ask(name, &left_out) {
        None => text(StatusCode::NOT_FOUND, TEXT, "there is no check of this name".to_owned()),
        Some(answers) if !answers.are_good() => {
            text(StatusCode::SERVICE_UNAVAILABLE, TEXT, answers.to_string())
        }
        Some(answers) if verbose => text(StatusCode::OK, TEXT, answers.to_string()),
        Some(_) => text(StatusCode::OK, TEXT, "ok".to_owned()),
    }
}

fn json(value: &impl Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_string_pretty(value) {
        Ok(body) => text(StatusCode::OK, JSON, body + "\n"),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, TEXT, error.to_string()),
    }
}

fn text(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}
