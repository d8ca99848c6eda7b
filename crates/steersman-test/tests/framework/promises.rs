//! What users of other frameworks ask for most.

use super::*;

#[tokio::test(start_paused = true)]
async fn keys_are_served_in_the_order_in_which_their_objects_came() {
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(Idle);
    let _running = cluster.run(controller.concurrency(1));
    cluster.pass(SECOND).await;
    let names: Vec<String> = (0..500).map(|number| format!("c{:03}", (number * 7) % 500)).collect();
    for name in &names {
        cluster.create_json::<ConfigMap>(config(name)).await;
    }
    called(&cluster, &calls, &format!("default/{}", names[499]), 1).await;
    let calls = calls.lock().expect("a lock");
    let served: Vec<&str> = calls.iter().filter_map(|call| call.key.strip_prefix("default/c")).collect();
    let expected: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix('c')).collect();
    assert_eq!(served, expected);
}

#[tokio::test(start_paused = true)]
async fn what_is_new_does_not_wait_for_what_was_there_at_the_start() {
    struct Slow;
    impl AsyncFnProbe for Slow {
        async fn act(&self, _: Arc<ConfigMap>, _: &Context) -> Result<Outcome, Error> {
            tokio::time::sleep(SECOND).await;
            Ok(Outcome::Done)
        }
    }
    let cluster = Cluster::start().await;
    for number in 0..300 {
        cluster.create_json::<ConfigMap>(config(&format!("old{number}"))).await;
    }
    let (controller, calls) = probe(Slow);
    let _running = cluster.run(controller.concurrency(1));
    called(&cluster, &calls, "default/old0", 1).await;
    let created = Instant::now();
    cluster.create_json::<ConfigMap>(config("new")).await;
    called(&cluster, &calls, "default/new", 1).await;
    assert!(created.elapsed() < 5 * SECOND, "{:?} behind 300 seconds of old work", created.elapsed());
    // And a flood of new ones does not keep the old from being looked at.
    let done =
        |calls: &Calls| calls.lock().expect("a lock").iter().filter(|call| call.key.contains("/old")).count();
    let before = done(&calls);
    for _ in 0..40 {
        cluster.patch::<ConfigMap>("new", json!({"data": {"at": format!("{:?}", created.elapsed())}})).await;
        cluster.pass(SECOND).await;
    }
    assert!(done(&calls) > before + 2, "the old starve");
}

#[tokio::test(start_paused = true)]
async fn every_controller_of_a_shared_cache_hears_of_a_deletion() {
    let cluster = Cluster::start().await;
    let mut manager = cluster.manager(cluster.options("many"));
    let mut all = Vec::new();
    for number in 0..3 {
        let calls = Calls::default();
        let act = Probe { calls: Arc::clone(&calls), act: Idle };
        manager = manager.controller(Controller::new(format!("probe-{number}"), act).shares_its_kind());
        all.push(calls);
    }
    let _running = cluster.run_manager(manager);
    cluster.create_json::<ConfigMap>(config("a")).await;
    for calls in &all {
        called(&cluster, calls, "default/a", 1).await;
    }
    cluster.delete::<ConfigMap>("a").await;
    for calls in &all {
        called(&cluster, calls, "default/a", 2).await;
        assert!(calls.lock().expect("a lock")[1].gone);
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_hears_of_its_deleted_object_and_a_gone_object_is_no_error() {
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(MakeSecret);
    let running = cluster.run(controller.owns::<Secret>());
    cluster.create_json::<ConfigMap>(config("a")).await;
    cluster.wait_for_object::<Secret>("a").await;
    cluster.converge().await;
    cluster.delete::<Secret>("a").await;
    cluster.wait_for_object::<Secret>("a").await;
    let brought = calls.lock().expect("a lock").iter().any(|call| call.reasons == "owned Secret default/a");
    assert!(brought, "{calls:?}");
    cluster.delete::<ConfigMap>("a").await;
    cluster
        .wait_for("the end", || async {
            calls.lock().expect("a lock").last().is_some_and(|call| call.gone).then_some(())
        })
        .await;
    assert!(running.metric("reconcile_errors_total{") < 0.5);
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_is_told_why() {
    let cluster = Cluster::start().await;
    cluster.create_json::<ConfigMap>(config("a")).await;
    let (controller, calls) = probe(Idle);
    let running = cluster.run(controller.resync(60 * SECOND));
    called(&cluster, &calls, "default/a", 1).await;
    cluster.patch::<ConfigMap>("a", json!({"data": {"more": "x"}})).await;
    called(&cluster, &calls, "default/a", 2).await;
    called(&cluster, &calls, "default/a", 3).await;
    let reasons: Vec<String> = calls
        .lock()
        .expect("a lock")
        .iter()
        .filter(|call| call.key == "default/a")
        .map(|call| call.reasons.clone())
        .collect();
    assert_eq!(reasons[..3], ["started", "changed", "resync"]);
    for reason in ["started", "changed", "resync"] {
        let series = format!("controller_reconcile_reason_total{{controller=\"probe\",reason=\"{reason}\"}}");
        assert!(running.metric(&series) >= 1.0, "{series}");
    }
}

#[tokio::test(start_paused = true)]
async fn to_wait_for_something_is_no_failure() {
    struct NeedsSecret;
    impl AsyncFnProbe for NeedsSecret {
        async fn act(&self, _: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
            match cx.cache::<Secret>().get(cx.key()) {
                Some(_) => Ok(Outcome::Done),
                None => Err(Error::wait_for(format!("Secret {}", cx.key()))),
            }
        }
    }
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(NeedsSecret);
    let running = cluster.run(controller.watches::<Secret>(|secret, _| vec![Key::of(secret)]));
    cluster.create_json::<ConfigMap>(config("a")).await;
    called(&cluster, &calls, "default/a", 1).await;
    let created = Instant::now();
    cluster.create_json::<Secret>(json!({"metadata": {"name": "a"}})).await;
    called(&cluster, &calls, "default/a", 2).await;
    assert!(created.elapsed() < SECOND);
    cluster.create_json::<ConfigMap>(config("b")).await;
    called(&cluster, &calls, "default/b", 4).await;
    let all = calls.lock().expect("a lock");
    let times: Vec<Instant> = all.iter().filter(|call| call.key == "default/b").map(|call| call.at).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 30 * SECOND), "no back-off grows");
    assert!(running.metric("reconcile_errors_total{") < 0.5);
}

/// Applies one condition to the status of Deployments, under a name of its own.
struct Condition(&'static str);

impl Reconciler for Condition {
    type Object = Deployment;

    async fn reconcile(&self, object: Arc<Deployment>, cx: &Context) -> Result<Outcome, Error> {
        let replicas = object.spec.as_ref().and_then(|spec| spec.replicas);
        cx.apply_status(&json!({"conditions": [
            {"type": self.0, "status": "True", "reason": "Test", "message": format!("{replicas:?}")}
        ]}))
        .await?;
        Ok(Outcome::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn two_writers_of_one_status_do_not_fight() {
    let cluster = Cluster::start().await;
    let running: Vec<_> =
        ["One", "Two"].map(|name| cluster.run(Controller::new(name, Condition(name)))).into();
    cluster
        .create_json::<Deployment>(json!({"metadata": {"name": "a"}, "spec": {"replicas": 1,
            "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}}))
        .await;
    for replicas in 2..20 {
        cluster.patch::<Deployment>("a", json!({"spec": {"replicas": replicas}})).await;
        cluster.pass(Duration::from_millis(3)).await;
    }
    cluster
        .wait_until::<Deployment>("a", |one| {
            let conditions = one.status.as_ref().and_then(|status| status.conditions.clone());
            let conditions = conditions.unwrap_or_default();
            conditions.len() == 2 && conditions.iter().all(|one| one.message.as_deref() == Some("Some(19)"))
        })
        .await;
    cluster.converge().await;
    cluster.assert_silent(3600 * SECOND).await;
    for operator in &running {
        assert!(operator.metric("reconcile_errors_total{") < 0.5, "no conflict");
    }
}

#[tokio::test(start_paused = true)]
async fn one_process_serves_two_clusters() {
    let (east, west) = (Cluster::start().await, Cluster::start().await);
    let (first, east_calls) = probe(MakeSecret);
    let (second, west_calls) = probe(MakeSecret);
    let _running = (east.run(first.owns::<Secret>()), west.run(second.owns::<Secret>()));
    east.create_json::<ConfigMap>(config("e")).await;
    west.create_json::<ConfigMap>(config("w")).await;
    east.wait_for_object::<Secret>("e").await;
    west.wait_for_object::<Secret>("w").await;
    assert_eq!((count(&east_calls, "default/w"), count(&west_calls, "default/e")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_needs_no_leader_runs_in_every_process() {
    let cluster = Cluster::start().await;
    let lead = |identity: &str| {
        let lease = LeaseOptions {
            identity: identity.to_owned(),
            ..LeaseOptions::new("default", "probe.steersman.io")
        };
        let (elected, elected_calls) = probe(Idle);
        let calls = Calls::default();
        let everywhere = Probe { calls: Arc::clone(&calls), act: MakeSecret };
        let everywhere = Controller::new("everywhere", everywhere).owns::<Secret>();
        let manager = cluster
            .manager(Options { lease: Some(lease), ..cluster.options("probe") })
            .controller(elected)
            .controller(everywhere.without_election().shares_its_kind());
        (cluster.run_manager(manager), elected_calls, calls)
    };
    let (first, first_elected, first_everywhere) = lead("first");
    cluster.create_json::<ConfigMap>(config("a")).await;
    called(&cluster, &first_elected, "default/a", 1).await;
    called(&cluster, &first_everywhere, "default/a", 1).await;
    let (second, second_elected, second_everywhere) = lead("second");
    called(&cluster, &second_everywhere, "default/a", 1).await;
    cluster.pass(60 * SECOND).await;
    assert_eq!(count(&second_elected, "default/a"), 0);
    // The follower writes as well: nothing of it is fenced.
    first.kill().await;
    cluster.create_json::<ConfigMap>(config("b")).await;
    cluster.wait_for_object::<Secret>("b").await;
    second.stop().await;
}
