//! Whether a definition can be served.

use serde_json::Value;

use super::{structural, text};
use crate::schema::{FieldError, formats};

/// What is wrong with a new definition.
pub fn validate_definition(definition: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &definition["spec"];
    let expected = format!("{}.{}", text(spec["names"].get("plural")), text(spec.get("group")));
    let name = text(definition["metadata"].get("name"));
    if name != expected {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name, detail));
    }
    check_group(spec, &mut errors);
    check_scope(spec, &mut errors);
    check_versions(spec, &mut errors);
    check_names(&spec["names"], &mut errors);
    check_conversion(&spec["conversion"], &mut errors);
    if spec["preserveUnknownFields"] == true {
        errors.push(FieldError::invalid(
            "spec.preserveUnknownFields",
            true,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
    errors
}

/// What is wrong with a changed definition: also what may not change, and versions that objects
/// may still be kept in.
pub fn validate_definition_update(definition: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate_definition(definition);
    let established = super::is_established(old);
    let immutable: &[&str] = if established { &["group", "scope"] } else { &["group"] };
    for key in immutable {
        if definition["spec"][key] != old["spec"][key] {
            let value = definition["spec"][key].clone();
            errors.push(FieldError::invalid(format!("spec.{key}"), value, "field is immutable"));
        }
    }
    for key in ["plural", "kind"] {
        let names = &definition["spec"]["names"];
        if (key == "plural" || established) && names[key] != old["spec"]["names"][key] {
            let value = names[key].clone();
            errors.push(FieldError::invalid(format!("spec.names.{key}"), value, "field is immutable"));
        }
    }
    let versions: Vec<&str> =
        versions(&definition["spec"]).map(|version| text(version.get("name"))).collect();
    for (at, stored) in super::strings(&definition["status"]["storedVersions"]).enumerate() {
        if !versions.contains(&stored) {
            let detail = format!(
                "missing from spec.versions; {stored} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {stored} and removes \
                 {stored} from status.storedVersions"
            );
            errors.push(FieldError::invalid(format!("status.storedVersions[{at}]"), stored, detail));
        }
    }
    errors
}

fn check_group(spec: &Value, errors: &mut Vec<FieldError>) {
    let group = text(spec.get("group"));
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !is_subdomain(group) {
        errors.push(FieldError::invalid("spec.group", group, SUBDOMAIN_RULE));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid("spec.group", group, "should be a domain with at least one dot"));
    }
}

fn check_scope(spec: &Value, errors: &mut Vec<FieldError>) {
    match text(spec.get("scope")) {
        "Cluster" | "Namespaced" => {}
        "" => errors.push(FieldError::required("spec.scope", "")),
        other => errors.push(FieldError::not_supported("spec.scope", other, &["Cluster", "Namespaced"])),
    }
}

fn check_versions(spec: &Value, errors: &mut Vec<FieldError>) {
    let mut names = Vec::new();
    let (mut storage, mut unique) = (0, true);
    for (at, version) in versions(spec).enumerate() {
        let path = format!("spec.versions[{at}]");
        let name = text(version.get("name"));
        storage += u32::from(version["storage"] == true);
        unique &= !names.contains(&name);
        names.push(name);
        if !formats::is_label(name) {
            errors.push(FieldError::invalid(format!("{path}.name"), name, formats::LABEL_RULE));
        }
        let schema = &version["schema"]["openAPIV3Schema"];
        // What all versions have in common is named as if it stood above them.
        let same = versions(spec).all(|other| other["schema"] == version["schema"]);
        if schema.is_null() {
            errors.push(FieldError::required(format!("{path}.schema.openAPIV3Schema"), ""));
        } else {
            let path = if same {
                "spec.validation.openAPIV3Schema".to_owned()
            } else {
                format!("{path}.schema.openAPIV3Schema")
            };
            if !same || at == 0 {
                errors.extend(structural::validate(schema, &path));
            }
        }
        check_subresources(&version["subresources"], &format!("{path}.subresources"), errors);
        for (at, column) in version["additionalPrinterColumns"].as_array().into_iter().flatten().enumerate() {
            check_column(column, &format!("{path}.additionalPrinterColumns[{at}]"), errors);
        }
        check_selectable(version, &format!("{path}.selectableFields"), errors);
        if !version["deprecationWarning"].is_null() && version["deprecated"] != true {
            let warning = version["deprecationWarning"].clone();
            let detail = "can only be set for deprecated versions";
            errors.push(FieldError::invalid(format!("{path}.deprecationWarning"), warning, detail));
        }
    }
    let all = || spec["versions"].clone();
    if !unique {
        errors.push(FieldError::invalid("spec.versions", all(), "must contain unique version names"));
    }
    if storage != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", all(), detail));
    }
}

fn check_names(names: &Value, errors: &mut Vec<FieldError>) {
    for key in ["plural", "singular", "kind", "listKind"] {
        let name = text(names.get(key));
        let path = format!("spec.names.{key}");
        let mixed = key.to_lowercase().ends_with("kind");
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if mixed && !formats::is_label(&name.to_lowercase()) {
            let detail = format!("may have mixed case, but should otherwise match: {}", formats::LABEL_RULE);
            errors.push(FieldError::invalid(path, name, detail));
        } else if !mixed && !formats::is_label(name) {
            errors.push(FieldError::invalid(path, name, formats::LABEL_RULE));
        }
    }
    for key in ["shortNames", "categories"] {
        for (at, name) in super::strings(&names[key]).enumerate() {
            if !formats::is_label(name) {
                errors.push(FieldError::invalid(
                    format!("spec.names.{key}[{at}]"),
                    name,
                    formats::LABEL_RULE,
                ));
            }
        }
    }
    let kind = text(names.get("kind"));
    if !kind.is_empty() && names["listKind"] == kind {
        errors.push(FieldError::invalid(
            "spec.names.listKind",
            kind,
            "kind and listKind may not be the same",
        ));
    }
}

fn check_subresources(subresources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let scale = &subresources["scale"];
    if !scale.is_object() {
        return;
    }
    for (key, root) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let field = format!("{path}.scale.{key}");
        match text(scale.get(key)) {
            "" => errors.push(FieldError::required(field, "")),
            value => {
                if let Some(error) = check_simple_path(value, &field) {
                    errors.push(error);
                } else if !value.starts_with(&format!("{root}.")) {
                    errors.push(FieldError::invalid(
                        field,
                        value,
                        format!("should be a json path under {root}"),
                    ));
                }
            }
        }
    }
    let selector = text(scale.get("labelSelectorPath"));
    if !selector.is_empty() {
        let field = format!("{path}.scale.labelSelectorPath");
        if let Some(error) = check_simple_path(selector, &field) {
            errors.push(error);
        } else if !selector.starts_with(".spec.") && !selector.starts_with(".status.") {
            let detail = "should be a json path under either .spec or .status";
            errors.push(FieldError::invalid(field, selector, detail));
        }
    }
}

fn check_column(column: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    if text(column.get("name")).is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    let rule = || format!("must be one of {}", TYPES.join(","));
    match text(column.get("type")) {
        "" => errors.push(FieldError::required(format!("{path}.type"), rule())),
        kind if !TYPES.contains(&kind) => {
            errors.push(FieldError::invalid(format!("{path}.type"), kind, rule()));
        }
        _ => {}
    }
    let format = text(column.get("format"));
    if !format.is_empty() && !FORMATS.contains(&format) {
        let detail = format!("must be one of {}", FORMATS.join(","));
        errors.push(FieldError::invalid(format!("{path}.format"), format, detail));
    }
    match text(column.get("jsonPath")) {
        "" => errors.push(FieldError::required(format!("{path}.JSONPath"), "")),
        // Columns whose path cannot be read stay empty, so that no definition is refused for them.
        value if value.starts_with('.') => {}
        value => {
            let detail = "must be a simple json path starting with .";
            errors.push(FieldError::invalid(format!("{path}.JSONPath"), value, detail));
        }
    }
}

fn check_selectable(version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut seen = Vec::new();
    for (at, field) in version["selectableFields"].as_array().into_iter().flatten().enumerate() {
        let field_path = format!("{path}[{at}].jsonPath");
        let wanted = text(field.get("jsonPath"));
        if wanted.is_empty() {
            errors.push(FieldError::required(field_path, ""));
            continue;
        }
        let mut schema = Some(&version["schema"]["openAPIV3Schema"]);
        for name in wanted.trim_start_matches('.').split('.') {
            schema = schema.and_then(|schema| schema["properties"].get(name));
        }
        if wanted.starts_with(".metadata") {
            errors.push(FieldError::invalid(field_path, wanted, "must not point to fields in metadata"));
        } else if schema.is_none() {
            let detail = "is an invalid path: does not refer to a valid field";
            errors.push(FieldError::invalid(field_path, wanted, detail));
        } else if !matches!(
            schema.and_then(|schema| schema["type"].as_str()),
            Some("string" | "boolean" | "integer")
        ) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings \
                          with formats are allowed.";
            errors.push(FieldError::invalid(field_path, wanted, detail));
        } else if seen.contains(&wanted) {
            errors.push(FieldError::duplicate(field_path, wanted));
        }
        seen.push(wanted);
    }
    if seen.len() > 8 {
        errors.push(FieldError::too_many(path, seen.len() as u64, 8));
    }
}

fn check_conversion(conversion: &Value, errors: &mut Vec<FieldError>) {
    if conversion.is_null() {
        return;
    }
    // Fields are named as they were when this was designed; clients know the messages.
    const CLIENT: &str = "spec.conversion.webhookClientConfig";
    const VERSIONS: &str = "spec.conversion.conversionReviewVersions";
    let webhook = &conversion["webhook"];
    let strategy = text(conversion.get("strategy"));
    match strategy {
        "None" | "Webhook" => {}
        "" => errors.push(FieldError::required("spec.conversion.strategy", "")),
        other => {
            errors.push(FieldError::not_supported("spec.conversion.strategy", other, &["None", "Webhook"]));
        }
    }
    if strategy == "Webhook" {
        match webhook.get("clientConfig").filter(|config| config.is_object()) {
            None => errors.push(FieldError::required(CLIENT, "required when strategy is set to Webhook")),
            Some(config) => crate::admit::validate::client_config(config, CLIENT, errors),
        }
        check_review_versions(&webhook["conversionReviewVersions"], VERSIONS, errors);
        return;
    }
    let detail = "should not be set when strategy is not set to Webhook";
    if webhook["clientConfig"].is_object() {
        errors.push(FieldError::forbidden(CLIENT, detail));
    }
    if webhook["conversionReviewVersions"].as_array().is_some_and(|versions| !versions.is_empty()) {
        errors.push(FieldError::forbidden(VERSIONS, detail));
    }
}

fn check_review_versions(versions: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let found: Vec<&str> = super::strings(versions).collect();
    if found.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    for (index, version) in found.iter().enumerate() {
        let at = format!("{path}[{index}]");
        if found[..index].contains(version) {
            errors.push(FieldError::invalid(at, *version, "duplicate version"));
            continue;
        }
        for why in crate::admit::names::label_1035(version) {
            errors.push(FieldError::invalid(at.as_str(), *version, why));
        }
    }
    if !found.iter().any(|version| ["v1", "v1beta1"].contains(version)) {
        let why = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(path, versions.clone(), why));
    }
}

/// Scale takes the paths that [`crate::types::Path`] reads, from the object's root.
fn check_simple_path(path: &str, field: &str) -> Option<FieldError> {
    if !path.starts_with('.') {
        return Some(FieldError::invalid(field, path, "must be a simple json path starting with ."));
    }
    crate::types::Path::parse(path)
        .is_err()
        .then(|| FieldError::invalid(field, path, "must be a json path in the dot notation"))
}

const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
     or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn is_subdomain(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= 253
        && text.split('.').all(|label| {
            !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(inner)
        })
}

fn versions(spec: &Value) -> impl Iterator<Item = &Value> {
    spec["versions"].as_array().into_iter().flatten()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
