//! Wake-up calls: `POST /informer/incoming-request`, and `GET /crd-cache` for those who ask what
//! is known.

use crate::callers::{Callers, Gate, Refusal};
use crate::scale::{self, ScaleError};
use crate::types::ElastiService;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use steersman::{CancellationToken, Metrics};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// How much of a call is read.
const LARGEST: usize = 64 * 1024;

/// What wake-up calls need.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// Whose calls are taken.
    pub callers: Callers,
    /// What `GET /metrics` tells; nothing, where there is none.
    pub metrics: Option<Metrics>,
    /// The only namespaces whose services are woken and told of; none named: all of them.
    pub namespaces: Vec<String>,
}

impl EndpointOptions {
    fn concerns(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.iter().any(|one| one == namespace)
    }
}

/// A wake-up call.
#[derive(Debug, Deserialize)]
struct Call {
    svc: String,
    namespace: String,
}

/// Takes wake-up calls until told to stop.
///
/// Every replica of the operator may, whether it leads or not: to wake twice is to wake once.
pub async fn serve(listener: TcpListener, client: Client, options: EndpointOptions, stop: CancellationToken) {
    let gate = Gate::new(options.callers.clone(), client.clone());
    let desk = Arc::new(Desk { gate, options, client });
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            },
            Some(_) = connections.join_next() => continue,
            () = stop.cancelled() => break,
        };
        let desk = Arc::clone(&desk);
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let desk = Arc::clone(&desk);
                async move { Ok::<_, Infallible>(desk.handle(request).await) }
            });
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(10))
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
    connections.shutdown().await;
}

/// What calls are answered from.
struct Desk {
    gate: Gate,
    options: EndpointOptions,
    client: Client,
}

impl Desk {
    async fn handle(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        match (request.uri().path(), &self.options.metrics) {
            ("/healthz", _) => return answer(StatusCode::OK, &json!({"status": "ok"})),
            ("/metrics", Some(metrics)) => return text(metrics.encode()),
            _ => {}
        }
        match self.gate.pass(&request).await {
            Ok(()) => {}
            Err(Refusal::Stranger) => {
                let why = "this needs the header Authorization: Bearer with the operator's token or one of the \
                           resolver's service account";
                return answer(StatusCode::UNAUTHORIZED, &json!({"error": why}));
            }
            Err(Refusal::Unsure(why)) => {
                tracing::warn!(why, "the API server cannot say whose a token is");
                let error = format!("the API server cannot say whose this token is: {why}");
                return answer(StatusCode::SERVICE_UNAVAILABLE, &json!({"error": error}));
            }
        }
        match (request.uri().path(), request.method()) {
            ("/informer/incoming-request", &Method::POST) => self.wake(request).await,
            ("/informer/incoming-request", _) => {
                answer(StatusCode::METHOD_NOT_ALLOWED, &json!({"error": "wake-up calls are made with POST"}))
            }
            ("/crd-cache", &Method::GET) => self.known().await,
            _ => answer(StatusCode::NOT_FOUND, &json!({"error": "there is nothing here"})),
        }
    }

    /// Answers when the target is scaled, not before: whoever called can rely on it.
    async fn wake(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let body = Limited::new(request.into_body(), LARGEST).collect().await;
        let call = body.ok().and_then(|body| serde_json::from_slice::<Call>(&body.to_bytes()).ok());
        let Some(call) = call else {
            let why = r#"the body must be like {"count": 1, "svc": "web", "namespace": "default"}"#;
            return answer(StatusCode::BAD_REQUEST, &json!({"error": why}));
        };
        if !self.options.concerns(&call.namespace) {
            let why = format!(
                "namespace {} is not looked after here; WATCH_NAMESPACES or --watch-namespace names those that are",
                call.namespace
            );
            return answer(StatusCode::NOT_FOUND, &json!({"error": why}));
        }
        match scale::wake(&self.client, &call.namespace, &call.svc).await {
            Ok(()) => answer(StatusCode::OK, &json!({"message": "Request received successfully!"})),
            Err(error) => {
                tracing::warn!(namespace = call.namespace, service = call.svc, %error, "a wake-up call failed");
                let status = match error {
                    ScaleError::UnknownService(_) => StatusCode::NOT_FOUND,
                    _ => StatusCode::SERVICE_UNAVAILABLE,
                };
                answer(status, &json!({"error": error.to_string()}))
            }
        }
    }

    async fn known(&self) -> Response<Full<Bytes>> {
        let all: Api<ElastiService> = Api::all(self.client.clone());
        match all.list(&ListParams::default()).await {
            Ok(list) => {
                let services: Map<String, Value> = list
                    .items
                    .iter()
                    .map(|one| (one.namespace().unwrap_or_default(), one))
                    .filter(|(namespace, _)| self.options.concerns(namespace))
                    .map(|(namespace, one)| {
                        let key = format!("{namespace}/{}", one.spec.service);
                        (key, json!({"name": one.name_any(), "spec": one.spec, "status": one.status}))
                    })
                    .collect();
                answer(StatusCode::OK, &json!({"services": services}))
            }
            Err(error) => answer(StatusCode::SERVICE_UNAVAILABLE, &json!({"error": error.to_string()})),
        }
    }
}

fn text(body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn answer(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
