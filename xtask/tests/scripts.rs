//! The scripts behind the Makefile.

use std::process::{Command, Output, Stdio};

fn counting_skips(command: &str) -> Output {
    Command::new(xtask::generate::root().join("tests/counting-skips.sh"))
        .args(["sh", "-c", command])
        .stdin(Stdio::null())
        .output()
        .expect("started")
}

#[test]
fn skipped_tests_are_listed_at_the_end_and_the_exit_code_stays() {
    let output =
        counting_skips("echo 'b: no nginx' >>$STEER_SKIPS_FILE; echo 'a: no go' >>$STEER_SKIPS_FILE; exit 7");
    assert_eq!(output.status.code(), Some(7));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("2 test(s) skipped"), "{printed}");
    assert!(printed.ends_with("  a: no go\n  b: no nginx\n"), "{printed}");
}

#[test]
fn nothing_is_said_when_nothing_was_skipped() {
    let output = counting_skips("echo fine");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "fine\n");
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
