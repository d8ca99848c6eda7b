//! Values that a pod can learn about itself: `fieldRef` and `resourceFieldRef`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// What a pod's fields are read from besides the pod itself.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    pub(crate) address: IpAddr,
    pub(crate) host: IpAddr,
    /// What a container without a limit may use.
    pub(crate) cores: u64,
    /// See `cores`; in bytes.
    pub(crate) memory: u64,
}

/// The value of a field path.
pub(crate) fn field(pod: &Pod, around: &Surroundings, path: &str) -> Result<String, String> {
    let metadata = &pod.metadata;
    let spec = pod.spec.as_ref();
    let text = |value: Option<&String>| value.cloned().unwrap_or_default();
    if let Some((map, key)) = subscript(path) {
        let values = match map {
            "metadata.labels" => metadata.labels.as_ref(),
            "metadata.annotations" => metadata.annotations.as_ref(),
            _ => return Err(unsupported(path)),
        };
        return Ok(text(values.and_then(|values| values.get(key))));
    }
    Ok(match path {
        "metadata.name" => text(metadata.name.as_ref()),
        "metadata.namespace" => text(metadata.namespace.as_ref()),
        "metadata.uid" => text(metadata.uid.as_ref()),
        "metadata.labels" => listing(metadata.labels.as_ref()),
        "metadata.annotations" => listing(metadata.annotations.as_ref()),
        "spec.nodeName" => text(spec.and_then(|spec| spec.node_name.as_ref())),
        "spec.serviceAccountName" => text(spec.and_then(|spec| spec.service_account_name.as_ref())),
        "status.hostIP" | "status.hostIPs" => around.host.to_string(),
        "status.podIP" | "status.podIPs" => around.address.to_string(),
        _ => return Err(unsupported(path)),
    })
}

fn unsupported(path: &str) -> String {
    format!("unsupported fieldPath: {path}")
}

/// `metadata.labels['key']` as its two parts.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once('[')?;
    let key = rest.strip_suffix(']')?;
    Some((map, key.trim_matches(['\'', '"'])))
}

/// One `key="value"` a line, as files of the downward API hold them.
fn listing(values: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> =
        values.into_iter().flatten().map(|(key, value)| format!("{key}={value:?}")).collect();
    lines.join("\n")
}

/// The value of a container's request or limit.
pub(crate) fn resource(
    container: &Container,
    around: &Surroundings,
    selector: &ResourceFieldSelector,
) -> Result<String, String> {
    let invalid = || format!("unsupported resource: {}", selector.resource);
    let (kind, name) = selector.resource.split_once('.').ok_or_else(invalid)?;
    let resources = container.resources.as_ref();
    let values = match kind {
        "limits" => resources.and_then(|all| all.limits.as_ref()),
        "requests" => resources.and_then(|all| all.requests.as_ref()),
        _ => return Err(invalid()),
    };
    let value = match values.and_then(|values| values.get(name)) {
        Some(quantity) => number(quantity).ok_or_else(invalid)?,
        None => match (kind, name) {
            ("limits", "cpu") => around.cores as f64,
            ("limits", "memory") => around.memory as f64,
            _ => 0.0,
        },
    };
    let divisor = match selector.divisor.as_ref().filter(|one| one.0 != "0" && !one.0.is_empty()) {
        Some(divisor) => number(divisor).filter(|one| *one > 0.0).ok_or_else(invalid)?,
        None => 1.0,
    };
    Ok(format!("{}", (value / divisor).ceil()))
}

/// A quantity as a number: `100m` is 0.1, `1Ki` is 1024.
pub(crate) fn number(quantity: &Quantity) -> Option<f64> {
    let text = quantity.0.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c))).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let factor = match unit {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024.0_f64.powi(2),
        "Gi" => 1024.0_f64.powi(3),
        "Ti" => 1024.0_f64.powi(4),
        "Pi" => 1024.0_f64.powi(5),
        "Ei" => 1024.0_f64.powi(6),
        exponent => return format!("{digits}{exponent}").parse().ok(),
    };
    digits.parse::<f64>().ok().map(|value| value * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around() -> Surroundings {
        Surroundings {
            address: IpAddr::from([10, 244, 0, 2]),
            host: IpAddr::from([127, 0, 0, 1]),
            cores: 2,
            memory: 1024,
        }
    }

    #[test]
    fn a_pod_can_read_its_own_fields() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"a/b": "c"}},
            "spec": {"nodeName": "n", "containers": []},
        }))
        .expect("a pod");
        let cases = [
            ("metadata.name", Ok("p")),
            ("metadata.labels['a/b']", Ok("c")),
            ("metadata.labels['none']", Ok("")),
            ("metadata.labels", Ok("a/b=\"c\"")),
            ("spec.nodeName", Ok("n")),
            ("status.podIP", Ok("10.244.0.2")),
            ("spec.secrets", Err("unsupported fieldPath: spec.secrets")),
        ];
        for (path, expected) in cases {
            let expected = expected.map(str::to_string).map_err(str::to_string);
            assert_eq!(field(&pod, &around(), path), expected, "{path}");
        }
    }

    #[test]
    fn resources_are_divided_and_rounded_up() {
        let container: Container = serde_json::from_value(serde_json::json!({
            "name": "c", "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}},
        }))
        .expect("a container");
        let cases = [
            ("limits.cpu", "1", "2"),
            ("limits.cpu", "1m", "1500"),
            ("limits.memory", "1Mi", "64"),
            ("requests.cpu", "", "0"),
        ];
        for (name, divisor, expected) in cases {
            let selector = ResourceFieldSelector {
                resource: name.into(),
                divisor: Some(Quantity(divisor.into())),
                container_name: None,
            };
            let value = resource(&container, &around(), &selector);
            assert_eq!(value.as_deref(), Ok(expected), "{name}");
        }
    }

    #[test]
    fn quantities_are_read_with_their_units() {
        for (text, expected) in [("100m", 0.1), ("1Ki", 1024.0), ("2e3", 2000.0), ("1.5G", 1.5e9)] {
            let value = number(&Quantity(text.into())).expect("a number");
            assert!((value - expected).abs() < 1e-6, "{text}");
        }
        assert_eq!(number(&Quantity("x".into())), None);
    }
}
