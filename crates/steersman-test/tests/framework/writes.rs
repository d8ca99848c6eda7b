//! What reconcilers write, and what they see of it.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_read_after_a_write_never_sees_the_older_object() {
    struct Incrementer(Arc<AtomicUsize>);
    impl AsyncFnProbe for Incrementer {
        async fn act(&self, _: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
            let key = cx.key().clone();
            for round in 0..10 {
                let value = round.to_string();
                let data = BTreeMap::from([("round".to_owned(), value.clone())]);
                cx.apply(&secret(key.name(), data)).await?;
                let seen = cx.cache::<Secret>().get(&key);
                let seen = seen.and_then(|secret| secret.data.clone()).unwrap_or_default();
                if seen.get("round").map(|bytes| bytes.0.as_slice()) != Some(value.as_bytes()) {
                    return Err(Error::terminal("stale"));
                }
                let secret = cx.cache::<Secret>().get(&key).ok_or_else(|| Error::terminal("missing"))?;
                if round % 3 == 2 {
                    cx.delete(&*secret).await?;
                    if cx.cache::<Secret>().get(&key).is_some() {
                        return Err(Error::terminal("deleted and still there"));
                    }
                }
            }
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(Outcome::Done)
        }
    }
    let cluster = Cluster::start().await;
    let done = Arc::new(AtomicUsize::new(0));
    let (controller, _) = probe(Incrementer(Arc::clone(&done)));
    // Without a watch the cache learns of nothing but our own writes.
    let _running = cluster.run(controller.reads::<Secret>());
    cluster.create_json::<ConfigMap>(config("a")).await;
    cluster.wait_for("the reconcile", || async { (done.load(Ordering::SeqCst) > 0).then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn a_declared_object_is_repaired_and_an_unchanged_one_is_not_sent() {
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(MakeSecret);
    let running = cluster.run(controller.owns::<Secret>());
    cluster.create_json::<ConfigMap>(config("a")).await;
    let made = cluster.wait_for_object::<Secret>("a").await;
    let owners = made.metadata.owner_references.expect("an owner");
    assert_eq!(owners[0].kind, "ConfigMap");
    cluster.pass(5 * SECOND).await;
    let writes = cluster.faults().writes();
    cluster.patch::<ConfigMap>("a", json!({"metadata": {"labels": {"x": "y"}}})).await;
    let reconciles = count(&calls, "default/a");
    called(&cluster, &calls, "default/a", reconciles + 1).await;
    cluster.pass(5 * SECOND).await;
    assert_eq!(cluster.faults().writes(), writes, "nothing changed, nothing is sent");
    assert!(running.metric("controller_reconcile_writes_total{controller=\"probe\",kind=\"Secret\",verb=\"apply\",noop=\"true\"}") >= 1.0);
    // "b3RoZXI=" is "other".
    cluster.patch::<Secret>("a", json!({"data": {"key": "b3RoZXI="}})).await;
    cluster
        .wait_until::<Secret>("a", |secret| {
            secret.data.as_ref().is_some_and(|data| data["key"].0 == b"value")
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn what_is_no_longer_declared_is_pruned_and_what_others_made_stays() {
    struct Several;
    impl AsyncFnProbe for Several {
        async fn act(&self, config: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
            for name in config.data.clone().unwrap_or_default().into_keys() {
                cx.apply(&secret(&name, BTreeMap::new())).await?;
            }
            cx.prune().await?;
            Ok(Outcome::Done)
        }
    }
    let cluster = Cluster::start().await;
    let (controller, _) = probe(Several);
    let _running = cluster.run(controller.owns::<Secret>());
    let config = cluster
        .create_json::<ConfigMap>(json!({"metadata": {"name": "a"}, "data": {"one": "", "two": ""}}))
        .await;
    cluster.wait_for_object::<Secret>("one").await;
    cluster.wait_for_object::<Secret>("two").await;
    // Someone else's Secret with the same owner.
    cluster
        .create_json::<Secret>(json!({"metadata": {"name": "foreign", "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": config.metadata.uid, "controller": true}]}}))
        .await;
    cluster.patch::<ConfigMap>("a", json!({"data": {"two": null}})).await;
    cluster.wait_until_gone::<Secret>("two").await;
    assert!(cluster.get::<Secret>("one").await.is_some());
    assert!(cluster.get::<Secret>("foreign").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn conflicts_lost_answers_and_errors_end_in_the_declared_state() {
    let cluster = Cluster::start().await;
    let (controller, _) = probe(MakeSecret);
    let _running = cluster.run(controller.owns::<Secret>());
    cluster.faults().conflict_once::<Secret>();
    cluster.create_json::<ConfigMap>(config("a")).await;
    cluster.wait_for_object::<Secret>("a").await;
    cluster.faults().fail_before(2);
    cluster.create_json::<ConfigMap>(config("b")).await;
    cluster.wait_for_object::<Secret>("b").await;
    cluster.faults().fail_after_write(2);
    cluster.create_json::<ConfigMap>(config("c")).await;
    cluster.wait_for_object::<Secret>("c").await;
    cluster.pass(60 * SECOND).await;
    assert_eq!(cluster.list::<Secret>().await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_any_two_writes_is_made_good_after_a_restart() {
    struct Chain;
    impl AsyncFnProbe for Chain {
        async fn act(&self, _: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
            for name in ["one", "two", "three"] {
                cx.apply(&secret(name, BTreeMap::new())).await?;
            }
            Ok(Outcome::Done)
        }
    }
    for crash_after in 0..3 {
        let cluster = Cluster::start().await;
        cluster.faults().crash_after(crash_after);
        let running = cluster.run(probe(Chain).0.owns::<Secret>());
        cluster.create_json::<ConfigMap>(config("a")).await;
        cluster.faults().crashed().await;
        running.kill().await;
        let left = cluster.list::<Secret>().await.len();
        assert_eq!(left, crash_after as usize + 1);
        cluster.faults().clear();
        let _running = cluster.run(probe(Chain).0.owns::<Secret>());
        cluster
            .wait_for("all three", || async { (cluster.list::<Secret>().await.len() == 3).then_some(()) })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_goes_only_after_its_clean_up() {
    struct CleanUp(Arc<AtomicUsize>);
    impl Reconciler for CleanUp {
        type Object = ConfigMap;
        async fn reconcile(&self, object: Arc<ConfigMap>, _: &Context) -> Result<Outcome, Error> {
            match object.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty()) {
                true => Ok(Outcome::Done),
                false => Err(Error::terminal("reconciled without the finalizer")),
            }
        }
        async fn finalize(&self, _: Arc<ConfigMap>, _: &Context) -> Result<Finalized, Error> {
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0 => Err(Error::msg("not today")),
                1 => Ok(Finalized::Pending(10 * SECOND)),
                _ => Ok(Finalized::Done),
            }
        }
    }
    let cluster = Cluster::start().await;
    let cleaned = Arc::new(AtomicUsize::new(0));
    let controller =
        Controller::new("clean-up", CleanUp(Arc::clone(&cleaned))).finalizer("example.com/clean-up");
    let running = cluster.run(controller);
    cluster.create_json::<ConfigMap>(config("a")).await;
    cluster.wait_until::<ConfigMap>("a", |config| config.metadata.finalizers.is_some()).await;
    cluster.delete::<ConfigMap>("a").await;
    cluster.pass(5 * SECOND).await;
    assert!(cluster.get::<ConfigMap>("a").await.is_some(), "it waits for the clean-up");
    cluster.wait_until_gone::<ConfigMap>("a").await;
    assert_eq!(cleaned.load(Ordering::SeqCst), 3);
    assert!(running.metric("controller_runtime_terminal_reconcile_errors_total{") < 0.5);
}

#[tokio::test(start_paused = true)]
async fn a_status_is_applied_and_an_unchanged_one_is_not_sent() {
    struct Reporter(Arc<AtomicUsize>);
    impl Reconciler for Reporter {
        type Object = Deployment;
        async fn reconcile(&self, object: Arc<Deployment>, cx: &Context) -> Result<Outcome, Error> {
            let available = DeploymentCondition {
                type_: "Available".to_owned(),
                status: "True".to_owned(),
                reason: Some("Test".to_owned()),
                ..DeploymentCondition::default()
            };
            let status = DeploymentStatus {
                observed_generation: object.metadata.generation,
                replicas: object.spec.as_ref().and_then(|spec| spec.replicas),
                conditions: Some(vec![available]),
                ..DeploymentStatus::default()
            };
            cx.apply_status(&status).await?;
            let seen = cx.cache::<Deployment>().get(cx.key()).and_then(|seen| seen.status.clone());
            if seen.and_then(|status| status.observed_generation) != object.metadata.generation {
                return Err(Error::terminal("an own status is not seen"));
            }
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(Outcome::Done)
        }
    }
    let cluster = Cluster::start().await;
    let done = Arc::new(AtomicUsize::new(0));
    let _running = cluster.run(Controller::new("reporter", Reporter(Arc::clone(&done))));
    cluster
        .create_json::<Deployment>(json!({"metadata": {"name": "a"}, "spec": {"replicas": 2,
            "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}}))
        .await;
    let replicas = |count| {
        move |one: &Deployment| one.status.as_ref().is_some_and(|status| status.replicas == Some(count))
    };
    let first = cluster.wait_until::<Deployment>("a", replicas(2)).await;
    cluster.pass(10 * SECOND).await;
    assert_eq!(cluster.faults().writes(), 1, "the change by the own write caused no other write");
    assert!(done.load(Ordering::SeqCst) >= 2, "it was reconciled again, though");
    cluster.patch::<Deployment>("a", json!({"spec": {"replicas": 5}})).await;
    let second = cluster.wait_until::<Deployment>("a", replicas(5)).await;
    assert!(second.metadata.generation > first.metadata.generation);
    cluster.pass(10 * SECOND).await;
    assert_eq!(cluster.faults().writes(), 2);
}

#[tokio::test(start_paused = true)]
async fn only_the_chosen_namespace_is_looked_at() {
    let cluster = Cluster::start().await;
    cluster.create_json::<Namespace>(json!({"metadata": {"name": "other"}})).await;
    let (controller, calls) = probe(Idle);
    let options = Options { scope: Scope::Namespace("other".to_owned()), ..cluster.options("probe") };
    let _running = cluster.run_manager(cluster.manager(options).controller(controller));
    cluster.create_json::<ConfigMap>(config("outside")).await;
    cluster.create_json::<ConfigMap>(json!({"metadata": {"name": "inside", "namespace": "other"}})).await;
    called(&cluster, &calls, "other/inside", 1).await;
    assert_eq!(count(&calls, "default/outside"), 0);
}

#[tokio::test(start_paused = true)]
async fn objects_are_found_by_a_declared_index() {
    struct Finder(Arc<AtomicUsize>);
    impl AsyncFnProbe for Finder {
        async fn act(&self, _: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
            let found = cx.cache::<Secret>().by_index("type", "example.com/wanted");
            self.0.store(found.len(), Ordering::SeqCst);
            Ok(Outcome::RequeueAfter(SECOND, "look again"))
        }
    }
    let cluster = Cluster::start().await;
    let found = Arc::new(AtomicUsize::new(0));
    let (controller, _) = probe(Finder(Arc::clone(&found)));
    let _running =
        cluster.run(controller.index::<Secret>("type", |secret| secret.type_.clone().into_iter().collect()));
    cluster.create_json::<ConfigMap>(config("a")).await;
    for name in ["one", "two"] {
        cluster
            .create_json::<Secret>(json!({"metadata": {"name": name}, "type": "example.com/wanted"}))
            .await;
    }
    cluster.create_json::<Secret>(json!({"metadata": {"name": "three"}, "type": "Opaque"})).await;
    let until = async |expected: usize| {
        let what = format!("{expected} found");
        cluster.wait_for(&what, || async { (found.load(Ordering::SeqCst) == expected).then_some(()) }).await;
    };
    until(2).await;
    cluster.delete::<Secret>("one").await;
    until(1).await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_in_a_namespace_cannot_own_what_is_elsewhere() {
    struct Wrong;
    impl AsyncFnProbe for Wrong {
        async fn act(&self, _: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
            let mut elsewhere = secret("elsewhere", BTreeMap::new());
            elsewhere.metadata.namespace = Some("kube-system".to_owned());
            let refused = cx.apply(&elsewhere).await;
            let refused = refused.err().map(|error| error.to_string()).unwrap_or_default();
            if !refused.contains("use apply_unowned") {
                return Err(Error::terminal(refused));
            }
            cx.apply_unowned(&elsewhere).await?;
            Ok(Outcome::Done)
        }
    }
    let cluster = Cluster::start().await;
    let (controller, _) = probe(Wrong);
    let _running = cluster.run(controller.reads::<Secret>());
    cluster.create_json::<ConfigMap>(config("a")).await;
    let made = cluster.wait_for_object::<Secret>("kube-system/elsewhere").await;
    assert!(made.metadata.owner_references.is_none());
}

#[tokio::test(start_paused = true)]
async fn equal_events_are_counted_together() {
    struct Teller;
    impl AsyncFnProbe for Teller {
        async fn act(&self, _: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
            cx.event(EventType::Normal, "Seen", "it was looked at");
            Ok(Outcome::RequeueAfter(SECOND, "again"))
        }
    }
    let cluster = Cluster::start().await;
    let (controller, _) = probe(Teller);
    let _running = cluster.run(controller);
    cluster.create_json::<ConfigMap>(config("a")).await;
    cluster
        .wait_for("the fifth", || async {
            let events = cluster.list::<Event>().await;
            let ours: Vec<_> =
                events.iter().filter(|event| event.involved_object.name.as_deref() == Some("a")).collect();
            assert!(ours.len() <= 1);
            ours.first().filter(|event| event.count >= Some(5)).map(|_| ())
        })
        .await;
}
