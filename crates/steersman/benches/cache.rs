//! What ten thousand pods cost in the cache, and how fast they come in.
#![allow(clippy::print_stdout)]

use std::collections::BTreeSet;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use steersman::{Header, Object};

const PODS: usize = 10_000;

fn main() {
    let texts: Vec<String> = (0..PODS).map(|number| pod(number).to_string()).collect();
    let bytes: usize = texts.iter().map(String::len).sum();
    let managers = BTreeSet::from(["webapp".to_owned()]);
    let resource = Pod::api_resource();

    let before = resident();
    let began = Instant::now();
    let headers: Vec<Header> =
        texts.iter().filter_map(|text| Header::scan(text.as_bytes(), &resource, &managers).ok()).collect();
    let scan = began.elapsed();
    let cached = resident().saturating_sub(before);
    assert_eq!(headers.len(), PODS, "every pod is read");

    let before = resident();
    let began = Instant::now();
    let typed: Vec<Pod> = texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
    let decode = began.elapsed();
    let decoded = resident().saturating_sub(before);
    assert_eq!(typed.len(), PODS, "every pod is decoded");

    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    println!("cache of {PODS} pods, {} bytes of JSON each", bytes / PODS);
    println!(
        "  as bytes with a header: {:>7.1} MiB, {:>8.0} pods/s",
        mib(cached),
        PODS as f64 / scan.as_secs_f64()
    );
    println!(
        "  decoded to a type:      {:>7.1} MiB, {:>8.0} pods/s",
        mib(decoded),
        PODS as f64 / decode.as_secs_f64()
    );
    println!("  ratio:                  {:>7.1}", decoded as f64 / cached.max(1) as f64);
}

/// Resident memory of this process, where `/proc` tells it.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}

/// A pod as a cluster shows it: about 6.5 KB, two fifths of it managed fields.
fn pod(number: usize) -> Value {
    let name = format!("web-7d9c6b8f5-{number:05}");
    let fields = |names: &[&str]| -> Value {
        let members =
            names.iter().map(|name| (format!("f:{name}"), json!({".": {}, "f:value": {}, "f:name": {}})));
        Value::Object(members.collect())
    };
    let names = [
        "annotations",
        "labels",
        "ownerReferences",
        "containers",
        "dnsPolicy",
        "enableServiceLinks",
        "restartPolicy",
        "schedulerName",
        "securityContext",
        "terminationGracePeriodSeconds",
        "resources",
        "ports",
        "livenessProbe",
        "readinessProbe",
        "env",
        "image",
        "volumeMounts",
        "conditions",
        "podIPs",
    ];
    let manager = |manager: &str| {
        json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": fields(&names[..3]), "f:spec": fields(&names[3..])}})
    };
    let environment: Vec<Value> = (0..12)
        .map(|index| json!({"name": format!("SETTING_NUMBER_{index}"), "value": format!("value of setting {index}")}))
        .collect();
    let conditions: Vec<Value> = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .iter()
        .map(|r#type| json!({"type": r#type, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z"}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "production", "generateName": "web-7d9c6b8f5-",
            "uid": format!("00000000-0000-4000-8000-{number:012}"), "resourceVersion": (1000 + number).to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "7d9c6b8f5", "team": "shop", "tier": "frontend"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d9c6b8f5",
                "uid": "11111111-0000-4000-8000-000000000000", "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [manager("kube-controller-manager"), manager("kubelet")],
        },
        "spec": {
            "containers": [{"name": "web", "image": "registry.example.com/shop/web:1.2.3", "env": environment,
                "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "1", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
                "readinessProbe": {"httpGet": {"path": "/ready", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10},
                "volumeMounts": [{"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "token", "readOnly": true}]}],
            "nodeName": format!("node-{}", number % 100), "restartPolicy": "Always", "serviceAccountName": "default",
            "tolerations": [{"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}],
            "volumes": [{"name": "token", "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}]}}],
        },
        "status": {"phase": "Running", "podIP": "10.244.1.7", "hostIP": "10.0.0.7", "startTime": "2026-01-01T00:00:00Z",
            "conditions": conditions, "qosClass": "Burstable",
            "containerStatuses": [{"name": "web", "ready": true, "restartCount": 0, "started": true,
                "image": "registry.example.com/shop/web:1.2.3", "imageID": "registry.example.com/shop/web@sha256:0123456789abcdef",
                "containerID": "containerd://0123456789abcdef0123456789abcdef", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]},
    })
}
