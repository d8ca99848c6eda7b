//! Values that fields take when nobody gives them, the same as in Kubernetes.

mod autoscaling;
mod cluster;
mod pod;
mod service;
mod workload;

pub(super) use workload::TEMPLATE_GENERATION;

use serde_json::{Map, Value};

use crate::{
    engine::meta::{empty, object_mut},
    schema,
    types::{Origin, Resource},
};

/// Gives absent fields their values.
pub(crate) fn apply(resource: &Resource, object: &mut Value) {
    match resource.origin {
        Origin::Custom { .. } => schema::default(object, &resource.schema),
        Origin::BuiltIn => {
            super::decode::canonical(object, resource);
            built_in(&resource.group, &resource.plural, object);
            super::decode::canonical(object, resource);
        }
    }
}

fn built_in(group: &str, plural: &str, object: &mut Value) {
    match (group, plural) {
        ("", "pods") => pod::pod(object),
        ("", "podtemplates") => template(object, "template"),
        ("", "replicationcontrollers") => workload::replication_controller(object),
        ("", "services") => service::service(object),
        ("", "endpoints") => service::endpoints(object),
        ("", "secrets") => cluster::secret(object),
        ("", "namespaces") => cluster::namespace(object),
        ("", "nodes") => cluster::node(object),
        ("", "limitranges") => cluster::limit_range(object),
        ("", "persistentvolumeclaims") => cluster::claim(object),
        ("", "persistentvolumes") => cluster::volume(object),
        ("apps", "deployments") => workload::deployment(object),
        ("apps", "replicasets") => workload::replica_set(object),
        ("apps", "statefulsets") => workload::stateful_set(object),
        ("apps", "daemonsets") => workload::daemon_set(object),
        ("batch", "jobs") => workload::job(object),
        ("batch", "cronjobs") => workload::cron_job(object),
        ("autoscaling", "horizontalpodautoscalers") => autoscaling::autoscaler(object),
        ("discovery.k8s.io", "endpointslices") => service::endpoint_slice(object),
        ("networking.k8s.io", "networkpolicies") => service::network_policy(object),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            cluster::role_binding(object);
        }
        ("storage.k8s.io", "storageclasses") => cluster::storage_class(object),
        ("scheduling.k8s.io", "priorityclasses") => {
            default(object_mut(object), "preemptionPolicy", "PreemptLowerPriority");
        }
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => {
            cluster::webhooks(object, plural);
        }
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            crate::types::crd::default_definition(object);
        }
        _ => {}
    }
}

/// Defaults of the pod template in a field of an object.
fn template(object: &mut Value, field: &str) {
    if let Some(spec) = object.get_mut(field).and_then(|template| template.get_mut("spec")) {
        pod::spec(spec);
    }
}

/// Gives a field a value when it has none.
fn default(map: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    if map.get(field).is_none_or(Value::is_null) {
        map.insert(field.to_owned(), value.into());
    }
}

/// Gives a text a value when it has none or is empty.
fn default_text(map: &mut Map<String, Value>, field: &str, value: &str) {
    if map.get(field).and_then(Value::as_str).unwrap_or_default().is_empty() {
        map.insert(field.to_owned(), value.into());
    }
}

/// An object in a field, made when it is not there.
fn object<'a>(map: &'a mut Map<String, Value>, field: &str) -> &'a mut Map<String, Value> {
    object_mut(map.entry(field).or_insert_with(empty))
}

/// `spec` of an object.
fn spec(value: &mut Value) -> &mut Map<String, Value> {
    object(object_mut(value), "spec")
}

/// The elements of a list in a field that are objects.
fn each<'a>(
    map: &'a mut Map<String, Value>,
    field: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    map.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The defaults of a pod, for tests of its rules.
#[cfg(test)]
pub(super) fn test_pod(object: &mut Value) {
    pod::pod(object);
}
