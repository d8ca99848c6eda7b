//! A server under test.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use hyper::http::Request as HttpRequest;
use kube::{Client, client::Body};
use serde_json::{Value, json};

use crate::{hook::Hook, shown, table::Request};

/// How long anything may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Headers that clients look at.
const HEADERS: [&str; 4] = ["content-type", "warning", "allow", "retry-after"];

/// One of the two servers.
pub(crate) struct Peer<'a> {
    client: Client,
    hook: &'a Hook,
    namespace: String,
    /// What the last answer that had one said for the next page, and which version it was of.
    token: String,
    version: String,
    /// The version of the last answer that was marked.
    mark: String,
}

impl<'a> Peer<'a> {
    pub(crate) fn new(client: Client, hook: &'a Hook) -> Self {
        let (namespace, token, version, mark) = Default::default();
        Self { client, hook, namespace, token, version, mark }
    }

    /// Makes the namespace of an area.
    pub(crate) async fn enter(&mut self, area: &str) {
        self.namespace = area.to_owned();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": area}});
        let request = HttpRequest::post("/api/v1/namespaces").header("content-type", "application/json");
        let request = request.body(Body::from(namespace.to_string().into_bytes())).unwrap();
        assert_eq!(self.client.send(request).await.unwrap().status().as_u16(), 201);
    }

    /// Sends a request and tells of the answer what must be the same.
    pub(crate) async fn answer(&mut self, request: &Request) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.once(request).await;
            if request.until.is_none_or(|code| answer["code"] == code) {
                return answer;
            }
            assert!(Instant::now() < deadline, "{} is never {:?}: {answer}", request.what, request.until);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn once(&mut self, request: &Request) -> Value {
        let (method, path) = request.what.split_once(' ').expect("a method and a path");
        let path = self.path(path);
        let media = match request.media.as_deref() {
            None | Some("body") => "application/json".to_owned(),
            Some(kind @ ("json" | "merge" | "strategic-merge")) => format!("application/{kind}-patch+json"),
            Some("strategic") => "application/strategic-merge-patch+json".to_owned(),
            Some("apply") => "application/apply-patch+yaml".to_owned(),
            Some("yaml") => "application/yaml".to_owned(),
            Some(other) => other.to_owned(),
        };
        let accept = match request.accept.as_deref() {
            None => "application/json",
            Some("table") => "application/json;as=Table;v=v1;g=meta.k8s.io",
            Some("metadata") => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            Some("metadata-list") => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            Some(other) => other,
        };
        let body = match (&request.body, &request.raw) {
            (Some(body), _) => self.fill(&body.to_string()),
            (None, Some(raw)) => raw.clone(),
            (None, None) => String::new(),
        };
        let mut builder = HttpRequest::builder().method(method).uri(&path).header("accept", accept);
        builder = builder.header("user-agent", "differential/1");
        if !body.is_empty() {
            builder = builder.header("content-type", media);
        }
        let built = builder.body(Body::from(body.into_bytes())).unwrap();
        let response = self.client.send(built).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        let code = response.status().as_u16();
        let mut headers = serde_json::Map::new();
        for name in HEADERS {
            let values: Vec<&str> =
                response.headers().get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
            if !values.is_empty() {
                headers.insert(name.to_owned(), json!(values));
            }
        }
        let body = match request.events {
            Some(count) if code == 200 => events(response.into_body(), count).await,
            _ => {
                let bytes = response.into_body().collect().await.unwrap().to_bytes();
                serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into())
            }
        };
        self.remember(&body);
        if request.mark {
            self.mark.clone_from(&self.version);
        }
        let mut answer = json!({"code": code, "headers": headers, "body": body});
        shown::normalise(&mut answer);
        for pointer in &request.but {
            if let Some(place) = answer["body"].pointer_mut(pointer) {
                *place = "differs".into();
            }
        }
        answer
    }

    fn remember(&mut self, body: &Value) {
        if let Some(token) = body["metadata"]["continue"].as_str() {
            token.clone_into(&mut self.token);
        }
        if let Some(version) = body["metadata"]["resourceVersion"].as_str() {
            version.clone_into(&mut self.version);
        }
    }

    /// A whole path, with what this server said before where the request says so.
    fn path(&self, path: &str) -> String {
        let path = self.fill(path);
        if path.starts_with('/') {
            return path;
        }
        // `apps/v1:deployments/a` is of a group, `configmaps/a` of none.
        let namespace = &self.namespace;
        match path.split_once(':').filter(|(group, _)| group.contains('/') && !group.contains('?')) {
            Some((group, rest)) => format!("/apis/{group}/namespaces/{namespace}/{rest}"),
            None => format!("/api/v1/namespaces/{namespace}/{path}"),
        }
    }

    fn fill(&self, text: &str) -> String {
        let hook = self.hook.client("/convert");
        text.replace("$namespace", &self.namespace)
            .replace("$continue", &self.token)
            .replace("$version", &self.version)
            .replace("$mark", &self.mark)
            .replace("\"$hook\"", &hook.to_string())
    }
}

/// The first events of a watch.
async fn events(body: Body, count: usize) -> Value {
    let mut stream = body.into_data_stream();
    let (mut bytes, mut events) = (Vec::new(), Vec::new());
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while events.len() < count {
        let next = tokio::time::timeout_at(deadline, stream.next()).await.expect("the events come in time");
        let Some(chunk) = next else { break };
        bytes.extend_from_slice(&chunk.unwrap());
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = bytes.drain(..=end).collect();
            events.push(serde_json::from_slice(&line).unwrap_or_default());
        }
    }
    events.truncate(count);
    Value::Array(events)
}
