//! What runs pods.

use serde_json::{Value, json};

use super::{cluster, default, default_text, each, object, pod, spec, template};
use crate::engine::meta::{empty, object_mut};

/// How often a DaemonSet's template has changed, kept where clients of old look for it.
pub(in crate::admit) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn pod_template(value: &mut Value) {
    if let Some(spec) = value.get_mut("spec") {
        template(spec, "template");
    }
}

pub(super) fn deployment(value: &mut Value) {
    let wanted = spec(value);
    default(wanted, "replicas", 1);
    let strategy = object(wanted, "strategy");
    default_text(strategy, "type", "RollingUpdate");
    if strategy.get("type") == Some(&json!("RollingUpdate")) {
        let rolling = object(strategy, "rollingUpdate");
        default(rolling, "maxUnavailable", "25%");
        default(rolling, "maxSurge", "25%");
    }
    default(wanted, "revisionHistoryLimit", 10);
    default(wanted, "progressDeadlineSeconds", 600);
    pod_template(value);
}

pub(super) fn replica_set(value: &mut Value) {
    default(spec(value), "replicas", 1);
    pod_template(value);
}

pub(super) fn replication_controller(value: &mut Value) {
    let labels = value["spec"]["template"]["metadata"]["labels"].clone();
    if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        default(spec(value), "selector", labels.clone());
        default(object(object_mut(value), "metadata"), "labels", labels);
    }
    default(spec(value), "replicas", 1);
    pod_template(value);
}

pub(super) fn stateful_set(value: &mut Value) {
    let wanted = spec(value);
    default_text(wanted, "podManagementPolicy", "OrderedReady");
    let strategy = object(wanted, "updateStrategy");
    if strategy.get("type").and_then(Value::as_str).unwrap_or_default().is_empty() {
        strategy.insert("type".into(), "RollingUpdate".into());
        default(strategy, "rollingUpdate", empty());
    }
    if strategy.get("type") == Some(&json!("RollingUpdate"))
        && let Some(rolling) = strategy.get_mut("rollingUpdate").and_then(Value::as_object_mut)
    {
        default(rolling, "partition", 0);
    }
    let retention = object(wanted, "persistentVolumeClaimRetentionPolicy");
    default_text(retention, "whenDeleted", "Retain");
    default_text(retention, "whenScaled", "Retain");
    default(wanted, "replicas", 1);
    default(wanted, "revisionHistoryLimit", 10);
    for claim in wanted.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut).into_iter().flatten() {
        cluster::claim(claim);
        default_text(object_mut(claim), "apiVersion", "v1");
        default_text(object_mut(claim), "kind", "PersistentVolumeClaim");
    }
    pod_template(value);
}

pub(super) fn daemon_set(value: &mut Value) {
    let annotations = object(object(object_mut(value), "metadata"), "annotations");
    default_text(annotations, TEMPLATE_GENERATION, "1");
    let wanted = spec(value);
    let strategy = object(wanted, "updateStrategy");
    default_text(strategy, "type", "RollingUpdate");
    if strategy.get("type") == Some(&json!("RollingUpdate")) {
        let rolling = object(strategy, "rollingUpdate");
        default(rolling, "maxUnavailable", 1);
        default(rolling, "maxSurge", 0);
    }
    default(wanted, "revisionHistoryLimit", 10);
    pod_template(value);
}

pub(super) fn job(value: &mut Value) {
    let labels = value["spec"]["template"]["metadata"]["labels"].clone();
    if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        default(object(object_mut(value), "metadata"), "labels", labels);
    }
    let wanted = object(object_mut(value), "spec");
    if wanted.get("completions").is_none() && wanted.get("parallelism").is_none() {
        wanted.insert("completions".into(), 1.into());
    }
    default(wanted, "parallelism", 1);
    let limit = if wanted.contains_key("backoffLimitPerIndex") { i32::MAX } else { 6 };
    default(wanted, "backoffLimit", limit);
    default_text(wanted, "completionMode", "NonIndexed");
    default(wanted, "suspend", false);
    default(wanted, "manualSelector", false);
    let replacement = if wanted.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    default_text(wanted, "podReplacementPolicy", replacement);
    if let Some(policy) = wanted.get_mut("podFailurePolicy").and_then(Value::as_object_mut) {
        for rule in each(policy, "rules") {
            for pattern in each(rule, "onPodConditions") {
                default_text(pattern, "status", "True");
            }
        }
    }
    template(wanted_value(value), "template");
}

fn wanted_value(value: &mut Value) -> &mut Value {
    object_mut(value).entry("spec").or_insert_with(empty)
}

pub(super) fn cron_job(value: &mut Value) {
    let wanted = spec(value);
    default_text(wanted, "concurrencyPolicy", "Allow");
    default(wanted, "suspend", false);
    default(wanted, "successfulJobsHistoryLimit", 3);
    default(wanted, "failedJobsHistoryLimit", 1);
    if let Some(pod_spec) = value.pointer_mut("/spec/jobTemplate/spec/template/spec") {
        pod::spec(pod_spec);
    }
}
