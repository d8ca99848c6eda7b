//! Pods act as a service account of their namespace, and find its token in a volume.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::{
    engine::{
        Call, Engine,
        meta::{Meta, empty, object_mut},
        view,
    },
    object::{Key, Stored},
    server::ServiceAccounts,
    status::Failure,
};

/// The account of pods that name none.
const DEFAULT: &str = "default";
/// Where programs look for the token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// How the names of token volumes begin.
const VOLUME: &str = "kube-api-access-";
/// How often the default account, which a controller makes in new namespaces, is looked for.
const ATTEMPTS: usize = 10;
/// How long to wait for it between two looks.
const PAUSE: Duration = Duration::from_millis(150);

/// Gives a new pod its account's token and pull secrets.
pub(crate) async fn admit(engine: &Engine, call: &Call<'_>, pod: &mut Value) -> Result<(), Failure> {
    if engine.options.service_accounts == ServiceAccounts::Ignored
        || pod["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_some()
    {
        return Ok(());
    }
    let namespace = pod.namespace().to_owned();
    let name = match pod["spec"]["serviceAccountName"].as_str() {
        None | Some("") => DEFAULT.to_owned(),
        Some(name) => name.to_owned(),
    };
    let Some(stored) = find(engine, &namespace, &name).await else {
        let what = if pod.name().is_empty() { pod.meta_text("generateName") } else { pod.name() };
        let why = format!(
            "error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"
        );
        return Err(Failure::forbidden(call.resource, what, &why));
    };
    let account = view::tree(&stored);
    let spec = object_mut(object_mut(pod).entry("spec").or_insert_with(empty));
    for field in ["serviceAccountName", "serviceAccount"] {
        spec.insert(field.into(), name.as_str().into());
    }
    let wanted = |from: Option<&Value>| from.and_then(Value::as_bool);
    let mounts = wanted(spec.get("automountServiceAccountToken"))
        .or_else(|| wanted(account.get("automountServiceAccountToken")))
        .unwrap_or(true);
    if mounts {
        mount(spec);
    }
    let secrets = account["imagePullSecrets"].as_array().filter(|secrets| !secrets.is_empty());
    let has_none = spec.get("imagePullSecrets").and_then(Value::as_array).is_none_or(Vec::is_empty);
    if let Some(secrets) = secrets.filter(|_| has_none) {
        let names = secrets.iter().map(|secret| json!({"name": secret["name"]}));
        spec.insert("imagePullSecrets".into(), names.collect());
    }
    Ok(())
}

/// The account; the default one of a namespace that was just made may take a moment.
async fn find(engine: &Engine, namespace: &str, name: &str) -> Option<std::sync::Arc<Stored>> {
    let key = Key::new("serviceaccounts", namespace, name);
    let attempts = if name == DEFAULT { ATTEMPTS } else { 1 };
    for attempt in 0..attempts {
        if attempt > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        if let Some(stored) = engine.store.get(&key) {
            return Some(stored);
        }
    }
    None
}

/// Mounts the token into every container that has nothing else in its place.
fn mount(spec: &mut Map<String, Value>) {
    let volumes = spec.get("volumes").and_then(Value::as_array);
    let known = volumes
        .into_iter()
        .flatten()
        .filter_map(|volume| volume["name"].as_str())
        .find(|name| name.starts_with(VOLUME))
        .map(str::to_owned);
    let has_volume = known.is_some();
    let name = known.unwrap_or_else(|| format!("{VOLUME}{}", crate::engine::suffix()));
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(container) = container.as_object_mut() else { continue };
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if mounts.iter().all(|mount| mount["mountPath"] != MOUNT_PATH) {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
                needed = true;
            }
        }
    }
    if needed && !has_volume {
        let volumes = spec.entry("volumes").or_insert_with(|| json!([]));
        volumes.as_array_mut().into_iter().for_each(|volumes| volumes.push(token_volume(&name)));
    }
}

/// The token, the certificate by which the API server is known, and the name of the namespace.
fn token_volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        ]}},
    ]}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounted(spec: Value) -> Value {
        let Value::Object(mut spec) = spec else { panic!("a spec is an object") };
        mount(&mut spec);
        Value::Object(spec)
    }

    #[test]
    fn every_container_gets_the_token_but_where_something_else_is_mounted() {
        let spec = mounted(json!({
            "initContainers": [{"name": "i"}],
            "containers": [{"name": "a"}, {"name": "b", "volumeMounts": [{"name": "own", "mountPath": MOUNT_PATH}]}],
            "volumes": [{"name": "own", "emptyDir": {}}],
        }));
        let name = spec["volumes"][1]["name"].as_str().unwrap_or_default();
        assert!(name.starts_with(VOLUME), "{spec}");
        for container in [&spec["initContainers"][0], &spec["containers"][0]] {
            let expected = json!([{"name": name, "readOnly": true, "mountPath": MOUNT_PATH}]);
            assert_eq!(container["volumeMounts"], expected);
        }
        assert_eq!(spec["containers"][1]["volumeMounts"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn a_token_volume_that_is_there_is_used() {
        let volumes = json!([{"name": "kube-api-access-mine", "emptyDir": {}}]);
        let spec = mounted(json!({"containers": [{"name": "a"}], "volumes": volumes}));
        assert_eq!(spec["volumes"], volumes);
        assert_eq!(spec["containers"][0]["volumeMounts"][0]["name"], "kube-api-access-mine");
    }

    #[test]
    fn what_is_no_list_is_left_for_validation() {
        let odd = json!({"containers": [1, {"volumeMounts": 3}], "volumes": "x"});
        assert_eq!(mounted(odd.clone()), odd);
    }
}
