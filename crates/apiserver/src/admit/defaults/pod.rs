//! Pods and what is made of them.

use serde_json::{Map, Value, json};

use super::{default, default_text, each, object};
use crate::engine::meta::{empty, object_mut};

/// A pod itself: more than its template.
pub(super) fn pod(value: &mut Value) {
    if let Some(status) = value.get_mut("status").and_then(Value::as_object_mut) {
        addresses(status);
    }
    let spec_value = object_mut(value).entry("spec").or_insert_with(empty);
    spec(spec_value);
    let pod_spec = object_mut(spec_value);
    for list in ["containers", "initContainers"] {
        for container in each(pod_spec, list) {
            requests_from_limits(container);
        }
    }
    default(pod_spec, "enableServiceLinks", true);
    if pod_spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        for list in ["containers", "initContainers"] {
            for container in each(pod_spec, list) {
                for port in each(container, "ports") {
                    if let Some(number) = port.get("containerPort").cloned() {
                        default(port, "hostPort", number);
                    }
                }
            }
        }
    }
}

/// The first of a pod's addresses is also its one address; where they differ, the one counts.
fn addresses(status: &mut Map<String, Value>) {
    let one = status.get("podIP").and_then(Value::as_str).unwrap_or_default().to_owned();
    let first = status.get("podIPs").and_then(|addresses| addresses.pointer("/0/ip")).and_then(Value::as_str);
    match first {
        Some(first) if one.is_empty() => {
            let first = first.to_owned();
            status.insert("podIP".to_owned(), first.into());
        }
        first if !one.is_empty() && first != Some(&one) => {
            status.insert("podIPs".to_owned(), json!([{"ip": one}]));
        }
        _ => {}
    }
}

/// The spec of a pod or of a template.
pub(super) fn spec(value: &mut Value) {
    let spec = object_mut(value);
    default_text(spec, "dnsPolicy", "ClusterFirst");
    default_text(spec, "restartPolicy", "Always");
    default(spec, "securityContext", empty());
    default(spec, "terminationGracePeriodSeconds", 30);
    default_text(spec, "schedulerName", "default-scheduler");
    // The old name of the service account follows the new one, and the other way round.
    for (from, to) in [("serviceAccountName", "serviceAccount"), ("serviceAccount", "serviceAccountName")] {
        if let Some(name) =
            spec.get(from).and_then(Value::as_str).filter(|name| !name.is_empty()).map(ToOwned::to_owned)
        {
            default_text(spec, to, &name);
        }
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        each(spec, list).for_each(container);
    }
    each(spec, "volumes").for_each(volume);
}

fn requests_from_limits(container: &mut Map<String, Value>) {
    let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let Some(limits) =
        resources.get("limits").and_then(Value::as_object).filter(|limits| !limits.is_empty()).cloned()
    else {
        return;
    };
    let requests = object(resources, "requests");
    for (name, limit) in limits {
        default(requests, &name, limit);
    }
}

fn container(container: &mut Map<String, Value>) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let policy = pull_policy(image);
    default_text(container, "imagePullPolicy", policy);
    default_text(container, "terminationMessagePath", "/dev/termination-log");
    default_text(container, "terminationMessagePolicy", "File");
    for port in each(container, "ports") {
        default_text(port, "protocol", "TCP");
    }
    for variable in each(container, "env") {
        if let Some(source) = variable.get_mut("valueFrom").and_then(Value::as_object_mut) {
            field_reference(source);
        }
    }
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(kind).and_then(Value::as_object_mut) {
            default(probe, "timeoutSeconds", 1);
            default(probe, "periodSeconds", 10);
            default(probe, "successThreshold", 1);
            default(probe, "failureThreshold", 3);
            http_get(probe);
            if let Some(grpc) = probe.get_mut("grpc").and_then(Value::as_object_mut) {
                default(grpc, "service", "");
            }
        }
    }
    if let Some(lifecycle) = container.get_mut("lifecycle").and_then(Value::as_object_mut) {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = lifecycle.get_mut(hook).and_then(Value::as_object_mut) {
                http_get(hook);
            }
        }
    }
}

/// Images are pulled anew when their tag moves.
fn pull_policy(image: &str) -> &'static str {
    if image.contains('@') {
        return "IfNotPresent";
    }
    let name = image.rsplit('/').next().unwrap_or_default();
    match name.split_once(':') {
        None | Some((_, "latest")) => "Always",
        Some(_) => "IfNotPresent",
    }
}

fn http_get(handler: &mut Map<String, Value>) {
    if let Some(action) = handler.get_mut("httpGet").and_then(Value::as_object_mut) {
        default_text(action, "path", "/");
        default_text(action, "scheme", "HTTP");
    }
}

fn field_reference(source: &mut Map<String, Value>) {
    if let Some(reference) = source.get_mut("fieldRef").and_then(Value::as_object_mut) {
        default_text(reference, "apiVersion", "v1");
    }
}

fn volume(volume: &mut Map<String, Value>) {
    if volume.keys().all(|key| key == "name") {
        volume.insert("emptyDir".into(), empty());
    }
    for kind in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(kind).and_then(Value::as_object_mut) {
            default(source, "defaultMode", 0o644);
        }
    }
    if let Some(source) = volume.get_mut("downwardAPI").and_then(Value::as_object_mut) {
        each(source, "items").for_each(field_reference);
    }
    if let Some(source) = volume.get_mut("hostPath").and_then(Value::as_object_mut) {
        default(source, "type", "");
    }
    if let Some(source) = volume.get_mut("projected").and_then(Value::as_object_mut) {
        for part in each(source, "sources") {
            if let Some(token) = part.get_mut("serviceAccountToken").and_then(Value::as_object_mut) {
                default(token, "expirationSeconds", 3600);
            }
            if let Some(downward) = part.get_mut("downwardAPI").and_then(Value::as_object_mut) {
                each(downward, "items").for_each(field_reference);
            }
        }
    }
    if let Some(claim) = volume.get_mut("ephemeral").and_then(Value::as_object_mut)
        && let Some(template) = claim.get_mut("volumeClaimTemplate").and_then(Value::as_object_mut)
    {
        default(object(template, "spec"), "volumeMode", "Filesystem");
    }
    if let Some(image) = volume.get_mut("image").and_then(Value::as_object_mut) {
        let policy = pull_policy(image.get("reference").and_then(Value::as_str).unwrap_or_default());
        default_text(image, "pullPolicy", policy);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_are_pulled_as_their_tag_says() {
        for (image, expected) in [
            ("x", "Always"),
            ("x:latest", "Always"),
            ("x:1", "IfNotPresent"),
            ("host:5000/x", "Always"),
            ("host:5000/x:1", "IfNotPresent"),
            ("x@sha256:aa", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), expected, "{image}");
        }
    }

    #[test]
    fn requests_follow_limits_in_pods_but_not_in_templates() {
        let given = json!({"spec": {"containers": [{"name": "a", "image": "x", "resources": {"limits": {"cpu": "1"}}}]}});
        let mut whole = given.clone();
        pod(&mut whole);
        assert_eq!(whole["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "1"}));
        assert_eq!(whole["spec"]["enableServiceLinks"], true);
        let mut part = given["spec"].clone();
        spec(&mut part);
        assert_eq!(part["containers"][0]["resources"].get("requests"), None);
        assert_eq!(part.get("enableServiceLinks"), None);
    }

    #[test]
    fn volumes_without_a_source_are_empty_folders() {
        let mut spec_value =
            json!({"volumes": [{"name": "a"}, {"name": "b", "secret": {"secretName": "s"}}]});
        spec(&mut spec_value);
        assert_eq!(
            spec_value["volumes"],
            json!([{"name": "a", "emptyDir": {}}, {"name": "b", "secret": {"secretName": "s", "defaultMode": 420}}])
        );
    }
}
