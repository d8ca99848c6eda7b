//! The life of an ElastiService in a cluster inside the test.

#[allow(dead_code)] // each test file uses a part of it
mod support;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use steersman_elasti::endpoint::{self, EndpointOptions};
use steersman_elasti::feed::{self, Waker};
use steersman_elasti::resolver::Token;
use steersman_elasti::types::Mode;
use steersman_elasti::{Callers, ElastiOptions, ElastiService, names, scale};
use steersman_resolver::{Directory, HttpWake, ServiceKey, Wake};
use steersman_test::Cluster;
use support::{
    Prometheus, cluster, condition, elasti, mode, operator, quick, ready, replicas, resolver, slice, web,
};
use tokio::net::TcpListener;

#[tokio::test]
async fn it_sleeps_when_nobody_needs_it_and_wakes_on_a_call() {
    let (cluster, _controllers) = cluster().await;
    let prometheus = Prometheus::start("5").await;
    web(&cluster, 2).await;
    let _operator = operator(&cluster, quick());
    elasti(&cluster, "web", json!({"triggers": prometheus.trigger(), "minTargetReplicas": 2})).await;

    let awake = cluster.wait_until::<ElastiService>("web", |one| mode(one) == Some(Mode::Serve)).await;
    assert_eq!(condition(&awake, "Ready"), ("True".into(), "Serving".into()));
    assert!(awake.finalizers().contains(&names::FINALIZER.to_owned()));
    assert!(slice(&cluster).await.is_none());
    assert!(cluster.get::<Service>(&names::private_service("web")).await.is_some());

    prometheus.say("0");
    cluster.wait_until::<Deployment>("web", |deployment| replicas(deployment) == 0).await;
    let there = slice(&cluster).await.expect("the resolver was in the path before the pods went");
    let addresses: Vec<_> = there.endpoints.iter().flatten().flat_map(|one| one.addresses.clone()).collect();
    assert_eq!(addresses, ["10.9.0.1", "10.9.0.2"]);
    assert_eq!(there.ports.as_ref().map(Vec::len), Some(2));
    let asleep =
        cluster.wait_until::<ElastiService>("web", |one| condition(one, "Ready").1 == "Asleep").await;
    assert_eq!((mode(&asleep), asleep.status.and_then(|one| one.replicas)), (Some(Mode::Proxy), Some(0)));

    prometheus.say("NaN");
    scale::wake(&cluster.client(), "default", "web").await.expect("woken");
    let awake = cluster.wait_until::<ElastiService>("web", |one| mode(one) == Some(Mode::Serve)).await;
    assert!(awake.status.expect("a status").last_scaled_up_time.is_some());
    assert_eq!(replicas(&cluster.get::<Deployment>("web").await.expect("there")), 2);
    assert!(ready(&cluster).await > 0, "pods serve before the resolver leaves");
}

#[tokio::test]
async fn at_no_time_is_there_nobody_to_take_a_request() {
    let (cluster, _controllers) = cluster().await;
    let cluster = Arc::new(cluster);
    let prometheus = Prometheus::start("5").await;
    web(&cluster, 1).await;
    let _operator = operator(&cluster, quick());
    elasti(&cluster, "web", json!({"triggers": prometheus.trigger()})).await;
    cluster.wait_until::<ElastiService>("web", |one| mode(one) == Some(Mode::Serve)).await;
    let done = Arc::new(AtomicBool::new(false));
    let watching = {
        let (cluster, done) = (Arc::clone(&cluster), Arc::clone(&done));
        tokio::spawn(async move {
            let mut looks = 0;
            while !done.load(Ordering::Relaxed) {
                // One list is one moment.
                let slices = cluster.list::<EndpointSlice>().await;
                let of_web = slices.iter().filter(|one| {
                    one.labels().get("kubernetes.io/service-name").is_some_and(|name| name == "web")
                });
                let takers = of_web
                    .flat_map(|one| one.endpoints.iter().flatten())
                    .filter(|one| one.conditions.as_ref().is_some_and(|all| all.ready == Some(true)))
                    .count();
                assert!(takers > 0, "nobody takes requests at look {looks}");
                looks += 1;
                tokio::task::yield_now().await;
            }
        })
    };
    for _ in 0..5 {
        prometheus.say("0");
        cluster.wait_until::<ElastiService>("web", |one| condition(one, "Ready").1 == "Asleep").await;
        prometheus.say("5");
        cluster.wait_until::<ElastiService>("web", |one| mode(one) == Some(Mode::Serve)).await;
    }
    done.store(true, Ordering::Relaxed);
    watching.await.expect("somebody always took requests");
}

#[tokio::test(start_paused = true)]
async fn a_target_that_already_sleeps_is_proxied_at_once_and_after_a_restart() {
    let (cluster, _controllers) = cluster().await;
    web(&cluster, 0).await;
    let first = operator(&cluster, ElastiOptions::default());
    elasti(&cluster, "web", json!({})).await;
    cluster.wait_until::<ElastiService>("web", |one| mode(one) == Some(Mode::Proxy)).await;
    assert!(slice(&cluster).await.is_some());
    first.kill().await;
    cluster.delete::<EndpointSlice>(&names::slice("web")).await;
    let _operator = operator(&cluster, ElastiOptions::default());
    cluster.wait_for("the slice again", || slice(&cluster)).await;
}

#[tokio::test(start_paused = true)]
async fn slices_follow_the_resolver_and_the_private_service_the_public_one() {
    let (cluster, _controllers) = cluster().await;
    web(&cluster, 0).await;
    let _operator = operator(&cluster, ElastiOptions::default());
    elasti(&cluster, "web", json!({})).await;
    cluster.wait_for("a slice", || slice(&cluster)).await;
    resolver(&cluster, &["10.9.0.7"]).await;
    cluster
        .wait_until::<EndpointSlice>(&names::slice("web"), |slice| {
            let addresses = slice.endpoints.iter().flatten().flat_map(|one| one.addresses.clone());
            addresses.eq(["10.9.0.7".to_owned()])
        })
        .await;
    let change = json!({"spec": {"selector": {"app": "other"}}});
    cluster.patch::<Service>("web", change).await;
    cluster
        .wait_until::<Service>(&names::private_service("web"), |service| {
            let selector = service.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default();
            selector.get("app").is_some_and(|app| app == "other")
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn deleting_it_brings_the_target_back_before_the_resolver_leaves() {
    let (cluster, _controllers) = cluster().await;
    web(&cluster, 0).await;
    let _operator = operator(&cluster, ElastiOptions::default());
    elasti(&cluster, "web", json!({"minTargetReplicas": 3})).await;
    cluster.wait_for("a slice", || slice(&cluster)).await;
    cluster.wait_until::<ElastiService>("web", |one| mode(one) == Some(Mode::Proxy)).await;
    cluster.delete::<ElastiService>("web").await;
    cluster.wait_until_gone::<ElastiService>("web").await;
    assert!(ready(&cluster).await > 0, "pods were ready before it went");
    assert_eq!(replicas(&cluster.get::<Deployment>("web").await.expect("there")), 3);
    cluster.wait_until_gone::<EndpointSlice>(&names::slice("web")).await;
    cluster.wait_until_gone::<Service>(&names::private_service("web")).await;
    let running = || async { (cluster.list::<Pod>().await.len() == 3).then_some(()) };
    cluster.wait_for("three pods", running).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_or_wrong_is_said_and_mended_when_it_comes() {
    let (cluster, _controllers) = cluster().await;
    let _operator = operator(&cluster, ElastiOptions::default());
    elasti(&cluster, "web", json!({})).await;
    let told = |reason: &'static str| move |one: &ElastiService| condition(one, "Ready").1 == reason;
    cluster.wait_until::<ElastiService>("web", told("ServiceNotFound")).await;
    web(&cluster, 0).await;
    cluster.wait_until::<ElastiService>("web", told("Asleep")).await;
    elasti(&cluster, "zweitens", json!({})).await;
    cluster.wait_until::<ElastiService>("zweitens", told("ServiceTaken")).await;
    cluster.delete::<ElastiService>("zweitens").await;
    cluster.wait_until_gone::<ElastiService>("zweitens").await;
    assert_eq!(
        replicas(&cluster.get::<Deployment>("web").await.expect("there")),
        0,
        "it had nothing to undo"
    );
    cluster.delete::<Deployment>("web").await;
    cluster.wait_until::<ElastiService>("web", told("TargetNotFound")).await;
    let other = json!({"spec": {"scaleTargetRef": {"apiVersion": "example.com/v1", "kind": "Thing"}}});
    cluster.patch::<ElastiService>("web", other).await;
    cluster.wait_until::<ElastiService>("web", told("TargetUnknown")).await;
}

#[tokio::test]
async fn doubt_keeps_it_awake_and_is_reported() {
    let (cluster, _controllers) = cluster().await;
    let prometheus = Prometheus::start("NaN").await;
    web(&cluster, 1).await;
    let _operator = operator(&cluster, quick());
    elasti(&cluster, "web", json!({"triggers": prometheus.trigger()})).await;
    let doubt = |one: &ElastiService| condition(one, "TriggerHealthy").0 == "False";
    cluster.wait_until::<ElastiService>("web", doubt).await;
    // Nobody is at this port any more once the listener is gone.
    let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("bound");
    let trigger = json!([{"type": "prometheus", "metadata": {"query": "x", "threshold": 1,
        "serverAddress": format!("http://{gone}")}}]);
    cluster.patch::<ElastiService>("web", json!({"spec": {"triggers": trigger}})).await;
    let told = cluster
        .wait_until::<ElastiService>("web", |one| {
            let conditions = one.status.clone().unwrap_or_default().conditions;
            conditions.iter().any(|one| one.message.contains("cannot be reached"))
        })
        .await;
    assert_eq!(mode(&told), Some(Mode::Serve));
    assert_eq!(replicas(&cluster.get::<Deployment>("web").await.expect("there")), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_resolver_it_does_not_sleep_and_says_so() {
    let (cluster, _controllers) = cluster().await;
    resolver(&cluster, &[]).await;
    web(&cluster, 1).await;
    let _operator = operator(&cluster, ElastiOptions::default());
    elasti(&cluster, "web", json!({"triggers": [{"type": "resolver"}]})).await;
    let told = cluster
        .wait_until::<ElastiService>("web", |one| condition(one, "ResolverReachable").0 == "False")
        .await;
    assert!(mode(&told).is_some());
    cluster.wait_until::<ElastiService>("web", |one| mode(one) == Some(Mode::Serve)).await;
    cluster.pass(Duration::from_secs(3600)).await;
    assert_eq!(replicas(&cluster.get::<Deployment>("web").await.expect("there")), 1);
}

#[tokio::test(start_paused = true)]
async fn outside_of_the_enabled_period_it_is_awake() {
    let (cluster, _controllers) = cluster().await;
    web(&cluster, 0).await;
    let _operator = operator(&cluster, ElastiOptions::default());
    // The first of July only.
    let period = json!({"schedule": "0 0 1 7 *", "duration": "1s"});
    elasti(&cluster, "web", json!({"enabledPeriod": period, "minTargetReplicas": 2})).await;
    cluster.wait_until::<Deployment>("web", |deployment| replicas(deployment) == 2).await;
    cluster.wait_until::<ElastiService>("web", |one| mode(one) == Some(Mode::Serve)).await;
}

#[tokio::test]
async fn a_resolver_is_fed_and_wakes_with_and_without_the_operator() {
    let (cluster, _controllers) = cluster().await;
    web(&cluster, 0).await;
    let _operator = operator(&cluster, quick());
    let directory = Directory::new();
    let _feed = cluster.run(feed::controller(directory.clone()));
    elasti(&cluster, "web", json!({})).await;
    let key = ServiceKey::new("default", "web");
    let known = || async { directory.get(&key).filter(|target| target.ready() == 0) };
    cluster.wait_for("the service in the directory", known).await;

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let stop = steersman::CancellationToken::new();
    let callers = Callers::Token("secret".into());
    let options = EndpointOptions { callers, metrics: None, namespaces: Vec::new() };
    let serving = tokio::spawn(endpoint::serve(listener, cluster.client(), options, stop.clone()));
    let stranger = HttpWake::new(&address, Some("guess".into()));
    let refused = stranger.wake(&key).await.expect_err("strangers are refused").to_string();
    assert!(refused.contains("401"), "{refused}");
    let operator = HttpWake::new(&address, Some("secret".into()));
    let unknown =
        operator.wake(&ServiceKey::new("default", "nothing")).await.expect_err("unknown").to_string();
    assert!(unknown.contains("404"), "{unknown}");
    operator.wake(&key).await.expect("woken");
    assert_eq!(replicas(&cluster.get::<Deployment>("web").await.expect("there")), 1);
    let awake = || async { directory.get(&key).filter(|target| target.ready() == 1) };
    cluster.wait_for("a pod in the directory", awake).await;
    stop.cancel();
    serving.await.expect("no panic");

    cluster.patch::<Deployment>("web", json!({"spec": {"replicas": 0}})).await;
    cluster.wait_for("no pod in the directory", known).await;
    let alone = Waker::new(Some(address), Token::Text("secret".into()), cluster.client());
    alone.wake(&key).await.expect("woken without the operator");
    cluster.wait_for("a pod in the directory", awake).await;
    cluster.delete::<ElastiService>("web").await;
    let forgotten = || async { directory.get(&key).is_none().then_some(()) };
    cluster.wait_for("an empty directory", forgotten).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_cluster_writes_nothing() {
    let (cluster, _controllers) = cluster().await;
    web(&cluster, 0).await;
    let _operator = operator(&cluster, ElastiOptions::default());
    elasti(&cluster, "web", json!({})).await;
    cluster.wait_until::<ElastiService>("web", |one| condition(one, "Ready").1 == "Asleep").await;
    cluster.pass(Duration::from_secs(120)).await;
    let before = cluster.get::<ElastiService>("web").await.expect("there").resource_version();
    cluster.pass(Duration::from_secs(3600)).await;
    assert_eq!(cluster.get::<ElastiService>("web").await.expect("there").resource_version(), before);
}

#[tokio::test]
async fn other_namespaces_than_those_that_are_watched_are_left_alone() {
    let (cluster, _controllers) = cluster().await;
    web(&cluster, 0).await;
    elasti(&cluster, "web", json!({})).await;
    cluster.create_json::<Namespace>(json!({"metadata": {"name": "lab"}})).await;
    let of_lab = |kind: &str, api_version: &str, spec: Value| {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "web", "namespace": "lab"},
            "spec": spec})
    };
    let template = json!({"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web"}]}});
    let spec = json!({"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    cluster.create_json::<Deployment>(of_lab("Deployment", "apps/v1", spec)).await;
    let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
    cluster.create_json::<Service>(of_lab("Service", "v1", spec)).await;
    let spec = json!({"service": "web", "scaleTargetRef":
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}});
    let theirs: ElastiService =
        cluster.create_json(of_lab("ElastiService", "elasti.truefoundry.com/v1alpha1", spec)).await;
    let _operator = operator(
        &cluster,
        ElastiOptions { watch_namespaces: vec!["lab".into()], ..ElastiOptions::default() },
    );
    let looked_after = |one: &ElastiService| mode(one) == Some(Mode::Proxy);
    cluster.wait_until::<ElastiService>("lab/web", looked_after).await;
    assert!(theirs.finalizers().is_empty());
    // Both were there when the operator began, and both have been come by.
    let ours = cluster.get::<ElastiService>("web").await.expect("there");
    assert_eq!((ours.finalizers().len(), ours.status), (0, None));
    assert!(slice(&cluster).await.is_none());
    assert!(cluster.get::<Service>(&names::private_service("web")).await.is_none());

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let stop = steersman::CancellationToken::new();
    let callers = Callers::Token("secret".into());
    let options = EndpointOptions { callers, metrics: None, namespaces: vec!["lab".into()] };
    let serving = tokio::spawn(endpoint::serve(listener, cluster.client(), options, stop.clone()));
    let calls = HttpWake::new(&address, Some("secret".into()));
    let refused = calls.wake(&ServiceKey::new("default", "web")).await.expect_err("not here").to_string();
    assert!(refused.contains("404"), "{refused}");
    assert_eq!(replicas(&cluster.get::<Deployment>("web").await.expect("there")), 0);
    calls.wake(&ServiceKey::new("lab", "web")).await.expect("woken");
    assert_eq!(replicas(&cluster.get::<Deployment>("lab/web").await.expect("there")), 1);
    stop.cancel();
    serving.await.expect("no panic");
    // Deleting one that nobody looks after waits for nobody.
    cluster.delete::<ElastiService>("web").await;
    cluster.wait_until_gone::<ElastiService>("web").await;
}

/// A definition of somebody else's, with these subresources.
fn definition(group: &str, version: &str, kind: &str, subresources: &Value) -> CustomResourceDefinition {
    let singular = kind.to_lowercase();
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    serde_json::from_value(json!({
        "metadata": {"name": format!("{singular}s.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"plural": format!("{singular}s"), "singular": singular, "kind": kind},
            "versions": [{"name": version, "served": true, "storage": true, "subresources": subresources,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": free, "status": free}}}}]}}))
    .expect("a definition")
}

async fn dynamic(cluster: &Cluster, api_version: &str, kind: &str, spec: Value) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').expect("a group and a version");
    let plural = format!("{}s", kind.to_lowercase());
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural);
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client(), "default", &resource);
    let object = DynamicObject::new("web", &resource).data(json!({"spec": spec}));
    cluster
        .wait_for(&format!("{kind}s to be served"), || async {
            api.create(&PostParams::default(), &object).await.ok().map(drop)
        })
        .await;
    api
}

#[tokio::test]
async fn anything_with_a_scale_sleeps_and_keda_rests_meanwhile() {
    let (cluster, _controllers) = cluster().await;
    let scale = json!({"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas"}});
    cluster.create(&definition("argoproj.io", "v1alpha1", "Rollout", &scale)).await;
    cluster.create(&definition("example.com", "v1", "Machine", &scale)).await;
    cluster.create(&definition("keda.sh", "v1alpha1", "ScaledObject", &json!({}))).await;
    let scaled = dynamic(&cluster, "keda.sh/v1alpha1", "ScaledObject", json!({})).await;
    let paused = || async {
        let annotations = scaled.get("web").await.ok()?.metadata.annotations.unwrap_or_default();
        annotations.get("autoscaling.keda.sh/paused").cloned()
    };
    let prometheus = Prometheus::start("0").await;
    // Its pods stand in for those of the other kinds.
    web(&cluster, 1).await;
    let _operator = operator(&cluster, quick());
    for (api_version, kind, named) in
        [("argoproj.io/v1alpha1", "Rollout", "rollouts"), ("example.com/v1", "Machine", "Machine")]
    {
        let targets = dynamic(&cluster, api_version, kind, json!({"replicas": 2})).await;
        // A scale of zero is written by leaving the number out.
        let wanted = || async { Some(targets.get_scale("web").await.ok()?.spec?.replicas.unwrap_or(0)) };
        let reference = json!({"apiVersion": api_version, "kind": named, "name": "web"});
        let spec = json!({"scaleTargetRef": reference, "triggers": prometheus.trigger(),
            "autoscaler": {"type": "keda", "name": "web"}, "minTargetReplicas": 3});
        elasti(&cluster, "web", spec).await;
        cluster.wait_for("sleep", || async { (wanted().await == Some(0)).then_some(()) }).await;
        assert_eq!(paused().await.as_deref(), Some("true"));
        cluster.delete::<ElastiService>("web").await;
        cluster.wait_until_gone::<ElastiService>("web").await;
        assert_eq!(wanted().await, Some(3), "{kind} is back");
        assert_eq!(paused().await.as_deref(), Some("false"));
    }
}
