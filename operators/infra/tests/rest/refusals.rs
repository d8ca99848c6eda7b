//! Bad input, and the exact answers it gets.

use serde_json::{Value, json};

use crate::support::service::{face, simple, simple_type};

#[tokio::test]
async fn bad_requests_get_exact_answers() {
    let service = face().await;
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
        ("GET", "/api/v1/resources/-1", None, 404, detail("Resource not found")),
        ("GET", "/api/v1/resource-types/-9000000000", None, 404, detail("Resource type not found")),
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
    let service = face().await;
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
        (
            "POST",
            "/api/v1/resource-types",
            r#"{"name": "X", "version": "v1", "schema": {}, "metadata": {"drift_interval_seconds": "often"}}"#,
            vec![problem("value_error", json!(["body", "metadata"]))],
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
    let service = face().await;
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
async fn names_with_the_characters_of_other_languages_do_no_harm() {
    let service = face().await;
    // As the name of a type they are just names, whatever they mean to a database, a shell or a path.
    let hostile = [
        "'; DROP TABLE resources; --",
        "\" OR \"1\"=\"1",
        "../../etc/passwd",
        "..",
        "$(reboot)",
        "`reboot`",
        "%00%2e%2e%2f",
        "a\u{0}b",
        "<script>alert(1)</script>",
        "\u{202e}gnp.exe",
        "{{ name }}",
        "name with spaces",
        "Ünï/cødé",
        "💾",
    ];
    for (index, name) in hostile.into_iter().enumerate() {
        let (code, created) = service.ask("POST", "/api/v1/resource-types", Some(&simple_type(name))).await;
        assert_eq!((code, &created["name"]), (201, &json!(name)), "{name:?}");
        let id = &created["id"];
        assert_eq!(service.ask("GET", &format!("/api/v1/resource-types/{id}"), None).await.1["name"], name);
        let mut body = simple(&format!("n{index}"));
        body["resource_type_name"] = json!(name);
        let (code, created) = service.ask("POST", "/api/v1/resources", Some(&body)).await;
        assert_eq!((code, &created["resource_type_name"]), (201, &json!(name)), "{name:?}");
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/api/v1/resources/by-name/{encoded}/v1/n{index}");
        assert_eq!(service.ask("GET", &path, None).await, (200, created), "{name:?}");
        // As the name of a resource they are none.
        let mut body = simple(name);
        body["resource_type_name"] = json!(name);
        let (code, answer) = service.ask("POST", "/api/v1/resources", Some(&body)).await;
        assert_eq!(
            (code, &answer["detail"][0]["type"]),
            (422, &json!("string_pattern_mismatch")),
            "{name:?}"
        );
    }
    for name in ["-a", "a-", "A", "a.b", "a_b", "", &"x".repeat(64)] {
        assert_eq!(service.ask("POST", "/api/v1/resources", Some(&simple(name))).await.0, 422, "{name:?}");
    }
}

#[tokio::test]
async fn a_schema_that_is_none_is_refused_with_the_reason() {
    let service = face().await;
    let deep = (0..80).fold(json!({"type": "string"}), |inner, _| json!({"not": inner}));
    let bomb: serde_json::Map<String, Value> = (0..20)
        .map(|level| {
            let next = json!({"$ref": format!("#/definitions/d{}", level + 1)});
            (format!("d{level}"), json!({"allOf": [next, next, next]}))
        })
        .chain([("d20".to_owned(), json!({"type": "string"}))])
        .collect();
    let cases = [
        (json!({"type": "nonsense"}), "nonsense"),
        (json!({"type": "string"}), "the schema's type must be \"object\", not \"string\""),
        (json!({"properties": 5}), "5"),
        (json!({"properties": {"a": 5}}), "(root).properties.a: 5 is no schema"),
        (json!({"required": "name"}), "name"),
        (json!({"properties": {"a": {"pattern": "("}}}), "("),
        (json!({"properties": {"a": {"pattern": "a".repeat(5000)}}}), "at most 4096 characters"),
        (json!({"properties": {"a": {"pattern": "(x{1000}){1000}"}}}), "x{1000}"),
        (json!({"properties": {"a": {"minimum": "low"}}}), "low"),
        (json!({"$ref": "https://example.com/schema.json"}), "nothing is ever fetched"),
        (json!({"$ref": "file:///etc/passwd"}), "nothing is ever fetched"),
        (json!({"$ref": "#/definitions/none"}), "leads nowhere"),
        (json!({"$ref": "#"}), "refers to itself"),
        (json!({"definitions": bomb, "$ref": "#/definitions/d0"}), "more than 10000 schemas"),
        (deep, "at most 64 levels deep"),
    ];
    for (schema, reason) in cases {
        let body = json!({"name": "X", "version": "v1", "schema": schema});
        let (code, answer) = service.ask("POST", "/api/v1/resource-types", Some(&body)).await;
        let (kind, message) = (&answer["detail"][0]["type"], answer["detail"][0]["msg"].as_str());
        assert_eq!((code, kind), (422, &json!("value_error")), "{reason}: {answer}");
        let message = message.unwrap_or_default();
        assert!(message.starts_with("Value error, Invalid OpenAPI v3 schema: "), "{message}");
        assert!(message.contains(reason), "{reason}: {message}");
    }
    let (_, none) = service.ask("GET", "/api/v1/resource-types", None).await;
    assert_eq!(none, json!([]), "nothing of it was kept");
}

#[tokio::test]
async fn bodies_that_are_huge_deep_or_strange_are_refused_and_the_service_lives_on() {
    let service = face().await;
    service.ask("POST", "/api/v1/resource-types", Some(&simple_type("Disk"))).await;
    let large = |field: &str, bytes: usize| {
        let mut body = simple("big");
        body[field] = json!({"size": 10, "filler": "x".repeat(bytes)});
        body.to_string()
    };
    let cases = [
        ("a spec above 1 MiB", large("spec", (1 << 20) + 1), 422),
        ("a plugin_config above 1 MiB", large("plugin_config", (1 << 20) + 1), 422),
        ("a body above 3 MiB", large("spec", 4 << 20), 413),
        ("nesting", format!("{{\"spec\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000)), 422),
        ("an endless string", "\"".to_owned() + &"a".repeat(1000), 422),
        ("half a character", "{\"name\": \"\\ud800\"}".to_owned(), 422),
        ("a number too large", "{\"name\": 1e999}".to_owned(), 422),
        ("a key twice", r#"{"name": "x", "name": "y"}"#.to_owned(), 422),
        ("trailing text", r#"{"name": "x"} and more"#.to_owned(), 422),
        ("XML", "<name>x</name>".to_owned(), 422),
        ("YAML", "name: x".to_owned(), 422),
        ("null", "null".to_owned(), 422),
    ];
    for (case, body, expected) in cases {
        let (code, answer) = service.raw("POST", "/api/v1/resources", Some(&body)).await;
        assert_eq!(code, expected, "{case}: {answer}");
        assert!(!answer["detail"].is_null(), "{case}: {answer}");
    }
    assert_eq!(service.ask("GET", "/api/v1/resources", None).await, (200, json!([])));
    assert_eq!(service.ask("POST", "/api/v1/resources", Some(&simple("small"))).await.0, 201);
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_503_and_then_all_is_well_again() {
    let service = face().await;
    service.ask("POST", "/api/v1/resource-types", Some(&simple_type("Disk"))).await;
    service.ask("POST", "/api/v1/resources", Some(&simple("one"))).await;
    let requests = [
        ("GET", "/api/v1/resources", None),
        ("GET", "/api/v1/resources/1", None),
        ("POST", "/api/v1/resources", Some(simple("two"))),
        ("PUT", "/api/v1/resources/1", Some(json!({"spec": {"size": 20}}))),
        ("DELETE", "/api/v1/resources/1", None),
        ("GET", "/api/v1/resource-types", None),
        ("GET", "/health", None),
    ];
    service.cut();
    for (method, path, body) in &requests {
        let (code, answer) = service.ask(method, path, body.as_ref()).await;
        assert_eq!(code, 503, "{method} {path}: {answer}");
        assert!(answer["detail"].as_str().is_some_and(|it| it.contains("cannot be reached")), "{answer}");
    }
    service.mend();
    for (method, path, body) in &requests {
        let (code, answer) = service.ask(method, path, body.as_ref()).await;
        assert!((200..300).contains(&code), "{method} {path}: {code} {answer}");
    }
}
