//! Custom resources in two versions, with a webhook that knows how one becomes the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::{
    hook::{Hook, Reply, convert},
    support::World,
};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/example.com/v1/namespaces/default/hosts";
const V2: &str = "/apis/example.com/v2/namespaces/default/hosts";

/// `v1` says `address: h:1`, `v2` says `host: h` and `port: 1`.
fn change(object: &mut Value, to: &str) {
    let Some(spec) = object["spec"].as_object_mut() else { return };
    if to.ends_with("/v2") {
        let address = spec.remove("address").unwrap_or_default();
        let (host, port) = address.as_str().and_then(|text| text.split_once(':')).unwrap_or(("", "0"));
        spec.insert("host".into(), host.into());
        spec.insert("port".into(), port.parse().unwrap_or(0).into());
    } else {
        let host = spec.remove("host").unwrap_or_default();
        let port = spec.remove("port").unwrap_or_default();
        spec.insert("address".into(), format!("{}:{port}", host.as_str().unwrap_or_default()).into());
    }
}

fn version(name: &str, storage: &str, spec: &Value) -> Value {
    json!({
        "name": name, "served": true, "storage": name == storage, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": spec},
            "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}}},
    })
}

fn definition(storage: &str, client: &Value) -> Value {
    let v1 = version("v1", storage, &json!({"address": {"type": "string"}}));
    let mut v2 = version("v2", storage, &json!({"host": {"type": "string"}, "port": {"type": "integer"}}));
    v2["selectableFields"] = json!([{"jsonPath": ".spec.host"}]);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "hosts.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "hosts", "kind": "Host"},
            "versions": [v1, v2],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": client, "conversionReviewVersions": ["v1"]}},
        },
    })
}

fn host(version: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Host", "metadata": {"name": name}, "spec": spec})
}

async fn world(hook: &Hook) -> World {
    let world = World::new().await;
    world.client.post(DEFINITIONS, &definition("v1", &hook.client("/convert"))).await.ok(201);
    served(&world).await;
    world
}

/// Waits until both versions are served.
async fn served(world: &World) {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    while world.client.get(V2).await.code != 200 {
        assert!(tokio::time::Instant::now() < deadline, "the definition is not served");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

fn converting() -> impl Fn(&str, &Value) -> Reply + Send + Sync + 'static {
    |_, request| convert(request, change)
}

#[tokio::test]
async fn every_verb_speaks_the_version_of_its_path_and_stores_another() {
    let hook = Hook::start(converting()).await;
    let world = world(&hook).await;
    let client = &world.client;
    client.post(V1, &host("v1", "a", &json!({"address": "h:1"}))).await.ok(201);
    assert!(hook.paths().is_empty(), "what is stored as it came needs no webhook");
    let seen = client.get(&format!("{V2}/a")).await.ok(200);
    assert_eq!(
        (&seen["apiVersion"], &seen["spec"]),
        (&json!("example.com/v2"), &json!({"host": "h", "port": 1}))
    );
    let made = client.post(V2, &host("v2", "b", &json!({"host": "k", "port": 2, "odd": 1}))).await.ok(201);
    assert_eq!(made["spec"], json!({"host": "k", "port": 2}));
    assert_eq!(client.get(&format!("{V1}/b")).await.ok(200)["spec"], json!({"address": "k:2"}));
    assert!(hook.last()["objects"][0]["metadata"].get("resourceVersion").is_none());

    client.patch("merge", &format!("{V2}/a"), &json!({"spec": {"port": 3}})).await.ok(200);
    assert_eq!(client.get(&format!("{V1}/a")).await.ok(200)["spec"], json!({"address": "h:3"}));
    let mut whole = client.get(&format!("{V2}/a")).await.ok(200);
    whole["spec"]["port"] = 4.into();
    client.put(&format!("{V2}/a"), &whole).await.ok(200);
    client.patch("merge", &format!("{V2}/a/status"), &json!({"status": {"ready": true}})).await.ok(200);
    let both = client.get(&format!("{V1}/a")).await.ok(200);
    assert_eq!((&both["spec"], &both["status"]), (&json!({"address": "h:4"}), &json!({"ready": true})));
    let rehearsed =
        client.post(&format!("{V2}?dryRun=All"), &host("v2", "c", &json!({"host": "x", "port": 1}))).await;
    assert_eq!(rehearsed.ok(201)["apiVersion"], "example.com/v2");
    let gone = client.delete(&format!("{V2}/b")).await.ok(200);
    assert_eq!(gone["status"], "Success");
}

#[tokio::test]
async fn lists_ask_once_for_all_and_selectors_see_what_is_shown() {
    let hook = Hook::start(converting()).await;
    let world = world(&hook).await;
    let client = &world.client;
    for number in 0..20 {
        let spec = json!({"address": format!("h{}:{number}", number % 2)});
        client.post(V1, &host("v1", &format!("n{number:02}"), &spec)).await.ok(201);
    }
    let list = client.get(V2).await.ok(200);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(20));
    assert_eq!(list["items"][3]["spec"], json!({"host": "h1", "port": 3}));
    assert_eq!(hook.paths().len(), 1, "one question for the whole list");
    client.get(V2).await.ok(200);
    assert_eq!(hook.paths().len(), 1, "and none for the next");
    let some = client.get(&format!("{V2}?fieldSelector=spec.host%3Dh1&limit=4")).await.ok(200);
    let names: Vec<&str> = some["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names, ["n01", "n03", "n05", "n07"]);
    let token = some["metadata"]["continue"].as_str().expect("more");
    let rest =
        client.get(&format!("{V2}?fieldSelector=spec.host%3Dh1&limit=9&continue={token}")).await.ok(200);
    assert_eq!(rest["items"].as_array().map(Vec::len), Some(6));
    let page = client.get(&format!("{V2}?limit=5")).await.ok(200);
    assert_eq!(page["metadata"]["remainingItemCount"], 15);
}

#[tokio::test]
async fn watchers_of_every_version_see_every_write_and_share_one_conversion() {
    let hook = Hook::start(converting()).await;
    let world = world(&hook).await;
    let client = &world.client;
    client.post(V1, &host("v1", "a", &json!({"address": "h:1"}))).await.ok(201);
    let path = format!(
        "{V2}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let mut first = client.watch(&path).await;
    let mut second = client.watch(&path).await;
    for watch in [&mut first, &mut second] {
        let event = watch.next().await.expect("an event");
        assert_eq!((&event["type"], &event["object"]["spec"]["port"]), (&json!("ADDED"), &json!(1)));
        assert_eq!(watch.next().await.expect("an event")["type"], "BOOKMARK");
    }
    let before = hook.paths().len();
    client.patch("merge", &format!("{V1}/a"), &json!({"spec": {"address": "h:2"}})).await.ok(200);
    for watch in [&mut first, &mut second] {
        let event = watch.next().await.expect("an event");
        assert_eq!((&event["type"], &event["object"]["spec"]["port"]), (&json!("MODIFIED"), &json!(2)));
        assert_eq!(event["object"]["apiVersion"], "example.com/v2");
    }
    assert_eq!(hook.paths().len(), before + 1);
    client.delete(&format!("{V1}/a")).await.ok(200);
    assert_eq!(first.next().await.expect("an event")["type"], "DELETED");
}

#[tokio::test]
async fn owners_keep_their_fields_whatever_version_others_speak() {
    let hook = Hook::start(converting()).await;
    let world = world(&hook).await;
    let client = &world.client;
    let apply = |path: &'static str, manager: &'static str, spec: Value| {
        let version = if path == V1 { "v1" } else { "v2" };
        let intent = host(version, "a", &spec);
        let path = format!("{path}/a?fieldManager={manager}");
        async move { client.patch("apply", &path, &intent).await }
    };
    apply(V1, "one", json!({"address": "h:1"})).await.ok(201);
    // The same address in the other words is no conflict, another one is.
    apply(V2, "two", json!({"host": "h", "port": 1})).await.ok(200);
    let refused = apply(V2, "three", json!({"host": "x"})).await;
    let message = refused.failure(409, "Conflict");
    let expected = "conflicts with \"one\":\n- .spec.address\nconflicts with \"two\":\n- .spec.host";
    assert!(message.ends_with(expected), "{message}");
    // Whoever withdraws takes nothing that another owns under another name.
    apply(V2, "two", json!({})).await.ok(200);
    assert_eq!(client.get(&format!("{V1}/a")).await.ok(200)["spec"], json!({"address": "h:1"}));
    // Whoever writes takes it from its owners.
    client.patch("merge", &format!("{V2}/a?fieldManager=four"), &json!({"spec": {"port": 9}})).await.ok(200);
    let live = client.get(&format!("{V1}/a")).await.ok(200);
    let owners: Vec<(&Value, &Value)> = live["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| (&entry["manager"], &entry["fieldsV1"]))
        .collect();
    let (empty, port) = (json!({"f:spec": {}}), json!({"f:spec": {"f:port": {}}}));
    assert_eq!(owners, [(&json!("two"), &empty), (&json!("four"), &port)]);
}

#[tokio::test]
async fn a_webhook_that_fails_fails_the_request_and_nothing_else() {
    let broken = Arc::new(AtomicBool::new(false));
    let hook = Hook::start({
        let broken = Arc::clone(&broken);
        move |_, request| {
            if broken.load(Ordering::Relaxed) {
                Reply::Raw(500, "boom".into())
            } else {
                convert(request, change)
            }
        }
    })
    .await;
    let world = world(&hook).await;
    let client = &world.client;
    client.post(V1, &host("v1", "a", &json!({"address": "h:1"}))).await.ok(201);
    broken.store(true, Ordering::Relaxed);
    let refused = client.get(&format!("{V2}/a")).await.ok(500);
    assert_eq!(
        refused["message"],
        "conversion webhook for example.com/v1, Kind=Host failed: an error on the server (\"boom\") has prevented the request from succeeding"
    );
    assert_eq!(client.get(V2).await.code, 500);
    assert_eq!(client.post(V2, &host("v2", "b", &json!({"host": "k", "port": 2}))).await.code, 500);
    client.get(&format!("{V1}/b")).await.failure(404, "NotFound");
    client.get(&format!("{V1}/a")).await.ok(200);
    broken.store(false, Ordering::Relaxed);
    client.get(&format!("{V2}/a")).await.ok(200);
}

#[tokio::test]
async fn objects_of_an_old_storage_version_are_read_and_rewritten_by_any_write() {
    let hook = Hook::start(converting()).await;
    let world = world(&hook).await;
    let client = &world.client;
    client.post(V1, &host("v1", "a", &json!({"address": "h:1"}))).await.ok(201);
    let path = format!("{DEFINITIONS}/hosts.example.com");
    let storage = json!([
        {"op": "replace", "path": "/spec/versions/0/storage", "value": false},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": true},
    ]);
    let changed = client.patch("json", &path, &storage).await.ok(200);
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        // Until the new definition is served, a write that changes nothing writes nothing.
        let live = client.get(&format!("{V1}/a")).await.ok(200);
        let again = client.put(&format!("{V1}/a"), &live).await.ok(200);
        if again["metadata"]["resourceVersion"] != live["metadata"]["resourceVersion"] {
            assert_eq!(again["spec"], json!({"address": "h:1"}));
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "the object is never rewritten");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let asked = hook.paths().len();
    assert_eq!(client.get(&format!("{V2}/a")).await.ok(200)["spec"], json!({"host": "h", "port": 1}));
    assert_eq!(hook.paths().len(), asked, "it is stored as v2 now");
}
