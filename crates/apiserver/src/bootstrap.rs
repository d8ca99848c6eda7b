//! The objects that every cluster has from the start.

use serde_json::{Value, json};

use crate::{
    admit::prepare,
    engine::{
        Engine,
        meta::{encode, time_text},
    },
    object::Key,
    store::{Operation, Write, WriteError},
};

/// Makes what is missing.
pub(crate) async fn run(engine: &Engine) -> Result<(), WriteError> {
    let now = (engine.options.clock)();
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        create(engine, Key::new("namespaces", "", name), &prepare::namespace(name, now)).await?;
    }
    let stamp = time_text(now);
    publish(engine, Key::new("services", "default", "kubernetes"), &service(engine, &stamp)).await?;
    if let Some(address) = engine.options.advertise {
        publish(
            engine,
            Key::new("discovery.k8s.io/endpointslices", "default", "kubernetes"),
            &slice(address, &stamp),
        )
        .await?;
        publish(engine, Key::new("endpoints", "default", "kubernetes"), &endpoints(address, &stamp)).await?;
    }
    for (name, value, description) in [
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata(name, "", &stamp, &json!({})),
            "value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority",
        });
        create(engine, Key::new("scheduling.k8s.io/priorityclasses", "", name), &class).await?;
    }
    Ok(())
}

fn metadata(name: &str, namespace: &str, stamp: &str, labels: &Value) -> Value {
    let mut metadata =
        json!({"name": name, "uid": uuid::Uuid::new_v4().to_string(), "creationTimestamp": stamp});
    if !namespace.is_empty() {
        metadata["namespace"] = namespace.into();
    }
    if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        metadata["labels"] = labels.clone();
    }
    metadata
}

fn service(engine: &Engine, stamp: &str) -> Value {
    let address = engine.options.service_cidr.first().to_string();
    let target = engine.options.advertise.map_or(6443, |address| address.port());
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": metadata("kubernetes", "default", stamp, &json!({"component": "apiserver", "provider": "kubernetes"})),
        "spec": {
            "clusterIP": address, "clusterIPs": [address], "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "type": "ClusterIP",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": target}],
        },
        "status": {"loadBalancer": {}},
    })
}

fn slice(address: std::net::SocketAddr, stamp: &str) -> Value {
    let kind = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": metadata("kubernetes", "default", stamp, &json!({"kubernetes.io/service-name": "kubernetes"})),
        "addressType": kind, "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
    })
}

fn endpoints(address: std::net::SocketAddr, stamp: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": metadata("kubernetes", "default", stamp, &json!({"endpointslice.kubernetes.io/skip-mirror": "true"})),
        "subsets": [{"addresses": [{"ip": address.ip().to_string()}], "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}]}],
    })
}

async fn create(engine: &Engine, key: Key, object: &Value) -> Result<(), WriteError> {
    if engine.store.get(&key).is_some() {
        return Ok(());
    }
    write(engine, key, Operation::Create, object).await
}

/// Makes it, or gives it this content when it has another: ports may differ from start to start.
async fn publish(engine: &Engine, key: Key, object: &Value) -> Result<(), WriteError> {
    let Some(stored) = engine.store.get(&key) else {
        return write(engine, key, Operation::Create, object).await;
    };
    let mut current = crate::engine::view::tree(&stored);
    let before = current.clone();
    for field in ["endpoints", "ports", "subsets", "addressType"] {
        if let Some(value) = object.get(field) {
            current[field] = value.clone();
        }
    }
    if let Some(ports) = object["spec"].get("ports") {
        current["spec"]["ports"] = ports.clone();
    }
    if current == before {
        return Ok(());
    }
    write(engine, key, Operation::Update { expected: stored.revision }, &current).await
}

async fn write(engine: &Engine, key: Key, operation: Operation, object: &Value) -> Result<(), WriteError> {
    engine.store.write(Write { key, operation, bytes: encode(object), fence: None }).await.map(|_| ())
}
