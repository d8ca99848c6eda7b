//! The real control plane starts, works and goes.

use std::fs;
use std::time::Duration;

use xtask::parts;

fn alive(pid: u32) -> bool {
    // A zombie has no command line any more.
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

#[test]
fn a_control_plane_serves_kubectl_and_leaves_no_process_behind() {
    let Some(kubernetes) = parts::or_skip(parts::kubernetes()) else { return };
    let pids = kubernetes.pids();
    assert_eq!(pids.len(), 4);

    let namespaces = kubernetes.run(&["get", "namespaces", "--output=name"]).expect("listed");
    assert!(namespaces.contains("namespace/default"), "{namespaces}");
    let version = kubernetes.run(&["get", "--raw", "/version"]).expect("answered");
    assert!(version.contains(kubernetes.version()), "{version}");

    let node = kubernetes.kubeconfig_for("system:node:one", "system:nodes").expect("signed");
    let node = node.display().to_string();
    let who = kubernetes.run(&["--kubeconfig", &node, "auth", "whoami"]).expect("answered");
    assert!(who.contains("system:node:one") && who.contains("system:nodes"), "{who}");

    // The controllers run: a Deployment becomes a pod, which waits for a node.
    kubernetes.run(&["create", "deployment", "web", "--image=nginx", "--replicas=1"]).expect("created");
    parts::wait_until(Duration::from_secs(60), || {
        let template = "--output=jsonpath={.items[*].status.conditions[*].reason}";
        let reasons = kubernetes.run(&["get", "pods", "--selector=app=web", template])?;
        match reasons.contains("Unschedulable") {
            true => Ok(()),
            false => Err(format!("the reasons are {reasons:?}")),
        }
    })
    .expect("the scheduler looked at the pod");

    let folder = kubernetes.kubeconfig().parent().expect("a folder").to_path_buf();
    drop(kubernetes);
    for pid in pids {
        assert!(!alive(pid), "{pid} is still there");
    }
    assert!(!folder.exists());
}

#[test]
fn an_api_server_alone_is_possible() {
    let options = parts::KubernetesOptions {
        controller_manager: false,
        scheduler: false,
        ..parts::KubernetesOptions::default()
    };
    let started = parts::Kubernetes::start(&options);
    let Some(kubernetes) = parts::or_skip(started) else { return };
    assert_eq!(kubernetes.processes().count(), 2);
    let user = kubernetes.run(&["--token", kubernetes.token(), "auth", "whoami"]);
    assert!(user.expect("answered").contains("admin"));
}
