//! The whole way from a request to an API elsewhere.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use steersman_infra::action::Registry;
use steersman_infra::plugin::{ProcessOptions, ProcessPlugin};

use crate::support::service::{plugins, service, simple, simple_type};
use crate::support::stand_in;

#[tokio::test]
async fn the_http_plugin_creates_repairs_and_deletes_behind_an_api() {
    let things: Arc<Mutex<std::collections::BTreeMap<String, Value>>> = Arc::default();
    let keys: Arc<Mutex<Vec<String>>> = Arc::default();
    let (store, seen) = (Arc::clone(&things), Arc::clone(&keys));
    let url = stand_in(move |asked| {
        let mut things = store.lock().expect("things");
        if asked.method != "GET" {
            let key = asked.headers.get("idempotency-key").and_then(|key| key.to_str().ok());
            seen.lock().expect("keys").push(key.expect("a key").to_owned());
        }
        match asked.method.as_str() {
            "PUT" => {
                things.insert(asked.path.clone(), asked.body.clone());
                (201, json!({"endpoint": format!("db{}", asked.path)}))
            }
            "DELETE" => match things.remove(&asked.path) {
                Some(_) => (204, Value::Null),
                None => (404, Value::Null),
            },
            _ => things.get(&asked.path).map_or((404, Value::Null), |thing| (200, thing.clone())),
        }
    })
    .await;
    let service = service(plugins()).await;
    let mut kind = simple_type("Disk");
    kind["metadata"] = json!({"action_defaults": {"http": {"base_url": url,
        "apply": {"path": "/disks/{{ name }}", "body": {"gb": "{{ parameters.size }}"}},
        "destroy": {"path": "/disks/{{ name }}"}, "read": {"path": "/disks/{{ name }}"},
        "outputs": {"endpoint": "/endpoint"}}}});
    assert_eq!(service.ask("POST", "/api/v1/resource-types", Some(&kind)).await.0, 201);
    assert_eq!(service.ask("POST", "/api/v1/resources", Some(&simple("one"))).await.0, 201);
    service.wait("/api/v1/resources/1", "ready").await;
    assert_eq!(things.lock().expect("things").get("/disks/one"), Some(&json!({"gb": 10})));
    let (_, outputs) = service.ask("GET", "/api/v1/resources/1/outputs", None).await;
    assert_eq!(outputs, json!({"outputs": {"endpoint": "db/disks/one"}}));

    service.ask("POST", "/api/v1/resources/1/reconcile", None).await;
    service
        .cluster
        .wait_for("a second entry", || async {
            let (_, entries) = service.ask("GET", "/api/v1/resources/1/history", None).await;
            (entries.as_array().map(Vec::len) == Some(2)).then_some(())
        })
        .await;
    assert_eq!(keys.lock().expect("keys").len(), 1, "nothing is sent when nothing would change");

    things.lock().expect("things").insert("/disks/one".into(), json!({"gb": 99}));
    service.ask("POST", "/api/v1/resources/1/reconcile", None).await;
    service
        .cluster
        .wait_for("the repair", || async {
            (things.lock().expect("things").get("/disks/one") == Some(&json!({"gb": 10}))).then_some(())
        })
        .await;
    service.ask("DELETE", "/api/v1/resources/1", None).await;
    service
        .cluster
        .wait_for("the end of it", || async {
            (service.ask("GET", "/api/v1/resources/1", None).await.0 == 404).then_some(())
        })
        .await;
    assert!(things.lock().expect("things").is_empty());
    let used = keys.lock().expect("keys").clone();
    let distinct: std::collections::HashSet<&String> = used.iter().collect();
    assert_eq!(distinct.len(), used.len(), "every attempt has a key of its own");
}

#[tokio::test]
async fn a_resource_whose_plugin_cannot_be_asked_is_pending_and_says_why() {
    let options = ProcessOptions::new(["/nowhere/plugin"]);
    let late = ProcessPlugin::new("late", options, serde_json::Map::new());
    let service = service(Registry::new().with(late)).await;
    assert_eq!(service.ask("POST", "/api/v1/resource-types", Some(&simple_type("Disk"))).await.0, 201);
    let mut one = simple("one");
    one["action_plugin"] = json!("late");
    assert_eq!(service.ask("POST", "/api/v1/resources", Some(&one)).await.0, 201);
    let told = service.cluster.wait_for("the reason", || async {
        let (_, shown) = service.ask("GET", "/api/v1/resources/1", None).await;
        shown["status_message"].is_string().then_some(shown)
    });
    let shown = told.await;
    assert_eq!((&shown["status"], &shown["last_reconcile_time"]), (&json!("pending"), &Value::Null));
    let message = shown["status_message"].as_str().unwrap_or_default();
    assert!(message.starts_with("the plugin late: /nowhere/plugin cannot be started: "), "{message}");
}
