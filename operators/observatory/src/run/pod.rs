//! The pod of an attempt.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::names;
use crate::types::{Observatory, PodTemplate, SecurityProfile, TaskSpec};

/// The pod that runs one attempt of a task, without its owner.
///
/// # Errors
/// When a pod template holds what no pod can.
pub fn pod(
    workflow: &Observatory,
    task: &TaskSpec,
    attempt: i32,
    name: &str,
) -> Result<Pod, serde_json::Error> {
    let uid = workflow.uid().unwrap_or_default();
    let labels = names::labels(&workflow.name_any(), &uid, &task.name, attempt);
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {},
        "spec": {
            "restartPolicy": "Never",
            "enableServiceLinks": false,
            "containers": [container(task)],
        },
    });
    harden(&mut pod["spec"], workflow.spec.security_profile.unwrap_or_default());
    for template in [&workflow.spec.pod_template, &task.pod_template].into_iter().flatten() {
        merge_template(&mut pod, template);
    }
    // Last, so that no template can make a pod look like another's.
    let meta = &mut pod["metadata"];
    meta["name"] = name.into();
    meta["namespace"] = workflow.namespace().into();
    meta["finalizers"] = json!([names::RECORDED]);
    for (key, value) in labels {
        meta["labels"][key] = value.into();
    }
    meta["annotations"][names::TASK] = task.name.as_str().into();
    serde_json::from_value(pod)
}

fn container(task: &TaskSpec) -> Value {
    let mut container = json!({
        "name": names::CONTAINER,
        "image": task.image,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    let mut set = |field: &str, value: Value| container[field] = value;
    if !task.command.is_empty() {
        set("command", json!(task.command));
    }
    if !task.args.is_empty() {
        set("args", json!(task.args));
    }
    if !task.env.is_empty() {
        set("env", json!(task.env));
    }
    if let Some(directory) = &task.working_dir {
        set("workingDir", json!(directory));
    }
    if let Some(policy) = task.image_pull_policy {
        set("imagePullPolicy", policy.as_str().into());
    }
    if let Some(resources) = &task.resources {
        set("resources", texts(json!(resources)));
    }
    container
}

/// Quantities are texts in a pod, also where a user wrote a number.
fn texts(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(key, value)| (key, texts(value))).collect())
        }
        Value::Number(number) => number.to_string().into(),
        other => other,
    }
}

fn harden(spec: &mut Value, profile: SecurityProfile) {
    if profile == SecurityProfile::Unset {
        return;
    }
    spec["securityContext"] = json!({"seccompProfile": {"type": "RuntimeDefault"}});
    let mut context = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
    });
    if profile == SecurityProfile::Strict {
        spec["securityContext"]["runAsNonRoot"] = true.into();
        context["readOnlyRootFilesystem"] = true.into();
    }
    spec["containers"][0]["securityContext"] = context;
}

fn merge_template(pod: &mut Value, template: &PodTemplate) {
    if let Some(meta) = &template.metadata {
        for (key, value) in &meta.labels {
            pod["metadata"]["labels"][key] = value.as_str().into();
        }
        for (key, value) in &meta.annotations {
            pod["metadata"]["annotations"][key] = value.as_str().into();
        }
    }
    if let Some(spec) = &template.spec {
        merge(&mut pod["spec"], &Value::Object(spec.clone()));
    }
}

/// Puts `over` into `base`: objects field by field, lists of named items by name, everything else
/// as a whole; null takes a field away.
fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => merge_fields(base, over),
        (Value::Array(base), Value::Array(over)) if over.iter().all(|item| name(item).is_some()) => {
            for item in over {
                match base.iter_mut().find(|known| name(known) == name(item)) {
                    Some(known) => merge(known, item),
                    None => base.push(item.clone()),
                }
            }
        }
        (base, over) => *base = over.clone(),
    }
}

fn merge_fields(base: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (key, value) in over {
        if value.is_null() {
            base.remove(key);
        } else {
            merge(base.entry(key).or_insert(Value::Null), value);
        }
    }
}

fn name(item: &Value) -> Option<&str> {
    item.get("name")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "what json! makes is handed over")]
    fn workflow(spec: Value) -> Observatory {
        serde_json::from_value(json!({
            "apiVersion": "workflow.seventh-horizon.io/v1alpha1", "kind": "Observatory",
            "metadata": {"name": "w", "namespace": "n", "uid": "u"}, "spec": spec,
        }))
        .expect("an Observatory")
    }

    fn made(spec: Value) -> Value {
        let workflow = workflow(spec);
        let pod = pod(&workflow, &workflow.spec.tasks[0], 0, "w-a").expect("a pod");
        serde_json::to_value(pod).expect("JSON")
    }

    #[test]
    fn command_arguments_and_environment_all_reach_the_container() {
        let pod = made(json!({"tasks": [{
            "name": "a", "image": "busybox:1.36", "command": ["sh"], "args": ["-c", "echo $TASK_ID"],
            "env": [{"name": "TASK_ID", "value": "1"}], "resources": {"limits": {"cpu": 1, "memory": "64Mi"}},
        }]}));
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["command"], json!(["sh"]));
        assert_eq!(container["args"], json!(["-c", "echo $TASK_ID"]));
        assert_eq!(container["env"], json!([{"name": "TASK_ID", "value": "1"}]));
        assert_eq!(container["resources"]["limits"], json!({"cpu": "1", "memory": "64Mi"}));
        assert_eq!(pod["spec"]["restartPolicy"], "Never");
        assert_eq!(pod["metadata"]["labels"][names::UID], "u");
        assert_eq!(pod["metadata"]["annotations"][names::TASK], "a");
    }

    #[test]
    fn pods_are_hardened_unless_told_otherwise() {
        let task = json!([{"name": "a", "image": "i"}]);
        let context = |spec: Value| made(spec)["spec"]["containers"][0]["securityContext"].clone();
        let hardened = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
        assert_eq!(context(json!({"tasks": task})), hardened);
        let pod = made(json!({"tasks": task}));
        assert_eq!(pod["spec"]["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        let strict = made(json!({"tasks": task, "securityProfile": "Strict"}));
        assert_eq!(strict["spec"]["securityContext"]["runAsNonRoot"], true);
        assert_eq!(strict["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"], true);
        assert!(context(json!({"tasks": task, "securityProfile": "Unset"})).is_null());
    }

    #[test]
    fn templates_are_merged_by_name_and_cannot_forge_whose_pod_it_is() {
        let pod = made(json!({
            "tasks": [{"name": "a", "image": "i", "podTemplate": {
                "spec": {"nodeSelector": {"disk": "ssd"}, "containers": [{"name": "task", "tty": true}]}
            }}],
            "podTemplate": {
                "metadata": {"labels": {"team": "x", names::UID: "forged"}},
                "spec": {"serviceAccountName": "robot", "nodeSelector": {"zone": "z"}},
            },
        }));
        assert_eq!(pod["spec"]["nodeSelector"], json!({"disk": "ssd", "zone": "z"}));
        assert_eq!(pod["spec"]["serviceAccountName"], "robot");
        assert_eq!(pod["spec"]["containers"].as_array().map(Vec::len), Some(1));
        assert_eq!(pod["spec"]["containers"][0]["tty"], true);
        assert_eq!(pod["spec"]["containers"][0]["image"], "i");
        assert_eq!(pod["metadata"]["labels"]["team"], "x");
        assert_eq!(pod["metadata"]["labels"][names::UID], "u");
    }

    #[test]
    fn a_template_that_no_pod_can_be_is_an_error() {
        let workflow = workflow(json!({
            "tasks": [{"name": "a", "image": "i", "podTemplate": {"spec": {"containers": "none"}}}]
        }));
        assert!(pod(&workflow, &workflow.spec.tasks[0], 0, "w-a").is_err());
    }
}
