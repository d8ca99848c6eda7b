//! What is seen of the server, whatever becomes of connections and objects.

use super::*;

#[tokio::test(start_paused = true)]
async fn one_failing_watch_holds_up_nothing_else() {
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(Idle);
    let _running = cluster.run(controller.owns::<Secret>());
    cluster.create_json::<ConfigMap>(config("a")).await;
    called(&cluster, &calls, "default/a", 1).await;
    cluster.faults().refuse_watches::<Secret>();
    let before = count(&calls, "default/a");
    for round in 0..200 {
        cluster.patch::<ConfigMap>("a", json!({"data": {"round": round.to_string()}})).await;
        cluster.pass(Duration::from_millis(100)).await;
    }
    let reconciles = count(&calls, "default/a") - before;
    assert_eq!(reconciles, 200, "every change within 20 s was seen");
}

#[tokio::test(start_paused = true)]
async fn an_owned_object_that_goes_while_the_watch_is_down_brings_its_owner_back() {
    let cluster = Cluster::start().await;
    let (controller, _) = probe(MakeSecret);
    let _running = cluster.run(controller.owns::<Secret>());
    cluster.create_json::<ConfigMap>(config("a")).await;
    let first = cluster.wait_for_object::<Secret>("a").await;
    // The deletion falls between two lists: no watch ever tells of it.
    cluster.faults().refuse_watches::<Secret>();
    cluster.delete::<Secret>("a").await;
    cluster.faults().clear();
    cluster.faults().expire_watches::<Secret>();
    let second = cluster.wait_for_object::<Secret>("a").await;
    assert_ne!(first.metadata.uid, second.metadata.uid);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_leads_to_a_new_list() {
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(Idle);
    let running = cluster.run(controller);
    cluster.create_json::<ConfigMap>(config("a")).await;
    called(&cluster, &calls, "default/a", 1).await;
    cluster.faults().expire_watches::<ConfigMap>();
    cluster.create_json::<ConfigMap>(config("b")).await;
    called(&cluster, &calls, "default/b", 1).await;
    assert!(running.metric("controller_watch_restarts_total{kind=\"ConfigMap\",reason=\"expired\"") >= 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_watch_goes_on_where_it_broke_off() {
    let cluster = Cluster::start().await;
    let (controller, calls) = probe(Idle);
    let _running = cluster.run(controller);
    for round in 0..20 {
        let name = format!("c{round}");
        cluster.faults().drop_watches();
        cluster.create_json::<ConfigMap>(config(&name)).await;
        called(&cluster, &calls, &format!("default/{name}"), 1).await;
    }
    assert_eq!(count(&calls, "default/c0"), 1, "nothing is reconciled twice for it");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_fit_its_type_keeps_no_other_from_being_seen() {
    #[derive(Clone, Debug, Serialize, Deserialize, kube::Resource)]
    #[resource(inherit = ConfigMap)]
    struct Strict {
        metadata: ObjectMeta,
        data: Numbers,
    }
    #[derive(Clone, Debug, Serialize, Deserialize)]
    struct Numbers {
        number: String,
    }
    struct Count(Arc<AtomicUsize>);
    impl Reconciler for Count {
        type Object = Strict;
        async fn reconcile(&self, _: Arc<Strict>, _: &Context) -> Result<Outcome, Error> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(Outcome::Done)
        }
    }
    let cluster = Cluster::start().await;
    cluster.create_json::<ConfigMap>(json!({"metadata": {"name": "bad"}, "data": {"text": "x"}})).await;
    let seen = Arc::new(AtomicUsize::new(0));
    let _running = cluster.run(Controller::new("strict", Count(Arc::clone(&seen))));
    cluster.create_json::<ConfigMap>(json!({"metadata": {"name": "good"}, "data": {"number": "1"}})).await;
    cluster.wait_for("the good one", || async { (seen.load(Ordering::SeqCst) == 1).then_some(()) }).await;
    cluster
        .wait_for("a warning about the bad one", || async {
            let events = cluster.list::<Event>().await;
            events.into_iter().find(|event| {
                event.involved_object.name.as_deref() == Some("bad")
                    && event.reason.as_deref() == Some("Unreadable")
            })
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_has_not_looked_yet_misses_no_wake_up() {
    let cluster = Cluster::start().await;
    let manager = cluster.manager(cluster.options("probe"));
    let mut events = manager.cache().watch_metadata(&ConfigMap::api_resource());
    while !matches!(events.next().await, Some(MetadataEvent::Synced)) {}
    cluster.create_json::<ConfigMap>(config("short-lived")).await;
    cluster.delete::<ConfigMap>("short-lived").await;
    cluster.pass(SECOND).await;
    let waiting = tokio::spawn(async move {
        let mut names = Vec::new();
        while let Some(event) = events.next().await {
            match event {
                MetadataEvent::Applied(header) => {
                    names.push(format!("applied {}", header.key().name()));
                    if header.key().name() == "next" {
                        return names;
                    }
                }
                MetadataEvent::Deleted(header) => names.push(format!("deleted {}", header.key().name())),
                MetadataEvent::Synced => {}
            }
        }
        names
    });
    cluster.pass(SECOND).await;
    let created = Instant::now();
    cluster.create_json::<ConfigMap>(config("next")).await;
    let names = waiting.await.expect("events");
    assert_eq!(names, ["deleted short-lived", "applied next"]);
    assert!(created.elapsed() < SECOND, "{:?}", created.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_watched_at_run_time_stops_with_its_stream() {
    let cluster = Cluster::start().await;
    let manager = cluster.manager(cluster.options("probe"));
    let cache = manager.cache();
    cluster.create_json::<Secret>(json!({"metadata": {"name": "a"}})).await;
    for _ in 0..3 {
        let mut events = cache.watch_metadata(&Secret::api_resource());
        let first = events.next().await;
        assert!(matches!(first, Some(MetadataEvent::Applied(header)) if header.key().name() == "a"));
        assert!(matches!(events.next().await, Some(MetadataEvent::Synced)));
    }
}
