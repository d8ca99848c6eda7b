//! A container's environment.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, Pod, Secret};

use super::fields::{self, Surroundings};
use super::lookup::{Lookup, LookupError};

/// Why a container's environment cannot be put together.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvError {
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    Key { key: String, kind: &'static str, namespace: String, name: String },
    #[error("{0}")]
    Field(String),
}

/// Variables in order; a later one of the same name wins, as in the kubelet.
pub(crate) async fn environment(
    pod: &Pod,
    container: &Container,
    around: &Surroundings,
    base: Vec<(String, String)>,
    lookup: &impl Lookup,
) -> Result<Vec<(String, String)>, EnvError> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let mut variables = Variables::default();
    for (name, value) in base {
        variables.set(name, value);
    }
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let values = if let Some(source) = &from.config_map_ref {
            let found = lookup.config_map(namespace, &source.name).await;
            optional(found, source.optional)?.map(|map| map.data.unwrap_or_default())
        } else if let Some(source) = &from.secret_ref {
            let found = lookup.secret(namespace, &source.name).await;
            optional(found, source.optional)?.map(|secret| texts(&secret))
        } else {
            None
        };
        for (key, value) in values.into_iter().flatten() {
            let name = format!("{prefix}{key}");
            if is_name(&name) {
                variables.set(name, value);
            }
        }
    }
    for one in container.env.iter().flatten() {
        let value = match (&one.value, &one.value_from) {
            (Some(value), _) => Some(expand(value, |name| variables.get(name))),
            (None, Some(source)) => from_source(pod, container, around, source, lookup).await?,
            (None, None) => Some(String::new()),
        };
        if let Some(value) = value {
            variables.set(one.name.clone(), value);
        }
    }
    Ok(variables.ordered)
}

/// `None` when an optional source is not there.
async fn from_source(
    pod: &Pod,
    container: &Container,
    around: &Surroundings,
    source: &EnvVarSource,
    lookup: &impl Lookup,
) -> Result<Option<String>, EnvError> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    if let Some(reference) = &source.field_ref {
        let value = fields::field(pod, around, &reference.field_path).map_err(EnvError::Field)?;
        return Ok(Some(value));
    }
    if let Some(reference) = &source.resource_field_ref {
        let other = reference
            .container_name
            .as_deref()
            .and_then(|name| pod.spec.as_ref()?.containers.iter().find(|container| container.name == name));
        let value =
            fields::resource(other.unwrap_or(container), around, reference).map_err(EnvError::Field)?;
        return Ok(Some(value));
    }
    if let Some(reference) = &source.config_map_key_ref {
        let found = lookup.config_map(namespace, &reference.name).await;
        let Some(map) = optional(found, reference.optional)? else { return Ok(None) };
        let value = map.data.unwrap_or_default().remove(&reference.key);
        return required(value, reference.optional, || EnvError::Key {
            key: reference.key.clone(),
            kind: "ConfigMap",
            namespace: namespace.to_string(),
            name: reference.name.clone(),
        });
    }
    if let Some(reference) = &source.secret_key_ref {
        let found = lookup.secret(namespace, &reference.name).await;
        let Some(secret) = optional(found, reference.optional)? else { return Ok(None) };
        let value = texts(&secret).remove(&reference.key);
        return required(value, reference.optional, || EnvError::Key {
            key: reference.key.clone(),
            kind: "Secret",
            namespace: namespace.to_string(),
            name: reference.name.clone(),
        });
    }
    Err(EnvError::Field("this source of a variable is not supported".to_string()))
}

fn required(
    value: Option<String>,
    optional: Option<bool>,
    error: impl FnOnce() -> EnvError,
) -> Result<Option<String>, EnvError> {
    match value {
        Some(value) => Ok(Some(value)),
        None if optional == Some(true) => Ok(None),
        None => Err(error()),
    }
}

/// Turns "not found" into nothing where the reference says so.
pub(crate) fn optional<T>(
    found: Result<T, LookupError>,
    optional: Option<bool>,
) -> Result<Option<T>, LookupError> {
    match found {
        Ok(value) => Ok(Some(value)),
        Err(LookupError::NotFound { .. }) if optional == Some(true) => Ok(None),
        Err(error) => Err(error),
    }
}

fn texts(secret: &Secret) -> BTreeMap<String, String> {
    secret
        .data
        .iter()
        .flatten()
        .map(|(key, value)| (key.clone(), String::from_utf8_lossy(&value.0).into_owned()))
        .collect()
}

/// All entries of a ConfigMap as files.
pub(crate) fn files(map: ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let texts = map.data.unwrap_or_default().into_iter();
    let binary = map.binary_data.unwrap_or_default().into_iter();
    texts
        .map(|(key, value)| (key, value.into_bytes()))
        .chain(binary.map(|(key, value)| (key, value.0)))
        .collect()
}

/// Kubernetes lets any printable character but `=` into a variable's name.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'=')
}

/// A namespace with a thousand Services gives each of its pods seven thousand of them.
#[derive(Default)]
struct Variables {
    ordered: Vec<(String, String)>,
    places: HashMap<String, usize>,
}

impl Variables {
    fn get(&self, name: &str) -> Option<&str> {
        self.places.get(name).map(|at| self.ordered[*at].1.as_str())
    }

    fn set(&mut self, name: String, value: String) {
        match self.places.get(&name) {
            Some(at) => self.ordered[*at].1 = value,
            None => {
                self.places.insert(name.clone(), self.ordered.len());
                self.ordered.push((name, value));
            }
        }
    }
}

/// Replaces `$(NAME)`; `$$` is a dollar sign, and what is not known stays as it is.
pub(crate) fn expand<'a>(text: &str, known: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(position) = rest.find('$') {
        result.push_str(&rest[..position]);
        rest = &rest[position..];
        if let Some(after) = rest.strip_prefix("$$") {
            result.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix("$(").and_then(|after| after.split_once(')')) {
            match known(name) {
                Some(value) => result.push_str(value),
                None => result.push_str(&rest[..rest.len() - after.len()]),
            }
            rest = after;
        } else {
            result.push('$');
            rest = &rest[1..];
        }
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::lookup::tests::Table;
    use super::*;

    #[test]
    fn references_are_replaced_and_dollars_escaped() {
        let known = |name: &str| match name {
            "A" => Some("1"),
            "B" => Some("$(A)"),
            _ => None,
        };
        let cases = [
            ("", ""),
            ("plain", "plain"),
            ("$(A)-$(A)", "1-1"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$(B)", "$(A)"),
            ("$(NONE)", "$(NONE)"),
            ("$(A", "$(A"),
            ("$A $", "$A $"),
        ];
        for (text, expected) in cases {
            assert_eq!(expand(text, known), expected, "{text}");
        }
    }

    fn around() -> Surroundings {
        let address = IpAddr::from([10, 244, 0, 2]);
        Surroundings { address, host: IpAddr::from([127, 0, 0, 1]), cores: 2, memory: 1 }
    }

    async fn variables(env: serde_json::Value) -> Result<Vec<(String, String)>, EnvError> {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "ns"}, "spec": {"containers": []},
        }))
        .expect("a pod");
        let mut container = serde_json::json!({"name": "c"});
        for (key, value) in env.as_object().expect("an object") {
            container[key] = value.clone();
        }
        let container: Container = serde_json::from_value(container).expect("a container");
        let table = Table::new(&[("ns/cm", &[("k", "v"), ("A", "from")])], &[("ns/s", &[("p", "w")])]);
        let base = vec![("BASE".to_string(), "0".to_string())];
        environment(&pod, &container, &around(), base, &table).await
    }

    #[tokio::test]
    async fn variables_come_in_order_and_later_ones_win() {
        let values = variables(serde_json::json!({
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "cm"}}, {"configMapRef": {"name": "cm"}}],
            "env": [
                {"name": "A", "value": "own"},
                {"name": "B", "value": "$(A)/$(BASE)/$(C)"},
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "p"}}},
                {"name": "O", "valueFrom": {"secretKeyRef": {"name": "none", "key": "p", "optional": true}}},
                {"name": "E"},
            ],
        }))
        .await
        .expect("variables");
        let shown: Vec<String> = values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            shown,
            ["BASE=0", "P_A=from", "P_k=v", "A=own", "k=v", "B=own/0/$(C)", "NAME=p", "S=w", "E="]
        );
    }

    #[tokio::test]
    async fn a_missing_source_is_named() {
        let missing_map = serde_json::json!({"envFrom": [{"configMapRef": {"name": "none"}}]});
        let error = variables(missing_map).await.expect_err("missing");
        assert_eq!(error.to_string(), "configmap \"none\" not found");
        let missing_key = serde_json::json!({"env": [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "zzz"}}}
        ]});
        let error = variables(missing_key).await.expect_err("missing");
        assert_eq!(error.to_string(), "couldn't find key zzz in ConfigMap ns/cm");
    }
}
