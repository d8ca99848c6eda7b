//! What happens when something is wrong: nothing is lost, and somebody is told.

#[allow(dead_code)] // each test file uses a part of it
mod support;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use steersman_elasti::types::Mode;
use steersman_elasti::{ElastiOptions, ElastiService};
use support::{Prometheus, cluster, condition, elasti, mode, operator, quick, replicas, web};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

/// A spec with one thing changed, at a path.
fn spec(path: &str, value: Value) -> Value {
    let mut spec = json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "service": "web", "triggers": [{"type": "prometheus", "metadata": {}}], "probeResponse": [
            {"path": {"value": "/"}, "response": {"status": 200, "body": "ok"}}],
        "autoscaler": {"type": "keda", "name": "web"}, "enabledPeriod": {}});
    if !path.is_empty() {
        let (parent, last) = path.rsplit_once('/').expect("a path");
        match spec.pointer_mut(parent) {
            Some(Value::Object(fields)) if value.is_null() => drop(fields.remove(last)),
            Some(Value::Object(fields)) => drop(fields.insert(last.to_owned(), value)),
            other => panic!("{path} leads to {other:?}"),
        }
    }
    spec
}

#[tokio::test(start_paused = true)]
async fn an_invalid_spec_is_refused_with_the_name_of_its_field() {
    let (cluster, _controllers) = cluster().await;
    let api: Api<kube::core::DynamicObject> = Api::namespaced_with(
        cluster.client(),
        "default",
        &kube::core::ApiResource::erase::<ElastiService>(&()),
    );
    let create = |spec: Value| {
        let object = json!({"apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
            "metadata": {"name": "web"}, "spec": spec});
        let api = api.clone();
        async move {
            let object = serde_json::from_value(object).expect("an object");
            api.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await
        }
    };
    create(spec("", Value::Null)).await.expect("the unchanged one is fine");
    for (path, value, named) in [
        ("/service", Value::Null, "spec.service"),
        ("/service", json!(""), "spec.service"),
        ("/scaleTargetRef", Value::Null, "spec.scaleTargetRef"),
        ("/scaleTargetRef/name", Value::Null, "spec.scaleTargetRef.name"),
        ("/scaleTargetRef/kind", json!(7), "spec.scaleTargetRef.kind"),
        ("/minTargetReplicas", json!(0), "spec.minTargetReplicas"),
        ("/minTargetReplicas", json!("two"), "spec.minTargetReplicas"),
        ("/cooldownPeriod", json!(-1), "spec.cooldownPeriod"),
        ("/cooldownPeriod", json!(604_801), "spec.cooldownPeriod"),
        ("/triggers/0/type", json!("graphite"), "spec.triggers[0].type"),
        ("/autoscaler/type", json!("vpa"), "spec.autoscaler.type"),
        ("/autoscaler/name", Value::Null, "spec.autoscaler.name"),
        ("/probeResponse/0/response/status", json!(299), "spec.probeResponse[0].response.status"),
        ("/probeResponse/0/response/body", Value::Null, "spec.probeResponse[0].response.body"),
        ("/probeResponse/0/method", json!("BREW"), "spec.probeResponse[0].method"),
        ("/probeResponse/0/path/type", json!("Glob"), "spec.probeResponse[0].path.type"),
        ("/probeResponse/0/path/value", json!("x".repeat(1025)), "spec.probeResponse[0].path.value"),
        ("/enabledPeriod/schedule", json!(5), "spec.enabledPeriod.schedule"),
    ] {
        let error = create(spec(path, value.clone())).await.expect_err(named).to_string();
        assert!(error.contains(named), "{path} = {value}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn services_that_cannot_sleep_are_named_and_their_targets_left_alone() {
    let (cluster, _controllers) = cluster().await;
    web(&cluster, 1).await;
    let _operator = operator(&cluster, ElastiOptions::default());
    let selector = json!({"app": "web"});
    for (name, service, expected) in [
        ("bare", json!({"ports": [{"port": 80}]}), "has no selector"),
        (
            "headless",
            json!({"clusterIP": "None", "selector": selector, "ports": [{"port": 80}]}),
            "is headless",
        ),
        ("outside", json!({"type": "ExternalName", "externalName": "example.com"}), "is an ExternalName"),
        ("udp", json!({"selector": selector, "ports": [{"port": 53, "protocol": "UDP"}]}), "has no TCP port"),
    ] {
        cluster.create_json::<Service>(json!({"metadata": {"name": name}, "spec": service})).await;
        elasti(&cluster, name, json!({"service": name})).await;
        let told = cluster
            .wait_until::<ElastiService>(name, |one| condition(one, "Ready").1 == "ServiceUnsuitable")
            .await;
        let conditions = told.status.clone().unwrap_or_default().conditions;
        assert!(conditions.iter().any(|one| one.message.contains(expected)), "{conditions:?}");
        assert_eq!(mode(&told), None);
        cluster.delete::<ElastiService>(name).await;
        cluster.wait_until_gone::<ElastiService>(name).await;
    }
    assert_eq!(replicas(&cluster.get::<Deployment>("web").await.expect("there")), 1);
}

/// A server that answers everything with these bytes.
async fn answering(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(bytes).await;
            let _ = stream.shutdown().await;
        }
    });
    format!("http://{address}")
}

#[tokio::test]
async fn a_prometheus_that_lies_is_not_believed() {
    let (cluster, _controllers) = cluster().await;
    web(&cluster, 1).await;
    let _operator = operator(&cluster, quick());
    elasti(&cluster, "web", json!({})).await;
    let json = |body: &'static str| -> &'static [u8] {
        let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        Box::leak(text.into_bytes().into_boxed_slice())
    };
    for (bytes, expected) in [
        (json("{}"), "its answer is not understood"),
        (json("[1"), "is no JSON"),
        (json(r#"{"status":"error","error":"parse error: no"}"#), "parse error: no"),
        (json(r#"{"data":{"resultType":"vector","result":[]}}"#), "gives 0 series instead of one"),
        (
            json(r#"{"data":{"resultType":"vector","result":[{"value":[0,"1"]},{"value":[0,"2"]}]}}"#),
            "gives 2 series",
        ),
        (json(r#"{"data":{"resultType":"vector","result":[{"value":[0,"NaN"]}]}}"#), "NaN"),
        (json(r#"{"data":{"resultType":"scalar","result":[0,"much"]}}"#), "NaN"),
        (b"SSH-2.0-OpenSSH\r\n".as_slice(), "did not answer"),
        (b"".as_slice(), "did not answer"),
    ] {
        let server = answering(bytes).await;
        let trigger = json!([{"type": "prometheus", "metadata": {"query": "x", "threshold": 1, "serverAddress": server}}]);
        cluster.patch::<ElastiService>("web", json!({"spec": {"triggers": trigger}})).await;
        let told = cluster
            .wait_until::<ElastiService>("web", |one| {
                let conditions = one.status.clone().unwrap_or_default().conditions;
                conditions.iter().any(|one| one.type_ == "TriggerHealthy" && one.message.contains(expected))
            })
            .await;
        assert_eq!(mode(&told), Some(Mode::Serve), "{expected}");
    }
    assert_eq!(replicas(&cluster.get::<Deployment>("web").await.expect("there")), 1);
}

#[tokio::test]
async fn a_period_that_is_not_understood_keeps_it_awake_and_is_named() {
    let (cluster, _controllers) = cluster().await;
    let prometheus = Prometheus::start("0").await;
    web(&cluster, 1).await;
    let _operator = operator(&cluster, quick());
    let period = json!({"schedule": "at night", "duration": "8h"});
    elasti(&cluster, "web", json!({"triggers": prometheus.trigger(), "enabledPeriod": period})).await;
    let told =
        cluster.wait_until::<ElastiService>("web", |one| condition(one, "TriggerHealthy").0 == "False").await;
    let conditions = told.status.unwrap_or_default().conditions;
    let message = conditions.iter().find(|one| one.type_ == "TriggerHealthy").map(|one| one.message.clone());
    assert!(message.is_some_and(|message| message.starts_with("spec.enabledPeriod.schedule: \"at night\"")));
    assert_eq!(replicas(&cluster.get::<Deployment>("web").await.expect("there")), 1);
}
