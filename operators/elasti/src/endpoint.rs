//! Wake-up calls: `POST /informer/incoming-request`, and `GET /crd-cache` for those who ask what
//! is known.

use crate::scale::{self, ScaleError};
use crate::types::ElastiService;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use steersman::{CancellationToken, Error};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// How much of a call is read.
const LARGEST: usize = 64 * 1024;

/// Whose calls are taken.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Callers {
    /// Nobody's.
    #[default]
    Nobody,
    /// Those with this token in `Authorization: Bearer …`.
    Token(String),
    /// Everybody's, as KubeElasti does: for resolvers that know no token.
    Anyone,
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nobody => "Nobody",
            Self::Token(_) => "Token",
            Self::Anyone => "Anyone",
        })
    }
}

/// A wake-up call.
#[derive(Debug, Deserialize)]
struct Call {
    svc: String,
    namespace: String,
}

/// Takes wake-up calls at an address until told to stop.
///
/// # Errors
/// When the address is not to be had.
pub async fn run(
    address: SocketAddr,
    client: Client,
    callers: Callers,
    stop: CancellationToken,
) -> Result<(), Error> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Error::msg(format!("cannot listen on {address} for wake-up calls: {error}; choose another address"))
    })?;
    serve(listener, client, callers, stop).await;
    Ok(())
}

/// Takes wake-up calls until told to stop.
pub async fn serve(listener: TcpListener, client: Client, callers: Callers, stop: CancellationToken) {
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
        let (client, callers) = (client.clone(), callers.clone());
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let (client, callers) = (client.clone(), callers.clone());
                async move { Ok::<_, Infallible>(handle(request, &client, &callers).await) }
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

async fn handle(request: Request<Incoming>, client: &Client, callers: &Callers) -> Response<Full<Bytes>> {
    if request.uri().path() == "/healthz" {
        return answer(StatusCode::OK, &json!({"status": "ok"}));
    }
    if !is_allowed(&request, callers) {
        let why = "this needs the header Authorization: Bearer with the operator's token";
        return answer(StatusCode::UNAUTHORIZED, &json!({"error": why}));
    }
    match (request.uri().path(), request.method()) {
        ("/informer/incoming-request", &Method::POST) => wake(request, client).await,
        ("/informer/incoming-request", _) => {
            answer(StatusCode::METHOD_NOT_ALLOWED, &json!({"error": "wake-up calls are made with POST"}))
        }
        ("/crd-cache", &Method::GET) => known(client).await,
        _ => answer(StatusCode::NOT_FOUND, &json!({"error": "there is nothing here"})),
    }
}

fn is_allowed(request: &Request<Incoming>, callers: &Callers) -> bool {
    match callers {
        Callers::Nobody => false,
        Callers::Anyone => true,
        Callers::Token(token) => {
            let given = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
            same(given.strip_prefix(b"Bearer ").unwrap_or_default(), token.as_bytes())
        }
    }
}

/// Compares in a time that does not tell how much was right.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// Answers when the target is scaled, not before: whoever called can rely on it.
async fn wake(request: Request<Incoming>, client: &Client) -> Response<Full<Bytes>> {
    let body = Limited::new(request.into_body(), LARGEST).collect().await;
    let call = body.ok().and_then(|body| serde_json::from_slice::<Call>(&body.to_bytes()).ok());
    let Some(call) = call else {
        let why = r#"the body must be like {"count": 1, "svc": "web", "namespace": "default"}"#;
        return answer(StatusCode::BAD_REQUEST, &json!({"error": why}));
    };
    match scale::wake(client, &call.namespace, &call.svc).await {
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

async fn known(client: &Client) -> Response<Full<Bytes>> {
    let all: Api<ElastiService> = Api::all(client.clone());
    match all.list(&ListParams::default()).await {
        Ok(list) => {
            let services: Map<String, Value> = list
                .items
                .iter()
                .map(|one| {
                    let key = format!("{}/{}", one.namespace().unwrap_or_default(), one.spec.service);
                    (key, json!({"name": one.name_any(), "spec": one.spec, "status": one.status}))
                })
                .collect();
            answer(StatusCode::OK, &json!({"services": services}))
        }
        Err(error) => answer(StatusCode::SERVICE_UNAVAILABLE, &json!({"error": error.to_string()})),
    }
}

fn answer(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
