//! A server whose answers have headers.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use std::convert::Infallible;
use std::sync::Arc;

use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;

/// What was asked.
#[derive(Clone, Debug)]
pub struct Question {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Value,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub code: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Value,
}

impl Reply {
    pub fn new(code: u16, body: Value) -> Self {
        Self { code, headers: Vec::new(), body }
    }

    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "numbers and texts read better without a reference")]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }
}

/// Serves a function over HTTP on loopback until the runtime ends.
pub async fn answering(answer: impl Fn(Question) -> Reply + Send + Sync + 'static) -> String {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = Arc::clone(&answer);
            tokio::spawn(async move {
                let service = service_fn(move |request: Request<Incoming>| {
                    let answer = Arc::clone(&answer);
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                        let reply = answer(Question {
                            method: head.method,
                            path: head.uri.path().to_owned(),
                            query: head.uri.query().unwrap_or_default().to_owned(),
                            headers: head.headers,
                            body: serde_json::from_slice(&body).unwrap_or_default(),
                        });
                        let body = if reply.body.is_null() {
                            Bytes::new()
                        } else {
                            Bytes::from(reply.body.to_string())
                        };
                        let mut response = Response::new(Full::new(body));
                        *response.status_mut() = StatusCode::from_u16(reply.code).expect("a status code");
                        for (name, value) in reply.headers {
                            response.headers_mut().insert(name, value.parse().expect("a header"));
                        }
                        Ok::<_, Infallible>(response)
                    }
                });
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    format!("http://{address}")
}
