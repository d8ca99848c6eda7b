//! Resource types over their life.

use serde_json::json;
use steersman_infra::Resource;

use crate::support::service::{face, simple, simple_type};

#[tokio::test]
async fn types_stand_side_by_side_are_deprecated_and_go_when_nothing_uses_them() {
    let service = face().await;
    for version in ["v1", "v1beta1"] {
        let mut body = simple_type("Disk");
        body["version"] = json!(version);
        assert_eq!(service.ask("POST", "/api/v1/resource-types", Some(&body)).await.0, 201);
    }
    let (code, changed) = service
        .ask("PUT", "/api/v1/resource-types/2", Some(&json!({"status": "deprecated", "description": "old"})))
        .await;
    assert_eq!(
        (code, &changed["status"], &changed["description"]),
        (200, &json!("deprecated"), &json!("old"))
    );
    let (_, active) = service.ask("GET", "/api/v1/resource-types?status=active", None).await;
    assert_eq!((active.as_array().map(Vec::len), &active[0]["version"]), (Some(1), &json!("v1")));
    assert_eq!(service.ask("PUT", "/api/v1/resource-types/2", Some(&json!({"status": "gone"}))).await.0, 422);
    assert_eq!(service.ask("DELETE", "/api/v1/resource-types/2", None).await.0, 204);
    assert_eq!(service.ask("GET", "/api/v1/resource-types/2", None).await.0, 404);
    let (_, shown) = {
        service.ask("POST", "/api/v1/resources", Some(&simple("one"))).await;
        service.ask("GET", "/api/v1/resources/1?fields=all", None).await
    };
    assert_eq!(shown["spec"], json!({"size": 10, "tier": "small"}), "defaults are filled in");
    let object = service.cluster.get::<Resource>("disk.one").await.expect("the same object for kubectl");
    assert_eq!(object.spec.parameters["tier"], "small");
}
