//! `/metrics`, `/healthz`, `/readyz`, and what an operator is doing: `/debug/queue`,
//! `/debug/cache` and `/debug/reconciles`.

use std::collections::BTreeMap;
use std::convert::Infallible;
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
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cache::Cache;
use crate::checks::Checks;
use crate::metrics::Metrics;
use crate::queue::{EntryReport, Priority};
use crate::recent::Recent;

/// Connections at the same time; a scraper and a prober need two.
const CONNECTIONS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);

/// How many keys of one queue are shown.
const KEYS: usize = 1000;
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

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
    pub(crate) async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let connections = TaskTracker::new();
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let place = Arc::clone(&places).acquire_owned();
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = async { (place.await, listener.accept().await) } => accepted,
            };
            let (Ok(place), Ok((stream, _))) = accepted else {
                // Out of file descriptors or the like: do not spin.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let (admin, stop) = (self.clone(), stop.clone());
            connections.spawn(async move {
                let _place = place;
                let service = service_fn(move |request: Request<Incoming>| {
                    let answer = admin.answer(request.method(), request.uri());
                    async move { Ok::<_, Infallible>(answer) }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(PATIENCE)
                    .serve_connection(TokioIo::new(stream), service);
                tokio::select! {
                    _ = connection => {}
                    () = stop.cancelled() => {}
                }
            });
        }
        connections.close();
        connections.wait().await;
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
