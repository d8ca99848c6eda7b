//! The README's story with real kubectl, every version found on this machine.

mod support;

use std::process::Command;

use support::{Up, repository, steer};
use xtask::parts;

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
