//! The REST face over real sockets on loopback, with the commands that its users type.

mod support;

use std::process::Stdio;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use steersman::CancellationToken;
use steersman_infra::action::Registry;
use steersman_infra::action::github::GitHubActions;
use steersman_infra::action::http::Http;
use steersman_infra::action::web::{PrivateAddresses, Web, WebOptions};
use steersman_infra::rest::{Access, RestError};
use steersman_infra::{History, Resource, RestOptions, rest};
use steersman_test::{Cluster, Running};
use support::{Asked, cluster, operate, stand_in};
use tokio::net::TcpListener;

/// A cluster, the REST face and, unless only the face is tested, the operator.
struct Service {
    cluster: Cluster,
    address: String,
    stop: CancellationToken,
    _operator: Option<Running>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn web() -> Web {
    let options = WebOptions { private_addresses: PrivateAddresses::Allow, ..WebOptions::default() };
    Web::new(options).expect("a client")
}

fn settings(value: &Value) -> serde_json::Map<String, Value> {
    value.as_object().cloned().expect("settings")
}

fn plugins() -> Registry {
    Registry::new().with(Http::new(web())).with(GitHubActions::new(web()))
}

async fn service(plugins: Registry, acting: bool) -> Service {
    let cluster = cluster().await;
    let history = History::memory().expect("a history");
    let operator = acting.then(|| operate(&cluster, plugins.clone(), &history));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let stop = CancellationToken::new();
    let options = RestOptions { clock: cluster.clock(), ..RestOptions::new(plugins, history) };
    tokio::spawn(rest(cluster.client(), options, listener, stop.clone()));
    Service { cluster, address, stop, _operator: operator }
}

impl Service {
    /// Runs a command as it stands in the documentation, against this service.
    async fn shell(&self, command: &str) -> (u16, Value) {
        let port = self.address.rsplit(':').next().unwrap_or_default();
        let command = command.replace("localhost:8000", &format!("localhost:{port}")).replacen(
            "curl ",
            "curl --silent --show-error --write-out '\\n%{http_code}' ",
            1,
        );
        let output = tokio::process::Command::new("sh")
            .args(["-c", &command])
            .stdin(Stdio::null())
            .output()
            .await
            .expect("a shell with curl");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, code) = text.rsplit_once('\n').unwrap_or_else(|| panic!("{command}: {output:?}"));
        (code.parse().expect("a code"), serde_json::from_str(body).unwrap_or(Value::Null))
    }

    async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let data = body.map(Value::to_string);
        self.raw(method, path, data.as_deref()).await
    }

    async fn raw(&self, method: &str, path: &str, body: Option<&str>) -> (u16, Value) {
        let method: http::Method = method.parse().expect("a method");
        let address = format!("http://{}{path}", self.address);
        let mut request = http::Request::builder().method(method).uri(&address);
        request = request.header("content-type", "application/json");
        let body = http_body_util::Full::new(bytes::Bytes::from(body.unwrap_or_default().to_owned()));
        let client =
            hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build_http();
        let answer = client.request(request.body(body).expect("a request")).await.expect("an answer");
        let code = answer.status().as_u16();
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.expect("a body").to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn wait(&self, path: &str, status: &str) -> Value {
        let what = format!("{path} to be {status}");
        let probe = || async {
            let (_, body) = self.ask("GET", path, None).await;
            (body["status"] == status).then_some(body)
        };
        self.cluster.wait_for(&what, probe).await
    }
}

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

/// A strict GitHub: knows one workflow, names its runs, and takes three questions to finish one.
#[derive(Clone, Default)]
struct GitHub(Arc<Mutex<Vec<(Value, u32)>>>);

impl GitHub {
    fn answer(&self, asked: &Asked) -> (u16, Value) {
        let header = |name: &str| {
            asked.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        if header("authorization") != "Bearer ghp_secret" {
            return (401, json!({"message": "Bad credentials"}));
        }
        if header("user-agent").is_empty() || header("accept") != "application/vnd.github+json" {
            return (403, json!({"message": "Request forbidden by administrative rules."}));
        }
        let mut runs = self.0.lock().expect("runs");
        let Some(path) = asked.path.strip_prefix("/repos/acme/infra/actions/") else {
            return (404, json!({"message": "Not Found"}));
        };
        let parts: Vec<&str> = path.split('/').collect();
        match (asked.method.as_str(), parts.as_slice()) {
            ("POST", ["workflows", "database.yml", "dispatches"]) => {
                let inputs = asked.body["inputs"].as_object();
                let texts = inputs.is_some_and(|all| all.len() <= 25 && all.values().all(Value::is_string));
                if !asked.body["ref"].is_string() || !texts {
                    return (422, json!({"message": "Invalid request."}));
                }
                runs.push((asked.body["inputs"].clone(), 0));
                let id = runs.len();
                (
                    200,
                    json!({"workflow_run_id": id, "run_url": "x", "html_url": format!("https://github.test/runs/{id}")}),
                )
            }
            ("GET", ["runs", id]) => match id.parse::<usize>().ok().and_then(|id| runs.get_mut(id - 1)) {
                None => (404, json!({"message": "Not Found"})),
                Some((_, asked)) => {
                    *asked += 1;
                    let (status, conclusion) = match asked {
                        1 => ("queued", Value::Null),
                        2 => ("in_progress", Value::Null),
                        _ => ("completed", json!("success")),
                    };
                    (200, json!({"id": id, "status": status, "conclusion": conclusion}))
                }
            },
            ("GET", ["runs", _, "jobs"]) => (
                200,
                json!({"total_count": 1, "jobs": [{"id": 9, "name": "deploy", "status": "completed",
                "conclusion": "success", "started_at": "2024-01-15T10:30:00Z", "completed_at": "2024-01-15T10:35:00Z", "steps": []}]}),
            ),
            ("GET", ["runs", _, "artifacts"]) => (
                200,
                json!({"total_count": 1, "artifacts": [{"id": 3, "name": "build-output", "size_in_bytes": 1_234_567}]}),
            ),
            ("POST", ["runs", _, "cancel"]) => {
                (409, json!({"message": "Cannot cancel a workflow run that is completed."}))
            }
            _ => (404, json!({"message": "Not Found"})),
        }
    }
}

#[tokio::test]
async fn the_commands_of_the_documentation_work_as_they_stand() {
    let github = GitHub::default();
    let hub = github.clone();
    let url = stand_in(move |asked| hub.answer(&asked)).await;
    let configured =
        settings(&json!({"api_url": url, "token": "ghp_secret", "owner": "acme", "repo": "infra",
        "workflow": "database.yml", "poll_interval_seconds": 0}));
    let service = service(plugins().configured("github_actions", configured), true).await;

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

fn simple_type(name: &str) -> Value {
    json!({"name": name, "version": "v1", "schema": {"type": "object", "required": ["size"],
        "properties": {"size": {"type": "integer", "minimum": 10}, "tier": {"type": "string", "default": "small"}}}})
}

fn simple(name: &str) -> Value {
    json!({"name": name, "resource_type_name": "Disk", "resource_type_version": "v1", "action_plugin": "http", "spec": {"size": 10}})
}

#[tokio::test]
async fn bad_requests_get_exact_answers() {
    let service = service(plugins(), false).await;
    assert_eq!(service.ask("POST", "/api/v1/resource-types", Some(&simple_type("Disk"))).await.0, 201);
    assert_eq!(service.ask("POST", "/api/v1/resources", Some(&simple("one"))).await.0, 201);
    let detail = |text: &str| json!({"detail": text});
    let with = |change: Value| {
        let mut body = simple("two");
        for (name, value) in change.as_object().cloned().unwrap_or_default() {
            body[name] = value;
        }
        body
    };
    let cases = [
        (
            "POST",
            "/api/v1/resource-types",
            Some(simple_type("Disk")),
            409,
            detail("Resource type Disk/v1 already exists"),
        ),
        (
            "POST",
            "/api/v1/resources",
            Some(simple("one")),
            409,
            detail("Resource one of type Disk already exists"),
        ),
        (
            "POST",
            "/api/v1/resources",
            Some(with(json!({"spec": {"size": 5, "tier": 1}}))),
            400,
            detail(
                "Spec validation failed: size: 5 is less than the minimum of 10; tier: 1 is not of type 'string'",
            ),
        ),
        (
            "POST",
            "/api/v1/resources",
            Some(with(json!({"spec": {}}))),
            400,
            detail("Spec validation failed: (root): 'size' is a required property"),
        ),
        ("POST", "/api/v1/resources", Some(with(json!({"spec": null}))), 400, detail("spec is required")),
        (
            "POST",
            "/api/v1/resources",
            Some(with(json!({"resource_type_version": "v9"}))),
            400,
            detail("Resource type Disk/v9 not found"),
        ),
        (
            "POST",
            "/api/v1/resources",
            Some(with(json!({"action_plugin": "magic"}))),
            400,
            detail("Unknown action plugin: magic. Available plugins: github_actions, http"),
        ),
        (
            "PUT",
            "/api/v1/resources/1",
            Some(json!({"spec": {"size": 1}})),
            400,
            detail("Spec validation failed: size: 1 is less than the minimum of 10"),
        ),
        ("GET", "/api/v1/resources/999", None, 404, detail("Resource not found")),
        ("GET", "/api/v1/resources/by-name/Disk/v1/none", None, 404, detail("Resource not found")),
        (
            "GET",
            "/api/v1/resources/by-name/Disk/v1/..%2F..%2Fsecrets",
            None,
            404,
            detail("Resource not found"),
        ),
        ("GET", "/api/v1/resources/999/history", None, 404, detail("Resource not found")),
        ("GET", "/api/v1/resources/999/outputs", None, 404, detail("Resource not found")),
        ("POST", "/api/v1/resources/999/reconcile", None, 404, detail("Resource not found")),
        ("PUT", "/api/v1/resources/999", Some(json!({})), 404, detail("Resource not found")),
        ("DELETE", "/api/v1/resources/999", None, 404, detail("Resource not found")),
        ("GET", "/api/v1/resource-types/999", None, 404, detail("Resource type not found")),
        ("GET", "/api/v1/resource-types/Disk/v9", None, 404, detail("Resource type not found")),
        (
            "GET",
            "/api/v1/resource-types/%27%3B%20drop%20table--/v1",
            None,
            404,
            detail("Resource type not found"),
        ),
        ("DELETE", "/api/v1/resource-types/999", None, 404, detail("Resource type not found")),
        (
            "DELETE",
            "/api/v1/resource-types/1",
            None,
            409,
            detail("Cannot delete: resources still reference this type"),
        ),
        ("PATCH", "/api/v1/resources/1", None, 405, detail("Method Not Allowed")),
        ("DELETE", "/api/v1/resources", None, 405, detail("Method Not Allowed")),
        ("GET", "/api/v2/resources", None, 404, detail("Not Found")),
        ("GET", "/api/v1/resources/1/outputs", None, 200, json!({"outputs": {}})),
        (
            "GET",
            "/api/v1/plugins/actions",
            None,
            200,
            json!([{"name": "github_actions", "version": "1.0.0"}, {"name": "http", "version": "1.0.0"}]),
        ),
        ("GET", "/", None, 200, json!({"status": "ok", "service": "infrastructure-controller"})),
    ];
    for (method, path, body, code, expected) in cases {
        assert_eq!(
            service.ask(method, path, body.as_ref()).await,
            (code, expected),
            "{method} {path} {body:?}"
        );
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_complained_about_field_by_field() {
    let service = service(plugins(), false).await;
    let problem = |kind: &str, place: Value| (kind.to_owned(), place);
    let cases = [
        ("POST", "/api/v1/resource-types", "{", vec![problem("json_invalid", json!(["body", 1]))]),
        ("POST", "/api/v1/resource-types", "", vec![problem("missing", json!(["body"]))]),
        ("POST", "/api/v1/resource-types", "[]", vec![problem("model_attributes_type", json!(["body"]))]),
        (
            "POST",
            "/api/v1/resource-types",
            "{}",
            vec![
                problem("missing", json!(["body", "name"])),
                problem("missing", json!(["body", "version"])),
                problem("missing", json!(["body", "schema"])),
            ],
        ),
        (
            "POST",
            "/api/v1/resource-types",
            r#"{"name": 5, "version": "v1", "schema": []}"#,
            vec![
                problem("string_type", json!(["body", "name"])),
                problem("dict_type", json!(["body", "schema"])),
            ],
        ),
        (
            "POST",
            "/api/v1/resource-types",
            r#"{"name": "X", "version": "v1", "schema": {"type": "nonsense"}}"#,
            vec![problem("value_error", json!(["body", "schema"]))],
        ),
        (
            "POST",
            "/api/v1/resource-types",
            r#"{"name": "X", "version": "v1", "schema": {"$ref": "http://127.0.0.1:1/"}}"#,
            vec![problem("value_error", json!(["body", "schema"]))],
        ),
        (
            "POST",
            "/api/v1/resources",
            r#"{"name": "Not A Name", "resource_type_name": "D", "resource_type_version": "v1", "spec": {}}"#,
            vec![problem("string_pattern_mismatch", json!(["body", "name"]))],
        ),
        ("GET", "/api/v1/resources/abc", "", vec![problem("int_parsing", json!(["path", "resource_id"]))]),
        (
            "GET",
            "/api/v1/resource-types/abc",
            "",
            vec![problem("int_parsing", json!(["path", "resource_type_id"]))],
        ),
        ("GET", "/api/v1/resources?limit=x", "", vec![problem("int_parsing", json!(["query", "limit"]))]),
        (
            "GET",
            "/api/v1/resources?limit=0",
            "",
            vec![problem("greater_than_equal", json!(["query", "limit"]))],
        ),
        (
            "GET",
            "/api/v1/resources?limit=1001",
            "",
            vec![problem("less_than_equal", json!(["query", "limit"]))],
        ),
    ];
    for (method, path, body, expected) in cases {
        let (code, answer) = service.raw(method, path, Some(body)).await;
        assert_eq!(code, 422, "{method} {path} {body}: {answer}");
        let found: Vec<(String, Value)> = answer["detail"]
            .as_array()
            .expect("problems")
            .iter()
            .map(|it| {
                assert!(it["msg"].is_string());
                (it["type"].as_str().unwrap_or_default().to_owned(), it["loc"].clone())
            })
            .collect();
        assert_eq!(found, expected, "{method} {path} {body}");
    }
    let deep = format!("{{\"name\": {}1{}}}", "[".repeat(500), "]".repeat(500));
    assert_eq!(service.raw("POST", "/api/v1/resources", Some(&deep)).await.0, 422);
    let huge = format!("{{\"name\": \"{}\"}}", "x".repeat(4 << 20));
    assert_eq!(service.raw("POST", "/api/v1/resources", Some(&huge)).await.0, 413);
}

#[tokio::test]
async fn of_many_creates_at_once_exactly_one_succeeds() {
    let service = service(plugins(), false).await;
    service.ask("POST", "/api/v1/resource-types", Some(&simple_type("Disk"))).await;
    let body = simple("same");
    let answers =
        futures::future::join_all((0..16).map(|_| service.ask("POST", "/api/v1/resources", Some(&body))))
            .await;
    let count = |code| answers.iter().filter(|(found, _)| *found == code).count();
    assert_eq!((count(201), count(409)), (1, 15));
    let bodies: Vec<Value> = (0..40).map(|index| simple(&format!("n{index}"))).collect();
    let answers = futures::future::join_all(
        bodies.iter().map(|body| service.ask("POST", "/api/v1/resources", Some(body))),
    )
    .await;
    let ids: std::collections::HashSet<i64> =
        answers.iter().filter_map(|(_, body)| body["id"].as_i64()).collect();
    assert_eq!(ids.len(), 40, "every resource has a number of its own");
    let (_, listed) = service.ask("GET", "/api/v1/resources?limit=7", None).await;
    assert_eq!(listed.as_array().map(Vec::len), Some(7));
}

#[tokio::test]
async fn types_stand_side_by_side_are_deprecated_and_go_when_nothing_uses_them() {
    let service = service(plugins(), false).await;
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
    let service = service(plugins(), true).await;
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
async fn web_pages_and_other_machines_are_kept_out() {
    let service = service(plugins(), false).await;
    let (code, _) =
        service.shell("curl -H 'Host: evil.example' http://localhost:8000/api/v1/resources").await;
    assert_eq!(code, 403);
    let (code, _) = service
        .shell("curl -X POST -H 'Origin: https://evil.example' http://localhost:8000/api/v1/resources")
        .await;
    assert_eq!(code, 403);
    let elsewhere = "192.0.2.1:8000".parse().expect("an address");
    assert!(matches!(Access::Local.check(elsewhere), Err(RestError::Unprotected(_))));
    assert!(Access::Token("s3cret".into()).check(elsewhere).is_ok());
    assert_eq!(Access::default(), Access::Local);
}

#[tokio::test]
async fn the_api_describes_itself() {
    let service = service(plugins(), false).await;
    let (code, document) = service.ask("GET", "/openapi.json", None).await;
    assert_eq!((code, &document["openapi"]), (200, &json!("3.1.0")));
    let text = document.to_string();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name: String = reference.chars().take_while(char::is_ascii_alphanumeric).collect();
        assert!(document["components"]["schemas"].get(&name).is_some(), "{name}");
    }
}
