//! The internal port: health, metrics, and how busy services are.

use crate::body::Answer;
use crate::directory::Directory;
use crate::metrics::Metrics;
use crate::target::ServiceKey;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What the internal port answers from.
pub(crate) struct Internal {
    pub(crate) directory: Directory,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) shutdown: CancellationToken,
}

impl Internal {
    pub(crate) fn handle<B>(&self, request: &Request<B>) -> Response<Answer> {
        if request.method() != Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here\n".into());
        }
        match request.uri().path() {
            "/healthz" => text(StatusCode::OK, "ok".into()),
            "/readyz" if self.shutdown.is_cancelled() => {
                text(StatusCode::SERVICE_UNAVAILABLE, "shutting down".into())
            }
            "/readyz" => text(StatusCode::OK, "ok".into()),
            "/metrics" => text(StatusCode::OK, self.metrics.encode(&self.directory)),
            "/queue-status" => self.queue(request.uri().query().unwrap_or_default()),
            "/crd-cache-status" => {
                let keys: Vec<_> =
                    self.directory.all().iter().map(|target| target.key().to_string()).collect();
                respond(&json!({"services": keys, "count": keys.len()}))
            }
            "/activity" => self.activity(),
            _ => text(
                StatusCode::NOT_FOUND,
                "served here: /healthz /readyz /metrics /queue-status /crd-cache-status /activity\n".into(),
            ),
        }
    }

    /// Whether requests wait for a service: 1 or 0.
    fn queue(&self, query: &str) -> Response<Answer> {
        let value = |name: &str| {
            query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name)
        };
        let (Some((_, namespace)), Some((_, service))) = (value("namespace"), value("service")) else {
            return text(StatusCode::BAD_REQUEST, "ask with ?namespace=…&service=…\n".into());
        };
        let target = self.directory.get(&ServiceKey::new(namespace, service));
        let waiting = target.is_some_and(|target| target.pending() > 0);
        respond(&json!({"queueStatus": u8::from(waiting)}))
    }

    /// What the operator decides by where no other trigger says whether a service is idle.
    fn activity(&self) -> Response<Answer> {
        let services: Map<String, Value> = self
            .directory
            .all()
            .iter()
            .map(|target| {
                let activity = target.stats.activity();
                let value = json!({
                    "held": activity.held,
                    "ready": target.ready(),
                    "running": activity.running,
                    "requests": activity.total,
                    "idleSeconds": activity.idle.map(|idle| idle.as_secs_f64()),
                });
                (target.key().to_string(), value)
            })
            .collect();
        respond(&json!({"services": services}))
    }
}

fn text(status: StatusCode, body: String) -> Response<Answer> {
    let mut response = Response::new(Answer::text(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn respond(value: &Value) -> Response<Answer> {
    let mut response = Response::new(Answer::text(value.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
