//! Rules for `metadata`, the same for every kind.

use serde_json::Value;

use super::{
    names::{self, NameRule},
    strategy::Strategy,
};
use crate::{
    engine::meta::Meta,
    schema::FieldError,
    types::{Resource, Scope},
};

/// Annotations of one object may not be larger than this together.
const ANNOTATIONS: usize = 256 * 1024;

/// Everything that is wrong with the metadata of a new or changed object.
pub(crate) fn validate(resource: &Resource, strategy: Strategy, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_generate_name(strategy.name, object, &mut errors);
    check_name(strategy.name, object, &mut errors);
    match resource.scope {
        Scope::Namespaced => {
            let namespace = object.namespace();
            if namespace.is_empty() {
                errors.push(FieldError::required("metadata.namespace", ""));
            } else {
                errors.extend(
                    names::label(namespace)
                        .into_iter()
                        .map(|why| FieldError::invalid("metadata.namespace", namespace, why)),
                );
            }
        }
        Scope::Cluster if !object.namespace().is_empty() => {
            errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type"));
        }
        Scope::Cluster => {}
    }
    if object.generation() < 0 {
        errors.push(FieldError::invalid(
            "metadata.generation",
            object.generation(),
            "must be greater than or equal to 0",
        ));
    }
    check_labels(object.meta_get("labels"), "metadata.labels", &mut errors);
    check_annotations(object.meta_get("annotations"), "metadata.annotations", &mut errors);
    check_owners(object, &mut errors);
    check_finalizers(object, &mut errors);
    errors
}

fn check_generate_name(rule: NameRule, object: &Value, errors: &mut Vec<FieldError>) {
    let prefix = object.meta_text("generateName");
    if prefix.is_empty() {
        return;
    }
    // A prefix may end in a hyphen, since something follows it.
    let masked = match prefix.strip_suffix('-') {
        Some(start) if !start.is_empty() => format!("{start}a"),
        _ => prefix.to_owned(),
    };
    errors.extend(
        rule.check(&masked).into_iter().map(|why| FieldError::invalid("metadata.generateName", prefix, why)),
    );
}

fn check_name(rule: NameRule, object: &Value, errors: &mut Vec<FieldError>) {
    let name = object.name();
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        errors
            .extend(rule.check(name).into_iter().map(|why| FieldError::invalid("metadata.name", name, why)));
    }
}

/// Labels at any place.
pub(crate) fn check_labels(labels: Option<&Value>, field: &str, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        errors.extend(
            names::qualified_name(key).into_iter().map(|why| FieldError::invalid(field, key.as_str(), why)),
        );
        let value = value.as_str().unwrap_or_default();
        errors
            .extend(names::label_value(value).into_iter().map(|why| FieldError::invalid(field, value, why)));
    }
}

/// Annotations at any place.
pub(crate) fn check_annotations(annotations: Option<&Value>, field: &str, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in annotations.and_then(Value::as_object).into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        let lower = key.to_ascii_lowercase();
        errors.extend(
            names::qualified_name(&lower)
                .into_iter()
                .map(|why| FieldError::invalid(field, key.as_str(), why)),
        );
    }
    if size > ANNOTATIONS {
        errors.push(FieldError::too_long(field, ANNOTATIONS as u64));
    }
}

fn check_owners(object: &Value, errors: &mut Vec<FieldError>) {
    let mut controller: Option<String> = None;
    let owners = object.meta_get("ownerReferences").and_then(Value::as_array);
    for owner in owners.into_iter().flatten() {
        let field = "metadata.ownerReferences".to_owned();
        let text = |key: &str| owner[key].as_str().unwrap_or_default();
        let api_version = text("apiVersion");
        if api_version.is_empty() || api_version.starts_with('/') || api_version.matches('/').count() > 1 {
            errors.push(FieldError::invalid(
                format!("{field}.apiVersion"),
                api_version,
                "version must not be empty",
            ));
        }
        for (key, what) in
            [("kind", "must not be empty"), ("name", "must not be empty"), ("uid", "must not be empty")]
        {
            if text(key).is_empty() {
                errors.push(FieldError::invalid(format!("{field}.{key}"), text(key), what));
            }
        }
        if api_version == "v1" && text("kind") == "Event" {
            errors.push(FieldError::invalid(
                field.clone(),
                owner.clone(),
                "/v1, Kind=Event is disallowed from being an owner",
            ));
        }
        if owner["controller"].as_bool() == Some(true) {
            let this = format!("{}/{}", text("kind"), text("name"));
            match &controller {
                Some(other) => errors.push(FieldError::invalid(
                    "metadata.ownerReferences",
                    object.meta_get("ownerReferences").cloned().unwrap_or_default(),
                    format!("Only one reference can have Controller set to true. Found \"true\" in references for {other} and {this}"),
                )),
                None => controller = Some(this),
            }
        }
    }
}

fn check_finalizers(object: &Value, errors: &mut Vec<FieldError>) {
    let finalizers = object.finalizers();
    for (index, finalizer) in finalizers.iter().enumerate() {
        let field = format!("metadata.finalizers[{index}]");
        errors.extend(
            names::qualified_name(finalizer)
                .into_iter()
                .map(|why| FieldError::invalid(&field, finalizer.as_str(), why)),
        );
        if !finalizer.contains('/')
            && !matches!(finalizer.as_str(), "orphan" | "foregroundDeletion" | "kubernetes")
        {
            errors.push(FieldError::invalid(
                &field,
                finalizer.as_str(),
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        errors.push(FieldError::invalid(
            "metadata.finalizers",
            Value::from(finalizers.clone()),
            "finalizer orphan and foregroundDeletion cannot be both set",
        ));
    }
}

/// What an update may not change in metadata.
pub(crate) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        let (now, before) = (new.meta_get(field), old.meta_get(field));
        if now != before {
            errors.push(FieldError::invalid(
                format!("metadata.{field}"),
                now.cloned().unwrap_or_default(),
                "field is immutable",
            ));
        }
    }
    if old.is_deleting() {
        let before = old.finalizers();
        let added: Vec<String> =
            new.finalizers().into_iter().filter(|finalizer| !before.contains(finalizer)).collect();
        if !added.is_empty() {
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers {}",
                    go_list(&added)
                ),
            ));
        }
    }
    errors
}

/// A list as Go's `%#v` prints it.
fn go_list(items: &[String]) -> String {
    let quoted: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
    format!("[]string{{{}}}", quoted.join(", "))
}
