//! Server-side apply and field ownership, compared with a real Kubernetes API server.
//!
//! The sequences of writes in `apply_sequences.yaml` run on both servers, and every single answer
//! must be the same: code, object, managedFields, conflicts. What differs by nature (uids, times,
//! addresses) is masked. One difference is wanted: an intent that does not fit its type is the
//! client's fault, a 400 here and a 500 there, with the same reason.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use http_body_util::BodyExt as _;
use hyper::http::Request;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use steersman_apiserver::{
    Options, Server, User,
    store::{Store, StoreOptions},
};
use xtask::parts::{self, Kubernetes, KubernetesOptions};

const SEQUENCES: &str = include_str!("apply_sequences.yaml");
const THING: &str = include_str!("apply_thing.yaml");

#[derive(Deserialize)]
struct Sequence {
    name: String,
    steps: Vec<BTreeMap<String, Value>>,
}

/// One write, or a look at what came of the last ones.
struct Step<'a> {
    verb: &'a str,
    manager: &'a str,
    resource: &'a str,
    name: &'a str,
    subresource: Option<&'a str>,
    body: &'a Value,
}

impl<'a> Step<'a> {
    fn parse(text: &'a str, body: &'a Value) -> Self {
        let mut words = text.split(' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("a step is VERB MANAGER PATH: {text}"));
        let (verb, manager, path) = (word(), word(), word());
        let mut path = path.split('/');
        let resource = path.next().unwrap_or_default();
        let name = path.next().unwrap_or_else(|| panic!("a path is RESOURCE/NAME: {text}"));
        Self { verb, manager, resource, name, subresource: path.next(), body }
    }

    /// Where the resource is served, and the kind of its objects.
    fn served(&self) -> (&'static str, &'static str) {
        match self.resource {
            "configmaps" => ("v1", "ConfigMap"),
            "services" => ("v1", "Service"),
            "pods" => ("v1", "Pod"),
            "secrets" => ("v1", "Secret"),
            "deployments" => ("apps/v1", "Deployment"),
            "statefulsets" => ("apps/v1", "StatefulSet"),
            "jobs" => ("batch/v1", "Job"),
            "leases" => ("coordination.k8s.io/v1", "Lease"),
            "ingresses" => ("networking.k8s.io/v1", "Ingress"),
            "roles" => ("rbac.authorization.k8s.io/v1", "Role"),
            "things" => ("example.com/v1", "Thing"),
            other => panic!("where are {other} served?"),
        }
    }

    fn path(&self, namespace: &str) -> String {
        let (api_version, _) = self.served();
        let root = if api_version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{api_version}") };
        let collection = format!("{root}/namespaces/{namespace}/{}", self.resource);
        match (self.verb, self.subresource) {
            ("create", _) => collection,
            (_, None) => format!("{collection}/{}", self.name),
            (_, Some(subresource)) => format!("{collection}/{}/{subresource}", self.name),
        }
    }

    /// The body with what every object needs.
    fn object(&self) -> Value {
        let (api_version, kind) = self.served();
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": self.name}});
        for (key, value) in self.body.as_object().into_iter().flatten() {
            match (key.as_str(), value) {
                ("metadata", Value::Object(fields)) => {
                    for (key, value) in fields {
                        object["metadata"][key] = value.clone();
                    }
                }
                _ => object[key] = value.clone(),
            }
        }
        object
    }

    async fn run(&self, client: &Client, namespace: &str) -> Answer {
        let path = self.path(namespace);
        let query = format!("{path}?fieldManager={}", self.manager);
        match self.verb {
            "get" => send(client, "GET", &path, "", &Value::Null).await,
            "create" => send(client, "POST", &query, "application/json", &self.object()).await,
            "replace" => {
                let live = send(client, "GET", &path, "", &Value::Null).await;
                let mut object = self.object();
                object["metadata"]["resourceVersion"] = live.body["metadata"]["resourceVersion"].clone();
                send(client, "PUT", &query, "application/json", &object).await
            }
            "apply" => send(client, "PATCH", &query, "application/apply-patch+yaml", &self.object()).await,
            "force" => {
                let query = format!("{query}&force=true");
                send(client, "PATCH", &query, "application/apply-patch+yaml", &self.object()).await
            }
            "merge" => send(client, "PATCH", &query, "application/merge-patch+json", self.body).await,
            "json" => send(client, "PATCH", &query, "application/json-patch+json", self.body).await,
            "strategic" => {
                send(client, "PATCH", &query, "application/strategic-merge-patch+json", self.body).await
            }
            other => panic!("what is {other}?"),
        }
    }
}

/// What a server answered.
struct Answer {
    code: u16,
    body: Value,
}

async fn send(client: &Client, method: &str, path: &str, content: &str, body: &Value) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header("Accept", "application/json");
    if !content.is_empty() {
        request = request.header("Content-Type", content);
    }
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = request.body(Body::from(bytes)).unwrap();
    let response = client.send(request).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&bytes).into_owned()));
    Answer { code, body }
}

impl Answer {
    /// What two servers must agree on.
    fn comparable(&self) -> Value {
        if self.body["kind"] == "Status" { self.failure() } else { json!([self.code, masked(&self.body)]) }
    }

    fn failure(&self) -> Value {
        let message = self.body["message"].as_str().unwrap_or_default();
        if let Some((_, reason)) = message.split_once("failed to create typed patch object") {
            let reason = reason.split_once("): ").map_or(reason, |(_, reason)| reason);
            let reason = reason.split_once(", got ").map_or(reason, |(expected, _)| expected);
            return json!(["does not fit", reason]);
        }
        // Theirs does not say what is wrong with a JSON patch.
        let rejected = "the server rejected our request due to an error in our request";
        let message = if message.starts_with(rejected) { rejected } else { message };
        let mut causes = self.body["details"]["causes"].as_array().cloned().unwrap_or_default();
        causes.sort_by_key(ToString::to_string);
        json!([self.code, self.body["reason"], message, causes])
    }
}

/// An object without what differs by nature.
fn masked(object: &Value) -> Value {
    // Jobs carry their uid in labels too.
    let uid = object["metadata"]["uid"].as_str().unwrap_or("…");
    let mut object: Value = serde_json::from_str(&object.to_string().replace(uid, "…")).unwrap_or_default();
    let present = |fields: &mut Map<String, Value>, name: &str| {
        if let Some(value) = fields.get_mut(name) {
            *value = json!("…");
        }
    };
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in ["uid", "resourceVersion", "creationTimestamp", "namespace"] {
            present(metadata, name);
        }
        if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
            entries.iter_mut().filter_map(Value::as_object_mut).for_each(|entry| present(entry, "time"));
            entries.sort_by_key(|entry| {
                format!("{}{}{}", entry["operation"], entry["manager"], entry["subresource"])
            });
        }
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        for name in ["serviceAccount", "serviceAccountName"] {
            spec.remove(name);
        }
        if spec.get("clusterIP").is_some_and(|address| address != "None") {
            present(spec, "clusterIP");
            present(spec, "clusterIPs");
        }
    }
    object
}

/// A client of a fresh API server in this process.
async fn ours() -> Client {
    let server = Server::open(Store::memory(StoreOptions::default()), Options::default()).await.unwrap();
    Client::new(server.service(User::admin()), "default")
}

/// A client of the real API server.
async fn theirs(kubernetes: &Kubernetes) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubernetes.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Makes the custom type, and waits until it can be used.
async fn install_type(client: &Client) {
    let definition: Value = serde_saphyr::from_str(THING).unwrap();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = send(client, "POST", path, "application/json", &definition).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let probe = Step::parse("force probe things/probe", &Value::Null);
    for _ in 0..300 {
        if probe.run(client, "default").await.code < 300 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("things are not served: {}", probe.run(client, "default").await.body);
}

async fn make_namespace(client: &Client, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let made = send(client, "POST", "/api/v1/namespaces", "application/json", &namespace).await;
    assert_eq!(made.code, 201, "{}", made.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_write_is_answered_as_by_a_real_api_server() {
    let options = KubernetesOptions {
        controller_manager: false,
        scheduler: false,
        api_server_flags: vec!["--disable-admission-plugins=ServiceAccount".to_owned()],
    };
    let Some(kubernetes) = parts::or_skip(Kubernetes::start(&options)) else { return };
    let (theirs, ours) = (theirs(&kubernetes).await, ours().await);
    install_type(&theirs).await;
    install_type(&ours).await;

    let sequences: Vec<Sequence> = serde_saphyr::from_str(SEQUENCES).unwrap();
    assert!(sequences.len() >= 60, "only {} sequences", sequences.len());
    let mut differences = String::new();
    for (number, sequence) in sequences.iter().enumerate() {
        let namespace = format!("sequence-{number}");
        make_namespace(&theirs, &namespace).await;
        make_namespace(&ours, &namespace).await;
        for (text, body) in sequence.steps.iter().flatten() {
            let step = Step::parse(text, body);
            let expected = step.run(&theirs, &namespace).await.comparable();
            let found = step.run(&ours, &namespace).await.comparable();
            if expected != found {
                let _ = writeln!(
                    differences,
                    "{:?}: {text}: {body}\n  theirs {expected}\n  ours   {found}",
                    sequence.name
                );
                break;
            }
        }
    }
    assert!(differences.is_empty(), "answered differently:\n{differences}");
}
