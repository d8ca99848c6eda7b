//! Admission webhooks, compared with a real Kubernetes API server.
//!
//! One webhook on loopback answers both servers by the same script, and every answer of the two must be
//! the same: code, reason, message, details, warnings and the object. What differs by nature (uids, times,
//! the words of two JSON libraries) is masked.

#[path = "../crates/apiserver/tests/support/hook.rs"]
mod hook;
#[path = "webhook_parity/versions.rs"]
mod versions;

use std::time::{Duration, Instant};

use hook::{Hook, Reply, allow, deny, patch};
use http_body_util::BodyExt as _;
use hyper::http::Request;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use steersman_apiserver::{
    Options, Server, User,
    store::{Store, StoreOptions},
};
use xtask::parts::{self, Kubernetes, KubernetesOptions};

/// What a webhook is told to do, by its path.
fn script(path: &str, request: &Value) -> Reply {
    let add = |path: &str, value: Value| patch(&json!([{"op": "add", "path": path, "value": value}]));
    let raw = |response: Value| Reply::Review(response);
    match path {
        "/deny" => deny(&json!({"code": 403, "reason": "Forbidden", "message": "not today",
            "details": {"name": "x", "kind": "ConfigMap", "causes": [{"reason": "FieldValueInvalid", "field": "data.a", "message": "is bad"}]}})),
        "/deny-invalid" => deny(&json!({"code": 422, "reason": "Invalid", "message": "no", "status": "Failure"})),
        "/deny-silently" => deny(&Value::Null),
        "/deny-with-reason" => deny(&json!({"reason": "Because"})),
        "/deny-as-success" => deny(&json!({"code": 200, "status": "Success", "message": "fine"})),
        "/warn" => raw(json!({"allowed": true, "warnings": ["mind the gap", "and the \"step\""]})),
        "/warn-and-deny" => raw(json!({"allowed": false, "warnings": ["last warning"], "status": {"message": "no"}})),
        "/wrong-uid" => raw(json!({"uid": "other", "allowed": true})),
        "/no-response" => Reply::Raw(200, r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#.into()),
        "/no-kind" => Reply::Raw(200, json!({"response": {"uid": request["uid"], "allowed": true}}).to_string()),
        "/other-kind" => Reply::Raw(200, json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "response": {"uid": request["uid"], "allowed": true}}).to_string()),
        "/broken" => Reply::Raw(500, "boom".into()),
        "/busy" => Reply::Raw(503, "later".into()),
        "/missing" => Reply::Raw(404, "nothing here".into()),
        "/late" => Reply::Raw(504, "too late".into()),
        "/hang" => Reply::Never,
        "/patch" => add("/data/by", json!("webhook")),
        "/patch-label" => add("/metadata/labels", json!({"by": "webhook"})),
        "/patch-nowhere" => add("/nope/deep", json!(1)),
        "/patch-type" => raw(json!({"allowed": true, "patch": "W10="})),
        "/patch-kind" => raw(json!({"allowed": true, "patch": "W3sib3AiOiJhZGQifV0=", "patchType": "Merge"})),
        "/patch-invalid" => add("/data/bad key", json!("x")),
        "/patch-wrong-type" => add("/data/a", json!({"not": "text"})),
        "/patch-unknown" => add("/surprise", json!("x")),
        "/patch-empty" => patch(&json!([])),
        "/validating-patch" => add("/data/a", json!("x")),
        _ => allow(),
    }
}

/// One webhook and one request.
struct Case {
    kind: &'static str,
    path: &'static str,
    more: Value,
    verb: &'static str,
}

fn cases() -> Vec<Case> {
    let case = |kind, path, more, verb| Case { kind, path, more, verb };
    let mut cases = Vec::new();
    for path in [
        "/deny",
        "/deny-invalid",
        "/deny-silently",
        "/deny-with-reason",
        "/deny-as-success",
        "/warn",
        "/warn-and-deny",
        "/wrong-uid",
        "/no-response",
        "/no-kind",
        "/other-kind",
        "/broken",
        "/busy",
        "/missing",
        "/late",
        "/validating-patch",
    ] {
        cases.push(case("validating", path, json!({}), "create"));
    }
    for path in [
        "/deny",
        "/patch",
        "/patch-label",
        "/patch-nowhere",
        "/patch-type",
        "/patch-kind",
        "/patch-invalid",
        "/patch-wrong-type",
        "/patch-unknown",
        "/patch-empty",
    ] {
        cases.push(case("mutating", path, json!({}), "create"));
    }
    cases.push(case("validating", "/hang", json!({"timeoutSeconds": 1}), "create"));
    cases.push(case("validating", "/broken", json!({"failurePolicy": "Ignore"}), "create"));
    cases.push(case("validating", "/deny", json!({"failurePolicy": "Ignore"}), "create"));
    cases.push(case("validating", "/deny", json!({}), "delete"));
    cases.push(case("mutating", "/patch", json!({}), "delete"));
    cases.push(case("mutating", "/patch", json!({}), "update"));
    cases.push(case("validating", "/deny", json!({}), "patch"));
    cases.push(case("validating", "/x", json!({"clientConfig": {"url": "https://127.0.0.1:1/x"}}), "create"));
    cases.push(case("validating", "/x", json!({"admissionReviewVersions": ["v7"]}), "configure"));
    cases.push(case("validating", "/x", json!({"name": "short"}), "configure"));
    cases.push(case("validating", "/x", json!({"sideEffects": "Some", "timeoutSeconds": 99}), "configure"));
    cases.push(case(
        "validating",
        "/x",
        json!({"clientConfig": {"url": "http://127.0.0.1/x?a=b"}}),
        "configure",
    ));
    cases.push(case("validating", "/x", json!({"clientConfig": {}}), "configure"));
    cases.push(case("validating", "/x", json!({"rules": [{"operations": ["*", "CREATE"], "apiGroups": [], "apiVersions": [""], "resources": ["*", "pods"], "scope": "Some"}]}), "configure"));
    cases.push(case(
        "mutating",
        "/x",
        json!({"reinvocationPolicy": "Often", "matchPolicy": "No", "failurePolicy": "Maybe"}),
        "configure",
    ));
    cases
}

const NAMESPACE: &str = "parity";
const MAPS: &str = "/api/v1/namespaces/parity/configmaps";

/// A server under test.
struct Peer<'a> {
    client: Client,
    hook: &'a Hook,
}

impl Peer<'_> {
    async fn send(&self, method: &str, path: &str, content: &str, body: &Value) -> (u16, Value, Vec<String>) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .body(Body::from(body.to_string().into_bytes()))
            .unwrap();
        let response = self.client.send(request).await.unwrap();
        let code = response.status().as_u16();
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.filter_map(|value| value.to_str().ok()).map(ToOwned::to_owned).collect();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default(), warnings)
    }

    async fn json(&self, method: &str, path: &str, body: &Value) -> (u16, Value, Vec<String>) {
        self.send(method, path, "application/json", body).await
    }

    /// Makes the configuration of a case, sends its request and tells of the answer.
    async fn try_case(&self, case: &Case) -> String {
        let kind = if case.kind == "mutating" { "Mutating" } else { "Validating" };
        let collection = format!("/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations", case.kind);
        let mut webhook = json!({
            "name": "w.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": self.hook.client(case.path),
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        });
        for (key, value) in case.more.as_object().into_iter().flatten() {
            webhook[key] = value.clone();
        }
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
            "metadata": {"name": "parity"}, "webhooks": [webhook],
        });
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "1"}});
        let one = format!("{MAPS}/x");
        if case.verb == "configure" {
            return self.shown(&self.json("POST", &collection, &configuration).await);
        }
        if case.verb != "create" {
            assert_eq!(self.json("POST", MAPS, &object).await.0, 201);
        }
        let (code, made, _) = self.json("POST", &collection, &configuration).await;
        assert_eq!(code, 201, "{made}");
        let before = self.hook.paths().len();
        let deadline = Instant::now() + Duration::from_secs(120);
        // A real server takes a moment to see the configuration; dry runs until then change nothing.
        let answer = loop {
            let answer = match case.verb {
                "create" => self.json("POST", &format!("{MAPS}?dryRun=All"), &object).await,
                "update" => self.json("PUT", &format!("{one}?dryRun=All"), &object).await,
                "delete" => self.json("DELETE", &format!("{one}?dryRun=All"), &json!({})).await,
                _ => {
                    let change = json!({"data": {"b": "2"}});
                    self.send("PATCH", &format!("{one}?dryRun=All"), "application/merge-patch+json", &change)
                        .await
                }
            };
            if self.hook.paths().len() > before || answer.0 >= 400 {
                break answer;
            }
            assert!(Instant::now() < deadline, "{} is not asked", case.path);
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        self.json("DELETE", &format!("{collection}/parity"), &json!({})).await;
        if case.verb != "create" {
            // Until the configuration is forgotten too.
            while self.json("DELETE", &one, &json!({})).await.0 != 200 {
                assert!(Instant::now() < deadline, "{} is asked for ever", case.path);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        self.shown(&answer)
    }

    fn shown(&self, (code, body, warnings): &(u16, Value, Vec<String>)) -> String {
        let mut body = body.clone();
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            if let Some(metadata) = body["metadata"].as_object_mut() {
                metadata.remove(field);
            }
        }
        if let Some(details) = body.get_mut("details").and_then(Value::as_object_mut) {
            details.remove("uid");
        }
        format!("{code} {} {warnings:?}", mask(&body.to_string()))
    }
}

/// Hides what differs by nature: generated uids, and what a library says of a patch that leads nowhere.
fn mask(text: &str) -> String {
    const UID: &str = "expected response.uid=";
    let mut pieces = text.split(UID);
    let mut masked = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let rest = piece.find(", got").map_or("", |at| &piece[at..]);
        masked.push_str(&format!("{UID}…{rest}"));
    }
    if masked.contains("/nope/deep") { "a patch that leads nowhere".to_owned() } else { masked }
}

/// Held while a control plane runs: two at once take too long on a small machine.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A control plane of API server and store alone, and a client of it.
async fn real() -> Option<(Kubernetes, Client)> {
    let options = KubernetesOptions {
        controller_manager: false,
        scheduler: false,
        api_server_flags: vec!["--disable-admission-plugins=ServiceAccount".to_owned()],
    };
    let kubernetes = parts::or_skip(Kubernetes::start(&options))?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = Config::from_custom_kubeconfig(
        Kubeconfig::read_from(kubernetes.kubeconfig()).unwrap(),
        &KubeConfigOptions::default(),
    )
    .await
    .unwrap();
    Some((kubernetes, Client::try_from(config).unwrap()))
}

async fn ours() -> (Server, Client) {
    let server = Server::open(Store::memory(StoreOptions::default()), Options::default()).await.unwrap();
    let client = Client::new(server.service(User::admin()), "default");
    (server, client)
}

#[tokio::test]
async fn webapps_of_an_old_release_are_upgraded_in_place() {
    let (_server, client) = ours().await;
    let found = versions::upgrade(client).await;
    let _alone = ONE_AT_A_TIME.lock().await;
    let Some((_kubernetes, client)) = real().await else { return };
    assert_eq!(found, versions::upgrade(client).await);
}

#[tokio::test]
async fn webhooks_are_asked_and_heard_as_on_a_real_api_server() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let Some((_kubernetes, client)) = real().await else { return };
    let hook = Hook::start(script).await;
    let real = Peer { client, hook: &hook };
    let (_server, client) = ours().await;
    let ours = Peer { client, hook: &hook };
    for peer in [&real, &ours] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        assert_eq!(peer.json("POST", "/api/v1/namespaces", &namespace).await.0, 201);
    }
    let mut differences = String::new();
    for case in cases() {
        let (expected, found) = (real.try_case(&case).await, ours.try_case(&case).await);
        if expected != found {
            let (kind, path, verb) = (case.kind, case.path, case.verb);
            differences.push_str(&format!(
                "{verb} with {kind} {path} {}\n  real {expected}\n  ours {found}\n",
                case.more
            ));
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
}
