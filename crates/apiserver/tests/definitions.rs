//! Custom resources, from definition to removal.

mod support;

use serde_json::{Value, json};
use steersman_apiserver::{
    Options,
    store::{Store, StoreOptions},
};
use support::{Client, World};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn definition(spec: &Value) -> Value {
    let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}, "status": status}}},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
            }],
        },
    })
}

fn widget(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

async fn established(client: &Client, definition: &Value) {
    let made = client.post(DEFINITIONS, definition).await.ok(201);
    let version = made["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    let name = definition["metadata"]["name"].as_str().expect("a name");
    let path =
        format!("{DEFINITIONS}?watch=true&resourceVersion={version}&fieldSelector=metadata.name%3D{name}");
    let mut watch = client.watch(&path).await;
    loop {
        let event = watch.next().await.expect("an event");
        let conditions = event["object"]["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions
            .iter()
            .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
        {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_custom_resource_is_pruned_defaulted_and_validated() {
    let world = World::new().await;
    let client = &world.client;
    client.get(WIDGETS).await.failure(404, "NotFound");
    established(client, &definition(&json!({"size": {"type": "integer", "minimum": 1}, "color": {"type": "string", "default": "red"}}))).await;
    let made = client.post(WIDGETS, &widget("a", &json!({"size": 1, "odd": true}))).await.ok(201);
    assert_eq!(made["spec"], json!({"size": 1, "color": "red"}));
    let refused = client.post(WIDGETS, &widget("b", &json!({"size": 0}))).await;
    refused.failure(422, "Invalid");
    assert_eq!(refused.json()["details"]["causes"][0]["field"], "spec.size");
    let list = client.get(WIDGETS).await.ok(200);
    assert_eq!((&list["kind"], &list["items"][0]["kind"]), (&json!("WidgetList"), &json!("Widget")));
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_apart() {
    let world = World::new().await;
    let client = &world.client;
    established(client, &definition(&json!({"replicas": {"type": "integer"}}))).await;
    let made = client.post(WIDGETS, &json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"replicas": 1}, "status": {"x": 1}})).await.ok(201);
    assert_eq!(made.get("status"), None);
    let path = format!("{WIDGETS}/a");
    let after = client
        .patch(
            "merge",
            &format!("{path}/status"),
            &json!({"spec": {"replicas": 9}, "status": {"replicas": 1}}),
        )
        .await
        .ok(200);
    assert_eq!(
        (&after["spec"]["replicas"], &after["status"]["replicas"], &after["metadata"]["generation"]),
        (&json!(1), &json!(1), &json!(1))
    );
    let after = client
        .patch("merge", &path, &json!({"spec": {"replicas": 2}, "status": {"replicas": 9}}))
        .await
        .ok(200);
    assert_eq!(
        (&after["spec"]["replicas"], &after["status"]["replicas"], &after["metadata"]["generation"]),
        (&json!(2), &json!(1), &json!(2))
    );
    let scale =
        client.patch("merge", &format!("{path}/scale"), &json!({"spec": {"replicas": 5}})).await.ok(200);
    assert_eq!(
        (&scale["kind"], &scale["spec"]["replicas"], &scale["status"]["replicas"]),
        (&json!("Scale"), &json!(5), &json!(1))
    );
    assert_eq!(client.get(&path).await.ok(200)["spec"]["replicas"], 5);
    client.patch("strategic-merge", &path, &json!({})).await.failure(415, "UnsupportedMediaType");
}

#[tokio::test(start_paused = true)]
async fn objects_of_old_read_with_the_defaults_of_today() {
    let world = World::new().await;
    let client = &world.client;
    established(client, &definition(&json!({"a": {"type": "string"}}))).await;
    client.post(WIDGETS, &widget("old", &json!({"a": "x"}))).await.ok(201);
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/b";
    let patch = json!([{"op": "add", "path": path, "value": {"type": "string", "default": "d"}}]);
    client.patch("json", &format!("{DEFINITIONS}/widgets.example.com"), &patch).await.ok(200);
    // The new schema is taken up beside requests.
    let mut read = Value::Null;
    for _ in 0..100 {
        tokio::task::yield_now().await;
        read = client.get(&format!("{WIDGETS}/old")).await.ok(200);
        if read["spec"].get("b").is_some() {
            break;
        }
    }
    assert_eq!(read["spec"], json!({"a": "x", "b": "d"}));
    let listed = client.get(WIDGETS).await.ok(200);
    assert_eq!(listed["items"][0]["spec"]["b"], "d");
}

#[tokio::test(start_paused = true)]
async fn a_definition_takes_its_objects_with_it() {
    let world = World::new().await;
    let client = &world.client;
    established(client, &definition(&json!({"a": {"type": "string"}}))).await;
    client.post(WIDGETS, &widget("one", &json!({}))).await.ok(201);
    let mut held = widget("held", &json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/f"]);
    client.post(WIDGETS, &held).await.ok(201);
    let mut watch = client
        .watch(&format!("{WIDGETS}?watch=true&resourceVersion={}", world.server.store().revision()))
        .await;
    client.delete(&format!("{DEFINITIONS}/widgets.example.com")).await.ok(200);
    let mut seen = vec![watch.brief().await, watch.brief().await];
    seen.sort();
    assert_eq!(seen, [("DELETED".into(), "one".into()), ("MODIFIED".into(), "held".into())]);
    client
        .patch("merge", &format!("{WIDGETS}/held"), &json!({"metadata": {"finalizers": null}}))
        .await
        .ok(200);
    assert_eq!(watch.brief().await, ("DELETED".into(), "held".into()));
    for _ in 0..100 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        if client.get(&format!("{DEFINITIONS}/widgets.example.com")).await.code == 404 {
            break;
        }
    }
    client.get(&format!("{DEFINITIONS}/widgets.example.com")).await.failure(404, "NotFound");
    client.get(WIDGETS).await.failure(404, "NotFound");
}

#[tokio::test(flavor = "multi_thread")]
async fn types_that_come_at_once_are_served_from_the_moment_they_say_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::sqlite(&folder.path().join("state.db"), StoreOptions::default()).expect("a store");
    let world = World::on(store, Options::default()).await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..20 {
        let client = world.client.clone();
        tasks.spawn(async move {
            let mut definition = definition(&json!({}));
            definition["metadata"]["name"] = format!("kinds{number}.example.com").into();
            definition["spec"]["names"] =
                json!({"plural": format!("kinds{number}"), "kind": format!("Kind{number}")});
            established(&client, &definition).await;
            for _ in 0..20 {
                client.get(&format!("/apis/example.com/v1/kinds{number}")).await.ok(200);
                tokio::task::yield_now().await;
            }
        });
    }
    while let Some(result) = tasks.join_next().await {
        result.expect("served");
    }
}
