//! The same requests to our API server and to a real one, and the same answers.
//!
//! `requests/*.yaml` are lists of requests, one a line; adding one is adding a line:
//!
//! ```yaml
//! - {do: POST configmaps, body: {metadata: {name: a}}}    # a path within the area's namespace
//! - {do: GET configmaps/a, accept: table}
//! - {do: PATCH configmaps/a?fieldManager=m, as: apply, body: {…}}
//! - {do: GET configmaps?limit=x, differs: in words alone}    # known, and an error once it is no longer so
//! ```
//!
//! Compared are the code, the headers that clients look at, and the body without what differs by nature:
//! uids, times, versions, addresses, and the texts that describe columns.

#[path = "../../crates/apiserver/tests/support/hook.rs"]
mod hook;
mod peer;
mod shown;
mod table;

use std::fmt::Write as _;

use hook::{Hook, Reply, conversion, convert};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use steersman_apiserver::{
    Options, Server, User,
    store::{Store, StoreOptions},
};
use xtask::parts::{self, Kubernetes, KubernetesOptions};

use crate::{peer::Peer, table::areas};

/// A conversion webhook that does as the object's name says: `v1` has `address: h:1`, `v2` has host and port.
fn script(_: &str, request: &Value) -> Reply {
    let name = request["objects"][0]["metadata"]["name"].as_str().unwrap_or_default();
    let uid = &request["uid"];
    let success = json!({"status": "Success"});
    let objects = |change: &dyn Fn(&mut Value)| {
        let mut objects = request["objects"].clone();
        objects[0]["apiVersion"] = request["desiredAPIVersion"].clone();
        change(&mut objects[0]);
        conversion(&json!({"uid": uid, "result": success, "convertedObjects": objects}))
    };
    match name {
        "wrong-uid" => conversion(&json!({"uid": "x", "result": success, "convertedObjects": []})),
        "no-result" => conversion(&json!({"uid": uid})),
        "refused" => conversion(&json!({"uid": uid, "result": {"status": "Failure", "message": "cannot be said"}})),
        "refused-silently" => conversion(&json!({"uid": uid, "result": {"status": "Failure"}})),
        "too-few" => conversion(&json!({"uid": uid, "result": success, "convertedObjects": []})),
        "broken" => Reply::Raw(500, "boom".into()),
        "missing" => Reply::Raw(404, "nothing here".into()),
        "no-json" => Reply::Raw(200, "hello".into()),
        "no-response" => Reply::Raw(
            200,
            json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1"}).to_string(),
        ),
        "other-review" => Reply::Raw(
            200,
            json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1beta1", "response": {"uid": uid}})
                .to_string(),
        ),
        "wrong-version" => objects(&|object| object["apiVersion"] = "convert.example.com/v9".into()),
        "wrong-kind" => objects(&|object| object["kind"] = "Other".into()),
        "wrong-name" => objects(&|object| object["metadata"]["name"] = "other".into()),
        "wrong-namespace" => objects(&|object| object["metadata"]["namespace"] = "other".into()),
        "wrong-object-uid" => objects(&|object| object["metadata"]["uid"] = "other".into()),
        "no-metadata" => objects(&|object| object["metadata"] = Value::Null),
        "wrong-label" => objects(&|object| object["metadata"]["labels"] = json!({"a": "not a value!"})),
        "number-label" => objects(&|object| object["metadata"]["labels"] = json!({"a": 1})),
        "labels" => objects(&|object| {
            object["metadata"]["labels"] = json!({"by": "webhook"});
            object["metadata"]["finalizers"] = json!(["sneaky.example.com/x"]);
        }),
        _ => convert(request, address),
    }
}

fn address(object: &mut Value, to: &str) {
    let Some(spec) = object["spec"].as_object_mut() else { return };
    if to.ends_with("/v2") {
        let address = spec.remove("address").unwrap_or_default();
        let (host, port) = address.as_str().and_then(|text| text.split_once(':')).unwrap_or(("", "0"));
        spec.insert("host".into(), host.into());
        spec.insert("port".into(), port.parse().unwrap_or(0).into());
    } else {
        let host = spec.remove("host").unwrap_or_default();
        let port = spec.remove("port").unwrap_or_default();
        spec.remove("scheme");
        spec.insert("address".into(), format!("{}:{port}", host.as_str().unwrap_or_default()).into());
    }
}

#[tokio::test]
#[allow(clippy::print_stdout, reason = "the number of requests is what one wants to know")]
async fn both_servers_answer_every_request_alike() {
    let options = KubernetesOptions {
        controller_manager: false,
        scheduler: false,
        api_server_flags: vec!["--disable-admission-plugins=ServiceAccount".to_owned()],
    };
    let Some(kubernetes) = parts::or_skip(Kubernetes::start(&options)) else { return };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = Config::from_custom_kubeconfig(
        Kubeconfig::read_from(kubernetes.kubeconfig()).unwrap(),
        &KubeConfigOptions::default(),
    )
    .await
    .unwrap();
    let server = Server::open(Store::memory(StoreOptions::default()), Options::default()).await.unwrap();
    let hook = Hook::start(script).await;
    let mut real = Peer::new(Client::try_from(config).unwrap(), &hook);
    let mut ours = Peer::new(Client::new(server.service(User::admin()), "default"), &hook);
    let only = std::env::var("DIFFERENTIAL").unwrap_or_default();
    let (mut compared, mut known, mut differences) = (0, 0, String::new());
    for area in areas().into_iter().filter(|area| area.name.contains(&only)) {
        real.enter(&area.name).await;
        ours.enter(&area.name).await;
        for request in &area.requests {
            let (expected, found) = (real.answer(request).await, ours.answer(request).await);
            compared += 1;
            let (area, what) = (&area.name, &request.what);
            match (expected == found, &request.differs) {
                (true, None) => {}
                (false, Some(_)) => known += 1,
                (false, None) => {
                    let _ = write!(differences, "{area}: {what}\n{}", shown::difference(&expected, &found));
                }
                (true, Some(note)) => {
                    let _ =
                        writeln!(differences, "{area}: {what}\n  is answered alike now; take out {note:?}");
                }
            }
        }
    }
    println!("{compared} requests were answered by both servers, {known} of them in other words, as noted");
    assert!(differences.is_empty(), "\n{differences}");
    assert!(compared >= 200 || !only.is_empty(), "only {compared} requests");
}
