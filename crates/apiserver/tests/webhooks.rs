//! Admission webhooks, as a client and a webhook see them.

#[path = "webhooks/conversion.rs"]
mod conversion;
#[path = "support/hook.rs"]
mod hook;
mod support;

use hook::{Hook, Reply, allow, deny, patch};
use serde_json::{Value, json};
use support::{CONFIG_MAPS, World, config_map};

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// A webhook about ConfigMaps.
fn webhook(name: &str, client: &Value) -> Value {
    json!({
        "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": client,
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps", "configmaps/*"]}],
    })
}

fn with(mut webhook: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().expect("fields") {
        webhook[key] = value.clone();
    }
    webhook
}

async fn configure(world: &World, path: &str, name: &str, webhooks: &[Value]) {
    let kind =
        if path == MUTATING { "MutatingWebhookConfiguration" } else { "ValidatingWebhookConfiguration" };
    let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "webhooks": webhooks});
    world.client.post(path, &object).await.ok(201);
}

fn status(answer: &support::Answer) -> (u16, String, String) {
    let status = answer.json();
    let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
    (answer.code, text("reason"), text("message"))
}

#[tokio::test]
async fn a_refusal_reaches_the_client_with_the_webhooks_name_and_words() {
    let world = World::new().await;
    let hook = Hook::start(|_, request| match request["object"]["data"]["answer"].as_str() {
        Some("no") => deny(&json!({"code": 403, "reason": "Forbidden", "message": "not today",
            "details": {"causes": [{"field": "data.answer", "message": "is no"}]}})),
        Some("silent") => deny(&Value::Null),
        _ => Reply::Review(json!({"allowed": true, "warnings": ["mind the gap"]})),
    })
    .await;
    configure(&world, VALIDATING, "v", &[webhook("check.example.com", &hook.client("/v"))]).await;

    let no = world.client.post(CONFIG_MAPS, &config_map("a", &json!({"answer": "no"}))).await;
    let expected = "admission webhook \"check.example.com\" denied the request: not today";
    assert_eq!(status(&no), (403, "Forbidden".into(), expected.into()));
    assert_eq!(no.json()["details"]["causes"][0]["field"], "data.answer");
    let silent = world.client.post(CONFIG_MAPS, &config_map("a", &json!({"answer": "silent"}))).await;
    let expected = "admission webhook \"check.example.com\" denied the request without explanation";
    assert_eq!(status(&silent), (400, String::new(), expected.into()));

    let yes = world.client.post(CONFIG_MAPS, &config_map("a", &json!({"answer": "yes"}))).await;
    yes.ok(201);
    assert_eq!(yes.headers["warning"], "299 - \"mind the gap\"");
    let request = hook.last();
    assert_eq!(request["operation"], "CREATE");
    assert_eq!(request["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!(request["resource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    assert_eq!((&request["name"], &request["namespace"]), (&json!("a"), &json!("default")));
    assert_eq!(request["userInfo"]["username"], "admin");
    assert_eq!(request["oldObject"], Value::Null);
    assert_eq!(request["options"]["kind"], "CreateOptions");
    assert!(request["object"]["metadata"]["uid"].is_string(), "validating webhooks see what will be stored");

    let change = json!({"data": {"answer": "no"}});
    let refused = world.client.patch("merge", &format!("{CONFIG_MAPS}/a"), &change).await;
    assert_eq!(refused.code, 403);
    let request = hook.last();
    assert_eq!(
        (&request["operation"], &request["options"]["kind"]),
        (&json!("UPDATE"), &json!("UpdateOptions"))
    );
    assert_eq!(request["oldObject"]["data"]["answer"], "yes");

    world.client.delete(&format!("{CONFIG_MAPS}/a")).await.ok(200);
    let request = hook.last();
    assert_eq!((&request["operation"], &request["object"]), (&json!("DELETE"), &Value::Null));
    assert_eq!(request["oldObject"]["metadata"]["name"], "a");
}

#[tokio::test]
async fn mutating_webhooks_come_first_and_in_order_and_see_what_others_changed() {
    let world = World::new().await;
    let hook = Hook::start(|path, request| {
        let data = &request["object"]["data"];
        match path {
            "/first" if data["second"].is_null() => {
                patch(&json!([{"op": "add", "path": "/data/first", "value": "1"}]))
            }
            "/first" => patch(&json!([{"op": "add", "path": "/data/again", "value": "2"}])),
            "/second" => patch(&json!([{"op": "add", "path": "/data/second", "value": "1"}])),
            _ => allow(),
        }
    })
    .await;
    configure(&world, VALIDATING, "v", &[webhook("v.example.com", &hook.client("/validate"))]).await;
    let first =
        with(webhook("b.example.com", &hook.client("/first")), &json!({"reinvocationPolicy": "IfNeeded"}));
    configure(&world, MUTATING, "b", &[webhook("c.example.com", &hook.client("/second"))]).await;
    configure(&world, MUTATING, "a", &[first]).await;

    let made = world.client.post(CONFIG_MAPS, &config_map("x", &json!({"own": "0"}))).await.ok(201);
    assert_eq!(made["data"], json!({"own": "0", "first": "1", "second": "1", "again": "2"}));
    assert_eq!(hook.paths(), ["/first", "/second", "/first", "/validate"]);
    // What a webhook writes belongs to nobody, as in Kubernetes.
    let owned = &made["metadata"]["managedFields"][0]["fieldsV1"]["f:data"];
    assert_eq!(owned.as_object().map(serde_json::Map::len), Some(2), "{owned}");
}

#[tokio::test]
async fn failure_policies_decide_what_silence_means() {
    let world = World::new().await;
    let hook = Hook::start(|path, request| match path {
        "/hang" => Reply::Never,
        "/broken" => Reply::Raw(500, "boom".into()),
        "/wrong" => Reply::Review(json!({"uid": "other", "allowed": true})),
        "/patch" if request["operation"] == "DELETE" => {
            patch(&json!([{"op": "add", "path": "/x", "value": 1}]))
        }
        _ => allow(),
    })
    .await;
    let port = hook.port();
    let url = |path: &str| format!("Post \"https://127.0.0.1:{port}{path}?timeout=1s\"");
    let cases = [
        ("/hang", format!("failed to call webhook: {}: context deadline exceeded", url("/hang"))),
        ("/broken", "failed to call webhook: an error on the server (\"boom\") has prevented the request from succeeding".into()),
        ("/wrong", "received invalid webhook response: expected response.uid=".into()),
    ];
    for (path, expected) in cases {
        let object = with(webhook("w.example.com", &hook.client(path)), &json!({"timeoutSeconds": 1}));
        configure(&world, VALIDATING, "v", std::slice::from_ref(&object)).await;
        let failed = world.client.post(CONFIG_MAPS, &config_map("x", &json!({}))).await;
        let (code, reason, message) = status(&failed);
        assert_eq!((code, reason.as_str()), (500, "InternalError"), "{message}");
        let expected =
            format!("Internal error occurred: failed calling webhook \"w.example.com\": {expected}");
        assert!(message.starts_with(&expected), "{message}\n{expected}");
        world.client.delete(&format!("{VALIDATING}/v")).await.ok(200);

        configure(&world, VALIDATING, "v", &[with(object, &json!({"failurePolicy": "Ignore"}))]).await;
        world.client.post(CONFIG_MAPS, &config_map("x", &json!({}))).await.ok(201);
        world.client.delete(&format!("{VALIDATING}/v")).await.ok(200);
        world.client.delete(&format!("{CONFIG_MAPS}/x")).await.ok(200);
    }

    let nobody = json!({"url": "https://127.0.0.1:1/x", "caBundle": hook.ca_bundle()});
    let stranger = json!({"url": format!("https://127.0.0.1:{port}/x")});
    let absent = json!({"service": {"name": "nope", "namespace": "default"}, "caBundle": hook.ca_bundle()});
    for (client, expected) in [
        (
            nobody,
            "Post \"https://127.0.0.1:1/x?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection refused"
                .to_owned(),
        ),
        (
            stranger,
            format!(
                "Post \"https://127.0.0.1:{port}/x?timeout=10s\": tls: failed to verify certificate: x509: certificate signed by unknown authority"
            ),
        ),
        (absent, "Post \"https://nope.default.svc:443/?timeout=10s\": service \"nope\" not found".to_owned()),
    ] {
        configure(&world, VALIDATING, "v", &[webhook("w.example.com", &client)]).await;
        let failed = world.client.post(CONFIG_MAPS, &config_map("x", &json!({}))).await;
        let expected = format!(
            "Internal error occurred: failed calling webhook \"w.example.com\": failed to call webhook: {expected}"
        );
        assert_eq!(failed.json()["message"], expected);
        world.client.delete(&format!("{VALIDATING}/v")).await.ok(200);
    }

    world.client.post(CONFIG_MAPS, &config_map("x", &json!({}))).await.ok(201);
    configure(&world, MUTATING, "m", &[webhook("w.example.com", &hook.client("/patch"))]).await;
    let failed = world.client.delete(&format!("{CONFIG_MAPS}/x")).await;
    let expected = "Internal error occurred: admission webhook \"w.example.com\" attempted to modify the object, which is not supported for this operation";
    assert_eq!(failed.json()["message"], expected);
}

#[tokio::test]
async fn selectors_and_dry_runs_decide_who_is_asked() {
    let world = World::new().await;
    let hook = Hook::start(|_, _| allow()).await;
    let client = || hook.client("/x");
    world
        .client
        .post("/api/v1/namespaces", &json!({"metadata": {"name": "other", "labels": {"team": "b"}}}))
        .await
        .ok(201);
    let objects = json!({"objectSelector": {"matchLabels": {"checked": "yes"}}});
    let namespaces =
        json!({"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}});
    configure(
        &world,
        VALIDATING,
        "v",
        &[
            with(webhook("a.example.com", &client()), &objects),
            with(webhook("b.example.com", &hook.client("/team")), &namespaces),
        ],
    )
    .await;
    world.client.post(CONFIG_MAPS, &config_map("plain", &json!({}))).await.ok(201);
    assert_eq!(hook.paths(), Vec::<String>::new());
    let mut labelled = config_map("labelled", &json!({}));
    labelled["metadata"]["labels"] = json!({"checked": "yes"});
    world.client.post(CONFIG_MAPS, &labelled).await.ok(201);
    assert_eq!(hook.paths(), ["/x"]);
    world.client.post("/api/v1/namespaces/other/configmaps", &config_map("x", &json!({}))).await.ok(201);
    assert_eq!(hook.paths(), ["/x", "/team"]);
    world
        .client
        .post(&format!("{CONFIG_MAPS}?dryRun=All"), &{
            let mut object = labelled.clone();
            object["metadata"]["name"] = "rehearsed".into();
            object
        })
        .await
        .ok(201);
    assert_eq!(hook.last()["dryRun"], true);
}

#[tokio::test]
async fn match_conditions_leave_webhooks_out() {
    let world = World::new().await;
    let hook = Hook::start(|_, _| deny(&json!({"message": "asked"}))).await;
    let conditions = json!({"matchConditions": [
        {"name": "not-the-quiet", "expression": "!object.metadata.name.startsWith('quiet')"},
        {"name": "people-only", "expression": "request.userInfo.username == 'admin' && request.operation != 'DELETE'"},
    ]});
    configure(&world, VALIDATING, "v", &[with(webhook("w.example.com", &hook.client("/x")), &conditions)])
        .await;
    world.client.post(CONFIG_MAPS, &config_map("quiet-1", &json!({}))).await.ok(201);
    assert_eq!(hook.paths(), Vec::<String>::new());
    let refused = world.client.post(CONFIG_MAPS, &config_map("loud", &json!({}))).await;
    assert_eq!(refused.json()["message"], "admission webhook \"w.example.com\" denied the request: asked");
    // Where nothing says no, what cannot be judged is up to the failure policy.
    let broken = json!({"matchConditions": [{"name": "broken", "expression": "object.data.missing == 'x'"}]});
    world.client.delete(&format!("{VALIDATING}/v")).await.ok(200);
    configure(&world, VALIDATING, "v", &[with(webhook("w.example.com", &hook.client("/x")), &broken)]).await;
    let failed = world.client.post(CONFIG_MAPS, &config_map("x", &json!({}))).await;
    assert_eq!(failed.code, 403, "{}", failed.json());
    assert!(
        failed.json()["message"]
            .as_str()
            .is_some_and(|message| message.contains("resulted in error: no such key"))
    );
}

#[tokio::test]
async fn a_service_is_called_under_its_own_name_where_its_node_published_it() {
    let world = World::new().await;
    let hook = Hook::start(|_, _| deny(&json!({"message": "seen"}))).await;
    let service = json!({"metadata": {"name": "hook", "annotations": {"steersman.io/address": format!("127.0.0.1:{}", hook.port())}},
        "spec": {"ports": [{"port": 443, "targetPort": 9443}]}});
    world.client.post("/api/v1/namespaces/default/services", &service).await.ok(201);
    let client = json!({"service": {"name": "hook", "namespace": "default", "path": "/x"}, "caBundle": hook.ca_bundle()});
    configure(&world, VALIDATING, "v", &[webhook("w.example.com", &client)]).await;
    let refused = world.client.post(CONFIG_MAPS, &config_map("x", &json!({}))).await;
    assert_eq!(refused.json()["message"], "admission webhook \"w.example.com\" denied the request: seen");
    assert_eq!(hook.paths(), ["/x"]);
}

#[tokio::test]
async fn scales_and_evictions_are_asked_about_in_their_own_kinds() {
    let world = World::new().await;
    let hook = Hook::start(|_, request| match request["kind"]["kind"].as_str() {
        Some("Scale") if request["object"]["spec"]["replicas"].as_i64() > Some(3) => {
            deny(&json!({"message": "too many"}))
        }
        _ => allow(),
    })
    .await;
    let mut everything = webhook("w.example.com", &hook.client("/x"));
    everything["rules"] =
        json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/scale"]}]);
    configure(&world, VALIDATING, "v", &[everything]).await;
    let deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    world.client.post(deployments, &deployment).await.ok(201);
    assert_eq!(hook.paths(), Vec::<String>::new());
    let scale = |replicas: i64| json!({"spec": {"replicas": replicas}});
    world.client.patch("merge", &format!("{deployments}/web/scale"), &scale(3)).await.ok(200);
    let request = hook.last();
    assert_eq!(request["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    assert_eq!(
        (&request["subResource"], &request["oldObject"]["spec"]["replicas"]),
        (&json!("scale"), &json!(1))
    );
    let refused = world.client.patch("merge", &format!("{deployments}/web/scale"), &scale(4)).await;
    assert_eq!(refused.json()["message"], "admission webhook \"w.example.com\" denied the request: too many");
}

#[tokio::test]
async fn a_webhook_of_another_version_gets_the_object_in_that_version() {
    let world = World::new().await;
    let hook = Hook::start(|_, request| match request["object"]["spec"]["metrics"].is_array() {
        true => patch(&json!([{"op": "replace", "path": "/spec/maxReplicas", "value": 7}])),
        false => deny(&json!({"message": "not converted"})),
    })
    .await;
    let mut only_v2 = webhook("w.example.com", &hook.client("/x"));
    only_v2["rules"] = json!([{"operations": ["CREATE"], "apiGroups": ["autoscaling"], "apiVersions": ["v2"], "resources": ["horizontalpodautoscalers"]}]);
    configure(&world, MUTATING, "m", &[only_v2]).await;
    let autoscaler = json!({"metadata": {"name": "x"}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}});
    let made = world
        .client
        .post("/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", &autoscaler)
        .await
        .ok(201);
    assert_eq!((&made["apiVersion"], &made["spec"]["maxReplicas"]), (&json!("autoscaling/v1"), &json!(7)));
    let request = hook.last();
    assert_eq!(
        (&request["kind"]["version"], &request["requestKind"]["version"]),
        (&json!("v2"), &json!("v1"))
    );
}
