//! The scripts behind the Makefile.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

/// Runs `tests/run.sh` with a script in cargo's place. Its `$#` tells the two runs apart: all
/// tests, then one test again by its name.
fn run_tests(cargo: &str) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cargo");
    std::fs::write(&path, format!("#!/bin/sh\nfirst() {{ [ $# -eq 3 ]; }}\n{cargo}\n")).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
    Command::new(xtask::generate::root().join("tests/run.sh"))
        .arg("--workspace")
        .env("CARGO", &path)
        .stdin(Stdio::null())
        .output()
        .expect("started")
}

#[test]
fn skipped_tests_are_listed_at_the_end_and_the_exit_code_stays() {
    let output =
        run_tests("echo 'b: no nginx' >>$STEER_SKIPS_FILE; echo 'a: no go' >>$STEER_SKIPS_FILE; exit 7");
    assert_eq!(output.status.code(), Some(7));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("2 test(s) skipped"), "{printed}");
    assert!(printed.ends_with("  a: no go\n  b: no nginx\n"), "{printed}");
}

#[test]
fn nothing_is_said_when_nothing_was_skipped() {
    let output = run_tests("echo fine");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "fine\n");
}

const ONE_FAILS: &str = r#"
if first "$@"; then
  echo 'test it::works ... ok'
  echo 'test it::breaks ... FAILED'
  echo 'error: test failed, to rerun pass `-p steersman --test it`' >&2
  exit 101
fi
"#;

#[test]
fn a_test_that_passes_alone_is_named_as_unstable() {
    let output = run_tests(&format!("{ONE_FAILS}\necho again: \"$@\""));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("again: test --workspace --test it -- --exact it::breaks\n"), "{printed}");
    assert!(printed.contains("UNSTABLE: 1 test(s)"), "{printed}");
    assert!(printed.ends_with("\n  it::breaks\n"), "{printed}");
}

#[test]
fn a_test_that_fails_alone_fails_the_run() {
    let output = run_tests(&format!("{ONE_FAILS}\nexit 101"));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(101), "{printed}");
    assert!(!printed.contains("UNSTABLE"), "{printed}");
}

#[test]
fn crashes_and_heaps_of_failures_are_not_run_again() {
    let rerun = "echo 'error: test failed, to rerun pass `-p steersman --lib`'; exit 101";
    let crash = format!("first \"$@\" && {{ {rerun}; }}");
    let heap = format!(
        "first \"$@\" && {{ for i in 1 2 3 4 5 6; do echo \"test t$i ... FAILED\"; done; {rerun}; }}"
    );
    for script in [crash, heap, "first \"$@\" && { echo 'error: could not compile'; exit 101; }".into()] {
        let output = run_tests(&script);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(101), "{printed}");
        assert!(!printed.contains("again, alone"), "{printed}");
    }
}

#[test]
fn every_target_of_the_makefile_says_what_it_does() {
    let output = Command::new("make")
        .arg("--directory")
        .arg(xtask::generate::root())
        .args(["--no-print-directory", "help"])
        .output()
        .expect("started");
    let help = String::from_utf8_lossy(&output.stdout);
    let promised = [
        "build",
        "run",
        "docker-build",
        "deploy",
        "install",
        "uninstall",
        "test",
        "fmt",
        "vet",
        "up",
        "e2e",
        "bench",
        "lint",
        "ci",
        "help",
    ];
    for target in promised {
        let line = help.lines().find(|line| line.split_whitespace().next() == Some(target));
        assert!(line.is_some_and(|line| line.split_whitespace().count() > 2), "{target}:\n{help}");
    }
}
