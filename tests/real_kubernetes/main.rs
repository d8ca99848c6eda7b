//! The operators and our node on a real Kubernetes control plane, with its own controllers.

#[path = "../support/mod.rs"]
mod support;

mod chart;
mod deploy;

use std::{fs, path::Path, process::Command};

use support::{
    beside::{Beside, bind, ready},
    eventually, processes_with, repository, steer,
};
use xtask::parts;

/// The story that `steer up` is tried with.
#[test]
fn a_webapp_runs_on_a_real_control_plane() {
    let Some(kubernetes) = parts::or_skip(parts::kubernetes()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let admin = kubernetes.kubeconfig().to_str().unwrap().to_owned();
    // A node that publishes Services writes down where they are.
    let role = ["create", "clusterrole", "publisher", "--verb=patch", "--resource=services"];
    kubernetes.run(&role).unwrap();
    bind(&kubernetes, "publisher");
    let node = Beside::node(&kubernetes, folder.path(), &["--publish-services"]);
    let logs = || {
        let read = |name: &str| fs::read_to_string(at(name)).unwrap_or_default();
        format!("--- node\n{}\n--- operator\n{}", read("node.log"), read("operator.log"))
    };
    ready(&kubernetes);
    let operator = Beside::start(
        Path::new(&at("operator.log")),
        &[
            "run",
            "webapp",
            "--install-crds",
            "--kubeconfig",
            &admin,
            "--metrics-address",
            "127.0.0.1:0",
            "--health-address",
            "127.0.0.1:0",
        ],
    );
    eventually("the WebApp type is there", || {
        kubernetes.run(&["wait", "--for=condition=Established", "crd/webapps.example.com"]).ok()
    });

    let story = Command::new("bash")
        .arg(repository().join("tests/kubectl.sh"))
        .args([kubernetes.kubectl().as_os_str(), steer().as_ref()])
        .current_dir(repository())
        .env("KUBECONFIG", kubernetes.kubeconfig())
        .env("HOME", folder.path())
        .output()
        .unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(story.status.success(), "{}{}{}", said(&story.stdout), said(&story.stderr), logs());
    operator.stop();
    node.stop();
    assert_eq!(processes_with(&at("node")), Vec::<u32>::new(), "no process of a pod survives the node");
}
