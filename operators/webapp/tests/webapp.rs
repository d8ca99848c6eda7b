//! The life of a WebApp in a cluster inside the test, under virtual time.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;
use steersman_controllers::{ControllerOptions, controllers};
use steersman_test::{Cluster, Running};
use steersman_webapp::{OPERATOR, Phase, WebApp, controller, crd};

/// A cluster with its controllers, a node and the definition of WebApps.
async fn cluster() -> (Cluster, Running) {
    let cluster = Cluster::start().await;
    let manager = steersman::Manager::new(cluster.client(), cluster.options("controllers"));
    let running = cluster.run_manager(controllers(manager, ControllerOptions::default()));
    cluster.create_json::<Node>(json!({"metadata": {"name": "n1"}})).await;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    cluster.patch_status::<Node>("n1", ready).await;
    cluster.pods().ready_after(Duration::from_millis(100));
    cluster.install(&[crd()]).await;
    (cluster, running)
}

async fn create(cluster: &Cluster, name: &str, spec: Value) -> WebApp {
    cluster
        .create_json(json!({"apiVersion": "example.com/v1", "kind": "WebApp",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec}))
        .await
}

fn is_ready(webapp: &WebApp) -> bool {
    let status = webapp.status.clone().unwrap_or_default();
    status.phase == Some(Phase::Ready)
        && status.observed_generation == webapp.metadata.generation
        && status.available_replicas == webapp.spec.replicas
}

fn condition(webapp: &WebApp, kind: &str) -> (String, String) {
    let conditions = webapp.status.clone().unwrap_or_default().conditions;
    let found = conditions.into_iter().find(|condition| condition.type_ == kind);
    found.map(|found| (found.status, found.reason)).unwrap_or_default()
}

async fn pods(cluster: &Cluster, count: usize) {
    let there = || async { (cluster.list::<Pod>().await.len() == count).then_some(()) };
    cluster.wait_for(&format!("{count} pods"), there).await;
}

#[tokio::test(start_paused = true)]
async fn a_webapp_gets_a_deployment_and_a_service_and_becomes_ready() {
    let (cluster, _controllers) = cluster().await;
    let _operator = cluster.run(controller());
    create(&cluster, "nginx-app", json!({"image": "nginx:1.25", "replicas": 3})).await;
    let webapp = cluster.wait_until::<WebApp>("nginx-app", is_ready).await;
    assert_eq!(webapp.spec.port, 80);
    assert_eq!(condition(&webapp, "Available"), ("True".into(), "MinimumReplicasAvailable".into()));
    assert_eq!(condition(&webapp, "Progressing"), ("False".into(), "RolloutComplete".into()));
    assert_eq!(condition(&webapp, "Degraded"), ("False".into(), "AsExpected".into()));
    let uid = webapp.uid();
    let deployment = cluster.get::<Deployment>("nginx-app").await.expect("a Deployment");
    let service = cluster.get::<Service>("nginx-app").await.expect("a Service");
    for owners in [deployment.owner_references(), service.owner_references()] {
        assert_eq!((owners.len(), Some(&owners[0].uid)), (1, uid.as_ref()));
    }
    let ports = service.spec.and_then(|spec| spec.ports).expect("ports");
    assert_eq!(ports[0].port, 80);
    cluster
        .wait_for("an event that it is ready", || async {
            let events = cluster.list::<Event>().await;
            let about = |event: &Event| event.regarding.as_ref().and_then(|subject| subject.kind.clone());
            events.into_iter().find(|event| {
                about(event).as_deref() == Some("WebApp") && event.reason.as_deref() == Some("Ready")
            })
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn drift_is_repaired_at_once_and_what_others_add_is_kept() {
    let (cluster, _controllers) = cluster().await;
    let _operator = cluster.run(controller());
    create(&cluster, "web", json!({"image": "v1", "replicas": 2})).await;
    cluster.wait_until::<WebApp>("web", is_ready).await;

    let drift = json!({"metadata": {"annotations": {"mine": "stays"}}, "spec": {"replicas": 7, "template": {
        "spec": {"containers": [{"name": "webapp", "image": "evil"}]}}}});
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "default");
    deployments.patch("web", &PatchParams::default(), &Patch::Strategic(&drift)).await.expect("patched");
    let began = (cluster.clock())();
    let deployment = cluster
        .wait_until::<Deployment>("web", |deployment| {
            let spec = deployment.spec.clone().unwrap_or_default();
            let image = spec.template.spec.and_then(|pod| pod.containers[0].image.clone());
            spec.replicas == Some(2) && image.as_deref() == Some("v1")
        })
        .await;
    assert!((cluster.clock())().duration_since(began).as_secs() < 2, "not only at the next check");
    assert_eq!(deployment.annotations()["mine"], "stays");

    for _ in 0..2 {
        cluster.delete::<Service>("web").await;
        cluster.wait_for_object::<Service>("web").await;
    }
    let old = deployment.uid();
    cluster.delete::<Deployment>("web").await;
    cluster.wait_until::<Deployment>("web", |deployment| deployment.uid() != old).await;
    cluster.wait_until::<WebApp>("web", is_ready).await;
    pods(&cluster, 2).await;
}

#[tokio::test(start_paused = true)]
async fn scaling_goes_through_its_phase_and_back_to_ready() {
    let (cluster, _controllers) = cluster().await;
    let _operator = cluster.run(controller());
    create(&cluster, "web", json!({"image": "v1", "replicas": 1})).await;
    cluster.wait_until::<WebApp>("web", is_ready).await;
    cluster.pods().ready_after(Duration::from_secs(20));
    let webapps: Api<WebApp> = Api::namespaced(cluster.client(), "default");
    let scale = json!({"spec": {"replicas": 3}});
    webapps.patch_scale("web", &PatchParams::default(), &Patch::Merge(&scale)).await.expect("scaled");
    let scaling =
        |webapp: &WebApp| webapp.status.as_ref().and_then(|status| status.phase) == Some(Phase::Scaling);
    cluster.wait_until::<WebApp>("web", scaling).await;
    cluster.wait_until::<WebApp>("web", is_ready).await;
    let scale = webapps.get_scale("web").await.expect("a scale");
    let status = scale.status.expect("a status");
    assert_eq!(status.replicas, 3);
    let selector = status.selector.expect("a selector");
    assert_eq!(selector, "app.kubernetes.io/managed-by=webapp,app.kubernetes.io/name=web");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_a_deleted_webapp() {
    for policy in [PropagationPolicy::Background, PropagationPolicy::Foreground] {
        let (cluster, _controllers) = cluster().await;
        let _operator = cluster.run(controller());
        create(&cluster, "web", json!({"image": "v1", "replicas": 2})).await;
        cluster.wait_until::<WebApp>("web", is_ready).await;
        let webapps: Api<WebApp> = Api::namespaced(cluster.client(), "default");
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        webapps.delete("web", &params).await.expect("deleted");
        cluster.wait_until_gone::<WebApp>("web").await;
        cluster.wait_until_gone::<Deployment>("web").await;
        cluster.wait_until_gone::<Service>("web").await;
        pods(&cluster, 0).await;
        cluster.pass(Duration::from_secs(120)).await;
        assert!(cluster.get::<Deployment>("web").await.is_none(), "it does not come back");
    }
}

#[tokio::test(start_paused = true)]
async fn orphans_are_taken_back_by_a_webapp_of_the_same_name() {
    let (cluster, _controllers) = cluster().await;
    let _operator = cluster.run(controller());
    create(&cluster, "web", json!({"image": "v1"})).await;
    cluster.wait_until::<WebApp>("web", is_ready).await;
    let before = cluster.get::<Deployment>("web").await.and_then(|deployment| deployment.uid());
    let webapps: Api<WebApp> = Api::namespaced(cluster.client(), "default");
    let params =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    webapps.delete("web", &params).await.expect("deleted");
    cluster.wait_until_gone::<WebApp>("web").await;
    create(&cluster, "web", json!({"image": "v1"})).await;
    let webapp = cluster.wait_until::<WebApp>("web", is_ready).await;
    let deployment = cluster.get::<Deployment>("web").await.expect("a Deployment");
    assert_eq!(deployment.uid(), before);
    assert_eq!(Some(&deployment.owner_references()[0].uid), webapp.metadata.uid.as_ref());
}

#[tokio::test(start_paused = true)]
async fn what_belongs_to_somebody_else_is_left_alone() {
    let (cluster, _controllers) = cluster().await;
    let _operator = cluster.run(controller());
    cluster
        .create_json::<Service>(json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 9999}]}}))
        .await;
    create(&cluster, "web", json!({"image": "v1"})).await;
    let failed = |webapp: &WebApp| condition(webapp, "Degraded") == ("True".into(), "NameTaken".into());
    let webapp = cluster.wait_until::<WebApp>("web", failed).await;
    let status = webapp.status.unwrap_or_default();
    assert_eq!(status.phase, Some(Phase::Failed));
    assert_eq!(
        status.conditions[0].message,
        "Service default/web exists already, and it was made by somebody else; \
         delete it or create the WebApp under another name"
    );
    assert!(cluster.get::<Deployment>("web").await.is_none());
    cluster.delete::<Service>("web").await;
    cluster.wait_until::<WebApp>("web", is_ready).await;
}

#[tokio::test(start_paused = true)]
async fn a_name_no_service_can_have_is_refused_by_the_definition() {
    let (cluster, _controllers) = cluster().await;
    let webapps: Api<WebApp> = Api::namespaced(cluster.client(), "default");
    let webapp = WebApp::new("1st.app", serde_json::from_value(json!({"image": "v1"})).expect("a spec"));
    let refused =
        webapps.create(&PostParams::default(), &webapp).await.expect_err("no Service has that name");
    assert!(refused.to_string().contains("the Service of a WebApp has its name"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn bad_specs_are_refused_by_the_definition() {
    let (cluster, _controllers) = cluster().await;
    let webapps: Api<WebApp> = Api::namespaced(cluster.client(), "default");
    let client = cluster.client();
    for (spec, complaint) in [
        (json!({"replicas": 1}), "spec.image"),
        (json!({"image": ""}), "spec.image"),
        (json!({"image": "v1", "replicas": -1}), "spec.replicas"),
        (json!({"image": "v1", "replicas": "many"}), "spec.replicas"),
        (json!({"image": "v1", "port": 70_000}), "spec.port"),
        (json!({"image": "v1", "port": 0}), "spec.port"),
    ] {
        let body = json!({"apiVersion": "example.com/v1", "kind": "WebApp",
            "metadata": {"name": "bad"}, "spec": spec});
        let request = http_post("/apis/example.com/v1/namespaces/default/webapps", &body);
        let refused = client.request::<Value>(request).await;
        let Err(kube::Error::Api(status)) = refused else { panic!("{spec} was accepted") };
        assert_eq!(status.code, 422, "{spec}");
        assert!(status.message.contains(complaint), "{}", status.message);
    }
    assert!(webapps.list(&Default::default()).await.expect("a list").items.is_empty());
}

fn http_post(path: &str, body: &Value) -> http::Request<Vec<u8>> {
    http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
        .expect("a request")
}

#[tokio::test(start_paused = true)]
async fn a_webapp_whose_pods_never_start_is_degraded_after_the_deadline() {
    let (cluster, _controllers) = cluster().await;
    let _operator = cluster.run(controller());
    cluster.pods().never_ready("web");
    create(&cluster, "web", json!({"image": "v1"})).await;
    let waits = |webapp: &WebApp| {
        webapp.status.as_ref().and_then(|status| status.phase) == Some(Phase::WaitingForPodsReady)
    };
    cluster.wait_until::<WebApp>("web", waits).await;
    cluster.pass(Duration::from_secs(610)).await;
    let stuck = ("True".to_owned(), "ProgressDeadlineExceeded".to_owned());
    cluster.wait_until::<WebApp>("web", |webapp| condition(webapp, "Degraded") == stuck).await;
}

#[tokio::test(start_paused = true)]
async fn conflicts_errors_and_lost_watches_only_cost_time() {
    let (cluster, _controllers) = cluster().await;
    let _operator = cluster.run(controller());
    create(&cluster, "web", json!({"image": "v1", "replicas": 2})).await;
    cluster.faults().conflict_once::<Deployment>();
    cluster.faults().fail_before(2);
    cluster.faults().fail_after_write(2);
    cluster.faults().drop_watches();
    cluster.wait_until::<WebApp>("web", is_ready).await;
    cluster.faults().expire_watches::<WebApp>();
    cluster.patch::<WebApp>("web", json!({"spec": {"image": "v2"}})).await;
    cluster.wait_until::<WebApp>("web", is_ready).await;
    let deployment = cluster.get::<Deployment>("web").await.expect("a Deployment");
    let image =
        deployment.spec.and_then(|spec| spec.template.spec).and_then(|pod| pod.containers[0].image.clone());
    assert_eq!(image.as_deref(), Some("v2"));
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_any_two_writes_is_recovered_from() {
    for writes in 1..20 {
        let (cluster, _controllers) = cluster().await;
        let operator = cluster.run(controller());
        cluster.faults().crash_after(writes);
        create(&cluster, "web", json!({"image": "v1", "replicas": 2})).await;
        let crashed = tokio::time::timeout(Duration::from_secs(60), cluster.faults().crashed()).await.is_ok();
        operator.kill().await;
        cluster.faults().clear();
        let _operator = cluster.run(controller());
        cluster.wait_until::<WebApp>("web", is_ready).await;
        pods(&cluster, 2).await;
        if !crashed {
            assert!(writes > 3, "a Deployment, a Service and a status are at least three writes");
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn at_rest_webapps_are_checked_every_thirty_seconds_and_nothing_is_written() {
    let (cluster, _controllers) = cluster().await;
    let operator = cluster.run(controller());
    create(&cluster, "web", json!({"image": "v1"})).await;
    cluster.wait_until::<WebApp>("web", is_ready).await;
    cluster.pass(Duration::from_secs(60)).await;
    let series = format!("reconcile_total{{controller=\"{OPERATOR}\"");
    let (writes, reconciles) = (cluster.faults().writes(), operator.metric(&series));
    cluster.pass(Duration::from_secs(600)).await;
    assert_eq!(cluster.faults().writes(), writes);
    let checks = operator.metric(&series) - reconciles;
    assert!((15.0..=25.0).contains(&checks), "{checks} checks in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_webapps_at_once_cost_four_writes_each() {
    let (cluster, _controllers) = cluster().await;
    // Longer than the first status waits, so that every phase is gone through.
    cluster.pods().ready_after(Duration::from_secs(3));
    let operator = cluster.run(controller());
    for number in 0..100 {
        create(&cluster, &format!("web-{number}"), json!({"image": "v1", "replicas": 1})).await;
    }
    for number in 0..100 {
        cluster.wait_until::<WebApp>(&format!("web-{number}"), is_ready).await;
    }
    let sent = |kind: &str| {
        let text = operator.metrics().encode();
        let about = format!("kind=\"{kind}\"");
        let lines = text.lines().filter(|line| line.starts_with("controller_reconcile_writes_total{"));
        let lines = lines.filter(|line| line.contains(&about) && line.contains("noop=\"false\""));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
    };
    assert_eq!((sent("Deployment"), sent("Service")), (100.0, 100.0));
    assert!(sent("WebApp") <= 200.0, "{} statuses were written", sent("WebApp"));
}

#[tokio::test(start_paused = true)]
async fn an_autoscaler_of_the_deployment_is_never_fought() {
    let (cluster, _controllers) = cluster().await;
    let _operator = cluster.run(controller());
    create(&cluster, "web", json!({"image": "v1", "replicas": 2})).await;
    cluster.wait_until::<WebApp>("web", is_ready).await;
    cluster
        .create_json::<HorizontalPodAutoscaler>(
            json!({"metadata": {"name": "web"}, "spec": {"maxReplicas": 9,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}}),
        )
        .await;
    let scaled = json!({"status": {"desiredReplicas": 5, "currentReplicas": 2, "lastScaleTime": "2026-01-01T00:00:00Z"}});
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "default");
    let five = Patch::Merge(json!({"spec": {"replicas": 5}}));
    deployments.patch_scale("web", &PatchParams::default(), &five).await.expect("scaled");
    cluster.patch_status::<HorizontalPodAutoscaler>("web", scaled).await;
    // Whatever else changes, now and at the next looks, the number stays the autoscaler's.
    cluster.patch::<WebApp>("web", json!({"spec": {"image": "v2"}})).await;
    cluster.pass(Duration::from_secs(120)).await;
    let deployment = cluster.get::<Deployment>("web").await.expect("a Deployment");
    let spec = deployment.spec.expect("a spec");
    assert_eq!(spec.replicas, Some(5));
    assert_eq!(spec.template.spec.expect("a pod").containers[0].image.as_deref(), Some("v2"));
    pods(&cluster, 5).await;
    let webapp = cluster.get::<WebApp>("web").await.expect("the WebApp");
    let status = webapp.status.expect("a status");
    assert_eq!((status.phase, status.available_replicas), (Some(Phase::Ready), 5));
}
