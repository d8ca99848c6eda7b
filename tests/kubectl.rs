//! Clients that others have written: the README's story with every kubectl found on this machine, and a
//! program that uses Kubernetes' own client libraries.

mod support;

use std::path::Path;
use std::process::Command;

use support::{Up, repository, steer};
use xtask::parts::{self, Kubernetes, KubernetesOptions};

#[test]
fn every_kubectl_found_can_do_the_whole_story() {
    let Some(kubectls) = parts::or_skip(parts::kubectls()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let up = Up::start(&folder.path().join("state"));
    let mut failures = Vec::new();
    for kubectl in &kubectls {
        let output = Command::new("bash")
            .arg(repository().join("tests/kubectl.sh"))
            .args([kubectl.path.as_os_str(), steer().as_ref()])
            .current_dir(repository())
            .env("KUBECONFIG", up.kubeconfig())
            .env("HOME", folder.path())
            .output()
            .unwrap();
        if !output.status.success() {
            failures.push(format!(
                "kubectl {}:\n{}{}",
                kubectl.version,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            ));
        }
    }
    assert!(failures.is_empty(), "{}\n--- steer up:\n{}", failures.join("\n"), up.log());
    up.stop();
}

#[test]
fn a_program_with_client_go_and_controller_runtime_notices_nothing() {
    let Some(clients) = parts::or_skip(parts::go_clients()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let up = Up::start(&folder.path().join("state"));
    let said = run(&clients, &up.kubeconfig());
    assert!(said.is_ok(), "{}\n--- steer up:\n{}", said.unwrap_err(), up.log());
    up.stop();
}

/// What the program asks for is what Kubernetes does.
#[test]
fn the_same_program_finds_kubernetes_in_order() {
    let Some(clients) = parts::or_skip(parts::go_clients()) else { return };
    let options = KubernetesOptions { scheduler: false, ..KubernetesOptions::default() };
    let Some(kubernetes) = parts::or_skip(Kubernetes::start(&options)) else { return };
    run(&clients, kubernetes.kubeconfig()).unwrap_or_else(|said| panic!("{said}"));
}

/// Runs the program; what it said, if it found something.
fn run(clients: &Path, kubeconfig: &Path) -> Result<(), String> {
    let output = Command::new(clients).env("KUBECONFIG", kubeconfig).output().unwrap();
    let (found, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(()) } else { Err(format!("{found}{said}")) }
}
