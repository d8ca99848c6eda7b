//! A test whose part is missing is counted as skipped, or fails where the part is required.

use std::fs;
use std::process::{Command, Output};

use xtask::parts;

/// Run by the tests below in a process of its own, where the cache of parts is empty; in the
/// ordinary run it is as good as any other test.
#[test]
fn needs_kubernetes() {
    parts::or_skip(parts::Part::Kubernetes.state());
}

fn run_without_parts(required: &str) -> (Output, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let skips = folder.path().join("skips");
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "needs_kubernetes", "--nocapture"])
        .env("STEER_PARTS_DIR", folder.path().join("parts"))
        .env("STEER_SKIPS_FILE", &skips)
        .env("STEER_REQUIRE_PARTS", required)
        .output()
        .expect("started");
    (output, fs::read_to_string(&skips).unwrap_or_default())
}

#[test]
fn a_missing_part_skips_the_test_and_is_counted() {
    let (output, skips) = run_without_parts("postgres");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("SKIPPED: needs_kubernetes"));
    assert!(skips.starts_with("needs_kubernetes: kubernetes: no etcd"), "{skips}");
    assert!(skips.contains("cargo xtask parts install kubernetes"), "{skips}");
}

#[test]
fn a_missing_part_that_is_required_fails_the_test() {
    for required in ["all", "postgres,kubernetes"] {
        let (output, skips) = run_without_parts(required);
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("forbids to skip this test"), "{said}");
        assert_eq!(skips, "");
    }
}
