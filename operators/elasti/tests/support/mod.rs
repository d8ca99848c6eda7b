//! A cluster with its controllers, a Prometheus server that says what it is told, and a web
//! application that may sleep.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use steersman_controllers::ControllerOptions;
use steersman_elasti::types::Mode;
use steersman_elasti::{ElastiOptions, ElastiService, controllers, crd, names};
use steersman_test::{Cluster, Running};
use tokio::net::TcpListener;

/// A cluster with its controllers, a node, a resolver and the definition of ElastiServices.
pub(crate) async fn cluster() -> (Cluster, Running) {
    let cluster = Cluster::start().await;
    let manager = steersman::Manager::new(cluster.client(), cluster.options("controllers"));
    let running =
        cluster.run_manager(steersman_controllers::controllers(manager, ControllerOptions::default()));
    cluster.create_json::<Node>(json!({"metadata": {"name": "n1"}})).await;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    cluster.patch_status::<Node>("n1", ready).await;
    cluster.pods().ready_after(Duration::from_millis(5));
    cluster.create_json::<Namespace>(json!({"metadata": {"name": "elasti"}})).await;
    resolver(&cluster, &["10.9.0.1", "10.9.0.2"]).await;
    cluster.install(&[crd()]).await;
    (cluster, running)
}

/// Runs the operator.
pub(crate) fn operator(cluster: &Cluster, options: ElastiOptions) -> Running {
    let manager = steersman::Manager::new(cluster.client(), cluster.options("elasti"));
    cluster.run_manager(controllers(manager, options))
}

/// Says where the resolver is.
pub(crate) async fn resolver(cluster: &Cluster, addresses: &[&str]) {
    let endpoints: Vec<Value> = addresses
        .iter()
        .map(|address| json!({"addresses": [address], "conditions": {"ready": true}}))
        .collect();
    let slice = json!({"metadata": {"name": "resolver-1", "namespace": "elasti",
        "labels": {"kubernetes.io/service-name": "elasti-resolver-service"}},
        "addressType": "IPv4", "ports": [{"name": "proxy", "port": 8012}], "endpoints": endpoints});
    if cluster.get::<EndpointSlice>("elasti/resolver-1").await.is_some() {
        cluster.patch::<EndpointSlice>("elasti/resolver-1", slice).await;
    } else {
        cluster.create_json::<EndpointSlice>(slice).await;
    }
}

/// Options under which everything happens at once.
pub(crate) fn quick() -> ElastiOptions {
    ElastiOptions {
        polling: Duration::from_millis(50),
        switch_delay: Duration::from_millis(100),
        ..ElastiOptions::default()
    }
}

/// A Deployment and a Service.
pub(crate) async fn web(cluster: &Cluster, replicas: i32) {
    cluster
        .create_json::<Deployment>(json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web"}]}}}}))
        .await;
    cluster
        .create_json::<Service>(json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}, {"name": "admin", "port": 81}]}}))
        .await;
}

/// An ElastiService about them.
pub(crate) async fn elasti(cluster: &Cluster, name: &str, change: Value) -> ElastiService {
    let mut spec = json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "deployments", "name": "web"},
        "service": "web", "cooldownPeriod": 0});
    if let (Value::Object(spec), Value::Object(change)) = (&mut spec, change) {
        spec.extend(change);
    }
    cluster
        .create_json(json!({"apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec}))
        .await
}

pub(crate) fn mode(elasti: &ElastiService) -> Option<Mode> {
    elasti.status.as_ref()?.mode
}

pub(crate) fn condition(elasti: &ElastiService, kind: &str) -> (String, String) {
    let conditions = elasti.status.clone().unwrap_or_default().conditions;
    let found = conditions.into_iter().find(|condition| condition.type_ == kind);
    found.map(|found| (found.status, found.reason)).unwrap_or_default()
}

/// How many replicas the Deployment should have.
pub(crate) fn replicas(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0)
}

/// The slice that leads to the resolver, if there is one.
pub(crate) async fn slice(cluster: &Cluster) -> Option<EndpointSlice> {
    cluster.get::<EndpointSlice>(&names::slice("web")).await
}

/// How many endpoints of the Service's own are ready.
pub(crate) async fn ready(cluster: &Cluster) -> usize {
    let ours = names::slice("web");
    let slices = cluster.list::<EndpointSlice>().await;
    let native = slices.iter().filter(|slice| {
        slice.labels().get("kubernetes.io/service-name").is_some_and(|name| name == "web")
            && slice.name_any() != ours
    });
    native
        .flat_map(|slice| &slice.endpoints)
        .flatten()
        .filter(|endpoint| endpoint.conditions.as_ref().is_some_and(|one| one.ready == Some(true)))
        .count()
}

/// A Prometheus server that gives one value to all queries but that for its uptime.
#[derive(Clone)]
pub(crate) struct Prometheus {
    pub(crate) address: SocketAddr,
    value: Arc<Mutex<String>>,
}

impl Prometheus {
    pub(crate) async fn start(value: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let this = Self {
            address: listener.local_addr().expect("bound"),
            value: Arc::new(Mutex::new(value.to_owned())),
        };
        let server = this.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = server.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request: Request<Incoming>| {
                        let answer = server.answer(&request);
                        async move { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(answer)))) }
                    });
                    let server = hyper::server::conn::http1::Builder::new();
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        this
    }

    pub(crate) fn say(&self, value: &str) {
        *self.value.lock().expect("no panic") = value.to_owned();
    }

    /// A trigger that asks it, with 1 as the threshold.
    pub(crate) fn trigger(&self) -> Value {
        json!([{"type": "prometheus", "metadata": {"query": "load", "threshold": "1",
            "serverAddress": format!("http://{}", self.address)}}])
    }

    fn answer(&self, request: &Request<Incoming>) -> String {
        let query = request.uri().query().unwrap_or_default();
        let value = match query.contains("min_over_time") {
            true => "1".to_owned(),
            false => self.value.lock().expect("no panic").clone(),
        };
        json!({"status": "success", "data": {"resultType": "vector",
            "result": [{"metric": {}, "value": [0, value]}]}})
        .to_string()
    }
}
