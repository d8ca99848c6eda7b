//! Roles and who has them.

use serde_json::Value;

use super::check::{each, text};
use crate::schema::FieldError;

pub(super) fn rbac(plural: &str, object: &Value, live: Option<&Value>, errors: &mut Vec<FieldError>) {
    match plural {
        "roles" | "clusterroles" => {
            for (path, rule) in each(object, "rules", "") {
                self::rule(rule, &path, plural, errors);
            }
        }
        _ => binding(plural, object, live, errors),
    }
}

fn rule(rule: &Value, field: &str, plural: &str, errors: &mut Vec<FieldError>) {
    let empty = |key: &str| rule[key].as_array().is_none_or(Vec::is_empty);
    if empty("verbs") {
        errors.push(FieldError::required(format!("{field}.verbs"), "verbs must contain at least one value"));
    }
    if !empty("nonResourceURLs") {
        if plural == "roles" {
            let bad = rule["nonResourceURLs"].clone();
            errors.push(FieldError::invalid(
                format!("{field}.nonResourceURLs"),
                bad,
                "namespaced rules cannot apply to non-resource URLs",
            ));
        }
        if !empty("apiGroups") || !empty("resources") || !empty("resourceNames") {
            let bad = rule["nonResourceURLs"].clone();
            errors.push(FieldError::invalid(
                format!("{field}.nonResourceURLs"),
                bad,
                "rules cannot apply to both regular resources and non-resource URLs",
            ));
        }
        return;
    }
    if empty("apiGroups") {
        errors.push(FieldError::required(
            format!("{field}.apiGroups"),
            "resource rules must supply at least one api group",
        ));
    }
    if empty("resources") {
        errors.push(FieldError::required(
            format!("{field}.resources"),
            "resource rules must supply at least one resource",
        ));
    }
}

fn binding(plural: &str, object: &Value, live: Option<&Value>, errors: &mut Vec<FieldError>) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let role = &object["roleRef"];
    if text(role, "apiGroup") != GROUP {
        errors.push(FieldError::not_supported("roleRef.apiGroup", text(role, "apiGroup"), &[GROUP]));
    }
    let kinds: &[&str] = if plural == "rolebindings" { &["ClusterRole", "Role"] } else { &["ClusterRole"] };
    if !kinds.contains(&text(role, "kind")) {
        errors.push(FieldError::not_supported("roleRef.kind", text(role, "kind"), kinds));
    }
    if text(role, "name").is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    for (path, subject) in each(object, "subjects", "") {
        if text(subject, "name").is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        match text(subject, "kind") {
            "ServiceAccount" if text(subject, "namespace").is_empty() => {
                errors.push(FieldError::required(format!("{path}.namespace"), ""));
            }
            "ServiceAccount" | "User" | "Group" => {}
            other => errors.push(FieldError::not_supported(
                format!("{path}.kind"),
                other,
                &["ServiceAccount", "User", "Group"],
            )),
        }
    }
    if let Some(live) = live
        && live["roleRef"] != *role
    {
        errors.push(FieldError::invalid("roleRef", role.clone(), "cannot change roleRef"));
    }
}
