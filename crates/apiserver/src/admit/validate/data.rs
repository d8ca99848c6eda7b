//! Data, leases, events, claims.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{
    super::names,
    check::{IMMUTABLE, immutable, not_negative, text},
};
use crate::{engine::meta::Meta, schema::FieldError, types::Resource};

/// Data of one object may not be larger than this together.
const LIMIT: usize = 1024 * 1024;

const SEALED: &str = "field is immutable when `immutable` is set";

fn keys(object: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for (key, _) in object[field].as_object().into_iter().flatten() {
        errors.extend(
            names::config_key(key)
                .into_iter()
                .map(|why| FieldError::invalid(format!("{field}[{key}]"), key.as_str(), why)),
        );
    }
}

/// What is sealed stays as it is.
fn sealed(object: &Value, live: Option<&Value>, fields: &[&str], errors: &mut Vec<FieldError>) {
    let Some(live) = live.filter(|live| live["immutable"] == true) else { return };
    if object["immutable"] != true {
        errors.push(FieldError::forbidden("immutable", SEALED));
    }
    for field in fields {
        if object.get(*field) != live.get(*field) {
            errors.push(FieldError::forbidden(*field, SEALED));
        }
    }
}

pub(super) fn config_map(object: &Value, live: Option<&Value>, errors: &mut Vec<FieldError>) {
    keys(object, "data", errors);
    keys(object, "binaryData", errors);
    let (data, binary) = (object["data"].as_object(), object["binaryData"].as_object());
    for (key, _) in data.into_iter().flatten() {
        if binary.is_some_and(|binary| binary.contains_key(key)) {
            errors.push(FieldError::invalid(
                format!("data[{key}]"),
                key.as_str(),
                "duplicate of key present in binaryData",
            ));
        }
    }
    let size: usize = data.into_iter().flatten().map(|(_, value)| value.as_str().map_or(0, str::len)).sum();
    let binary_size: usize = binary
        .into_iter()
        .flatten()
        .map(|(_, value)| value.as_str().map_or(0, |text| text.len() / 4 * 3))
        .sum();
    if size + binary_size > LIMIT {
        errors.push(FieldError::too_long("", LIMIT as u64));
    }
    sealed(object, live, &["data", "binaryData"], errors);
}

pub(super) fn secret(object: &Value, live: Option<&Value>, errors: &mut Vec<FieldError>) {
    keys(object, "data", errors);
    let data = object["data"].as_object();
    let size: usize = data
        .into_iter()
        .flatten()
        .map(|(_, value)| STANDARD.decode(value.as_str().unwrap_or_default()).map_or(0, |bytes| bytes.len()))
        .sum();
    if size > LIMIT {
        errors.push(FieldError::too_long("data", LIMIT as u64));
    }
    let required: &[&str] = match text(object, "type") {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        _ => &[],
    };
    for key in required.iter().filter(|key| data.is_none_or(|data| !data.contains_key(**key))) {
        errors.push(FieldError::required(format!("data[{key}]"), ""));
    }
    if text(object, "type") == "kubernetes.io/service-account-token"
        && object["metadata"]["annotations"]["kubernetes.io/service-account.name"]
            .as_str()
            .unwrap_or_default()
            .is_empty()
    {
        errors.push(FieldError::required("metadata.annotations[kubernetes.io/service-account.name]", ""));
    }
    if let Some(live) = live {
        immutable(object, live, "type", "", errors);
    }
    sealed(object, live, &["data"], errors);
}

pub(super) fn event(object: &Value, live: Option<&Value>, resource: &Resource, errors: &mut Vec<FieldError>) {
    let (about, field) = match &*resource.group {
        "" => (&object["involvedObject"], "involvedObject.namespace"),
        _ => (&object["regarding"], "regarding.namespace"),
    };
    let namespace = text(about, "namespace");
    let fits = if namespace.is_empty() {
        matches!(object.namespace(), "default" | "kube-system")
    } else {
        namespace == object.namespace()
    };
    if !fits {
        errors.push(FieldError::invalid(field, namespace, "does not match event.namespace"));
    }
    if resource.group.is_empty() || live.is_some() {
        return;
    }
    if object.get("eventTime").is_none_or(Value::is_null) {
        errors.push(FieldError::required("eventTime", ""));
    }
    for field in ["reportingController", "reportingInstance", "action", "reason"] {
        if text(object, field).is_empty() {
            errors.push(FieldError::required(field, ""));
        }
    }
    if !matches!(text(object, "type"), "Normal" | "Warning") {
        errors.push(FieldError::invalid(
            "type",
            text(object, "type"),
            "has invalid value: must be Normal or Warning",
        ));
    }
}

pub(super) fn lease(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    if let Some(seconds) = spec["leaseDurationSeconds"].as_i64().filter(|seconds| *seconds <= 0) {
        errors.push(FieldError::invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
    }
    not_negative(spec, "leaseTransitions", "spec", errors);
}

pub(super) fn claim(object: &Value, live: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    if spec["accessModes"].as_array().is_none_or(Vec::is_empty) {
        errors.push(FieldError::required("spec.accessModes", "at least 1 access mode is required"));
    }
    if spec["resources"]["requests"].get("storage").is_none() {
        errors.push(FieldError::required("spec.resources[storage]", ""));
    }
    if let Some(live) = live {
        let mut old = live["spec"].clone();
        for field in ["resources", "volumeName", "volumeAttributesClassName"] {
            old[field] = spec[field].clone();
        }
        let mut new = spec.clone();
        for field in ["resources", "volumeName", "volumeAttributesClassName"] {
            new[field] = spec[field].clone();
        }
        if old != new {
            errors.push(FieldError::forbidden("spec", format!("spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims: {IMMUTABLE}")));
        }
    }
}
