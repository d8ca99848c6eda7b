//! A server in memory and a client that says what it sends.

#![allow(dead_code, reason = "every test uses another part of it")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use steersman_apiserver::{
    Body, InProcess, Options, Server, User,
    store::{Store, StoreOptions},
};
use tower_service::Service as _;

/// A server with a clock that stands still until it is moved.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) client: Client,
    seconds: Arc<AtomicI64>,
}

impl World {
    pub(crate) async fn new() -> World {
        Self::with(Options::default()).await
    }

    pub(crate) async fn with(options: Options) -> World {
        Self::on(Store::memory(StoreOptions::default()), options).await
    }

    pub(crate) async fn on(store: Store, options: Options) -> World {
        let seconds = Arc::new(AtomicI64::new(1_800_000_000));
        let now = Arc::clone(&seconds);
        let clock =
            Arc::new(move || jiff::Timestamp::from_second(now.load(Ordering::Relaxed)).expect("a time"));
        let server = Server::open(store, Options { clock, ..options }).await.expect("opened");
        let client = Client { service: server.service(User::admin()), agent: "test" };
        World { server, client, seconds }
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
    }
}

/// Sends requests and reads answers.
#[derive(Clone)]
pub(crate) struct Client {
    service: InProcess,
    agent: &'static str,
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    /// The body of an answer that must have this code.
    #[track_caller]
    pub(crate) fn ok(&self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// The message of a failure that must have this code and reason.
    #[track_caller]
    pub(crate) fn failure(&self, code: u16, reason: &str) -> String {
        let status = self.ok(code);
        assert_eq!(
            (status["kind"].as_str(), status["reason"].as_str()),
            (Some("Status"), Some(reason)),
            "{status}"
        );
        status["message"].as_str().unwrap_or_default().to_owned()
    }
}

impl Client {
    pub(crate) fn agent(&self, agent: &'static str) -> Client {
        Client { agent, ..self.clone() }
    }

    pub(crate) async fn raw(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path).header("user-agent", self.agent);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body))).expect("a request");
        self.service.clone().call(request).await.expect("never fails")
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let (parts, body) = self.raw(method, path, headers, body).await.into_parts();
        let body = body.collect().await.expect("never fails").to_bytes();
        Answer { code: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], b"").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, &[("content-type", "application/json")], body.to_string().as_bytes())
            .await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, &[("content-type", "application/json")], body.to_string().as_bytes())
            .await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, &[], b"").await
    }

    pub(crate) async fn patch(&self, kind: &str, path: &str, body: &Value) -> Answer {
        let media = match kind {
            "apply" => "application/apply-patch+yaml".to_owned(),
            kind => format!("application/{kind}-patch+json"),
        };
        self.send(Method::PATCH, path, &[("content-type", &media)], body.to_string().as_bytes()).await
    }

    pub(crate) async fn watch(&self, path: &str) -> Watch {
        let response = self.raw(Method::GET, path, &[], b"").await;
        assert_eq!(response.status(), 200);
        Watch { body: response.into_body(), rest: Vec::new() }
    }
}

/// An open watch.
pub(crate) struct Watch {
    body: Body,
    rest: Vec<u8>,
}

impl Watch {
    /// The next event; nothing at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("an event"));
            }
            let frame = tokio::time::timeout(Duration::from_secs(600), self.body.frame())
                .await
                .expect("an event in time")?;
            if let Ok(data) = frame.expect("never fails").into_data() {
                self.rest.extend_from_slice(&data);
            }
        }
    }

    /// Type and name of the next event.
    pub(crate) async fn brief(&mut self) -> (String, String) {
        let event = self.next().await.expect("an event");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }
}

pub(crate) fn config_map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
