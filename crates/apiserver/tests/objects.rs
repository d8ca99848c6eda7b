//! Objects through the whole of the request path, in process.

mod support;

use std::io::Read as _;

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use steersman_apiserver::{Options, ServiceAccounts};
use support::{CONFIG_MAPS, World, config_map};

#[tokio::test]
async fn an_object_is_created_read_changed_and_deleted() {
    let world = World::new().await;
    let client = &world.client;
    let created = client.post(CONFIG_MAPS, &config_map("a", &json!({"k": "v"}))).await.ok(201);
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/a")).await.ok(200), created);
    let mut changed = created.clone();
    changed["data"]["k"] = "w".into();
    let updated = client.put(&format!("{CONFIG_MAPS}/a"), &changed).await.ok(200);
    assert_ne!(updated["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    assert_eq!(updated["metadata"]["uid"], created["metadata"]["uid"]);
    let message = client.put(&format!("{CONFIG_MAPS}/a"), &changed).await.failure(409, "Conflict");
    assert!(message.contains("the object has been modified"), "{message}");
    let deleted = client.delete(&format!("{CONFIG_MAPS}/a")).await.ok(200);
    assert_eq!((&deleted["status"], &deleted["details"]["name"]), (&json!("Success"), &json!("a")));
    let message = client.get(&format!("{CONFIG_MAPS}/a")).await.failure(404, "NotFound");
    assert_eq!(message, "configmaps \"a\" not found");
}

#[tokio::test]
async fn a_write_that_changes_nothing_is_no_write() {
    let world = World::new().await;
    let client = &world.client;
    let path = format!("{CONFIG_MAPS}/a");
    let created = client.post(CONFIG_MAPS, &config_map("a", &json!({"k": "v"}))).await.ok(201);
    world.advance(60);
    let before = world.server.store().revision();
    for answer in [
        client.put(&path, &created).await,
        client.patch("merge", &path, &json!({"data": {"k": "v"}})).await,
        client.patch("strategic-merge", &path, &json!({})).await,
    ] {
        assert_eq!(answer.ok(200), created);
    }
    assert_eq!(world.server.store().revision(), before);
    let apply = format!("{path}?fieldManager=m&force=true");
    client.patch("apply", &apply, &config_map("a", &json!({"k": "v"}))).await.ok(200);
    let before = world.server.store().revision();
    world.advance(60);
    client.patch("apply", &apply, &config_map("a", &json!({"k": "v"}))).await.ok(200);
    assert_eq!(world.server.store().revision(), before, "an apply that was applied already");
}

#[tokio::test]
async fn a_finalizer_holds_an_object_until_it_is_taken_off() {
    let world = World::new().await;
    let client = &world.client;
    let path = format!("{CONFIG_MAPS}/a");
    let mut object = config_map("a", &json!({}));
    object["metadata"]["finalizers"] = json!(["example.com/f"]);
    client.post(CONFIG_MAPS, &object).await.ok(201);
    let marked = client.delete(&path).await.ok(200);
    assert!(marked["metadata"]["deletionTimestamp"].is_string(), "{marked}");
    client
        .patch("merge", &path, &json!({"metadata": {"finalizers": ["example.com/f", "example.com/g"]}}))
        .await
        .failure(422, "Invalid");
    client.patch("merge", &path, &json!({"metadata": {"finalizers": null}})).await.ok(200);
    client.get(&path).await.failure(404, "NotFound");
}

#[tokio::test]
async fn a_pod_on_a_node_goes_when_the_node_says_so() {
    let world = World::new().await;
    let client = &world.client;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    client.post(pods, &pod("waiting")).await.ok(201);
    client.delete(&format!("{pods}/waiting")).await.ok(200);
    client.get(&format!("{pods}/waiting")).await.failure(404, "NotFound");

    client.post(pods, &pod("running")).await.ok(201);
    let binding = json!({"metadata": {"name": "running"}, "target": {"kind": "Node", "name": "n"}});
    client.post(&format!("{pods}/running/binding"), &binding).await.ok(201);
    client.post(&format!("{pods}/running/binding"), &binding).await.failure(409, "Conflict");
    let marked = client.delete(&format!("{pods}/running")).await.ok(200);
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    client.delete(&format!("{pods}/running?gracePeriodSeconds=0")).await.ok(200);
    client.get(&format!("{pods}/running")).await.failure(404, "NotFound");
}

#[tokio::test]
async fn nothing_new_comes_into_a_namespace_that_is_going() {
    let world = World::new().await;
    let client = &world.client;
    client.post("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await.ok(201);
    let going = client.delete("/api/v1/namespaces/n").await.ok(200);
    assert_eq!(going["status"]["phase"], "Terminating");
    let answer = client.post("/api/v1/namespaces/n/configmaps", &config_map("a", &json!({}))).await;
    answer.failure(403, "Forbidden");
    assert_eq!(answer.json()["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let mut finalized = client.get("/api/v1/namespaces/n").await.ok(200);
    finalized["spec"]["finalizers"] = json!([]);
    client.put("/api/v1/namespaces/n/finalize", &finalized).await.ok(200);
    client.get("/api/v1/namespaces/n").await.failure(404, "NotFound");
    client.delete("/api/v1/namespaces/default").await.failure(403, "Forbidden");
}

#[tokio::test]
async fn patches_that_meet_are_made_again() {
    let world = World::new().await;
    let client = &world.client;
    client.post(CONFIG_MAPS, &config_map("a", &json!({}))).await.ok(201);
    let mut patches = tokio::task::JoinSet::new();
    for number in 0..8 {
        let client = client.clone();
        patches.spawn(async move {
            let patch = json!({"data": {format!("k{number}"): "v"}});
            client.patch("merge", &format!("{CONFIG_MAPS}/a"), &patch).await.ok(200);
        });
    }
    while let Some(done) = patches.join_next().await {
        done.expect("patched");
    }
    let data = client.get(&format!("{CONFIG_MAPS}/a")).await.ok(200)["data"].clone();
    assert_eq!(data.as_object().map(serde_json::Map::len), Some(8));
}

#[tokio::test]
async fn services_get_addresses_that_nobody_else_has() {
    let world = World::new().await;
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str| json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let mut addresses = std::collections::BTreeSet::new();
    for number in 0..50 {
        let made = world.client.post(services, &service(&format!("s{number}"))).await.ok(201);
        let spec = &made["spec"];
        assert!(addresses.insert((spec["clusterIP"].to_string(), spec["ports"][0]["nodePort"].to_string())));
    }
    let taken = world.client.get(&format!("{services}/s0")).await.ok(200);
    let mut thief = service("thief");
    thief["spec"]["clusterIP"] = taken["spec"]["clusterIP"].clone();
    let message = world.client.post(services, &thief).await.failure(422, "Invalid");
    assert!(message.contains("provided IP is already allocated"), "{message}");
    world.client.delete(&format!("{services}/s0")).await.ok(200);
    world.client.post(services, &thief).await.ok(201);
}

#[tokio::test]
async fn a_deposed_leader_cannot_write() {
    let world = World::new().await;
    let client = &world.client;
    let lease = json!({"metadata": {"name": "op"}, "spec": {"holderIdentity": "b", "leaseDurationSeconds": 15, "leaseTransitions": 3}});
    client.post("/apis/coordination.k8s.io/v1/namespaces/default/leases", &lease).await.ok(201);
    let write = |term: &'static str, name: &'static str| async move {
        let headers = [("content-type", "application/json"), ("steersman-fence", term)];
        client
            .send(Method::POST, CONFIG_MAPS, &headers, config_map(name, &json!({})).to_string().as_bytes())
            .await
    };
    write("default/op/3", "good").await.ok(201);
    let refused = write("default/op/2", "late").await;
    refused.failure(409, "Conflict");
    assert_eq!(refused.json()["details"]["causes"][0]["reason"], "Fenced");
    write("nonsense", "odd").await.failure(400, "BadRequest");
}

#[tokio::test]
async fn unknown_fields_are_dropped_named_or_refused() {
    let world = World::new().await;
    let client = &world.client;
    let odd = |name: &str| {
        let mut object = config_map(name, &json!({}));
        object["nope"] = json!(1);
        object
    };
    let warned = client.post(CONFIG_MAPS, &odd("a")).await;
    assert_eq!(warned.ok(201).get("nope"), None);
    assert_eq!(warned.headers["warning"], "299 - \"unknown field \\\"nope\\\"\"");
    let quiet = client.post(&format!("{CONFIG_MAPS}?fieldValidation=Ignore"), &odd("b")).await;
    assert!(!quiet.headers.contains_key("warning"));
    let message = client
        .post(&format!("{CONFIG_MAPS}?fieldValidation=Strict"), &odd("c"))
        .await
        .failure(400, "BadRequest");
    assert!(message.ends_with("strict decoding error: unknown field \"nope\""), "{message}");
}

#[tokio::test]
async fn hostile_requests_get_answers() {
    let world = World::new().await;
    let client = &world.client;
    let json = [("content-type", "application/json")];
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let large = vec![b' '; 4 * 1024 * 1024];
    let cases: [(Method, &str, &[u8], u16); 12] = [
        (Method::POST, CONFIG_MAPS, b"{", 400),
        (Method::POST, CONFIG_MAPS, b"", 400),
        (Method::POST, CONFIG_MAPS, b"[]", 400),
        (Method::POST, CONFIG_MAPS, deep.as_bytes(), 400),
        (Method::POST, CONFIG_MAPS, &large, 413),
        (Method::PUT, CONFIG_MAPS, b"{}", 405),
        (Method::GET, "/api/v1/nopes", b"", 404),
        (Method::GET, "/apis/nope/v1", b"", 404),
        (Method::GET, "/api/v1/namespaces/%2e%2e/secrets", b"", 404),
        (Method::GET, "/api/v1/configmaps?limit=x", b"", 400),
        (Method::GET, "/api/v1/configmaps?continue=%00", b"", 400),
        (Method::GET, "/api/v1/configmaps?labelSelector=a%20in%20(", b"", 400),
    ];
    for (method, path, body, code) in cases {
        let answer = client.send(method.clone(), path, &json, body).await;
        assert_eq!(answer.code, code, "{method} {path} {:.20?}: {:?}", body, answer.body);
        assert_eq!(answer.json()["kind"], "Status");
    }
    client
        .send(Method::POST, CONFIG_MAPS, &[("content-type", "text/plain")], b"x")
        .await
        .failure(415, "UnsupportedMediaType");
    client
        .send(Method::GET, CONFIG_MAPS, &[("accept", "text/html")], b"")
        .await
        .failure(406, "NotAcceptable");
}

#[tokio::test]
async fn lists_are_consistent_from_page_to_page() {
    let world = World::new().await;
    let client = &world.client;
    for name in ["a", "b", "c", "d", "e"] {
        client.post(CONFIG_MAPS, &config_map(name, &json!({"v": "old"}))).await.ok(201);
    }
    let first = client.get(&format!("{CONFIG_MAPS}?limit=2")).await.ok(200);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    client.delete(&format!("{CONFIG_MAPS}/d")).await.ok(200);
    client.patch("merge", &format!("{CONFIG_MAPS}/e"), &json!({"data": {"v": "new"}})).await.ok(200);
    let token = first["metadata"]["continue"].as_str().expect("a token");
    let rest = client.get(&format!("{CONFIG_MAPS}?continue={token}")).await.ok(200);
    let names: Vec<&Value> =
        rest["items"].as_array().expect("items").iter().map(|item| &item["metadata"]["name"]).collect();
    assert_eq!(names, ["c", "d", "e"]);
    assert_eq!(rest["items"][2]["data"]["v"], "old");
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn an_object_reads_the_same_in_every_version_and_view() {
    let world = World::new().await;
    let client = &world.client;
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "reason": "R", "message": "m", "type": "Normal"});
    client.post("/api/v1/namespaces/default/events", &event).await.ok(201);
    let other = client.get("/apis/events.k8s.io/v1/namespaces/default/events/e").await.ok(200);
    assert_eq!(
        (&other["note"], &other["regarding"]["name"], &other["apiVersion"]),
        (&json!("m"), &json!("p"), &json!("events.k8s.io/v1"))
    );
    client.post(CONFIG_MAPS, &config_map("a", &json!({"k": "v"}))).await.ok(201);
    let accept = |accept: &'static str| async move {
        client.send(Method::GET, &format!("{CONFIG_MAPS}/a"), &[("accept", accept)], b"").await
    };
    let table = accept("application/json;as=Table;v=v1;g=meta.k8s.io").await.ok(200);
    assert_eq!(table["rows"][0]["cells"][0], "a");
    let partial = accept("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").await.ok(200);
    assert_eq!((&partial["kind"], partial.get("data")), (&json!("PartialObjectMetadata"), None));
    let yaml = accept("application/yaml").await;
    assert!(String::from_utf8_lossy(&yaml.body).contains("kind: ConfigMap"), "{yaml:?}");
}

#[tokio::test]
async fn a_large_list_is_made_while_it_is_sent_and_reads_the_same_compressed() {
    let world = World::new().await;
    let client = &world.client;
    for number in 0..400 {
        let map = config_map(&format!("m-{number:03}"), &json!({"k": "v".repeat(2000)}));
        client.post(CONFIG_MAPS, &map).await.ok(201);
    }
    let mut body = client.raw(Method::GET, CONFIG_MAPS, &[], b"").await.into_body();
    let (mut pieces, mut plain) = (0, Vec::new());
    while let Some(frame) = body.frame().await {
        pieces += 1;
        plain.extend_from_slice(frame.expect("never fails").data_ref().expect("data"));
    }
    assert!(pieces > 4, "{} bytes in {pieces} pieces", plain.len());
    let list: Value = serde_json::from_slice(&plain).expect("JSON");
    let names: Vec<&str> = list["items"]
        .as_array()
        .expect("items")
        .iter()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect();
    assert_eq!((names.len(), names[0], names[399]), (400, "m-000", "m-399"));

    let packed = client.send(Method::GET, CONFIG_MAPS, &[("accept-encoding", "gzip")], b"").await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert!(packed.body.len() < plain.len() / 4, "{} of {}", packed.body.len(), plain.len());
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&*packed.body).read_to_end(&mut unpacked).expect("gzip");
    assert_eq!(unpacked, plain);
}

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, spec: &Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

#[tokio::test]
async fn a_pod_finds_the_token_of_its_account_where_programs_look_for_it() {
    let world =
        World::with(Options { service_accounts: ServiceAccounts::Mounted, ..Options::default() }).await;
    let client = &world.client;
    let account =
        |name: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    client.post(accounts, &account("default")).await.ok(201);
    let made = client.post(PODS, &pod("a", &json!({}))).await.ok(201);
    let mount = &made["spec"]["containers"][0]["volumeMounts"][0];
    assert_eq!(mount["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount");
    let volume = &made["spec"]["volumes"][0];
    assert_eq!(volume["name"], mount["name"]);
    let sources: Vec<&String> = volume["projected"]["sources"]
        .as_array()
        .expect("sources")
        .iter()
        .flat_map(|source| source.as_object().expect("a source").keys())
        .collect();
    assert_eq!(sources, ["serviceAccountToken", "configMap", "downwardAPI"]);

    let message =
        client.post(PODS, &pod("b", &json!({"serviceAccountName": "robot"}))).await.failure(403, "Forbidden");
    assert_eq!(
        message,
        "pods \"b\" is forbidden: error looking up service account default/robot: serviceaccount \"robot\" not found"
    );
    let mut robot = account("robot");
    robot["automountServiceAccountToken"] = false.into();
    robot["imagePullSecrets"] = json!([{"name": "s"}]);
    client.post(accounts, &robot).await.ok(201);
    let made = client.post(PODS, &pod("b", &json!({"serviceAccountName": "robot"}))).await.ok(201);
    assert_eq!(made["spec"].get("volumes"), None);
    assert_eq!(made["spec"]["imagePullSecrets"], json!([{"name": "s"}]));
}

#[tokio::test]
async fn limit_ranges_fill_in_what_is_open_and_refuse_what_is_too_much() {
    let world = World::new().await;
    let client = &world.client;
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "200m"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}}]}});
    client.post("/api/v1/namespaces/default/limitranges", &range).await.ok(201);
    let made = client.post(PODS, &pod("a", &json!({}))).await.ok(201);
    assert_eq!(
        made["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "200m"}, "requests": {"cpu": "100m"}})
    );
    assert_eq!(made["status"]["qosClass"], "Burstable");
    let greedy = json!({"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}}}]});
    let message = client.post(PODS, &pod("b", &greedy)).await.failure(403, "Forbidden");
    assert_eq!(message, "pods \"b\" is forbidden: maximum cpu usage per Container is 1, but limit is 2");
}
