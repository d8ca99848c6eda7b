//! When reconciles run, and what becomes of those that fail.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_panic_is_caught_and_tried_again() {
    struct PanicTwice(AtomicUsize);
    impl AsyncFnProbe for PanicTwice {
        async fn act(&self, _: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
            assert!(self.0.fetch_add(1, Ordering::SeqCst) >= 2, "on purpose, failures: {}", cx.failures());
            Ok(Outcome::Done)
        }
    }
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(PanicTwice(AtomicUsize::new(0)));
    let running = cluster.run(controller);
    cluster.create_json::<ConfigMap>(config("a")).await;
    called(&cluster, &calls, "default/a", 3).await;
    cluster.create_json::<ConfigMap>(config("b")).await;
    called(&cluster, &calls, "default/b", 1).await;
    assert!((running.metric("controller_runtime_reconcile_panics_total{") - 2.0).abs() < 0.1);
    let calls = calls.lock().expect("a lock");
    assert!(calls[1].at - calls[0].at >= SECOND.mul_f64(0.9));
    assert!(calls[2].at - calls[1].at >= SECOND.mul_f64(1.8));
    assert_eq!(calls[1].reasons, "retry");
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_takes_too_long_is_cut_off_and_tried_again() {
    struct HangOnce(AtomicUsize);
    impl AsyncFnProbe for HangOnce {
        async fn act(&self, _: Arc<ConfigMap>, _: &Context) -> Result<Outcome, Error> {
            if self.0.fetch_add(1, Ordering::SeqCst) == 0 {
                std::future::pending::<()>().await;
            }
            Ok(Outcome::Done)
        }
    }
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(HangOnce(AtomicUsize::new(0)));
    let running = cluster.run(controller.timeout(5 * SECOND));
    cluster.create_json::<ConfigMap>(config("a")).await;
    called(&cluster, &calls, "default/a", 2).await;
    assert!((running.metric("controller_runtime_reconcile_timeouts_total{") - 1.0).abs() < 0.1);
}

#[tokio::test(start_paused = true)]
async fn no_predicate_can_swallow_a_deletion() {
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(Idle);
    let _running = cluster.run(controller.predicate(Predicate::new(|_, _| false)));
    cluster.create_json::<ConfigMap>(config("a")).await;
    called(&cluster, &calls, "default/a", 1).await;
    cluster.patch::<ConfigMap>("a", json!({"data": {"more": "x"}})).await;
    cluster.pass(10 * SECOND).await;
    assert_eq!(count(&calls, "default/a"), 1, "the change is filtered");
    cluster.delete::<ConfigMap>("a").await;
    called(&cluster, &calls, "default/a", 2).await;
    let calls = calls.lock().expect("a lock");
    assert!(calls[1].gone);
    assert_eq!(calls[1].reasons, "deleted");
}

#[tokio::test(start_paused = true)]
async fn no_more_reconciles_than_allowed_run_at_once() {
    struct Slow {
        running: AtomicUsize,
        most: Arc<AtomicUsize>,
    }
    impl AsyncFnProbe for Slow {
        async fn act(&self, _: Arc<ConfigMap>, _: &Context) -> Result<Outcome, Error> {
            let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(running, Ordering::SeqCst);
            tokio::time::sleep(SECOND).await;
            self.running.fetch_sub(1, Ordering::SeqCst);
            Ok(Outcome::Done)
        }
    }
    let cluster = Cluster::start().await;
    for number in 0..20 {
        cluster.create_json::<ConfigMap>(config(&format!("c{number}"))).await;
    }
    let most = Arc::new(AtomicUsize::new(0));
    let (controller, calls) = probe(Slow { running: AtomicUsize::new(0), most: Arc::clone(&most) });
    let began = Instant::now();
    let _running = cluster.run(controller.concurrency(5));
    for number in 0..20 {
        called(&cluster, &calls, &format!("default/c{number}"), 1).await;
    }
    assert_eq!(most.load(Ordering::SeqCst), 5);
    assert!(began.elapsed() < 6 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_requested_recheck_comes_when_it_was_asked_for() {
    struct Recheck;
    impl AsyncFnProbe for Recheck {
        async fn act(&self, _: Arc<ConfigMap>, _: &Context) -> Result<Outcome, Error> {
            Ok(Outcome::RequeueAfter(30 * SECOND, "drift"))
        }
    }
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(Recheck);
    let _running = cluster.run(controller);
    cluster.create_json::<ConfigMap>(config("a")).await;
    called(&cluster, &calls, "default/a", 4).await;
    let calls = calls.lock().expect("a lock");
    for pair in calls.windows(2) {
        assert_eq!(pair[1].at - pair[0].at, 30 * SECOND);
        assert_eq!(pair[1].reasons, "requested: drift");
    }
}

#[tokio::test(start_paused = true)]
async fn a_mapped_object_brings_the_keys_it_maps_to_before_and_after_a_change() {
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(Idle);
    let controller = controller.watches::<Service>(|service, _| {
        let target = service.spec.as_ref().and_then(|spec| spec.external_name.as_ref());
        target.map(|name| Key::new("default", name)).into_iter().collect()
    });
    for name in ["a", "b"] {
        cluster.create_json::<ConfigMap>(config(name)).await;
    }
    let _running = cluster.run(controller);
    called(&cluster, &calls, "default/a", 1).await;
    called(&cluster, &calls, "default/b", 1).await;
    cluster
        .create_json::<Service>(
            json!({"metadata": {"name": "s"}, "spec": {"type": "ExternalName", "externalName": "a"}}),
        )
        .await;
    called(&cluster, &calls, "default/a", 2).await;
    cluster.patch::<Service>("s", json!({"spec": {"externalName": "b"}})).await;
    called(&cluster, &calls, "default/a", 3).await;
    called(&cluster, &calls, "default/b", 2).await;
    let calls = calls.lock().expect("a lock");
    assert_eq!(calls.last().map(|call| call.reasons.as_str()), Some("watched Service default/s"));
}

#[tokio::test(start_paused = true)]
async fn reading_an_undeclared_kind_fails_and_writes_nothing() {
    struct Careless;
    impl AsyncFnProbe for Careless {
        async fn act(&self, _: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
            if cx.cache::<Service>().is_empty() {
                cx.apply(&secret("made-by-mistake", BTreeMap::new())).await?;
            }
            Ok(Outcome::Done)
        }
    }
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(Careless);
    let running = cluster.run(controller.owns::<Secret>());
    cluster.create_json::<ConfigMap>(config("a")).await;
    called(&cluster, &calls, "default/a", 1).await;
    cluster.pass(60 * SECOND).await;
    assert!(cluster.get::<Secret>("made-by-mistake").await.is_none());
    assert!(running.metric("controller_runtime_terminal_reconcile_errors_total{") >= 1.0);
    assert_eq!(count(&calls, "default/a"), 1, "it waits for a change");
}
