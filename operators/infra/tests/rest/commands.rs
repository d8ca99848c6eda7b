//! The commands that users type, as they stand in the documentation.

use serde_json::{Value, json};

use crate::github::GitHub;
use crate::support::service::{plugins, service, settings};
use crate::support::stand_in;

const CREATE_TYPE: &str = r#"curl -X POST http://localhost:8000/api/v1/resource-types \
  -H "Content-Type: application/json" \
  -d '{
    "name": "DatabaseCluster",
    "version": "v1",
    "description": "Managed database cluster",
    "schema": {
      "type": "object",
      "required": ["engine", "engine_version", "instance_class", "storage_gb"],
      "properties": {
        "engine": {
          "type": "string",
          "enum": ["postgres", "mysql", "mariadb"],
          "description": "Database engine type"
        },
        "engine_version": {
          "type": "string",
          "description": "Database engine version"
        },
        "instance_class": {
          "type": "string",
          "description": "Instance size class (e.g. db.small, db.medium, db.large)"
        },
        "storage_gb": {
          "type": "integer",
          "minimum": 10,
          "maximum": 10000,
          "description": "Storage size in GB"
        },
        "replicas": {
          "type": "integer",
          "minimum": 0,
          "maximum": 5,
          "default": 0,
          "description": "Number of read replicas"
        },
        "backup_retention_days": {
          "type": "integer",
          "minimum": 1,
          "maximum": 35,
          "default": 7,
          "description": "Number of days to retain backups"
        },
        "high_availability": {
          "type": "boolean",
          "default": false,
          "description": "Enable multi-AZ high availability"
        }
      }
    }
  }'"#;

const CREATE_RESOURCE: &str = r#"curl -X POST http://localhost:8000/api/v1/resources \
  -H "Content-Type: application/json" \
  -d '{
    "name": "production-pg",
    "resource_type_name": "DatabaseCluster",
    "resource_type_version": "v1",
    "action_plugin": "github_actions",
    "spec": {
      "engine": "postgres",
      "engine_version": "16.2",
      "instance_class": "db.large",
      "storage_gb": 500,
      "replicas": 2,
      "backup_retention_days": 14,
      "high_availability": true
    }
  }'"#;

const UPDATE_RESOURCE: &str = r#"curl -X PUT http://localhost:8000/api/v1/resources/1 \
  -H "Content-Type: application/json" \
  -d '{
    "spec": {
      "engine": "postgres",
      "engine_version": "16.2",
      "instance_class": "db.xlarge",
      "storage_gb": 1000,
      "replicas": 3,
      "backup_retention_days": 14,
      "high_availability": true
    }
  }'"#;
#[tokio::test]
async fn the_commands_of_the_documentation_work_as_they_stand() {
    let github = GitHub::default();
    let hub = github.clone();
    let url = stand_in(move |asked| hub.answer(&asked)).await;
    let configured =
        settings(&json!({"api_url": url, "token": "ghp_secret", "owner": "acme", "repo": "infra",
        "workflow": "database.yml", "poll_interval_seconds": 0}));
    let service = service(plugins().configured("github_actions", configured)).await;

    let (code, created) = service.shell(CREATE_TYPE).await;
    assert_eq!((code, &created["id"], &created["status"]), (201, &json!(1), &json!("active")), "{created}");
    assert_eq!(
        keys(&created),
        ["id", "name", "version", "schema", "description", "status", "metadata", "created_at", "updated_at"]
    );
    let (code, listed) = service.shell("curl http://localhost:8000/api/v1/resource-types").await;
    assert_eq!((code, listed.as_array().map(Vec::len)), (200, Some(1)));
    let (code, listed) =
        service.shell("curl http://localhost:8000/api/v1/resource-types?name=DatabaseCluster").await;
    assert_eq!((code, &listed[0]["name"]), (200, &json!("DatabaseCluster")));
    let (_, by_id) = service.shell("curl http://localhost:8000/api/v1/resource-types/1").await;
    let (_, by_name) =
        service.shell("curl http://localhost:8000/api/v1/resource-types/DatabaseCluster/v1").await;
    assert_eq!(by_id, by_name);
    assert_eq!(by_id["description"], "Managed database cluster");

    let (code, created) = service.shell(CREATE_RESOURCE).await;
    assert_eq!(code, 201, "{created}");
    let twelve = [
        "id",
        "name",
        "resource_type_name",
        "resource_type_version",
        "action_plugin",
        "status",
        "status_message",
        "generation",
        "observed_generation",
        "created_at",
        "updated_at",
        "last_reconcile_time",
    ];
    assert_eq!(keys(&created), twelve);
    assert_eq!(
        (&created["id"], &created["status"], &created["generation"]),
        (&json!(1), &json!("pending"), &json!(1))
    );
    assert_eq!((&created["observed_generation"], &created["last_reconcile_time"]), (&json!(0), &Value::Null));

    let ready = service.wait("/api/v1/resources/1", "ready").await;
    assert_eq!(
        (&ready["status_message"], &ready["observed_generation"]),
        (&json!("Reconciliation successful"), &json!(1))
    );
    assert!(ready["created_at"].as_str().is_some_and(|time| time.ends_with('Z')), "{ready}");
    let (_, by_id) = service.shell("curl http://localhost:8000/api/v1/resources/1").await;
    let (_, by_name) = service
        .shell("curl http://localhost:8000/api/v1/resources/by-name/DatabaseCluster/v1/production-pg")
        .await;
    assert_eq!(by_id, by_name);
    let sent = github.0.lock().expect("runs")[0].0.clone();
    assert_eq!(
        sent,
        json!({"engine": "postgres", "engine_version": "16.2", "instance_class": "db.large", "storage_gb": "500",
        "replicas": "2", "backup_retention_days": "14", "high_availability": "true"})
    );

    let (code, outputs) = service.shell("curl http://localhost:8000/api/v1/resources/1/outputs").await;
    assert_eq!(
        (code, outputs),
        (
            200,
            json!({"outputs": {
        "jobs": [{"name": "deploy", "status": "completed", "conclusion": "success",
            "started_at": "2024-01-15T10:30:00Z", "completed_at": "2024-01-15T10:35:00Z"}],
        "artifacts": [{"name": "build-output", "size_in_bytes": 1_234_567}]}})
        )
    );

    let (code, updated) = service.shell(UPDATE_RESOURCE).await;
    assert_eq!(
        (code, &updated["status"], &updated["generation"]),
        (200, &json!("pending"), &json!(2)),
        "{updated}"
    );
    let ready = service.wait("/api/v1/resources/1", "ready").await;
    assert_eq!(ready["observed_generation"], 2);
    let (code, same) = service.shell(UPDATE_RESOURCE).await;
    assert_eq!((code, &same["generation"]), (200, &json!(2)), "the same wish is no change");

    let (code, entries) = service.shell("curl http://localhost:8000/api/v1/resources/1/history").await;
    assert_eq!((code, entries.as_array().map(Vec::len)), (200, Some(2)), "{entries}");
    assert_eq!(
        keys(&entries[0]),
        [
            "id",
            "resource_id",
            "generation",
            "success",
            "phase",
            "error_message",
            "resources_created",
            "resources_updated",
            "resources_deleted",
            "reconcile_time"
        ]
    );
    assert_eq!((&entries[0]["generation"], &entries[0]["resources_updated"]), (&json!(2), &json!(1)));
    assert_eq!((&entries[1]["generation"], &entries[1]["resources_created"]), (&json!(1), &json!(1)));

    let (code, said) = service.shell("curl -X POST http://localhost:8000/api/v1/resources/1/reconcile").await;
    assert_eq!((code, said), (202, json!({"message": "Reconciliation triggered", "resource_id": 1})));
    service
        .cluster
        .wait_for("a third run", || async { (github.0.lock().expect("runs").len() == 3).then_some(()) })
        .await;
    service.wait("/api/v1/resources/1", "ready").await;

    let (code, said) = service.shell("curl -X DELETE http://localhost:8000/api/v1/resources/1").await;
    assert_eq!((code, said), (202, json!({"message": "Resource marked for deletion", "resource_id": 1})));
    service
        .cluster
        .wait_for("the end of it", || async {
            (service.ask("GET", "/api/v1/resources/1", None).await.0 == 404).then_some(())
        })
        .await;
    let (code, entries) = service.shell("curl http://localhost:8000/api/v1/resources/1/history").await;
    assert_eq!((code, entries.as_array().map(Vec::len)), (200, Some(4)), "history outlives the resource");
    assert_eq!(github.0.lock().expect("runs").len(), 3);
    let (code, health) = service.shell("curl http://localhost:8000/health").await;
    assert_eq!((code, health), (200, json!({"status": "ok", "service": "infrastructure-controller"})));
}

fn keys(value: &Value) -> Vec<String> {
    // The order of fields is part of what people see; the parser keeps none, so sizes and names are compared.
    let mut names: Vec<String> =
        value.as_object().map(|fields| fields.keys().cloned().collect()).unwrap_or_default();
    let order = [
        "id",
        "resource_id",
        "name",
        "resource_type_name",
        "resource_type_version",
        "version",
        "schema",
        "description",
        "action_plugin",
        "status",
        "status_message",
        "metadata",
        "generation",
        "observed_generation",
        "success",
        "phase",
        "error_message",
        "resources_created",
        "resources_updated",
        "resources_deleted",
        "created_at",
        "updated_at",
        "last_reconcile_time",
        "reconcile_time",
    ];
    names.sort_by_key(|name| order.iter().position(|known| known == name));
    names
}
