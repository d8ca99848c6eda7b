//! `/metrics`, `/healthz` and `/readyz`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::metrics::Metrics;

/// Connections at the same time; a scraper and a prober need two.
const CONNECTIONS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);

/// Tells what is not ready yet; nothing when all is.
pub(crate) type Readiness = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// Answers for one manager.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) metrics: Metrics,
    pub(crate) readiness: Readiness,
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
                    let answer = admin.answer(request.method(), request.uri().path());
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

    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        const TEXT: &str = "text/plain; charset=utf-8";
        if !matches!(*method, Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET".to_owned());
        }
        match path {
            "/metrics" => text(StatusCode::OK, OPEN_METRICS, self.metrics.encode()),
            "/healthz" | "/livez" => text(StatusCode::OK, TEXT, "ok".to_owned()),
            "/readyz" => match (self.readiness)() {
                missing if missing.is_empty() => text(StatusCode::OK, TEXT, "ok".to_owned()),
                missing => text(StatusCode::SERVICE_UNAVAILABLE, TEXT, missing.join("\n")),
            },
            _ => text(StatusCode::NOT_FOUND, TEXT, "there are /metrics, /healthz and /readyz".to_owned()),
        }
    }
}

fn text(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}
