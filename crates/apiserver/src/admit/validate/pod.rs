//! Pods and pod templates.

use serde_json::Value;

use super::{
    super::{
        metadata::{check_annotations, check_labels},
        names,
        quantity::Quantity,
    },
    check::{NOT_NEGATIVE, each, not_negative, one_of, port, port_or_name, text, unique},
};
use crate::schema::FieldError;

/// A pod.
pub(super) fn pod(pod: &Value, live: Option<&Value>, subresource: &str, errors: &mut Vec<FieldError>) {
    spec(&pod["spec"], "spec", errors);
    if let Some(live) = live
        && subresource.is_empty()
    {
        update(&pod["spec"], &live["spec"], errors);
    }
}

/// A pod template.
pub(super) fn template(template: &Value, field: &str, errors: &mut Vec<FieldError>) {
    check_labels(template["metadata"].get("labels"), &format!("{field}.labels"), errors);
    check_annotations(template["metadata"].get("annotations"), &format!("{field}.annotations"), errors);
    spec(&template["spec"], &format!("{field}.spec"), errors);
}

/// Of a pod that is there only a little may change.
fn update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let mut allowed = old.clone();
    for list in ["containers", "initContainers"] {
        let images: Vec<Value> =
            new[list].as_array().into_iter().flatten().map(|container| container["image"].clone()).collect();
        if let Some(containers) = allowed.get_mut(list).and_then(Value::as_array_mut) {
            if containers.len() != images.len() {
                errors.push(FieldError::forbidden(
                    format!("spec.{list}"),
                    "pod updates may not add or remove containers",
                ));
                return;
            }
            for (container, image) in containers.iter_mut().zip(images) {
                container["image"] = image;
            }
        }
    }
    for field in [
        "activeDeadlineSeconds",
        "tolerations",
        "terminationGracePeriodSeconds",
        "schedulingGates",
        "nodeSelector",
        "affinity",
    ] {
        let gated = old["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
        let may = match field {
            "nodeSelector" | "affinity" => gated,
            "terminationGracePeriodSeconds" => old[field].as_i64().is_some_and(|seconds| seconds < 0),
            _ => true,
        };
        if may && let Some(map) = allowed.as_object_mut() {
            match new.get(field) {
                Some(value) => map.insert(field.to_owned(), value.clone()),
                None => map.remove(field),
            };
        }
    }
    if allowed != *new {
        errors.push(FieldError::forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        ));
    }
}

/// The spec of a pod or of a template.
pub(super) fn spec(spec: &Value, field: &str, errors: &mut Vec<FieldError>) {
    volumes(spec, field, errors);
    if spec["containers"].as_array().is_none_or(Vec::is_empty) {
        errors.push(FieldError::required(format!("{field}.containers"), ""));
    }
    let mounts: Vec<&str> =
        spec["volumes"].as_array().into_iter().flatten().map(|volume| text(volume, "name")).collect();
    for list in ["containers", "initContainers"] {
        for (path, item) in each(spec, list, field) {
            container(item, &path, &mounts, errors);
        }
    }
    let named = ["initContainers", "containers", "ephemeralContainers"];
    unique(
        named.iter().flat_map(|list| {
            each(spec, list, field).map(|(path, item)| (format!("{path}.name"), text(item, "name")))
        }),
        errors,
    );
    one_of(spec, "restartPolicy", field, &["Always", "OnFailure", "Never"], errors);
    one_of(spec, "dnsPolicy", field, &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"], errors);
    not_negative(spec, "terminationGracePeriodSeconds", field, errors);
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64().filter(|seconds| *seconds < 1) {
        errors.push(FieldError::invalid(
            format!("{field}.activeDeadlineSeconds"),
            seconds,
            "must be between 1 and 2147483647, inclusive",
        ));
    }
    check_labels(spec.get("nodeSelector"), &format!("{field}.nodeSelector"), errors);
    for name in ["serviceAccountName", "nodeName"] {
        let value = text(spec, name);
        if !value.is_empty() {
            errors.extend(
                names::subdomain(value)
                    .into_iter()
                    .map(|why| FieldError::invalid(format!("{field}.{name}"), value, why)),
            );
        }
    }
    for name in ["hostname", "subdomain"] {
        let value = text(spec, name);
        if !value.is_empty() {
            errors.extend(
                names::label(value)
                    .into_iter()
                    .map(|why| FieldError::invalid(format!("{field}.{name}"), value, why)),
            );
        }
    }
    for (path, toleration) in each(spec, "tolerations", field) {
        self::toleration(toleration, &path, errors);
    }
}

fn toleration(toleration: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let key = text(toleration, "key");
    if !key.is_empty() {
        errors.extend(
            names::qualified_name(key)
                .into_iter()
                .map(|why| FieldError::invalid(format!("{field}.key"), key, why)),
        );
    } else if text(toleration, "operator") != "Exists" {
        errors.push(FieldError::invalid(
            format!("{field}.operator"),
            text(toleration, "operator"),
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
        ));
    }
    let effect = text(toleration, "effect");
    if !matches!(effect, "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        errors.push(FieldError::not_supported(
            format!("{field}.effect"),
            effect,
            &["NoSchedule", "PreferNoSchedule", "NoExecute"],
        ));
    }
}

fn volumes(spec: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for (path, volume) in each(spec, "volumes", field) {
        let name = text(volume, "name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else {
            errors.extend(
                names::label(name)
                    .into_iter()
                    .map(|why| FieldError::invalid(format!("{path}.name"), name, why)),
            );
        }
        let sources: Vec<&String> = volume
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key)
            .filter(|key| *key != "name")
            .collect();
        if let [_, second, ..] = sources.as_slice() {
            errors.push(FieldError::forbidden(
                format!("{path}.{second}"),
                "may not specify more than 1 volume type",
            ));
        }
        for (source, key) in [
            ("secret", "secretName"),
            ("configMap", "name"),
            ("persistentVolumeClaim", "claimName"),
            ("hostPath", "path"),
        ] {
            if volume.get(source).is_some_and(|value| text(value, key).is_empty()) {
                errors.push(FieldError::required(format!("{path}.{source}.{key}"), ""));
            }
        }
    }
    unique(
        each(spec, "volumes", field).map(|(path, volume)| (format!("{path}.name"), text(volume, "name"))),
        errors,
    );
}

fn container(container: &Value, field: &str, volumes: &[&str], errors: &mut Vec<FieldError>) {
    let name = text(container, "name");
    if name.is_empty() {
        errors.push(FieldError::required(format!("{field}.name"), ""));
    } else {
        errors.extend(
            names::label(name).into_iter().map(|why| FieldError::invalid(format!("{field}.name"), name, why)),
        );
    }
    let image = text(container, "image");
    if image.is_empty() {
        errors.push(FieldError::required(format!("{field}.image"), ""));
    } else if image.trim() != image {
        errors.push(FieldError::invalid(
            format!("{field}.image"),
            image,
            "must not have leading or trailing whitespace",
        ));
    }
    one_of(container, "terminationMessagePolicy", field, &["FallbackToLogsOnError", "File"], errors);
    ports(container, field, errors);
    environment(container, field, errors);
    for (path, mount) in each(container, "volumeMounts", field) {
        let name = text(mount, "name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if !volumes.contains(&name) {
            errors.push(FieldError::not_found(format!("{path}.name"), name));
        }
        if text(mount, "mountPath").is_empty() {
            errors.push(FieldError::required(format!("{path}.mountPath"), ""));
        }
    }
    let mut seen = std::collections::HashSet::new();
    for (path, mount) in each(container, "volumeMounts", field) {
        let at = text(mount, "mountPath");
        if !at.is_empty() && !seen.insert(at) {
            errors.push(FieldError::invalid(format!("{path}.mountPath"), at, "must be unique"));
        }
    }
    one_of(container, "imagePullPolicy", field, &["Always", "IfNotPresent", "Never"], errors);
    resources(&container["resources"], &format!("{field}.resources"), errors);
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(value) = container.get(kind) {
            probe(value, &format!("{field}.{kind}"), kind, errors);
        }
    }
}

fn ports(container: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for (path, item) in each(container, "ports", field) {
        let name = text(item, "name");
        if !name.is_empty() {
            errors.extend(
                names::port_name(name)
                    .into_iter()
                    .map(|why| FieldError::invalid(format!("{path}.name"), name, why)),
            );
        }
        match item["containerPort"].as_i64() {
            None | Some(0) => errors.push(FieldError::required(format!("{path}.containerPort"), "")),
            Some(number) => port(number, &format!("{path}.containerPort"), errors),
        }
        if let Some(number) = item["hostPort"].as_i64().filter(|number| *number != 0) {
            port(number, &format!("{path}.hostPort"), errors);
        }
        one_of(item, "protocol", &path, &["SCTP", "TCP", "UDP"], errors);
    }
    unique(
        each(container, "ports", field).map(|(path, item)| (format!("{path}.name"), text(item, "name"))),
        errors,
    );
}

fn environment(container: &Value, field: &str, errors: &mut Vec<FieldError>) {
    const SOURCES: [&str; 5] =
        ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    for (path, variable) in each(container, "env", field) {
        let name = text(variable, "name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else {
            errors.extend(
                names::environment_name(name)
                    .into_iter()
                    .map(|why| FieldError::invalid(format!("{path}.name"), name, why)),
            );
        }
        let Some(source) = variable.get("valueFrom") else { continue };
        let count = SOURCES.iter().filter(|kind| source.get(**kind).is_some()).count();
        let path = format!("{path}.valueFrom");
        if count == 0 {
            errors.push(FieldError::invalid(
                &path,
                "",
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
            ));
        } else if !text(variable, "value").is_empty() {
            errors.push(FieldError::invalid(&path, "", "may not be specified when `value` is not empty"));
        }
        if count > 1 {
            errors.push(FieldError::invalid(
                &path,
                "",
                "may not have more than one field specified at a time",
            ));
        }
    }
}

fn probe(probe: &Value, field: &str, kind: &str, errors: &mut Vec<FieldError>) {
    let handlers: Vec<&str> = ["exec", "httpGet", "tcpSocket", "grpc"]
        .into_iter()
        .filter(|handler| probe.get(*handler).is_some())
        .collect();
    match handlers.as_slice() {
        [] => errors.push(FieldError::required(field, "must specify a handler type")),
        [_] => {}
        [_, second, ..] => errors.push(FieldError::forbidden(
            format!("{field}.{second}"),
            "may not specify more than 1 handler type",
        )),
    }
    for handler in ["httpGet", "tcpSocket"] {
        if let Some(value) = probe.get(handler) {
            port_or_name(&value["port"], &format!("{field}.{handler}.port"), errors);
        }
    }
    if let Some(scheme) = probe["httpGet"]
        .get("scheme")
        .and_then(Value::as_str)
        .filter(|scheme| !matches!(*scheme, "HTTP" | "HTTPS"))
    {
        errors.push(FieldError::not_supported(format!("{field}.httpGet.scheme"), scheme, &["HTTP", "HTTPS"]));
    }
    if probe.get("exec").is_some_and(|exec| exec["command"].as_array().is_none_or(Vec::is_empty)) {
        errors.push(FieldError::required(format!("{field}.exec.command"), ""));
    }
    for number in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        not_negative(probe, number, field, errors);
    }
    if kind != "readinessProbe"
        && let Some(threshold) = probe["successThreshold"].as_i64().filter(|threshold| *threshold != 1)
    {
        errors.push(FieldError::invalid(format!("{field}.successThreshold"), threshold, "must be 1"));
    }
}

fn resources(resources: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let quantity = |list: &str, name: &str| resources[list][name].as_str().and_then(Quantity::parse);
    for list in ["limits", "requests"] {
        for (name, value) in resources[list].as_object().into_iter().flatten() {
            let path = format!("{field}.{list}[{name}]");
            errors.extend(
                names::qualified_name(name)
                    .into_iter()
                    .map(|why| FieldError::invalid(&path, name.as_str(), why)),
            );
            if quantity(list, name).is_some_and(|quantity| quantity.sign().is_lt()) {
                errors.push(FieldError::invalid(&path, value.clone(), NOT_NEGATIVE));
            }
        }
    }
    for (name, value) in resources["requests"].as_object().into_iter().flatten() {
        if let (Some(request), Some(limit)) = (quantity("requests", name), quantity("limits", name))
            && request > limit
        {
            let limit = resources["limits"][name].as_str().unwrap_or_default();
            let why = format!("must be less than or equal to {name} limit of {limit}");
            errors.push(FieldError::invalid(format!("{field}.requests"), value.clone(), why));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn complaints(value: &Value) -> Vec<String> {
        let mut object = json!({"spec": value});
        super::super::super::defaults::test_pod(&mut object);
        let mut errors = Vec::new();
        spec(&object["spec"], "spec", &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_plain_pod_is_fine() {
        assert_eq!(complaints(&json!({"containers": [{"name": "a", "image": "i"}]})), Vec::<String>::new());
    }

    #[test]
    fn what_is_wrong_with_a_pod_is_said_as_kubernetes_says_it() {
        for (spec, expected) in [
            (json!({}), "spec.containers: Required value"),
            (json!({"containers": [{"name": "a"}]}), "spec.containers[0].image: Required value"),
            (json!({"containers": [{"image": "i"}]}), "spec.containers[0].name: Required value"),
            (
                json!({"containers": [{"name": "a", "image": "i"}, {"name": "a", "image": "i"}]}),
                "spec.containers[1].name: Duplicate value: \"a\"",
            ),
            (
                json!({"containers": [{"name": "a", "image": "i"}], "restartPolicy": "Sometimes"}),
                "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
            ),
            (
                json!({"containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 70000}]}]}),
                "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            ),
            (
                json!({"containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}),
                "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
            ),
            (
                json!({"containers": [{"name": "a", "image": "i", "livenessProbe": {}}]}),
                "spec.containers[0].livenessProbe: Required value: must specify a handler type",
            ),
            (
                json!({"containers": [{"name": "a", "image": "i", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]}),
                "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
            ),
        ] {
            assert_eq!(complaints(&spec), [expected], "{spec}");
        }
    }
}
