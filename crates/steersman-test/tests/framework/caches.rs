//! What is kept of the server, and what is not.

use kube::core::{ApiResource, DynamicObject, Expression, Selector};

use super::*;

fn team(name: &str) -> Selector {
    Expression::Equal("team".into(), name.into()).into()
}

fn of_team(name: &str, team: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"team": team}}, "data": {"key": "value"}})
}

#[tokio::test(start_paused = true)]
async fn a_list_comes_as_the_beginning_of_a_watch() {
    let cluster = Cluster::start().await;
    for name in ["a", "b"] {
        cluster.create_json::<ConfigMap>(config(name)).await;
    }
    let (controller, calls) = probe(Idle);
    let running = cluster.run(controller);
    called(&cluster, &calls, "default/a", 1).await;
    called(&cluster, &calls, "default/b", 1).await;
    cluster.create_json::<ConfigMap>(config("c")).await;
    called(&cluster, &calls, "default/c", 1).await;
    let requests = running.metric("rest_client_requests_total{");
    assert!((requests - 1.0).abs() < 0.1, "{requests} requests: the list and the watch are one");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_list_by_watching_is_asked_for_pages() {
    for ignores in [false, true] {
        let cluster = Cluster::start().await;
        for number in 0..1200 {
            cluster.create_json::<ConfigMap>(config(&format!("c{number:04}"))).await;
        }
        match ignores {
            true => cluster.faults().ignore_watch_lists(),
            false => cluster.faults().refuse_watch_lists(),
        }
        let (controller, calls) = probe(Idle);
        let running = cluster.run(controller);
        called(&cluster, &calls, "default/c1199", 1).await;
        assert_eq!(running.cache().view::<ConfigMap>().len(), 1200);
        cluster.create_json::<ConfigMap>(config("late")).await;
        called(&cluster, &calls, "default/late", 1).await;
        // It is not tried again in vain after the next relist.
        cluster.faults().expire_watches::<ConfigMap>();
        cluster.delete::<ConfigMap>("c0000").await;
        called(&cluster, &calls, "default/c0000", 2).await;
        assert_eq!(running.cache().view::<ConfigMap>().len(), 1200);
    }
}

#[tokio::test(start_paused = true)]
async fn only_selected_objects_of_a_kind_are_cached() {
    let cluster = Cluster::start().await;
    cluster.create_json::<ConfigMap>(of_team("ours", "shop")).await;
    cluster.create_json::<ConfigMap>(of_team("theirs", "bank")).await;
    let (controller, calls) = probe(Idle);
    let manager = cluster.manager(cluster.options("probe")).controller(controller);
    let running =
        cluster.run_manager(manager.select::<ConfigMap>(Selection::all().with_labels(team("shop"))));
    called(&cluster, &calls, "default/ours", 1).await;
    let cached = running.cache().view::<ConfigMap>();
    assert_eq!(cached.len(), 1);
    // What loses the label is gone for us, what gets it is new.
    cluster.patch::<ConfigMap>("ours", json!({"metadata": {"labels": {"team": "bank"}}})).await;
    called(&cluster, &calls, "default/ours", 2).await;
    assert!(calls.lock().expect("a lock").last().is_some_and(|call| call.gone));
    cluster.patch::<ConfigMap>("theirs", json!({"metadata": {"labels": {"team": "shop"}}})).await;
    called(&cluster, &calls, "default/theirs", 1).await;
    assert_eq!(cached.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_own_write_that_is_not_selected_does_not_stay_in_the_cache() {
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(MakeSecret);
    let manager = cluster.manager(cluster.options("probe")).controller(controller.owns::<Secret>());
    let manager = manager.select::<Secret>(Selection::all().with_labels(team("shop")));
    let running = cluster.run_manager(manager);
    cluster.create_json::<ConfigMap>(config("a")).await;
    called(&cluster, &calls, "default/a", 1).await;
    cluster.wait_for_object::<Secret>("a").await;
    assert!(running.cache().view::<Secret>().is_empty());
}

#[tokio::test(start_paused = true)]
async fn owned_objects_can_be_known_by_their_metadata_alone() {
    struct Counts(Arc<AtomicUsize>);
    impl AsyncFnProbe for Counts {
        async fn act(&self, object: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
            cx.apply(&secret(cx.key().name(), object.data.clone().unwrap_or_default())).await?;
            let uid = object.metadata.uid.as_deref().unwrap_or_default();
            let owned = cx.metadata::<Secret>().owned_by(uid);
            if owned.iter().any(|header| String::from_utf8_lossy(header.json()).contains("\"data\"")) {
                return Err(Error::terminal("more than metadata"));
            }
            self.0.store(owned.len(), Ordering::SeqCst);
            Ok(Outcome::Done)
        }
    }
    let cluster = Cluster::start().await;
    let seen = Arc::new(AtomicUsize::new(0));
    let (controller, calls) = probe(Counts(Arc::clone(&seen)));
    let running = cluster.run(controller.owns_metadata::<Secret>());
    cluster.create_json::<ConfigMap>(config("a")).await;
    cluster.wait_for("the owned one", || async { (seen.load(Ordering::SeqCst) == 1).then_some(()) }).await;
    let before = count(&calls, "default/a");
    cluster.delete::<Secret>("a").await;
    called(&cluster, &calls, "default/a", before + 1).await;
    cluster.wait_for_object::<Secret>("a").await;
    assert!(running.metric("controller_runtime_terminal_reconcile_errors_total{") < 0.5);
}

#[tokio::test(start_paused = true)]
async fn those_who_follow_the_same_objects_share_one_watch_that_ends_with_the_last() {
    let cluster = Cluster::start().await;
    cluster.create_json::<ConfigMap>(of_team("ours", "shop")).await;
    let (controller, _) = probe(Idle);
    let running = cluster.run(controller.reads::<Secret>());
    let cache = running.cache().clone();
    // The kind is known at run time only.
    let kind = ApiResource::erase::<ConfigMap>(&());
    let ours = || Selection::all().in_namespace("default").with_labels(team("shop"));
    let (first, second) = (cache.follow(&kind, ours()), cache.follow(&kind, ours()));
    first.synced().await;
    assert!(second.is_synced());
    let watched =
        |selection: &str| cache.report().into_iter().filter(|report| report.selection == selection).count();
    assert_eq!(watched("namespace default, labels team=shop"), 1);
    let found = first.headers().get(&Key::new("default", "ours")).expect("the object");
    let object: DynamicObject = serde_json::from_slice(found.json()).expect("a whole object");
    assert_eq!(object.data["data"]["key"], "value");
    let mut events = second.events();
    assert!(matches!(events.next().await, Some(MetadataEvent::Applied(_))));
    assert!(matches!(events.next().await, Some(MetadataEvent::Synced)));
    drop((first, second));
    cluster.create_json::<ConfigMap>(of_team("more", "shop")).await;
    assert!(
        matches!(events.next().await, Some(MetadataEvent::Applied(header)) if header.key().name() == "more")
    );
    drop(events);
    assert_eq!(watched("namespace default, labels team=shop"), 0);
    // What a controller caches anyway is not fetched a second time.
    let requests = running.metric("rest_client_requests_total{");
    let secrets = cache.follow(&Secret::api_resource(), Selection::all());
    secrets.synced().await;
    assert!((running.metric("rest_client_requests_total{") - requests).abs() < 0.1);
}

#[tokio::test(start_paused = true)]
async fn a_late_subscriber_gets_what_is_there_and_every_change_after_it() {
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(Idle);
    let running = cluster.run(controller);
    cluster.create_json::<ConfigMap>(config("last")).await;
    called(&cluster, &calls, "default/last", 1).await;
    let writer = {
        let client = cluster.client();
        tokio::spawn(async move {
            let api: kube::Api<ConfigMap> = kube::Api::namespaced(client, "default");
            for number in 0..200 {
                let object = serde_json::from_value(config(&format!("c{number}"))).expect("a ConfigMap");
                api.create(&Default::default(), &object).await.expect("created");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
    };
    // Subscribers that come in the midst of it see all of it, each object once.
    let mut subscribers = Vec::new();
    for _ in 0..10 {
        cluster.pass(Duration::from_millis(137)).await;
        let mut events = running.cache().follow(&ConfigMap::api_resource(), Selection::all()).events();
        subscribers.push(tokio::spawn(async move {
            let mut seen = BTreeMap::new();
            while seen.len() < 201 {
                if let Some(MetadataEvent::Applied(header)) = events.next().await {
                    *seen.entry(header.key().to_string()).or_insert(0) += 1;
                }
            }
            seen
        }));
    }
    writer.await.expect("written");
    for subscriber in subscribers {
        let seen = tokio::time::timeout(600 * SECOND, subscriber).await.expect("no gap").expect("seen");
        assert!(seen.values().all(|times| *times == 1), "{seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_followed_at_run_time_can_trigger_a_controller() {
    let cluster = Cluster::start().await;
    let manager = cluster.manager(cluster.options("probe"));
    let services = manager.cache().follow(&Service::api_resource(), Selection::all().metadata_only());
    let (controller, calls) = probe(Idle);
    let _running = cluster.run_manager(manager.controller(controller.triggered_by(services.keys())));
    cluster
        .create_json::<Service>(json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}))
        .await;
    called(&cluster, &calls, "default/web", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_fell_silent_is_noticed_and_replaced() {
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(Idle);
    let running = cluster.run(controller);
    cluster.create_json::<ConfigMap>(config("a")).await;
    called(&cluster, &calls, "default/a", 1).await;
    cluster.faults().silence_watch::<ConfigMap>();
    cluster.pass(5 * SECOND).await;
    cluster.create_json::<ConfigMap>(config("b")).await;
    cluster.pass(200 * SECOND).await;
    assert_eq!(count(&calls, "default/b"), 0);
    let age = running.metric("controller_watch_last_event_age_seconds{kind=\"ConfigMap\"}");
    assert!(age >= 200.0, "the metric tells: {age}");
    called(&cluster, &calls, "default/b", 1).await;
    assert!(running.metric("controller_watch_restarts_total{kind=\"ConfigMap\",reason=\"silent\"") >= 1.0);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_says_too_old_leads_to_a_new_list() {
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(Idle);
    let running = cluster.run(controller);
    cluster.create_json::<ConfigMap>(config("a")).await;
    called(&cluster, &calls, "default/a", 1).await;
    cluster.faults().expire_watches_by_event::<ConfigMap>();
    cluster.create_json::<ConfigMap>(config("b")).await;
    called(&cluster, &calls, "default/b", 1).await;
    assert!(running.metric("controller_watch_restarts_total{kind=\"ConfigMap\",reason=\"expired\"") >= 1.0);
}
