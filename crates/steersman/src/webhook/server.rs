//! The HTTPS server of webhooks.

use std::any::Any;
use std::collections::HashMap;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{Method, Request as HttpRequest, Response as HttpResponse, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::CONVERT;
use super::handler::Handler;
use super::review::Request;
use crate::accept::accept;
use crate::convert::{Convert, review};
use crate::error::Error;
use crate::metrics::{Metrics, WebhookMetrics};

/// Bodies may not be larger than this: two objects of the largest size and what is around them.
const BODY_LIMIT: usize = 8 * 1024 * 1024;
/// Connections at the same time; an API server keeps a few open.
const CONNECTIONS: usize = 1024;
/// A connection that has not said hello by then is dropped.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long calls may take to end once the server stops.
const GRACE: Duration = Duration::from_secs(5);
/// An answer that says "too late" must itself be in time.
const MARGIN: Duration = Duration::from_millis(200);

/// Answers calls.
#[derive(Clone)]
pub(super) struct Server {
    routes: Arc<HashMap<String, Route>>,
    /// How long a call may take that does not say how long its caller waits.
    patience: Duration,
}

struct Route {
    work: Work,
    metrics: WebhookMetrics,
}

/// What is done at a path.
enum Work {
    Admission(Box<dyn Handler>),
    Conversion(Vec<Box<dyn Convert>>),
}

impl Work {
    /// The answer to the body of a call.
    async fn answer(&self, body: &[u8]) -> Result<Value, Refusal> {
        match self {
            Self::Admission(handler) => {
                let request = Request::parse(body).map_err(Refusal::NoReview)?;
                let response = handler.handle(&request).await.map_err(Refusal::Failed)?;
                Ok(request.answer(response))
            }
            Self::Conversion(converters) => {
                review::answer_all(converters, body).map_err(|error| Refusal::NoReview(error.to_string()))
            }
        }
    }
}

/// Why there is no answer.
enum Refusal {
    /// The body makes no sense.
    NoReview(String),
    /// The code behind the webhook could not tell.
    Failed(Error),
}

impl Server {
    pub(super) fn new(
        handlers: Vec<Box<dyn Handler>>,
        converters: Vec<Box<dyn Convert>>,
        patience: Duration,
        metrics: &Metrics,
    ) -> Self {
        let admission = handlers.into_iter().map(|handler| (handler.path(), Work::Admission(handler)));
        let conversion = (!converters.is_empty()).then(|| (CONVERT.to_owned(), Work::Conversion(converters)));
        let routes = admission.chain(conversion).map(|(path, work)| {
            let metrics = match work {
                Work::Admission(_) => metrics.webhook(&path),
                Work::Conversion(_) => metrics.converter(&path),
            };
            (path, Route { work, metrics })
        });
        Self { routes: Arc::new(routes.collect()), patience }
    }

    /// Serves until stopped, then lets calls end.
    pub(super) async fn serve(self, listener: TcpListener, tls: TlsAcceptor, stop: CancellationToken) {
        accept(listener, CONNECTIONS, &stop, |stream| {
            self.clone().connection(stream, tls.clone(), stop.clone())
        })
        .await;
    }

    async fn connection(self, stream: TcpStream, tls: TlsAcceptor, stop: CancellationToken) {
        let _ = stream.set_nodelay(true);
        let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept(stream)).await else { return };
        let service = service_fn(move |request: HttpRequest<Incoming>| {
            let server = self.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30));
        builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(Duration::from_secs(30)));
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => {}
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                let _ = timeout(GRACE, connection).await;
            }
        }
    }

    async fn answer(&self, request: HttpRequest<Incoming>) -> HttpResponse<Full<Bytes>> {
        let Some(route) = self.routes.get(request.uri().path()) else {
            let mut paths: Vec<&str> = self.routes.keys().map(String::as_str).collect();
            paths.sort_unstable();
            return text(StatusCode::NOT_FOUND, format!("there are {}", paths.join(", ")));
        };
        let in_flight = route.metrics.begin();
        let response = self.review(route, request).await;
        in_flight.end(response.status().as_u16());
        response
    }

    async fn review(&self, route: &Route, request: HttpRequest<Incoming>) -> HttpResponse<Full<Bytes>> {
        if request.method() != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only POST".to_owned());
        }
        let patience =
            asked_patience(request.uri().query()).unwrap_or(self.patience).min(Duration::from_secs(30));
        let path = request.uri().path().to_owned();
        let begin = tokio::time::Instant::now();
        let body = match timeout(patience, Limited::new(request.into_body(), BODY_LIMIT).collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) => {
                return text(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}"));
            }
            Err(_) => return text(StatusCode::REQUEST_TIMEOUT, "the body did not come in time".to_owned()),
        };
        let left = patience.saturating_sub(begin.elapsed()).saturating_sub(MARGIN);
        let handled = AssertUnwindSafe(route.work.answer(&body)).catch_unwind();
        match timeout(left, handled).await {
            Ok(Ok(Ok(answer))) => with_type(StatusCode::OK, "application/json", answer.to_string()),
            Ok(Ok(Err(Refusal::NoReview(why)))) => text(StatusCode::BAD_REQUEST, why),
            Ok(Ok(Err(Refusal::Failed(error)))) => {
                tracing::warn!(%error, path, "a webhook failed");
                text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
            }
            Ok(Err(panic)) => {
                route.metrics.panicked();
                let words = words(&*panic);
                tracing::error!(panic = words, path, "a webhook panicked");
                text(StatusCode::INTERNAL_SERVER_ERROR, format!("panic: {words} [recovered]"))
            }
            Err(_) => {
                tracing::warn!(path, ?patience, "a webhook took too long");
                let why = format!("no decision within {} s", patience.as_secs());
                text(StatusCode::GATEWAY_TIMEOUT, why)
            }
        }
    }
}

/// How long the caller waits, as it says in the query: `timeout=10s`.
fn asked_patience(query: Option<&str>) -> Option<Duration> {
    let value = query?.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
    value.strip_suffix('s')?.parse().ok().map(Duration::from_secs)
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no words".to_owned())
}

fn text(status: StatusCode, body: String) -> HttpResponse<Full<Bytes>> {
    with_type(status, "text/plain; charset=utf-8", body)
}

fn with_type(status: StatusCode, kind: &'static str, body: String) -> HttpResponse<Full<Bytes>> {
    let mut response = HttpResponse::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_say_how_long_they_wait() {
        assert_eq!(asked_patience(Some("timeout=3s")), Some(Duration::from_secs(3)));
        assert_eq!(asked_patience(Some("a=b&timeout=10s")), Some(Duration::from_secs(10)));
        assert_eq!(asked_patience(Some("timeout=soon")), None);
        assert_eq!(asked_patience(None), None);
    }
}
