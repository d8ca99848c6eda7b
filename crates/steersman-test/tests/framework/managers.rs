//! Starting, leading, stopping.

use super::*;

fn lease_options(cluster: &Cluster, identity: &str) -> Options {
    Options {
        lease: Some(LeaseOptions {
            identity: identity.to_owned(),
            ..LeaseOptions::new("default", "probe.steersman.io")
        }),
        ..cluster.options("probe")
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_replaced_after_its_lease_and_a_released_one_at_once() {
    let cluster = Cluster::start().await;
    let lead = |identity: &str| {
        let (controller, calls) = probe(Idle);
        let manager = cluster.manager(lease_options(&cluster, identity)).controller(controller);
        (cluster.run_manager(manager), calls)
    };
    cluster.create_json::<ConfigMap>(config("a")).await;
    let (first, first_calls) = lead("first");
    called(&cluster, &first_calls, "default/a", 1).await;
    let (second, second_calls) = lead("second");
    cluster.pass(120 * SECOND).await;
    assert_eq!(count(&second_calls, "default/a"), 0, "two leaders");
    let died = Instant::now();
    first.kill().await;
    called(&cluster, &second_calls, "default/a", 1).await;
    // Not later than the lease's duration after the last renewal, which was before the end.
    let gap = second_calls.lock().expect("a lock")[0].at - died;
    assert!(gap > 10 * SECOND && gap <= 15 * SECOND + Duration::from_millis(10), "{gap:?}");
    let (third, third_calls) = lead("third");
    cluster.pass(30 * SECOND).await;
    second.stop().await;
    let released = Instant::now();
    called(&cluster, &third_calls, "default/a", 1).await;
    assert!(released.elapsed() < SECOND, "{:?}", released.elapsed());
    let lease =
        cluster.get::<Lease>("probe.steersman.io").await.and_then(|lease| lease.spec).expect("a lease");
    assert_eq!(lease.holder_identity.as_deref(), Some("third"));
    assert_eq!(lease.lease_transitions, Some(2));
    third.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_another_may_start() {
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(MakeSecret);
    let stopped = Arc::new(Mutex::new(None));
    let sink = Arc::clone(&stopped);
    let manager = cluster
        .manager(lease_options(&cluster, "first"))
        .controller(controller.owns::<Secret>())
        .on_stopped_leading(move || *sink.lock().expect("a lock") = Some(Instant::now()));
    let mut running = cluster.run_manager(manager);
    cluster.create_json::<ConfigMap>(config("a")).await;
    called(&cluster, &calls, "default/a", 1).await;
    cluster.faults().fail_before(u32::MAX);
    let cut_off = Instant::now();
    let error = running.join().await.expect_err("leadership is lost");
    assert!(matches!(error, ManagerError::LostLease { .. }), "{error}");
    assert_eq!(error.exit_code(), 4);
    let stopped = stopped.lock().expect("a lock").expect("the callback was called");
    assert!(stopped - cut_off < 13 * SECOND, "{:?}", stopped - cut_off);
}

#[tokio::test(start_paused = true)]
async fn a_deposed_leader_cannot_write() {
    let cluster = Cluster::start().await;
    let manager = cluster.manager(lease_options(&cluster, "first"));
    let client = manager.client();
    let (controller, calls) = probe(Idle);
    let running = cluster.run_manager(manager.controller(controller));
    cluster.create_json::<ConfigMap>(config("a")).await;
    called(&cluster, &calls, "default/a", 1).await;
    let secrets: kube::Api<Secret> = kube::Api::namespaced(client, "default");
    secrets
        .create(&Default::default(), &secret("while-leading", BTreeMap::new()))
        .await
        .expect("the leader writes");
    // Another took over without our noticing yet: the server refuses the old epoch.
    cluster
        .patch::<Lease>(
            "probe.steersman.io",
            json!({"spec": {"holderIdentity": "other", "leaseTransitions": 9}}),
        )
        .await;
    let refused = secrets.create(&Default::default(), &secret("too-late", BTreeMap::new())).await;
    let error = Error::from(refused.expect_err("fenced"));
    assert!(error.has_code(409), "{error}");
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_running_reconciles_but_not_for_ever() {
    struct Slow(Arc<AtomicUsize>, Duration);
    impl AsyncFnProbe for Slow {
        async fn act(&self, _: Arc<ConfigMap>, _: &Context) -> Result<Outcome, Error> {
            tokio::time::sleep(self.1).await;
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(Outcome::Done)
        }
    }
    for (takes, finished) in [(10 * SECOND, 1), (100 * SECOND, 0)] {
        let cluster = Cluster::start().await;
        let ended = Arc::new(AtomicUsize::new(0));
        let (controller, calls) = probe(Slow(Arc::clone(&ended), takes));
        let running = cluster.run(controller);
        cluster.create_json::<ConfigMap>(config("a")).await;
        called(&cluster, &calls, "default/a", 1).await;
        let began = Instant::now();
        running.stop().await;
        assert_eq!(ended.load(Ordering::SeqCst), finished);
        assert!(began.elapsed() <= 33 * SECOND, "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_runnable_ends_the_manager_with_its_name() {
    let cluster = Cluster::start().await;
    let (controller, _) = probe(Idle);
    let manager = cluster.manager(cluster.options("probe")).controller(controller).runnable(
        "the pump",
        |_stop| async {
            tokio::time::sleep(SECOND).await;
            Err(Error::msg("out of water"))
        },
    );
    let error = cluster.run_manager(manager).join().await.expect_err("it failed");
    assert_eq!(error.to_string(), "the pump failed: out of water");
}

#[tokio::test(start_paused = true)]
async fn controllers_of_one_manager_share_one_watch_per_kind() {
    let cluster = Cluster::start().await;
    let mut manager = cluster.manager(cluster.options("many"));
    let mut all = Vec::new();
    for number in 0..5 {
        let calls = Calls::default();
        let act = Probe { calls: Arc::clone(&calls), act: Idle };
        let controller = Controller::new(format!("probe-{number}"), act).owns::<Secret>();
        manager = manager.controller(controller.shares_its_kind());
        all.push(calls);
    }
    let running = cluster.run_manager(manager);
    cluster.create_json::<ConfigMap>(config("a")).await;
    for calls in &all {
        called(&cluster, calls, "default/a", 1).await;
    }
    let requests = running.metric("rest_client_requests_total{");
    assert!(requests < 2.5, "{requests} requests for the watches of two kinds");
}

#[tokio::test(start_paused = true)]
async fn a_killed_manager_leaves_no_watch_behind() {
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(Idle);
    let running = cluster.run(controller);
    cluster.create_json::<ConfigMap>(config("a")).await;
    called(&cluster, &calls, "default/a", 1).await;
    let metrics = running.metrics().clone();
    running.kill().await;
    let sum = || -> f64 {
        let text = metrics.encode();
        let lines = text.lines().filter(|line| line.starts_with("rest_client_requests_total{"));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let before = sum();
    cluster.pass(3600 * SECOND).await;
    assert!((sum() - before).abs() < 0.5, "someone still watches");
}

#[tokio::test(start_paused = true)]
async fn what_is_put_together_wrongly_does_not_start() {
    let cluster = Cluster::start().await;
    let message = async |manager: steersman::Manager| {
        let error = Box::pin(manager.run(CancellationToken::new())).await.expect_err("it must not start");
        error.to_string()
    };
    let manager = || cluster.manager(cluster.options("probe"));
    let twice = manager().controller(probe(Idle).0).controller(probe(Idle).0);
    assert_eq!(message(twice).await, "two controllers are named probe; give one of them another name");
    let second = Probe { calls: Calls::default(), act: Idle };
    let both = manager().controller(probe(Idle).0).controller(Controller::new("second", second));
    assert_eq!(
        message(both).await,
        "controllers probe and second both reconcile ConfigMap; make them one, or say with shares_its_kind() that they write different fields"
    );
    let nameless = manager().controller(probe(Idle).0.finalizer("cleanup"));
    assert!(message(nameless).await.contains("needs a domain and a slash"));
    let mut options = lease_options(&cluster, "x");
    if let Some(lease) = &mut options.lease {
        lease.renew_deadline = 20 * SECOND;
    }
    assert!(message(cluster.manager(options)).await.contains("must be shorter than the duration"));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_cannot_be_listed_stops_the_start_and_is_named() {
    let cluster = Cluster::start().await;
    cluster.faults().refuse_reads::<Secret>();
    let (controller, _) = probe(Idle);
    let manager = cluster.manager(cluster.options("probe")).controller(controller.reads::<Secret>());
    let error = manager.run(CancellationToken::new()).await.expect_err("no Secrets").to_string();
    assert!(
        error.starts_with("the cache of Secret (/api/v1/secrets) was not filled within 120s: Forbidden"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_done_while_nothing_happens() {
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(MakeSecret);
    let running = cluster.run(controller.owns::<Secret>());
    cluster.create_json::<ConfigMap>(config("a")).await;
    cluster.wait_for_object::<Secret>("a").await;
    cluster.pass(60 * SECOND).await;
    let (reconciles, writes) = (count(&calls, "default/a"), cluster.faults().writes());
    let requests = running.metric("rest_client_requests_total{");
    cluster.pass(3600 * SECOND).await;
    assert_eq!(count(&calls, "default/a"), reconciles);
    assert_eq!(cluster.faults().writes(), writes);
    let age = running.metric("controller_watch_last_event_age_seconds{kind=\"Secret\"}");
    assert!(age <= 305.0, "an idle watch is heard of when it is renewed: {age}");
    let asked = running.metric("rest_client_requests_total{") - requests;
    assert!(asked <= 2.0 * 14.0, "{asked} requests in an idle hour: two watches, renewed every five minutes");
}

#[tokio::test]
async fn metrics_and_health_are_served() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let cluster = Cluster::start().await;
    let any = Some(([127, 0, 0, 1], 0).into());
    let options = Options { metrics: any, health: any, ..cluster.options("probe") };
    let (controller, calls) = probe(Idle);
    let mut manager = cluster.manager(options).controller(controller);
    let endpoints = manager.listen().await.expect("free ports");
    let running = cluster.run_manager(manager);
    cluster.create_json::<ConfigMap>(config("a")).await;
    called(&cluster, &calls, "default/a", 1).await;
    let ask = async |address: Option<std::net::SocketAddr>, path: &str| {
        let mut stream =
            tokio::net::TcpStream::connect(address.expect("an address")).await.expect("connected");
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        answer
    };
    assert!(ask(endpoints.health, "/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(ask(endpoints.health, "/readyz").await.ends_with("ok"));
    let metrics = ask(endpoints.metrics, "/metrics").await;
    assert!(
        metrics.contains("controller_runtime_reconcile_total{controller=\"probe\",result=\"success\"}"),
        "{metrics}"
    );
    assert!(ask(endpoints.metrics, "/nothing").await.starts_with("HTTP/1.1 404"));
    running.stop().await;
    let gone = tokio::net::TcpStream::connect(endpoints.health.expect("an address")).await;
    assert!(gone.is_err());
}
