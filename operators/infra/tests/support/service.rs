//! The REST face on a port of its own, and ways to ask it.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http_body_util::BodyExt;
use serde_json::{Map, Value, json};
use steersman::CancellationToken;
use steersman_infra::action::Registry;
use steersman_infra::action::github::GitHubActions;
use steersman_infra::action::http::Http;
use steersman_infra::action::web::{PrivateAddresses, Web, WebOptions};
use steersman_infra::rest::Access;
use steersman_infra::{History, RestOptions, rest};
use steersman_test::{Cluster, Running};
use tokio::net::TcpListener;

use super::{cluster, operate};

/// A cluster, the REST face and, unless only the face is tested, the operator.
pub struct Service {
    pub cluster: Cluster,
    pub address: String,
    cut: Arc<AtomicBool>,
    stop: CancellationToken,
    _operator: Option<Running>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub fn web() -> Web {
    let options = WebOptions { private_addresses: PrivateAddresses::Allow, ..WebOptions::default() };
    Web::new(options).expect("a client")
}

pub fn settings(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().expect("settings")
}

pub fn plugins() -> Registry {
    Registry::new().with(Http::new(web())).with(GitHubActions::new(web()))
}

/// The face and the operator.
pub async fn service(plugins: Registry) -> Service {
    let (cluster, history) = (cluster().await, History::memory().expect("a history"));
    let operator = operate(&cluster, plugins.clone(), &history);
    serve(cluster, plugins, history, Access::Local, Some(operator)).await
}

/// The face alone: nothing is ever reconciled.
pub async fn face() -> Service {
    face_for(Access::Local).await
}

pub async fn face_for(access: Access) -> Service {
    serve(cluster().await, plugins(), History::memory().expect("a history"), access, None).await
}

async fn serve(
    cluster: Cluster,
    plugins: Registry,
    history: History,
    access: Access,
    operator: Option<Running>,
) -> Service {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let stop = CancellationToken::new();
    let options = RestOptions { clock: cluster.clock(), access, ..RestOptions::new(plugins, history) };
    let (cut, inner) = (Arc::new(AtomicBool::new(false)), cluster.client());
    let is_cut = Arc::clone(&cut);
    let between = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (inner, is_cut) = (inner.clone(), is_cut.load(Ordering::SeqCst));
        async move {
            match is_cut {
                true => Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)),
                false => inner.send(request).await.map_err(std::io::Error::other),
            }
        }
    });
    let client = kube::Client::new(between, "default");
    tokio::spawn(rest(client, options, listener, stop.clone()));
    Service { cluster, address, cut, stop, _operator: operator }
}

impl Service {
    /// Takes the store away from the face.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// Gives it back.
    pub fn mend(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }

    /// Runs a command as it stands in the documentation, against this service.
    pub async fn shell(&self, command: &str) -> (u16, Value) {
        let port = self.address.rsplit(':').next().unwrap_or_default();
        let command = command.replace("localhost:8000", &format!("localhost:{port}")).replacen(
            "curl ",
            "curl --silent --show-error --write-out '\\n%{http_code}' ",
            1,
        );
        let output = tokio::process::Command::new("sh")
            .args(["-c", &command])
            .stdin(Stdio::null())
            .output()
            .await
            .expect("a shell with curl");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, code) = text.rsplit_once('\n').unwrap_or_else(|| panic!("{command}: {output:?}"));
        (code.parse().expect("a code"), serde_json::from_str(body).unwrap_or(Value::Null))
    }

    /// What a command prints, such as the headers of an answer.
    pub async fn head(&self, command: &str) -> String {
        let port = self.address.rsplit(':').next().unwrap_or_default();
        let command = command.replace("localhost:8000", &format!("localhost:{port}"));
        let command = command.replacen("curl ", "curl --silent ", 1);
        let output = tokio::process::Command::new("sh").args(["-c", &command]).output().await;
        String::from_utf8_lossy(&output.expect("a shell with curl").stdout).into_owned()
    }

    pub async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let data = body.map(Value::to_string);
        self.raw(method, path, data.as_deref()).await
    }

    pub async fn raw(&self, method: &str, path: &str, body: Option<&str>) -> (u16, Value) {
        send(&self.address, method, path, body.unwrap_or_default()).await
    }

    pub async fn wait(&self, path: &str, status: &str) -> Value {
        let what = format!("{path} to be {status}");
        let probe = || async {
            let (_, body) = self.ask("GET", path, None).await;
            (body["status"] == status).then_some(body)
        };
        self.cluster.wait_for(&what, probe).await
    }
}

/// Asks whoever is at an address.
pub async fn ask(address: &str, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    send(address, method, path, &body.map(Value::to_string).unwrap_or_default()).await
}

async fn send(address: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let request = http::Request::builder().method(method).uri(format!("http://{address}{path}"));
    let request = request.header("content-type", "application/json");
    let body = http_body_util::Full::new(bytes::Bytes::from(body.to_owned()));
    let client =
        hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build_http();
    let answer = client.request(request.body(body).expect("a request")).await.expect("an answer");
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

pub fn simple_type(name: &str) -> Value {
    json!({"name": name, "version": "v1", "schema": {"type": "object", "required": ["size"],
        "properties": {"size": {"type": "integer", "minimum": 10}, "tier": {"type": "string", "default": "small"}}}})
}

pub fn simple(name: &str) -> Value {
    json!({"name": name, "resource_type_name": "Disk", "resource_type_version": "v1", "action_plugin": "http", "spec": {"size": 10}})
}
