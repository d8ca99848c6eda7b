//! What the server writes into objects itself, besides defaults: first states, and what one side may not touch.

use serde_json::{Value, json};

use super::defaults::TEMPLATE_GENERATION;
use crate::{
    engine::{
        Call, Engine, Side,
        meta::{Meta, empty, object_mut, time_text},
        view,
    },
    object::Key,
    status::Failure,
    types::Origin,
};

/// Prepares a new object.
pub(crate) fn create(engine: &Engine, call: &Call<'_>, object: &mut Value) -> Result<(), Failure> {
    let resource = call.resource;
    // A node tells of itself from the start.
    if resource.has_status() && &*resource.storage.name != "nodes" {
        object_mut(object).remove("status");
    }
    if resource.origin != Origin::BuiltIn {
        // A status that the definition gives to objects without one; Kubernetes shows it whenever it reads.
        super::defaults::apply(resource, object);
        return Ok(());
    }
    match (&*resource.group, &*resource.plural) {
        ("", "pods") => new_pod(engine, call, object)?,
        ("", "namespaces") => {
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            object["status"] = json!({"phase": "Active"});
        }
        ("", "persistentvolumeclaims" | "persistentvolumes") => {
            object["status"] = json!({"phase": "Pending"});
        }
        ("apps", "replicasets") | ("", "replicationcontrollers") => object["status"] = json!({"replicas": 0}),
        ("apps", "statefulsets") => object["status"] = json!({"replicas": 0, "availableReplicas": 0}),
        ("apps", "daemonsets") => {
            object["status"] = json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0});
        }
        ("policy", "poddisruptionbudgets") => {
            object["status"] =
                json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
        }
        ("autoscaling", "horizontalpodautoscalers") => {
            object["status"] = json!({"desiredReplicas": 0});
        }
        ("", "services") => object["status"] = json!({"loadBalancer": {}}),
        ("networking.k8s.io", "ingresses") => object["status"] = json!({"loadBalancer": {}}),
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            object["status"] = json!({
                "acceptedNames": {"kind": "", "plural": ""}, "conditions": [],
                "storedVersions": [storage_version(object)],
            });
        }
        ("certificates.k8s.io", "certificatesigningrequests") => {
            object["spec"]["username"] = call.user.name.as_str().into();
            object["spec"]["groups"] = call.user.groups.clone().into();
        }
        ("batch", "jobs") => new_job(object),
        _ => {}
    }
    if resource.has_status() && object.get("status").is_none() {
        object["status"] = empty();
    }
    super::decode::canonical(object, resource);
    Ok(())
}

/// Prepares a changed object.
pub(crate) fn update(call: &Call<'_>, side: Side<'_>, object: &mut Value, live: &Value) {
    let resource = call.resource;
    if resource.origin != Origin::BuiltIn {
        return;
    }
    match (&*resource.group, &*resource.plural, side) {
        ("", "namespaces", Side::Main) => object["spec"] = live["spec"].clone(),
        ("", "namespaces", Side::Other("finalize")) => {
            let finalizers = object["spec"]["finalizers"].clone();
            let resource_version = object.meta_get("resourceVersion").cloned();
            *object = live.clone();
            object["spec"] = if finalizers.as_array().is_some_and(|list| !list.is_empty()) {
                json!({"finalizers": finalizers})
            } else {
                empty()
            };
            object.meta_set("resourceVersion", resource_version);
        }
        ("", "pods", Side::Main) => {
            if let Some(containers) = live["spec"].get("ephemeralContainers") {
                object["spec"]["ephemeralContainers"] = containers.clone();
            }
        }
        ("", "pods", Side::Status) => {
            object["status"]["qosClass"] = live["status"]["qosClass"].clone();
        }
        ("", "pods", Side::Other("ephemeralcontainers")) => {
            let containers = object["spec"]["ephemeralContainers"].clone();
            let metadata = object["metadata"].clone();
            *object = live.clone();
            object["metadata"] = metadata;
            object["spec"]["ephemeralContainers"] = containers;
        }
        ("apps", "daemonsets", Side::Main) => {
            let before: u64 = live["metadata"]["annotations"][TEMPLATE_GENERATION]
                .as_str()
                .and_then(|text| text.parse().ok())
                .unwrap_or(1);
            let changed = object["spec"]["template"] != live["spec"]["template"];
            object["metadata"]["annotations"][TEMPLATE_GENERATION] =
                (before + u64::from(changed)).to_string().into();
        }
        ("certificates.k8s.io", "certificatesigningrequests", Side::Main) => {
            object["spec"] = live["spec"].clone();
        }
        ("certificates.k8s.io", "certificatesigningrequests", Side::Other("approval")) => {
            object["spec"] = live["spec"].clone();
        }
        ("apiextensions.k8s.io", "customresourcedefinitions", Side::Main) => {
            let version = storage_version(object);
            let stored = &mut object["status"]["storedVersions"];
            if let Some(list) = stored.as_array_mut()
                && !list.contains(&version)
            {
                list.push(version);
            }
        }
        _ => {}
    }
}

fn storage_version(definition: &Value) -> Value {
    let versions = definition["spec"]["versions"].as_array();
    versions
        .into_iter()
        .flatten()
        .find(|version| version["storage"] == true)
        .map_or(Value::Null, |version| version["name"].clone())
}

fn new_pod(engine: &Engine, call: &Call<'_>, pod: &mut Value) -> Result<(), Failure> {
    let name = pod.name().to_owned();
    let spec = object_mut(object_mut(pod).entry("spec").or_insert_with(empty));
    if spec.get("serviceAccountName").and_then(Value::as_str).unwrap_or_default().is_empty() {
        spec.insert("serviceAccountName".into(), "default".into());
    }
    let account = spec.get("serviceAccountName").cloned().unwrap_or_default();
    spec.insert("serviceAccount".into(), account);
    let class = spec.get("priorityClassName").and_then(Value::as_str).unwrap_or_default().to_owned();
    let (priority, preemption) = priority(engine, call, &name, &class)?;
    spec.insert("priority".into(), priority);
    spec.entry("preemptionPolicy").or_insert(preemption);
    tolerations(spec);
    let class = quality(pod);
    pod["status"] = json!({"phase": "Pending", "qosClass": class});
    Ok(())
}

/// How important a pod is, by the class that it names.
fn priority(engine: &Engine, call: &Call<'_>, pod: &str, class: &str) -> Result<(Value, Value), Failure> {
    let usual = || Value::from("PreemptLowerPriority");
    if class.is_empty() {
        return Ok((0.into(), usual()));
    }
    let key = Key::new("scheduling.k8s.io/priorityclasses", "", class);
    let stored = engine.store.get(&key).ok_or_else(|| {
        Failure::forbidden(call.resource, pod, &format!("no PriorityClass with name {class} was found"))
    })?;
    let class = view::tree(&stored);
    let preemption = class.get("preemptionPolicy").cloned().unwrap_or_else(usual);
    Ok((class["value"].clone(), preemption))
}

/// Pods put up with a node that is lost for five minutes, unless they say otherwise.
fn tolerations(spec: &mut serde_json::Map<String, Value>) {
    let list = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = list.iter().any(|toleration| {
            let effect = toleration["effect"].as_str().unwrap_or_default();
            let named = toleration["key"].as_str().unwrap_or_default();
            (named == key || named.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !tolerated {
            list.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
        }
    }
}

/// The quality of service that a pod's requests and limits give it.
fn quality(pod: &Value) -> &'static str {
    let spec = &pod["spec"];
    let containers =
        ["containers", "initContainers"].iter().flat_map(|list| spec[*list].as_array().into_iter().flatten());
    let (mut any, mut guaranteed) = (false, true);
    for container in containers {
        let of = |list: &str, name: &str| {
            let text = container["resources"][list][name].as_str()?;
            super::quantity::Quantity::parse(text).filter(|quantity| quantity.sign().is_gt())
        };
        for name in ["cpu", "memory"] {
            let (request, limit) = (of("requests", name), of("limits", name));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request.is_none_or(|request| Some(request) == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Jobs find their pods by their own uid, unless they say otherwise.
fn new_job(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (job.uid().to_owned(), job.name().to_owned());
    // Labels that were taken from the template, or would have been, go on following it.
    let follows = job
        .meta_get("labels")
        .is_none_or(|labels| Some(labels) == job["spec"]["template"]["metadata"].get("labels"));
    let labels = &mut job["spec"]["template"]["metadata"]["labels"];
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        if labels.get(key).is_none() {
            labels[key] = value.as_str().into();
        }
    }
    if follows {
        job["metadata"]["labels"] = job["spec"]["template"]["metadata"]["labels"].clone();
    }
    if job["spec"].get("selector").is_none() {
        job["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    }
}

/// The first states that a namespace's objects have; used by the bootstrap.
pub(crate) fn namespace(name: &str, now: jiff::Timestamp) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": name, "uid": uuid::Uuid::new_v4().to_string(), "creationTimestamp": time_text(now),
            "labels": {"kubernetes.io/metadata.name": name},
        },
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    })
}
