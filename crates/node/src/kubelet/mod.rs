//! The kubelet's endpoints: logs and health, over TLS.

mod container_logs;
mod tls;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub(crate) use tls::acceptor;

use crate::logs::Logs;
use crate::options::Clock;
use crate::pod::Known;

/// How long a client has to complete the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

pub(crate) type Answer = Response<BoxBody<Bytes, Infallible>>;

/// What the endpoints tell about.
#[derive(Clone)]
pub(crate) struct Endpoints {
    pub(crate) pods: Known,
    pub(crate) logs: Logs,
    pub(crate) clock: Clock,
}

/// Whether the client has shown a certificate that we trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    Trusted,
    Unknown,
}

/// Serves until the node ends; open connections are closed then.
pub(crate) async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    endpoints: Endpoints,
    shutdown: CancellationToken,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, acceptor.clone(), endpoints.clone()));
                }
                // Out of descriptors: let some connections end.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, endpoints: Endpoints) {
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
        return;
    };
    let trust = match stream.get_ref().1.peer_certificates() {
        Some([_, ..]) => Trust::Trusted,
        _ => Trust::Unknown,
    };
    let endpoints = Arc::new(endpoints);
    let service = service_fn(move |request| {
        let endpoints = Arc::clone(&endpoints);
        async move { Ok::<_, Infallible>(answer(&endpoints, trust, request).await) }
    });
    let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "kubelet connection ended");
    }
}

async fn answer(endpoints: &Endpoints, trust: Trust, request: Request<Incoming>) -> Answer {
    let path = request.uri().path();
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here\n");
    }
    if path == "/healthz" || path.starts_with("/healthz/") {
        return text(StatusCode::OK, "ok");
    }
    if trust == Trust::Unknown {
        return text(StatusCode::UNAUTHORIZED, "a client certificate of the cluster's authority is needed\n");
    }
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match parts.as_slice() {
        ["pods" | "pods/"] => pods(endpoints),
        ["containerLogs", namespace, pod, container] => {
            let query = request.uri().query().unwrap_or_default();
            container_logs::answer(endpoints, [namespace, pod, container], query).await
        }
        _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

fn pods(endpoints: &Endpoints) -> Answer {
    let pods: Vec<_> = endpoints.pods.all();
    let items: Vec<_> =
        pods.iter().map(|pod| serde_json::to_value(pod.as_ref()).unwrap_or_default()).collect();
    let list = serde_json::json!({
        "apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items,
    });
    let mut answer = text(StatusCode::OK, list.to_string());
    answer
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    answer
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()).boxed());
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}
