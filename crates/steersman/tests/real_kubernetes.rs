//! The framework against a real Kubernetes API server, where one can be had.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{Expression, ObjectMeta};
use kube::{Api, Client, Config};
use serde_json::json;
use steersman::{
    CancellationToken, Context, Controller, Error, EventType, Finalized, LeaseOptions, Manager,
    MetadataEvent, Object, Options, Outcome, Reconciler, Selection,
};
use xtask::parts::{Kubernetes, KubernetesOptions, or_skip};

/// Turns a ConfigMap with the label `app: demo` into a Deployment, a Service and, if it says
/// so, a Secret.
struct Demo {
    finalized: Arc<AtomicUsize>,
}

impl Reconciler for Demo {
    type Object = ConfigMap;

    async fn reconcile(&self, config: Arc<ConfigMap>, cx: &Context) -> Result<Outcome, Error> {
        let data = config.data.clone().unwrap_or_default();
        let name = cx.key().name();
        if config.metadata.labels.is_none() {
            return Ok(Outcome::Done);
        }
        let deployment: Deployment = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "labels": {"made-by": "demo"}},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{
                        "name": "web", "image": data.get("image").map_or("nginx", String::as_str),
                        "ports": [{"containerPort": 80}, {"containerPort": 443, "name": "https"}],
                        "env": [{"name": "A", "value": "1"}],
                        "resources": {"requests": {"cpu": "100m"}},
                    }]}
                }
            }
        }))?;
        let deployment = cx.apply(&deployment).await?;
        let service: Service = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}
        }))?;
        cx.apply(&service).await?;
        if data.contains_key("secret") {
            cx.apply(&Secret {
                metadata: ObjectMeta { name: Some(format!("{name}-secret")), ..ObjectMeta::default() },
                string_data: Some([("key".to_owned(), data["secret"].clone())].into()),
                ..Secret::default()
            })
            .await?;
        }
        cx.prune().await?;
        // What was written is seen at once, also by its new version.
        let cached = cx.cache::<Deployment>().get(cx.key());
        let cached = cached.ok_or_else(|| Error::terminal("an own write is not seen"))?;
        if cached.metadata.generation < deployment.metadata.generation {
            return Err(Error::terminal("an own write is seen too late"));
        }
        cx.event(EventType::Normal, "Declared", "all is declared");
        Ok(Outcome::Done)
    }

    async fn finalize(&self, _: Arc<ConfigMap>, _: &Context) -> Result<Finalized, Error> {
        match self.finalized.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(Finalized::Pending(Duration::from_millis(100))),
            _ => Ok(Finalized::Done),
        }
    }
}

fn controller(finalized: &Arc<AtomicUsize>) -> Controller<Demo> {
    let demo = Demo { finalized: Arc::clone(finalized) };
    Controller::new("demo", demo)
        .owns::<Deployment>()
        .owns::<Service>()
        .owns::<Secret>()
        .finalizer("demo.example.com/cleanup")
}

async fn client(kubernetes: &Kubernetes) -> Client {
    let file = Kubeconfig::read_from(kubernetes.kubeconfig()).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(file, &options).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

/// Waits until `probe` gives something, for half a minute.
async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut probe: impl FnMut() -> F) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn metric(metrics: &steersman::Metrics, series: &str) -> f64 {
    let text = metrics.encode();
    let lines = text.lines().filter(|line| line.starts_with(series));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_framework_works_with_a_real_api_server() {
    let options =
        KubernetesOptions { controller_manager: false, scheduler: false, ..KubernetesOptions::default() };
    let started = tokio::task::spawn_blocking(move || Kubernetes::start(&options));
    let Some(kubernetes) = or_skip(started.await.expect("not cancelled")) else {
        return;
    };
    let client = client(&kubernetes).await;
    declares_repairs_prunes_and_cleans_up(client.clone()).await;
    a_released_lease_is_taken_over_at_once(client.clone()).await;
    metadata_of_any_kind_can_be_followed(client.clone()).await;
    some_objects_of_a_kind_are_listed_by_watching(client.clone()).await;
    a_status_is_applied_and_an_unchanged_one_is_not_sent(client.clone()).await;
    a_kind_that_is_not_served_stops_the_start_and_is_named(client).await;
}

async fn declares_repairs_prunes_and_cleans_up(client: Client) {
    let finalized = Arc::default();
    let stop = CancellationToken::new();
    let manager = Manager::new(client.clone(), Options::named("demo")).controller(controller(&finalized));
    let metrics = manager.metrics();
    let running = tokio::spawn(manager.run(stop.clone()));

    let configs: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let config: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "web", "labels": {"app": "demo"}}, "data": {"secret": "s"}
    }))
    .expect("a ConfigMap");
    configs.create(&PostParams::default(), &config).await.expect("created");

    let deployment = eventually("the deployment", || async { deployments.get_opt("web").await.ok()? }).await;
    let owner = &deployment.metadata.owner_references.as_ref().expect("owners")[0];
    assert_eq!((owner.kind.as_str(), owner.controller), ("ConfigMap", Some(true)));
    eventually("the secret", || async { secrets.get_opt("web-secret").await.ok()? }).await;
    eventually("the finalizer", || async {
        let config = configs.get("web").await.ok()?;
        config.metadata.finalizers.filter(|all| all.contains(&"demo.example.com/cleanup".to_owned()))
    })
    .await;

    // Drift is repaired.
    let drift = json!({"spec": {"replicas": 7}});
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(&drift)).await.expect("patched");
    eventually("the repair", || async {
        let spec = deployments.get("web").await.ok()?.spec?;
        (spec.replicas == Some(2)).then_some(())
    })
    .await;

    // Doing it again changes nothing and sends nothing but the Secret, whose stringData is
    // write-only.
    let writes = "controller_reconcile_writes_total{controller=\"demo\",kind=\"Deployment\",verb=\"apply\",noop=\"false\"}";
    let noops = "controller_reconcile_writes_total{controller=\"demo\",kind=\"Deployment\",verb=\"apply\",noop=\"true\"}";
    let (sent, skipped) = (metric(&metrics, writes), metric(&metrics, noops));
    let touch = json!({"metadata": {"annotations": {"touched": "yes"}}});
    configs.patch("web", &PatchParams::default(), &Patch::Merge(&touch)).await.expect("patched");
    eventually("a reconcile that writes nothing", || async {
        (metric(&metrics, noops) > skipped).then_some(())
    })
    .await;
    assert!((metric(&metrics, writes) - sent).abs() < 0.5, "the unchanged deployment was sent again");

    // What is no longer declared goes.
    let less = json!({"data": {"secret": null, "image": "nginx:2"}});
    configs.patch("web", &PatchParams::default(), &Patch::Merge(&less)).await.expect("patched");
    eventually("the secret's end", || async {
        secrets.get_opt("web-secret").await.ok()?.is_none().then_some(())
    })
    .await;

    // The object goes only after the clean-up.
    configs.delete("web", &DeleteParams::default()).await.expect("deleted");
    eventually("the end", || async { configs.get_opt("web").await.ok()?.is_none().then_some(()) }).await;
    assert_eq!(finalized.load(Ordering::SeqCst), 2);

    stop.cancel();
    running.await.expect("not cancelled").expect("a clean end");
}

async fn a_released_lease_is_taken_over_at_once(client: Client) {
    let lead = |identity: &str| {
        let options = Options {
            lease: Some(LeaseOptions {
                identity: identity.to_owned(),
                ..LeaseOptions::new("default", "demo.steersman.io")
            }),
            ..Options::named("demo")
        };
        let started = Arc::new(tokio::sync::Notify::new());
        let signal = Arc::clone(&started);
        let stop = CancellationToken::new();
        let manager = Manager::new(client.clone(), options)
            .controller(controller(&Arc::default()))
            .on_started_leading(move || signal.notify_one());
        (tokio::spawn(manager.run(stop.clone())), started, stop)
    };
    let minute = Duration::from_secs(60);
    let (first, started, stop_first) = lead("first");
    tokio::time::timeout(minute, started.notified()).await.expect("the first leads");
    let (second, started, stop_second) = lead("second");
    let waiting = tokio::time::timeout(Duration::from_secs(3), started.notified()).await;
    assert!(waiting.is_err(), "two leaders");
    stop_first.cancel();
    first.await.expect("not cancelled").expect("a clean end");
    let released = tokio::time::Instant::now();
    tokio::time::timeout(minute, started.notified()).await.expect("the second leads");
    // Long before the lease of the first would have ended by itself.
    assert!(released.elapsed() < Duration::from_secs(10), "took {:?}", released.elapsed());
    stop_second.cancel();
    second.await.expect("not cancelled").expect("a clean end");
}

async fn metadata_of_any_kind_can_be_followed(client: Client) {
    let manager = Manager::new(client.clone(), Options::named("demo"));
    let cache = manager.cache();
    let mut events = cache.watch_metadata(&ConfigMap::api_resource());
    let configs: Api<ConfigMap> = Api::namespaced(client, "default");
    let mut next = async || {
        tokio::time::timeout(Duration::from_secs(30), events.next())
            .await
            .expect("in time")
            .expect("an event")
    };
    while !matches!(next().await, MetadataEvent::Synced) {}
    let config: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "seen"}, "data": {"a": "b"}}))
        .expect("a ConfigMap");
    configs.create(&PostParams::default(), &config).await.expect("created");
    match next().await {
        MetadataEvent::Applied(header) => {
            assert_eq!(header.key().name(), "seen");
            let json = String::from_utf8_lossy(header.json()).into_owned();
            assert!(!json.contains("\"data\""), "only metadata are fetched: {json}");
        }
        other => panic!("{other:?}"),
    }
    configs.delete("seen", &DeleteParams::default()).await.expect("deleted");
    assert!(matches!(next().await, MetadataEvent::Deleted(header) if header.key().name() == "seen"));
}

async fn some_objects_of_a_kind_are_listed_by_watching(client: Client) {
    let configs: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    for (name, team) in [("ours", "shop"), ("theirs", "bank")] {
        let config = json!({"metadata": {"name": name, "labels": {"team": team}}, "data": {"a": "b"}});
        let config: ConfigMap = serde_json::from_value(config).expect("a ConfigMap");
        configs.create(&PostParams::default(), &config).await.expect("created");
    }
    let manager = Manager::new(client, Options::named("demo"));
    let (cache, metrics) = (manager.cache(), manager.metrics());
    let shop = Expression::Equal("team".into(), "shop".into());
    let selection = Selection::all().in_namespace("default").with_labels(shop.into());
    let followed = cache.follow(&ConfigMap::api_resource(), selection);
    tokio::time::timeout(Duration::from_secs(30), followed.synced()).await.expect("listed in time");
    let names = || -> Vec<String> {
        followed.headers().list().iter().map(|header| header.key().to_string()).collect()
    };
    assert_eq!(names(), ["default/ours"]);
    let relabel = json!({"metadata": {"labels": {"team": "shop"}}});
    configs.patch("theirs", &PatchParams::default(), &Patch::Merge(&relabel)).await.expect("patched");
    eventually("the second one", || async { (names().len() == 2).then_some(()) }).await;
    configs.delete("ours", &DeleteParams::default()).await.expect("deleted");
    eventually("the end of the first", || async { (names() == ["default/theirs"]).then_some(()) }).await;
    configs.delete("theirs", &DeleteParams::default()).await.expect("deleted");
    let requests = metric(&metrics, "rest_client_requests_total{");
    assert!((requests - 1.0).abs() < 0.5, "{requests} requests: the list and the watch are one");
}

/// Reports the status of Deployments with the label `report`.
struct Reporter;

impl Reconciler for Reporter {
    type Object = Deployment;

    async fn reconcile(&self, object: Arc<Deployment>, cx: &Context) -> Result<Outcome, Error> {
        if object.metadata.labels.as_ref().is_none_or(|labels| !labels.contains_key("report")) {
            return Ok(Outcome::Done);
        }
        let replicas = object.spec.as_ref().and_then(|spec| spec.replicas);
        let status = json!({
            "observedGeneration": object.metadata.generation, "replicas": replicas, "readyReplicas": null,
            "conditions": [
                {"type": "Available", "status": "True", "reason": "Test"},
                {"type": "Progressing", "status": "False", "reason": "Test"},
            ],
        });
        cx.apply_status(&status).await?;
        Ok(Outcome::Done)
    }
}

async fn a_status_is_applied_and_an_unchanged_one_is_not_sent(client: Client) {
    let stop = CancellationToken::new();
    let manager = Manager::new(client.clone(), Options::named("reporter"))
        .controller(Controller::new("reporter", Reporter));
    let metrics = manager.metrics();
    let running = tokio::spawn(manager.run(stop.clone()));
    let deployments: Api<Deployment> = Api::namespaced(client, "default");
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "reported", "labels": {"report": "yes"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}
    }))
    .expect("a Deployment");
    deployments.create(&PostParams::default(), &deployment).await.expect("created");
    let writes =
        "controller_reconcile_writes_total{controller=\"reporter\",kind=\"Deployment\",verb=\"apply_status\"";
    let noops = "controller_reconcile_writes_total{controller=\"reporter\",kind=\"Deployment\",verb=\"apply\",noop=\"true\"";
    for (round, replicas) in [2, 5].into_iter().enumerate() {
        let scale = json!({"spec": {"replicas": replicas}});
        deployments.patch("reported", &PatchParams::default(), &Patch::Merge(&scale)).await.expect("scaled");
        eventually("the status", || async {
            let status = deployments.get("reported").await.ok()?.status?;
            (status.replicas == Some(replicas) && status.conditions?.len() == 2).then_some(())
        })
        .await;
        // The own write comes back as a change, and is found to need nothing.
        eventually("a reconcile that writes nothing", || async {
            (metric(&metrics, noops) > round as f64 + 0.5).then_some(())
        })
        .await;
        let sent = metric(&metrics, writes);
        assert!((sent - (round as f64 + 1.0)).abs() < 0.5, "{sent} writes after {} changes", round + 1);
    }
    stop.cancel();
    running.await.expect("not cancelled").expect("a clean end");
}

async fn a_kind_that_is_not_served_stops_the_start_and_is_named(client: Client) {
    #[derive(
        Clone, Debug, serde::Serialize, serde::Deserialize, kube::CustomResource, schemars::JsonSchema,
    )]
    #[kube(group = "example.com", version = "v1", kind = "Absent", namespaced)]
    struct AbsentSpec {}
    struct Nothing;
    impl Reconciler for Nothing {
        type Object = Absent;
        async fn reconcile(&self, _: Arc<Absent>, _: &Context) -> Result<Outcome, Error> {
            Ok(Outcome::Done)
        }
    }
    let options = Options { sync_timeout: Duration::from_secs(1), ..Options::named("demo") };
    let manager = Manager::new(client, options).controller(Controller::new("absent", Nothing));
    let error = manager.run(CancellationToken::new()).await.expect_err("the kind is not there").to_string();
    assert!(
        error.starts_with("the cache of Absent (/apis/example.com/v1/absents) was not filled within 1s: "),
        "{error}"
    );
    assert!(
        error.contains("could not find the requested resource") || error.contains("page not found"),
        "{error}"
    );
}
