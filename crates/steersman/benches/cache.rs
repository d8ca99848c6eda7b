//! What ten thousand pods cost in the cache, and how fast they come in, beside kube-rs's
//! `Store<Pod>`, whole and with its managed fields taken away.
//!
//! Each is measured in a process of its own, from the lines of a watch to objects that can be
//! looked up, so that none finds memory that another has left.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use kube::core::WatchEvent;
use kube_runtime::reflector::store::Writer;
use kube_runtime::watcher::Event;
use serde_json::{Value, json};
use steersman::{Header, Key, Object};

const PODS: usize = 10_000;

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    match wanted.as_str() {
        "ours" => report(ours),
        "store" => report(|lines| store(lines, |_| {})),
        "pruned" => report(|lines| store(lines, |pod| pod.metadata.managed_fields = None)),
        _ => compare(),
    }
}

/// Starts this program once for each, and sets their figures side by side.
fn compare() {
    let bytes: usize = (0..100).map(|number| pod(number).to_string().len()).sum();
    println!("cache of {PODS} pods, {} bytes of JSON each, from the lines of a watch", bytes / 100);
    let measure = |name: &str| -> (f64, f64) {
        let program = std::env::current_exe().ok();
        let output = program.and_then(|program| Command::new(program).arg(name).output().ok());
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let text = text.unwrap_or_default();
        let mut figures = text.split_whitespace().filter_map(|figure| figure.parse().ok());
        (figures.next().unwrap_or(f64::NAN), figures.next().unwrap_or(f64::NAN))
    };
    let (memory, speed) = measure("ours");
    println!("  {:<38}{memory:>8.1} MiB{speed:>10.0} pods/s", "ours: bytes with a header");
    for (name, title) in [("pruned", "kube-rs, without managed fields"), ("store", "kube-rs")] {
        let (theirs, slower) = measure(name);
        println!("  {title:<38}{theirs:>8.1} MiB{slower:>10.0} pods/s");
        println!("  {:<38}{:>8.1} x  {:>10.1} x", "  ours to theirs", theirs / memory, speed / slower);
    }
}

/// Prints how much memory is kept, in MiB, and how many pods came in per second.
fn report<T>(ingest: impl FnOnce(&[String]) -> T) {
    let lines: Vec<String> =
        (0..PODS).map(|number| json!({"type": "ADDED", "object": pod(number)}).to_string()).collect();
    let before = resident();
    let began = Instant::now();
    let kept = ingest(&lines);
    let took = began.elapsed();
    let memory = resident().saturating_sub(before);
    println!("{} {}", memory as f64 / f64::from(1 << 20), PODS as f64 / took.as_secs_f64());
    drop(kept);
}

/// What a watch of ours does with its lines.
fn ours(lines: &[String]) -> BTreeMap<Key, Header> {
    #[derive(serde::Deserialize)]
    struct Line<'a> {
        #[serde(borrow)]
        object: &'a serde_json::value::RawValue,
    }
    let (resource, managers) = (Pod::api_resource(), ["webapp".to_owned()].into());
    let headers = lines.iter().filter_map(|line| {
        let line: Line<'_> = serde_json::from_str(line).ok()?;
        Header::scan(line.object.get().as_bytes(), &resource, &managers).ok()
    });
    let kept: BTreeMap<Key, Header> = headers.map(|header| (header.key().clone(), header)).collect();
    assert_eq!(kept.len(), PODS, "every pod is read");
    kept
}

/// What a reflector of kube-rs does with them.
fn store(lines: &[String], prune: impl Fn(&mut Pod)) -> Writer<Pod> {
    let mut writer = Writer::<Pod>::default();
    for line in lines {
        if let Ok(WatchEvent::Added(mut pod)) = serde_json::from_str(line) {
            prune(&mut pod);
            writer.apply_watcher_event(&Event::Apply(pod));
        }
    }
    assert_eq!(writer.as_reader().len(), PODS, "every pod is read");
    writer
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
