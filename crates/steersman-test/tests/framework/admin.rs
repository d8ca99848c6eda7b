//! What people and machines may ask of an operator that runs.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

async fn ask(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("connected");
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (status.expect("a status"), body.to_owned())
}

async fn json_of(address: SocketAddr, path: &str) -> Value {
    let (status, body) = ask(address, path).await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("JSON")
}

#[tokio::test]
async fn an_operator_tells_what_it_is_doing() {
    struct Waits;
    impl AsyncFnProbe for Waits {
        async fn act(&self, object: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
            match cx.key().name() {
                "waiting" => Err(Error::wait_for("Secret default/password")),
                "broken" => Err(Error::terminal("it cannot be done")),
                _ => MakeSecret.act(object, cx).await,
            }
        }
    }
    let cluster = Cluster::start().await;
    let options = Options { health: Some(([127, 0, 0, 1], 0).into()), ..cluster.options("probe") };
    let (controller, calls) = probe(Waits);
    let mut manager = cluster.manager(options).controller(controller.owns::<Secret>());
    let address = manager.listen().await.expect("a free port").health.expect("an address");
    let _running = cluster.run_manager(manager);
    for name in ["good", "waiting", "broken"] {
        cluster.create_json::<ConfigMap>(config(name)).await;
        called(&cluster, &calls, &format!("default/{name}"), 1).await;
    }
    cluster.wait_for_object::<Secret>("good").await;
    let reconciles = cluster
        .wait_for("all three", || async {
            let all = json_of(address, "/debug/reconciles").await;
            let names: Vec<_> = all.as_array()?.iter().map(|one| one["key"].clone()).collect();
            ["good", "waiting", "broken"]
                .iter()
                .all(|name| names.contains(&json!(format!("default/{name}"))))
                .then_some(all)
        })
        .await;
    let of = |name: &str| -> Value {
        let all = reconciles.as_array().expect("a list").iter().rev();
        all.into_iter().find(|one| one["key"] == format!("default/{name}")).cloned().expect("a reconcile")
    };
    assert_eq!(of("good")["result"], "done");
    assert_eq!(of("good")["controller"], "probe");
    assert_eq!(of("good")["reasons"], "created");
    assert_eq!(of("good")["writes"], json!(["apply Secret default/good"]));
    assert_eq!(of("waiting")["result"], "waiting");
    assert_eq!(of("waiting")["message"], "waiting for Secret default/password");
    assert_eq!(of("broken")["result"], "terminal");
    assert_eq!(of("broken")["message"], "it cannot be done");

    let queues = json_of(address, "/debug/queue").await;
    let entries = queues[0]["entries"].as_array().expect("entries");
    let waiting = entries.iter().find(|one| one["key"] == "default/waiting").expect("it will come again");
    assert_eq!((&waiting["state"], &waiting["priority"]), (&json!("delayed"), &json!(-100)));
    assert_eq!(waiting["failures"], 0, "to wait is no failure");
    assert!(waiting["dueInSeconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    assert!(!entries.iter().any(|one| one["key"] == "default/broken"), "that waits for a change");

    let caches = json_of(address, "/debug/cache").await;
    let configs = caches.as_array().expect("kinds").iter().find(|one| one["kind"] == "ConfigMap");
    let configs = configs.expect("ConfigMaps");
    assert_eq!((&configs["synced"], &configs["selection"]), (&json!(true), &json!("all")));
    assert!(configs["objects"].as_u64() >= Some(3) && configs["bytes"].as_u64() > Some(0));
    // Names, never contents.
    assert!(!caches.to_string().contains("value"), "{caches}");
}

#[tokio::test]
async fn checks_have_names_and_can_be_asked_one_by_one() {
    let cluster = Cluster::start().await;
    let options = Options { health: Some(([127, 0, 0, 1], 0).into()), ..cluster.options("probe") };
    let (controller, calls) = probe(Idle);
    let broken = Arc::new(AtomicUsize::new(0));
    let state = Arc::clone(&broken);
    let mut manager = cluster
        .manager(options)
        .controller(controller)
        .health_check("disk", move || match state.load(Ordering::SeqCst) {
            0 => Ok(()),
            _ => Err("it is full".to_owned()),
        })
        .ready_check("licence", || Err("it has run out".to_owned()));
    let address = manager.listen().await.expect("a free port").health.expect("an address");
    let _running = cluster.run_manager(manager);
    cluster.create_json::<ConfigMap>(config("a")).await;
    called(&cluster, &calls, "default/a", 1).await;
    assert_eq!(ask(address, "/healthz").await, (200, "ok".to_owned()));
    let verbose = "[+]disk ok\n[+]ping ok\n[+]watches ok\ncheck passed";
    assert_eq!(ask(address, "/healthz?verbose").await, (200, verbose.to_owned()));
    broken.store(1, Ordering::SeqCst);
    let failed = "[-]disk failed: it is full\n[+]ping ok\n[+]watches ok\ncheck failed";
    assert_eq!(ask(address, "/healthz").await, (503, failed.to_owned()));
    assert_eq!(ask(address, "/healthz/ping").await, (200, "ok".to_owned()));
    assert_eq!(ask(address, "/livez?exclude=disk").await, (200, "ok".to_owned()));
    assert_eq!(ask(address, "/readyz/cache-configmaps").await, (200, "ok".to_owned()));
    let ready = ask(address, "/readyz").await;
    assert_eq!(ready.0, 503);
    assert!(ready.1.starts_with("[-]licence failed: it has run out\n[+]started ok\n"), "{}", ready.1);
    assert_eq!(ask(address, "/readyz/nothing").await.0, 404);
}

#[tokio::test]
async fn a_watch_that_is_refused_is_named_by_readiness() {
    let cluster = Cluster::start().await;
    let options = Options { health: Some(([127, 0, 0, 1], 0).into()), ..cluster.options("probe") };
    let (controller, calls) = probe(Idle);
    let mut manager = cluster.manager(options).controller(controller.owns::<Secret>());
    let address = manager.listen().await.expect("a free port").health.expect("an address");
    let _running = cluster.run_manager(manager);
    cluster.create_json::<ConfigMap>(config("a")).await;
    called(&cluster, &calls, "default/a", 1).await;
    assert_eq!(ask(address, "/readyz").await, (200, "ok".to_owned()));
    // The operator's rights are taken away while it runs.
    cluster.faults().refuse_watches::<Secret>();
    let body = cluster
        .wait_for("a named problem", || async {
            let (status, body) = ask(address, "/readyz").await;
            (status == 503).then_some(body)
        })
        .await;
    assert!(body.contains("[+]cache-configmaps ok\n[-]cache-secrets failed: Forbidden"), "{body}");
    cluster.faults().clear();
    cluster.wait_for("its end", || async { (ask(address, "/readyz").await.0 == 200).then_some(()) }).await;
}
