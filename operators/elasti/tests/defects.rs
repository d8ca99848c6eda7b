//! Each defect that KubeElasti 0.1.30 has on the operator's side, as a test that we pass. Those of the
//! resolver's side are beside the resolver.

#[allow(dead_code)] // each test file uses a part of it
mod support;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Namespace, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use serde_json::json;
use std::time::Duration;
use steersman::{CancellationToken, LeaseOptions, Manager};
use steersman_elasti::endpoint::{self, EndpointOptions};
use steersman_elasti::types::Mode;
use steersman_elasti::{
    Callers, ElastiOptions, ElastiService, ResolverOptions, cli, controllers, names, run_resolver, scale,
};
use steersman_resolver::{HttpWake, ServiceKey, Wake};
use support::{
    Prometheus, cluster, condition, elasti, mode, operator, quick, replicas, resolver, slice, web,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn b1_without_min_target_replicas_it_wakes_to_one_and_a_busy_trigger_never_scales_to_zero() {
    let (cluster, _controllers) = cluster().await;
    let prometheus = Prometheus::start("9").await;
    web(&cluster, 3).await;
    let _operator = operator(&cluster, quick());
    elasti(&cluster, "web", json!({"triggers": prometheus.trigger()})).await;
    cluster.wait_until::<ElastiService>("web", |one| mode(one) == Some(Mode::Serve)).await;
    cluster
        .wait_until::<ElastiService>("web", |one| {
            one.status.as_ref().is_some_and(|status| status.last_scaled_up_time.is_some())
        })
        .await;
    assert_eq!(replicas(&cluster.get::<Deployment>("web").await.expect("there")), 3, "busy changes nothing");
    prometheus.say("0");
    cluster.wait_until::<Deployment>("web", |web| replicas(web) == 0).await;
    prometheus.say("9");
    cluster.wait_until::<Deployment>("web", |web| replicas(web) == 1).await;
}

#[tokio::test(start_paused = true)]
async fn b4_a_resolver_of_the_same_name_in_another_namespace_gets_no_traffic() {
    let (cluster, _controllers) = cluster().await;
    cluster.create_json::<Namespace>(json!({"metadata": {"name": "evil"}})).await;
    cluster
        .create_json::<EndpointSlice>(json!({"metadata": {"name": "trap", "namespace": "evil",
            "labels": {"kubernetes.io/service-name": "elasti-resolver-service"}}, "addressType": "IPv4",
            "ports": [{"name": "proxy", "port": 8012}],
            "endpoints": [{"addresses": ["10.6.6.6"], "conditions": {"ready": true}}]}))
        .await;
    web(&cluster, 0).await;
    let _operator = operator(&cluster, ElastiOptions::default());
    elasti(&cluster, "web", json!({})).await;
    let slice = cluster.wait_for("a slice", || slice(&cluster)).await;
    let addresses: Vec<_> = slice.endpoints.iter().flatten().flat_map(|one| one.addresses.clone()).collect();
    assert_eq!(addresses, ["10.9.0.1", "10.9.0.2"]);
}

#[tokio::test]
async fn b4_only_the_resolvers_own_account_may_wake() {
    let (cluster, _controllers) = cluster().await;
    web(&cluster, 0).await;
    let _operator = operator(&cluster, quick());
    elasti(&cluster, "web", json!({})).await;
    for name in ["elasti-resolver", "somebody"] {
        cluster
            .create_json::<ServiceAccount>(json!({"metadata": {"name": name, "namespace": "elasti"}}))
            .await;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let callers = Callers::from_env(|_| None, "elasti");
    let options = EndpointOptions { callers, metrics: None, namespaces: Vec::new() };
    let stop = CancellationToken::new();
    let serving = tokio::spawn(endpoint::serve(listener, cluster.client(), options, stop.clone()));
    let key = ServiceKey::new("default", "web");
    for token in [None, Some("made up".to_owned())] {
        let refused = HttpWake::new(&address, token).wake(&key).await.expect_err("a stranger").to_string();
        assert!(refused.contains("401"), "{refused}");
    }
    assert_eq!(replicas(&cluster.get::<Deployment>("web").await.expect("there")), 0);
    stop.cancel();
    serving.await.expect("no panic");
}

#[tokio::test]
async fn b5_a_prometheus_that_never_answers_holds_up_nobody_else() {
    let (cluster, _controllers) = cluster().await;
    let prometheus = Prometheus::start("0").await;
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let silent_address = silent.local_addr().expect("bound");
    web(&cluster, 1).await;
    for number in 0..8 {
        let name = format!("silent-{number}");
        cluster
            .create_json::<Service>(json!({"metadata": {"name": name}, "spec": {
                "selector": {"app": "web"}, "ports": [{"port": 80}]}}))
            .await;
        let trigger = json!([{"type": "prometheus", "metadata": {"query": "x", "threshold": 1,
            "serverAddress": format!("http://{silent_address}")}}]);
        elasti(&cluster, &name, json!({"service": name, "triggers": trigger})).await;
    }
    elasti(&cluster, "web", json!({"triggers": prometheus.trigger()})).await;
    let _operator = operator(&cluster, quick());
    cluster.wait_until::<Deployment>("web", |web| replicas(web) == 0).await;
    drop(silent);
}

#[tokio::test(start_paused = true)]
async fn b6_a_call_wakes_the_service_of_its_namespace_and_no_other_of_that_name() {
    let (cluster, _controllers) = cluster().await;
    web(&cluster, 0).await;
    elasti(&cluster, "web", json!({})).await;
    cluster.create_json::<Namespace>(json!({"metadata": {"name": "lab"}})).await;
    for (kind, spec) in [
        (
            "Deployment",
            json!({"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web"}]}}}),
        ),
        ("Service", json!({"selector": {"app": "web"}, "ports": [{"port": 80}]})),
    ] {
        let object = json!({"metadata": {"name": "web", "namespace": "lab"}, "spec": spec});
        match kind {
            "Deployment" => drop(cluster.create_json::<Deployment>(object).await),
            _ => drop(cluster.create_json::<Service>(object).await),
        }
    }
    cluster
        .create_json::<ElastiService>(json!({"metadata": {"name": "web", "namespace": "lab"}, "spec": {
            "service": "web", "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}}))
        .await;
    scale::wake(&cluster.client(), "lab", "web").await.expect("woken");
    assert_eq!(replicas(&cluster.get::<Deployment>("lab/web").await.expect("there")), 1);
    assert_eq!(replicas(&cluster.get::<Deployment>("web").await.expect("there")), 0);
}

#[tokio::test(start_paused = true)]
async fn b7_a_busy_service_is_not_written_at_every_poll() {
    let (cluster, _controllers) = cluster().await;
    web(&cluster, 1).await;
    // No trigger answers, so that nothing ever changes.
    let _operator = operator(&cluster, ElastiOptions::default());
    elasti(&cluster, "web", json!({"cooldownPeriod": 900})).await;
    cluster.wait_until::<ElastiService>("web", |one| mode(one) == Some(Mode::Serve)).await;
    cluster.pass(Duration::from_secs(120)).await;
    let before = cluster.get::<ElastiService>("web").await.expect("there").resource_version();
    cluster.pass(Duration::from_secs(1800)).await;
    assert_eq!(cluster.get::<ElastiService>("web").await.expect("there").resource_version(), before);
}

#[tokio::test]
async fn b8_a_changed_probe_is_known_to_the_resolver_at_once() {
    let (cluster, _controllers) = cluster().await;
    web(&cluster, 0).await;
    let bind = || async { TcpListener::bind("127.0.0.1:0").await.expect("a port") };
    let (proxy, internal) = (bind().await, bind().await);
    let address = proxy.local_addr().expect("bound");
    let stop = CancellationToken::new();
    let resolver = run_resolver(cluster.client(), proxy, internal, ResolverOptions::default(), stop.clone());
    let resolver = tokio::spawn(resolver);
    let probe = |path: &str| json!([{"path": {"value": path}, "response": {"status": 204, "body": ""}}]);
    elasti(&cluster, "web", json!({"probeResponse": probe("/one")})).await;
    for path in ["/one", "/two"] {
        if path == "/two" {
            cluster.patch::<ElastiService>("web", json!({"spec": {"probeResponse": probe("/two")}})).await;
        }
        let answered = || async {
            let mut stream = TcpStream::connect(address).await.ok()?;
            let request = format!("GET {path} HTTP/1.1\r\nhost: web.default\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.ok()?;
            let mut answer = [0; 12];
            // A request that nothing answers is held.
            let read = tokio::time::timeout(Duration::from_secs(1), stream.read_exact(&mut answer)).await;
            (read.is_ok_and(|read| read.is_ok()) && &answer == b"HTTP/1.1 204").then_some(())
        };
        cluster.wait_for(path, answered).await;
    }
    resolver.abort();
}

#[tokio::test]
async fn b9_of_several_operators_one_acts_and_another_goes_on_when_it_dies() {
    let (cluster, _controllers) = cluster().await;
    let prometheus = Prometheus::start("0").await;
    web(&cluster, 1).await;
    let replica = |identity: &str| {
        let lease = LeaseOptions {
            identity: identity.to_owned(),
            ..LeaseOptions::new("elasti", steersman_elasti::LEASE)
        };
        let options = steersman::Options { lease: Some(lease), ..cluster.options("elasti") };
        cluster.run_manager(controllers(Manager::new(cluster.client(), options), quick()))
    };
    let first = replica("first");
    let _second = replica("second");
    elasti(&cluster, "web", json!({"triggers": prometheus.trigger()})).await;
    cluster.wait_until::<Deployment>("web", |web| replicas(web) == 0).await;
    first.kill().await;
    prometheus.say("5");
    cluster.wait_until::<Deployment>("web", |web| replicas(web) == 1).await;
    cluster.wait_until::<ElastiService>("web", |one| mode(one) == Some(Mode::Serve)).await;
}

#[tokio::test(start_paused = true)]
async fn issue_175_slices_follow_a_restarted_resolver_and_work_in_any_namespace() {
    let (cluster, _controllers) = cluster().await;
    web(&cluster, 0).await;
    let _operator = operator(&cluster, ElastiOptions::default());
    elasti(&cluster, "web", json!({})).await;
    cluster.wait_for("a slice", || slice(&cluster)).await;
    resolver(&cluster, &[]).await;
    cluster.wait_until::<ElastiService>("web", |one| condition(one, "ResolverReachable").0 == "False").await;
    resolver(&cluster, &["10.9.0.77"]).await;
    cluster
        .wait_until::<EndpointSlice>(&names::slice("web"), |slice| {
            slice.endpoints.iter().flatten().any(|one| one.addresses == ["10.9.0.77"])
        })
        .await;
}

#[tokio::test]
async fn a_stateful_set_sleeps_and_wakes_and_an_autoscalers_least_is_respected() {
    let (cluster, _controllers) = cluster().await;
    let prometheus = Prometheus::start("5").await;
    cluster
        .create_json::<StatefulSet>(
            json!({"metadata": {"name": "db"}, "spec": {"replicas": 2, "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}}, "template": {"metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "db", "image": "db"}]}}}}),
        )
        .await;
    cluster
        .create_json::<Service>(json!({"metadata": {"name": "db"}, "spec": {"selector": {"app": "db"},
            "ports": [{"port": 5432}]}}))
        .await;
    cluster
        .create_json::<HorizontalPodAutoscaler>(json!({"metadata": {"name": "db"}, "spec": {"minReplicas": 3,
            "maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"}}}))
        .await;
    let _operator = operator(&cluster, quick());
    let target = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"});
    elasti(
        &cluster,
        "db",
        json!({"service": "db", "scaleTargetRef": target, "triggers": prometheus.trigger(),
        "autoscaler": {"type": "hpa", "name": "db"}}),
    )
    .await;
    cluster.wait_until::<ElastiService>("db", |one| mode(one) == Some(Mode::Serve)).await;
    prometheus.say("0");
    let wanted = |set: &StatefulSet| set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
    cluster.wait_until::<StatefulSet>("db", |set| wanted(set) == 0).await;
    prometheus.say("5");
    cluster.wait_until::<StatefulSet>("db", |set| wanted(set) == 3).await;
    cluster.wait_until::<ElastiService>("db", |one| mode(one) == Some(Mode::Serve)).await;
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_sleep_need_not_wait_for_the_cooldown() {
    let (cluster, _controllers) = cluster().await;
    web(&cluster, 1).await;
    let _operator = operator(&cluster, ElastiOptions::default());
    elasti(&cluster, "web", json!({"cooldownPeriod": 3600})).await;
    cluster.wait_until::<ElastiService>("web", |one| mode(one) == Some(Mode::Serve)).await;
    cluster.pass(Duration::from_secs(5)).await;
    cli::sleep(&cluster.client(), "default", "web", (cluster.clock())()).await.expect("told");
    cluster.wait_until::<Deployment>("web", |web| replicas(web) == 0).await;
    cli::wake(&cluster.client(), "default", "web").await.expect("woken");
    cluster.wait_until::<ElastiService>("web", |one| mode(one) == Some(Mode::Serve)).await;
    cluster.pass(Duration::from_secs(600)).await;
    assert_eq!(replicas(&cluster.get::<Deployment>("web").await.expect("there")), 1, "an old wish is over");
    let error = cli::wake(&cluster.client(), "default", "nobody").await.expect_err("not there").to_string();
    assert!(error.starts_with("there is no ElastiService named nobody in namespace default"), "{error}");
}
