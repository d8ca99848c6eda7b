//! Lists: filters, order, pages, and more of each entry on request.

use serde_json::{Value, json};

use crate::support::service::{Service, face, simple, simple_type};

async fn names(service: &Service, query: &str) -> Vec<String> {
    let (code, listed) = service.ask("GET", &format!("/api/v1/resources?{query}"), None).await;
    assert_eq!(code, 200, "{query}: {listed}");
    let entries = listed.as_array().expect("a list").iter();
    entries.map(|it| it["name"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn resources_are_filtered_newest_first_and_page_by_page() {
    let service = face().await;
    for kind in ["Disk", "Net"] {
        assert_eq!(service.ask("POST", "/api/v1/resource-types", Some(&simple_type(kind))).await.0, 201);
    }
    for (index, plugin) in ["http", "github_actions", "http", "http"].into_iter().enumerate() {
        let mut body = simple(&format!("n{index}"));
        body["action_plugin"] = json!(plugin);
        if index == 3 {
            body["resource_type_name"] = json!("Net");
        }
        assert_eq!(service.ask("POST", "/api/v1/resources", Some(&body)).await.0, 201);
    }
    assert_eq!(names(&service, "").await, ["n3", "n2", "n1", "n0"]);
    assert_eq!(names(&service, "action_plugin=http").await, ["n3", "n2", "n0"]);
    assert_eq!(names(&service, "action_plugin=http&resource_type_name=Disk").await, ["n2", "n0"]);
    assert_eq!(names(&service, "status=pending&limit=1").await, ["n3"]);
    assert!(names(&service, "status=ready").await.is_empty());
    assert_eq!(names(&service, "limit=2").await, ["n3", "n2"]);
    assert_eq!(names(&service, "limit=2&cursor=3").await, ["n1", "n0"]);
    assert_eq!(names(&service, "cursor=999").await.len(), 4, "an id that is gone: those before it");
    assert_eq!(service.ask("GET", "/api/v1/resources?cursor=x", None).await.0, 422);

    let (_, plain) = service.ask("GET", "/api/v1/resources/1", None).await;
    let (_, full) = service.ask("GET", "/api/v1/resources/1?fields=all", None).await;
    let count = |value: &Value| value.as_object().map(serde_json::Map::len);
    assert_eq!((count(&plain), count(&full)), (Some(12), Some(17)), "{full}");
}

#[tokio::test]
async fn types_are_ordered_by_name_and_version() {
    let service = face().await;
    for (name, version) in [("b", "v1"), ("a", "v2"), ("a", "v1")] {
        let mut body = simple_type(name);
        body["version"] = json!(version);
        assert_eq!(service.ask("POST", "/api/v1/resource-types", Some(&body)).await.0, 201);
    }
    let (_, listed) = service.ask("GET", "/api/v1/resource-types?limit=2", None).await;
    let order: Vec<String> = listed
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| format!("{}/{}", it["name"].as_str().unwrap_or(""), it["version"].as_str().unwrap_or("")))
        .collect();
    assert_eq!(order, ["a/v1", "a/v2"]);
}

#[tokio::test]
async fn a_change_that_expects_another_generation_is_refused() {
    let service = face().await;
    service.ask("POST", "/api/v1/resource-types", Some(&simple_type("Disk"))).await;
    service.ask("POST", "/api/v1/resources", Some(&simple("one"))).await;
    let change =
        |size: u32, expected: Value| json!({"spec": {"size": size}, "expected_generation": expected});
    let (code, answer) = service.ask("PUT", "/api/v1/resources/1", Some(&change(20, json!(1)))).await;
    assert_eq!((code, &answer["generation"]), (200, &json!(2)), "{answer}");
    let (code, answer) = service.ask("PUT", "/api/v1/resources/1", Some(&change(30, json!(1)))).await;
    assert_eq!(
        (code, &answer["detail"]),
        (409, &json!("the generation is 2, not 1: somebody else changed it"))
    );
    assert_eq!(service.ask("PUT", "/api/v1/resources/1", Some(&change(30, json!("x")))).await.0, 422);
}
