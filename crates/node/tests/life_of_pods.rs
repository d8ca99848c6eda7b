//! Pods from creation to deletion, against the API server inside the test.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, ContainerStatus, Event, Node as ApiNode, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::client::Body;
use serde_json::{Value, json};
use steersman_node::{ADDRESS_ANNOTATION, Annotate, Node, NodeOptions, RuntimeChoice, ServicePublishing};
use steersman_test::Cluster;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const NODE: &str = "node-1";

/// The example of this crate that knows `pod-init`; `cargo test` builds it.
fn program() -> PathBuf {
    let me = std::env::current_exe().expect("a running program");
    let folder = me.parent().and_then(Path::parent).expect("target/debug/deps");
    let program = folder.join("examples").join("node");
    assert!(program.is_file(), "build it first: cargo build -p steersman-node --example node");
    program
}

/// A node that runs until it is stopped.
struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    async fn start(cluster: &Cluster, runtime: RuntimeChoice, folder: &Path) -> Self {
        Self::start_for(cluster, cluster.client(), runtime, folder).await
    }

    async fn start_for(
        cluster: &Cluster,
        client: kube::Client,
        runtime: RuntimeChoice,
        folder: &Path,
    ) -> Self {
        let options = NodeOptions {
            name: NODE.to_string(),
            data_dir: folder.to_path_buf(),
            runtime,
            program: program(),
            clock: cluster.clock(),
            services: ServicePublishing { annotate: Annotate::Yes, ..ServicePublishing::default() },
            ..NodeOptions::default()
        };
        let node = Node::start(client, options).await.expect("the node starts");
        let stop = CancellationToken::new();
        let token = stop.clone();
        let task = tokio::spawn(async move { node.run(token).await.expect("the node runs") });
        Running { stop, task }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("the node ends");
    }
}

async fn create(cluster: &Cluster, name: &str, spec: Value) {
    let mut spec = spec;
    spec["nodeName"] = json!(NODE);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}}, "spec": spec,
    });
    cluster.create_json::<Pod>(pod).await;
}

fn shell(script: &str) -> Value {
    json!({"name": "c", "image": "busybox:1.36", "command": ["sh", "-c", script]})
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn condition(pod: &Pod, kind: &str) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions.into_iter().flatten().any(|one| one.type_ == kind && one.status == "True")
}

fn container(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

fn waiting(pod: &Pod) -> Option<(&str, &str)> {
    let waiting = container(pod)?.state.as_ref()?.waiting.as_ref()?;
    Some((waiting.reason.as_deref()?, waiting.message.as_deref().unwrap_or_default()))
}

#[tokio::test(start_paused = true)]
async fn a_fake_pod_is_ready_at_once_and_gone_after_its_deletion() {
    let cluster = Cluster::start().await;
    let folder = tempfile::tempdir().expect("folder");
    let node = Running::start(&cluster, RuntimeChoice::Fake, folder.path()).await;
    let registered = cluster.wait_for_object::<ApiNode>(NODE).await;
    let info = registered.status.and_then(|status| status.node_info).expect("node info");
    assert_eq!(info.container_runtime_version, "steersman://fake");

    let probe = json!({"httpGet": {"path": "/", "port": 80}});
    let web = json!({"name": "c", "image": "anything:1", "ports": [{"containerPort": 80}],
        "readinessProbe": probe});
    create(&cluster, "web", json!({"containers": [web]})).await;
    let pod = cluster.wait_until::<Pod>("default/web", |pod| condition(pod, "Ready")).await;
    assert_eq!(phase(&pod), "Running");
    assert!(pod.status.and_then(|status| status.pod_ip).is_some_and(|ip| ip.starts_with("10.244.")));
    cluster.delete::<Pod>("default/web").await;
    cluster.wait_until_gone::<Pod>("default/web").await;
    node.stop().await;
}

/// A client whose server issues numbered tokens that last ten minutes.
fn with_tokens(client: kube::Client) -> kube::Client {
    let issued = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, issued) = (client.clone(), Arc::clone(&issued));
        async move {
            if !request.uri().path().ends_with("/serviceaccounts/default/token") {
                return client.send(request).await;
            }
            let number = issued.fetch_add(1, Ordering::Relaxed) + 1;
            let answer = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
                "spec": {"audiences": [], "expirationSeconds": 600},
                "status": {"token": number.to_string(), "expirationTimestamp": "2100-01-01T00:00:00Z"}});
            Ok(http::Response::new(Body::from(answer.to_string().into_bytes())))
        }
    });
    kube::Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn the_token_of_a_running_pod_is_renewed_in_time() {
    let cluster = Cluster::start().await;
    let folder = tempfile::tempdir().expect("folder");
    let node =
        Running::start_for(&cluster, with_tokens(cluster.client()), RuntimeChoice::Fake, folder.path());
    let node = node.await;
    let token = json!({"serviceAccountToken": {"path": "token", "expirationSeconds": 600}});
    let volume = json!({"name": "v", "projected": {"sources": [token]}});
    let mount = json!({"name": "v", "mountPath": "/run/token"});
    let web = json!({"name": "c", "image": "anything:1", "volumeMounts": [mount]});
    create(&cluster, "web", json!({"containers": [web], "volumes": [volume]})).await;
    let pod = cluster.wait_until::<Pod>("default/web", |pod| condition(pod, "Ready")).await;
    let uid = pod.metadata.uid.expect("uid");
    let file = folder.path().join("pods").join(uid).join("volumes/v/token");
    let says = |number: &'static str| {
        let file = file.clone();
        async move { (std::fs::read_to_string(file).ok()? == number).then_some(()) }
    };
    cluster.wait_for("a first token", || says("1")).await;
    cluster.pass(Duration::from_secs(470)).await;
    assert!(says("1").await.is_some(), "it still lasts");
    cluster.pass(Duration::from_secs(20)).await;
    cluster.wait_for("a second token", || says("2")).await;
    cluster.pass(Duration::from_secs(490)).await;
    cluster.wait_for("a third token", || says("3")).await;
    node.stop().await;
}

#[tokio::test]
async fn a_failing_pod_tells_its_code_its_last_words_and_its_log() {
    for runtime in [RuntimeChoice::Process, RuntimeChoice::Sandbox] {
        let cluster = Cluster::start().await;
        let folder = tempfile::tempdir().expect("folder");
        let node = Running::start(&cluster, runtime, folder.path()).await;
        let script = "echo out; echo bye > ${POD_ROOT}${LOG}; exit 3";
        let mut failing = shell(script);
        // Without a root of its own the container finds the file below its own folder.
        let log = if runtime == RuntimeChoice::Process { "/dev/termination-log" } else { "/x" };
        failing["env"] = json!([{"name": "LOG", "value": log}]);
        if runtime == RuntimeChoice::Sandbox {
            failing["command"] = json!(["sh", "-c", "echo out; echo bye > /dev/termination-log; exit 3"]);
        }
        create(&cluster, "failing", json!({"restartPolicy": "Never", "containers": [failing]})).await;
        let pod = cluster.wait_until::<Pod>("default/failing", |pod| phase(pod) == "Failed").await;
        let state = container(&pod).and_then(|one| one.state.clone()).expect("a state");
        let ended = state.terminated.expect("terminated");
        assert_eq!((ended.exit_code, ended.reason.as_deref()), (3, Some("Error")));
        assert_eq!(ended.message.as_deref(), Some("bye\n"), "{runtime}");
        let uid = pod.metadata.uid.as_deref().expect("uid");
        let log = folder.path().join(format!("logs/default_failing_{uid}/c/0.log"));
        let log = std::fs::read_to_string(log).expect("a log");
        assert!(log.ends_with(" stdout F out\n"), "{log}");

        cluster.delete::<Pod>("default/failing").await;
        cluster.wait_until_gone::<Pod>("default/failing").await;
        let gone = folder.path().join("pods").join(uid);
        cluster.wait_for("the folder's end", || async { (!gone.exists()).then_some(()) }).await;
        node.stop().await;
    }
}

#[tokio::test]
async fn a_service_answers_at_its_published_address() {
    for runtime in [RuntimeChoice::Process, RuntimeChoice::Sandbox] {
        let cluster = Cluster::start().await;
        let folder = tempfile::tempdir().expect("folder");
        let node = Running::start(&cluster, runtime, folder.path()).await;
        let web = json!({"name": "c", "image": "steersman.io/steer:latest",
            "ports": [{"containerPort": 8080}],
            "readinessProbe": {"httpGet": {"path": "/", "port": 8080}}});
        create(&cluster, "web", json!({"containers": [web]})).await;
        let pod = cluster.wait_until::<Pod>("default/web", |pod| condition(pod, "Ready")).await;
        let address = pod.status.and_then(|status| status.pod_ip).expect("an address");
        cluster
            .create_json::<Service>(json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
            }))
            .await;
        cluster
            .create_json::<EndpointSlice>(json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": "web-1", "namespace": "default",
                    "labels": {"kubernetes.io/service-name": "web"}},
                "addressType": "IPv4", "ports": [{"name": "", "port": 8080}],
                "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
            }))
            .await;
        let published =
            |service: &Service| service.metadata.annotations.as_ref()?.get(ADDRESS_ANNOTATION).cloned();
        let found = |service: &Service| published(service).is_some();
        let service = cluster.wait_until::<Service>("default/web", found).await;
        let address = published(&service).expect("an address");
        let answer = cluster.wait_for("an answer", || get(&address)).await;
        assert!(answer.contains("web\nGET /hello"), "{runtime}: {answer}");
        node.stop().await;
    }
}

/// A page, once the whole way to it stands.
async fn get(address: &str) -> Option<String> {
    let mut stream = tokio::net::TcpStream::connect(address).await.ok()?;
    let request = "GET /hello HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.ok()?;
    (!text.is_empty()).then_some(text)
}

#[tokio::test]
async fn a_node_that_starts_again_runs_its_pods_again() {
    let cluster = Cluster::start().await;
    let folder = tempfile::tempdir().expect("folder");
    let node = Running::start(&cluster, RuntimeChoice::Sandbox, folder.path()).await;
    let mut always = shell("exec sleep 600");
    always["ports"] = json!([{"containerPort": 80}]);
    create(&cluster, "always", json!({"containers": [always]})).await;
    let once = json!({"restartPolicy": "Never", "containers": [shell("exec sleep 600")]});
    create(&cluster, "once", once).await;
    let ready = |pod: &Pod| condition(pod, "Ready");
    let before = cluster.wait_until::<Pod>("default/always", ready).await;
    cluster.wait_until::<Pod>("default/once", ready).await;
    node.stop().await;

    let node = Running::start(&cluster, RuntimeChoice::Sandbox, folder.path()).await;
    let again = |pod: &Pod| container(pod).is_some_and(|one| one.restart_count == 1 && one.ready);
    let after = cluster.wait_until::<Pod>("default/always", again).await;
    let address = |pod: &Pod| pod.status.as_ref().and_then(|status| status.pod_ip.clone());
    assert_eq!(address(&before), address(&after));
    let lost = cluster.wait_until::<Pod>("default/once", |pod| phase(pod) == "Failed").await;
    let state = container(&lost).and_then(|one| one.state.clone()).expect("a state");
    let reason = state.terminated.and_then(|ended| ended.reason);
    assert_eq!(reason.as_deref(), Some("ContainerStatusUnknown"));
    node.stop().await;
}

#[tokio::test]
async fn what_cannot_be_started_says_why_and_starts_once_it_can() {
    let cluster = Cluster::start().await;
    let folder = tempfile::tempdir().expect("folder");
    let node = Running::start(&cluster, RuntimeChoice::Sandbox, folder.path()).await;
    let unknown = json!({"name": "c", "image": "postgres:16"});
    create(&cluster, "unknown", json!({"containers": [unknown]})).await;
    let refused = |pod: &Pod| waiting(pod).is_some_and(|(reason, _)| reason == "ErrImagePull");
    let pod = cluster.wait_until::<Pod>("default/unknown", refused).await;
    let (_, message) = waiting(&pod).expect("a reason");
    assert!(message.contains("create configmap image-map"), "{message}");

    let mut early = shell("exec sleep 600");
    early["envFrom"] = json!([{"configMapRef": {"name": "late"}}]);
    create(&cluster, "early", json!({"containers": [early]})).await;
    let incomplete =
        |pod: &Pod| waiting(pod) == Some(("CreateContainerConfigError", "configmap \"late\" not found"));
    cluster.wait_until::<Pod>("default/early", incomplete).await;
    cluster
        .create_json::<ConfigMap>(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "late", "namespace": "default"}, "data": {"KEY": "value"},
        }))
        .await;
    cluster.wait_until::<Pod>("default/early", |pod| condition(pod, "Ready")).await;
    node.stop().await;
}

#[tokio::test]
async fn a_container_that_fails_its_liveness_probe_is_started_again() {
    let cluster = Cluster::start().await;
    let folder = tempfile::tempdir().expect("folder");
    let node = Running::start(&cluster, RuntimeChoice::Sandbox, folder.path()).await;
    let mut sick = shell("exec sleep 600");
    sick["livenessProbe"] =
        json!({"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1});
    create(&cluster, "sick", json!({"terminationGracePeriodSeconds": 1, "containers": [sick]})).await;
    let again = |pod: &Pod| container(pod).is_some_and(|one| one.restart_count >= 1);
    let pod = cluster.wait_until::<Pod>("default/sick", again).await;
    let last = container(&pod).and_then(|one| one.last_state.clone()).expect("its last end");
    let ended = last.terminated.expect("terminated");
    assert_eq!((ended.exit_code, ended.signal), (143, Some(15)));
    let events = cluster.list::<Event>().await;
    let reasons: Vec<&str> = events.iter().filter_map(|event| event.reason.as_deref()).collect();
    assert!(reasons.contains(&"Unhealthy"), "{reasons:?}");
    node.stop().await;
}

#[tokio::test]
async fn an_ending_pod_has_its_grace_period_and_no_more() {
    let cluster = Cluster::start().await;
    let folder = tempfile::tempdir().expect("folder");
    let node = Running::start(&cluster, RuntimeChoice::Sandbox, folder.path()).await;
    let mut stubborn = shell("trap '' TERM; touch /tmp/deaf; while :; do sleep 0.05; done");
    stubborn["readinessProbe"] = json!({"exec": {"command": ["test", "-f", "/tmp/deaf"]}});
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [stubborn]});
    create(&cluster, "stubborn", spec).await;
    cluster.wait_until::<Pod>("default/stubborn", |pod| condition(pod, "Ready")).await;
    let began = tokio::time::Instant::now();
    cluster.delete::<Pod>("default/stubborn").await;
    cluster.wait_until_gone::<Pod>("default/stubborn").await;
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    node.stop().await;
}
