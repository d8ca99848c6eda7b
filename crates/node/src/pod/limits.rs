//! What a pod asks for and a runtime cannot give. It never fails the pod; it is told.

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::runtime::RuntimeKind;

/// Sentences that name what is not honoured.
pub(crate) fn of(pod: &Pod, runtime: RuntimeKind) -> Vec<String> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    if runtime == RuntimeKind::Fake {
        return Vec::new();
    }
    let containers = || spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut told: Vec<String> = containers().flat_map(|one| security(one, runtime)).collect();
    if runtime == RuntimeKind::Process {
        told.extend(containers().flat_map(moved_volumes));
    }
    let pod_context = spec.security_context.as_ref();
    if runtime == RuntimeKind::Process && pod_context.is_some_and(|context| context.run_as_user.is_some()) {
        told.push("securityContext.runAsUser is left out: runtime process has no users".into());
    }
    told
}

fn security(container: &Container, runtime: RuntimeKind) -> Vec<String> {
    let Some(context) = &container.security_context else { return Vec::new() };
    let capabilities = context.capabilities.as_ref().and_then(|one| one.add.as_ref());
    let process = runtime == RuntimeKind::Process;
    [
        ("privileged", context.privileged == Some(true)),
        ("capabilities.add", capabilities.is_some_and(|added| !added.is_empty())),
        ("readOnlyRootFilesystem", process && context.read_only_root_filesystem == Some(true)),
        ("runAsUser", process && context.run_as_user.is_some()),
        ("seLinuxOptions", context.se_linux_options.is_some()),
        ("procMount", context.proc_mount.as_deref().is_some_and(|mount| mount != "Default")),
    ]
    .into_iter()
    .filter(|(_, asked)| *asked)
    .map(|(field, _)| {
        let name = &container.name;
        format!("securityContext.{field} of container {name} is left out by runtime {}", runtime.name())
    })
    .collect()
}

/// Without a root of its own a container finds its volumes elsewhere.
fn moved_volumes(container: &Container) -> Vec<String> {
    let mounts = container.volume_mounts.iter().flatten();
    mounts
        // Every pod has one; clients find it by their environment.
        .filter(|mount| !mount.name.starts_with("kube-api-access-"))
        .map(|mount| {
            format!(
                "volume \"{}\" of container {} is at $POD_ROOT{}, not at {}",
                mount.name, container.name, mount.mount_path, mount.mount_path
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_honoured_is_named() {
        let pod: Pod = serde_json::from_value(serde_json::json!({"spec": {"containers": [{
            "name": "c",
            "securityContext": {"privileged": true, "runAsUser": 7},
            "volumeMounts": [
                {"name": "v", "mountPath": "/data"},
                {"name": "kube-api-access-x", "mountPath": "/var/run/secrets"},
            ],
        }]}}))
        .expect("a pod");
        assert_eq!(
            of(&pod, RuntimeKind::Sandbox),
            ["securityContext.privileged of container c is left out by runtime sandbox"]
        );
        assert_eq!(
            of(&pod, RuntimeKind::Process),
            [
                "securityContext.privileged of container c is left out by runtime process",
                "securityContext.runAsUser of container c is left out by runtime process",
                "volume \"v\" of container c is at $POD_ROOT/data, not at /data",
            ]
        );
    }
}
