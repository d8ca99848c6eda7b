//! The rest: secrets, volumes, roles, webhooks.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::{default, default_text, each, object, spec};
use crate::engine::meta::{Meta, empty, object_mut};

pub(super) fn secret(value: &mut Value) {
    default_text(object_mut(value), "type", "Opaque");
    let Some(Value::Object(plain)) = object_mut(value).remove("stringData") else { return };
    if plain.is_empty() {
        return;
    }
    let data = object(object_mut(value), "data");
    for (key, text) in plain {
        data.insert(key, STANDARD.encode(text.as_str().unwrap_or_default()).into());
    }
}

pub(super) fn namespace(value: &mut Value) {
    let name = value.name().to_owned();
    if !name.is_empty() {
        object_mut(value.meta_mut().entry("labels").or_insert_with(empty))
            .insert("kubernetes.io/metadata.name".into(), name.into());
    }
}

pub(super) fn node(value: &mut Value) {
    if let Some(status) = value.get_mut("status").and_then(Value::as_object_mut)
        && let Some(capacity) = status.get("capacity").cloned()
    {
        default(status, "allocatable", capacity);
    }
}

pub(super) fn limit_range(value: &mut Value) {
    for item in each(spec(value), "limits") {
        if item.get("type") != Some(&json!("Container")) {
            continue;
        }
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            let source = item.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
            let target = object(item, to);
            for (name, quantity) in source {
                default(target, &name, quantity);
            }
        }
    }
}

pub(super) fn claim(value: &mut Value) {
    default(spec(value), "volumeMode", "Filesystem");
    let status = object(object_mut(value), "status");
    default_text(status, "phase", "Pending");
}

pub(super) fn volume(value: &mut Value) {
    let wanted = spec(value);
    default_text(wanted, "persistentVolumeReclaimPolicy", "Retain");
    default(wanted, "volumeMode", "Filesystem");
    let status = object(object_mut(value), "status");
    default_text(status, "phase", "Pending");
}

pub(super) fn role_binding(value: &mut Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let binding = object_mut(value);
    if let Some(role) = binding.get_mut("roleRef").and_then(Value::as_object_mut) {
        default_text(role, "apiGroup", GROUP);
    }
    for subject in each(binding, "subjects") {
        if matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
            default_text(subject, "apiGroup", GROUP);
        }
    }
}

pub(super) fn storage_class(value: &mut Value) {
    let class = object_mut(value);
    default_text(class, "reclaimPolicy", "Delete");
    default_text(class, "volumeBindingMode", "Immediate");
}

pub(super) fn webhooks(value: &mut Value, plural: &str) {
    for webhook in each(object_mut(value), "webhooks") {
        default_text(webhook, "failurePolicy", "Fail");
        default_text(webhook, "matchPolicy", "Equivalent");
        default(webhook, "namespaceSelector", empty());
        default(webhook, "objectSelector", empty());
        default(webhook, "timeoutSeconds", 10);
        if plural == "mutatingwebhookconfigurations" {
            default_text(webhook, "reinvocationPolicy", "Never");
        }
        each(webhook, "rules").for_each(|rule| default(rule, "scope", json!("*")));
        service_port(webhook);
    }
}

fn service_port(webhook: &mut Map<String, Value>) {
    if let Some(config) = webhook.get_mut("clientConfig").and_then(Value::as_object_mut)
        && let Some(service) = config.get_mut("service").and_then(Value::as_object_mut)
    {
        default(service, "port", 443);
    }
}
