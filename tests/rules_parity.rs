//! Rules of custom resources (`x-kubernetes-validations`), compared with a real Kubernetes API server.
//!
//! The definitions and objects of `rules_cases.yaml` go to both servers, and both must give the same
//! answers: the same definitions refused with the same words, the same objects with the same causes.

use std::{fmt::Write as _, time::Duration};

use http_body_util::BodyExt as _;
use hyper::http::Request;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::Deserialize;
use serde_json::{Value, json};
use steersman_apiserver::{
    Options, Server, User,
    store::{Store, StoreOptions},
};
use xtask::parts::{self, Kubernetes, KubernetesOptions};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const OBJECTS: &str = "/apis/rules.example.com/v1/namespaces/default/helds";

#[derive(Deserialize)]
struct Cases {
    refused: Vec<Refused>,
    schema: Value,
    objects: Vec<Object>,
}

#[derive(Deserialize)]
struct Refused {
    name: String,
    spec: Value,
    #[serde(default)]
    root: Value,
}

#[derive(Deserialize)]
struct Object {
    name: String,
    specs: Vec<Value>,
}

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).header("Content-Type", "application/json");
    let request = request.body(Body::from(body.to_string().into_bytes())).unwrap();
    let response = client.send(request).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

fn definition(plural: &str, kind: &str, spec: &Value, root: &Value) -> Value {
    let mut schema = json!({"type": "object", "properties": {"spec": spec}});
    if !root.is_null() {
        schema["x-kubernetes-validations"] = root.clone();
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.rules.example.com")},
        "spec": {
            "group": "rules.example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// What two servers must agree on. The order of causes depends on that of a map there.
fn comparable((code, body): &(u16, Value)) -> Value {
    let mut causes = body["details"]["causes"].as_array().cloned().unwrap_or_default();
    causes.sort_by_key(ToString::to_string);
    json!([code, causes])
}

/// All answers of one server, by case.
async fn answers(client: &Client, cases: &Cases) -> Vec<(String, Value)> {
    let mut answers = Vec::new();
    for case in &cases.refused {
        let definition = definition("things", "Thing", &case.spec, &case.root);
        let answer = send(client, "POST", &format!("{DEFINITIONS}?dryRun=All"), &definition).await;
        answers.push((format!("definition: {}", case.name), comparable(&answer)));
    }
    let held = definition("helds", "Held", &cases.schema, &Value::Null);
    let (code, body) = send(client, "POST", DEFINITIONS, &held).await;
    assert_eq!(code, 201, "{}", body["message"]);
    let probe = json!({"apiVersion": "rules.example.com/v1", "kind": "Held", "metadata": {"name": "probe"}});
    for _ in 0..600 {
        if send(client, "POST", OBJECTS, &probe).await.0 != 404 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for (number, case) in cases.objects.iter().enumerate() {
        let mut version = Value::Null;
        for (step, spec) in case.specs.iter().enumerate() {
            let name = format!("case-{number}");
            let mut object = json!({
                "apiVersion": "rules.example.com/v1", "kind": "Held", "metadata": {"name": name}, "spec": spec,
            });
            let answer = if step == 0 {
                send(client, "POST", OBJECTS, &object).await
            } else {
                object["metadata"]["resourceVersion"] = version.clone();
                send(client, "PUT", &format!("{OBJECTS}/{name}"), &object).await
            };
            version = answer.1["metadata"]["resourceVersion"].clone();
            answers.push((format!("object: {} ({step})", case.name), comparable(&answer)));
        }
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_are_read_and_held_as_by_a_real_api_server() {
    let options =
        KubernetesOptions { controller_manager: false, scheduler: false, ..KubernetesOptions::default() };
    let Some(kubernetes) = parts::or_skip(Kubernetes::start(&options)) else { return };
    let kubeconfig = Kubeconfig::read_from(kubernetes.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let theirs = Client::try_from(config).unwrap();
    let server = Server::open(Store::memory(StoreOptions::default()), Options::default()).await.unwrap();
    let ours = Client::new(server.service(User::admin()), "default");

    let cases: Cases = serde_saphyr::from_str(include_str!("rules_cases.yaml")).unwrap();
    let (expected, found) = (answers(&theirs, &cases).await, answers(&ours, &cases).await);
    let mut differences = String::new();
    for ((name, expected), (_, found)) in expected.iter().zip(&found) {
        if expected != found {
            let _ = writeln!(differences, "{name}\n  theirs {expected}\n  ours   {found}");
        }
    }
    assert!(differences.is_empty(), "answered differently:\n{differences}");
}
