//! What a framework must get right, each as a test of its own. Several are defects that other
//! frameworks have.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Secret, Service};
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use steersman::{
    CancellationToken, Context, Controller, Error, EventType, Finalized, Key, LeaseOptions, ManagerError,
    MetadataEvent, Object, Options, Outcome, Predicate, Reconciler, Scope,
};
use steersman_test::Cluster;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// A reconciler made of a function, that notes when it was called and for what.
struct Probe<F> {
    calls: Arc<Mutex<Vec<Call>>>,
    act: F,
}

#[derive(Clone, Debug)]
struct Call {
    key: String,
    reasons: String,
    at: Instant,
    gone: bool,
}

type Calls = Arc<Mutex<Vec<Call>>>;

impl<F> Reconciler for Probe<F>
where
    F: AsyncFnProbe,
{
    type Object = ConfigMap;

    async fn reconcile(&self, object: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
        self.note(cx, false);
        self.act.act(object, cx).await
    }

    async fn gone(&self, _: &Key, cx: &Context) -> Result<(), Error> {
        self.note(cx, true);
        Ok(())
    }
}

impl<F> Probe<F> {
    fn note(&self, cx: &Context, gone: bool) {
        self.calls.lock().expect("a lock").push(Call {
            key: cx.key().to_string(),
            reasons: cx.reasons().to_string(),
            at: Instant::now(),
            gone,
        });
    }
}

trait AsyncFnProbe: Send + Sync + 'static {
    fn act(
        &self,
        object: Arc<ConfigMap>,
        cx: &Context,
    ) -> impl Future<Output = Result<Outcome, Error>> + Send;
}

/// Does nothing.
struct Idle;

impl AsyncFnProbe for Idle {
    async fn act(&self, _: Arc<ConfigMap>, _: &Context) -> Result<Outcome, Error> {
        Ok(Outcome::Done)
    }
}

/// Declares a Secret of the same name.
struct MakeSecret;

impl AsyncFnProbe for MakeSecret {
    async fn act(&self, config: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
        cx.apply(&secret(cx.key().name(), config.data.clone().unwrap_or_default())).await?;
        Ok(Outcome::Done)
    }
}

fn secret(name: &str, data: BTreeMap<String, String>) -> Secret {
    Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        type_: Some("Opaque".to_owned()),
        data: Some(
            data.into_iter().map(|(key, value)| (key, k8s_openapi::ByteString(value.into_bytes()))).collect(),
        ),
        ..Secret::default()
    }
}

fn probe<F: AsyncFnProbe>(act: F) -> (Controller<Probe<F>>, Calls) {
    let calls = Calls::default();
    let probe = Probe { calls: Arc::clone(&calls), act };
    (Controller::new("probe", probe), calls)
}

fn config(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"key": "value"}})
}

fn count(calls: &Calls, key: &str) -> usize {
    let calls = calls.lock().expect("a lock");
    calls.iter().filter(|call| call.key == key).count()
}

async fn called(cluster: &Cluster, calls: &Calls, key: &str, times: usize) {
    cluster
        .wait_for(&format!("reconcile {times} of {key}"), || async {
            (count(calls, key) >= times).then_some(())
        })
        .await;
}

// === watches ===

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

// === reconciles ===

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

// === writing ===

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

// === managers ===

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
    let gap = died.elapsed();
    assert!(gap > 10 * SECOND && gap < 18 * SECOND, "{gap:?}");
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
    assert_eq!(error.exit_code(), 3);
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
        manager = manager.controller(Controller::new(format!("probe-{number}"), act).owns::<Secret>());
        all.push(calls);
    }
    let running = cluster.run_manager(manager);
    cluster.create_json::<ConfigMap>(config("a")).await;
    for calls in &all {
        called(&cluster, calls, "default/a", 1).await;
    }
    let requests = running.metric("rest_client_requests_total{");
    assert!(requests < 4.5, "{requests} requests for a list and a watch of two kinds");
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
        let error = manager.run(CancellationToken::new()).await.expect_err("it must not start");
        error.to_string()
    };
    let manager = || cluster.manager(cluster.options("probe"));
    let twice = manager().controller(probe(Idle).0).controller(probe(Idle).0);
    assert_eq!(message(twice).await, "two controllers are named probe; give one of them another name");
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
