//! Rules of built-in kinds, with the messages that clients of Kubernetes know.

mod check;
mod data;
mod pod;
mod rbac;
mod service;
mod webhooks;
mod workload;

pub(crate) use webhooks::client_config;

use serde_json::Value;

use crate::{
    engine::meta::Meta,
    schema::FieldError,
    server::Options,
    types::{Resource, crd},
};

/// What is wrong with an object of a built-in kind.
pub(crate) fn validate(
    resource: &Resource,
    object: &Value,
    live: Option<&Value>,
    subresource: &str,
    options: &Options,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // Who writes the status is trusted with it, as the kinds that have one are written by controllers.
    if subresource == "status" {
        return errors;
    }
    let kind = (&*resource.group, &*resource.plural);
    match kind {
        ("", "pods") => pod::pod(object, live, subresource, &mut errors),
        ("", "podtemplates") => pod::template(&object["template"], "template", &mut errors),
        ("", "configmaps") => data::config_map(object, live, &mut errors),
        ("", "secrets") => data::secret(object, live, &mut errors),
        ("", "services") => service::service(object, live, &mut errors),
        ("", "endpoints") => service::endpoints(object, options.loopback_endpoints, &mut errors),
        ("" | "events.k8s.io", "events") => data::event(object, live, resource, &mut errors),
        ("", "persistentvolumeclaims") => data::claim(object, live, &mut errors),
        ("", "replicationcontrollers") => workload::replication_controller(object, &mut errors),
        ("apps", "deployments") => workload::deployment(object, live, &mut errors),
        ("apps", "replicasets") => workload::replica_set(object, live, &mut errors),
        ("apps", "statefulsets") => workload::stateful_set(object, live, &mut errors),
        ("apps", "daemonsets") => workload::daemon_set(object, live, &mut errors),
        ("batch", "jobs") => workload::job(object, live, &mut errors),
        ("batch", "cronjobs") => workload::cron_job(object, &mut errors),
        ("autoscaling", "horizontalpodautoscalers") => workload::autoscaler(object, &mut errors),
        ("policy", "poddisruptionbudgets") => workload::disruption_budget(object, &mut errors),
        ("discovery.k8s.io", "endpointslices") => {
            service::endpoint_slice(object, live, options.loopback_endpoints, &mut errors);
        }
        ("coordination.k8s.io", "leases") => data::lease(object, &mut errors),
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => webhooks::configuration(object, &mut errors),
        ("rbac.authorization.k8s.io", plural) => rbac::rbac(plural, object, live, &mut errors),
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            errors.extend(match live {
                None => crd::validate_definition(object),
                Some(live) => crd::validate_definition_update(object, live),
            });
        }
        _ => {}
    }
    if matches!(kind, ("", "namespaces")) && subresource.is_empty() && object.name().is_empty() {
        errors.push(FieldError::required("metadata.name", ""));
    }
    errors
}
