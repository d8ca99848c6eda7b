//! Bad input: each a clear error and a non-zero exit, and nothing is lost.

mod support;

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use support::{Up, eventually, steer};

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_bad_manifest_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let up = Up::start(&folder.path().join("state"));
    let webapp = |spec: &str| {
        format!("apiVersion: example.com/v1\nkind: WebApp\nmetadata: {{name: bad}}\nspec: {spec}\n")
    };
    let cases = [
        ("malformed YAML", "a: [b\nc: d\n".to_owned(), vec!["malformed YAML", "line"]),
        (
            "unknown kind",
            "apiVersion: v1\nkind: Nonsense\nmetadata: {name: a}\n".into(),
            vec!["Nonsense", "CustomResourceDefinition"],
        ),
        (
            "invalid name",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_Valid}\n".into(),
            vec!["metadata.name", "RFC 1123"],
        ),
        (
            "replicas -1",
            webapp("{image: x, replicas: -1}"),
            vec!["spec.replicas", "greater than or equal to 0"],
        ),
        ("missing image", webapp("{replicas: 1}"), vec!["spec.image", "Required value"]),
        ("unknown field", webapp("{image: x, replicas: 1, colour: red}"), vec!["spec.colour"]),
    ];
    for (what, manifest, expected) in cases {
        let file = write(folder.path(), "bad.yaml", &manifest);
        let error = up.refuse(&["apply", "-f", &file]);
        for part in expected {
            assert!(error.contains(part), "{what}: {part:?} is missing in: {error}");
        }
    }
    let error = up.refuse(&["apply", "-f", "/does/not/exist.yaml"]);
    assert!(error.contains("/does/not/exist.yaml"), "{error}");
    assert!(up.refuse(&["scale", "webapp/none", "--replicas=2"]).contains("not found"));
    assert!(up.refuse(&["scale", "webapp/none", "--replicas=-1"]).contains("0 or more"));
    assert!(up.refuse(&["get", "nonsense"]).contains("nonsense"));
    assert!(up.run(&["get", "namespaces"]).contains("default"), "the server goes on");
    assert!(up.objects(&["webapps"]).is_empty(), "nothing of it was stored");
    up.stop();
}

fn fails_to_start(args: &[&str]) -> String {
    let output = Command::new(steer()).arg("up").args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_taken_port_is_named_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let dir = folder.path().join("state");
    let error = fails_to_start(&[
        "--data-dir",
        dir.to_str().unwrap(),
        "--api-port",
        &port,
        "--http-port",
        "0",
        "--metrics-port",
        "0",
    ]);
    assert!(error.contains(&port) && error.contains("--api-port"), "{error}");
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "file", "");
    let inside = format!("{file}/state");
    let error = fails_to_start(&[
        "--data-dir",
        &inside,
        "--api-port",
        "0",
        "--http-port",
        "0",
        "--metrics-port",
        "0",
    ]);
    assert!(error.contains(&inside) && error.contains("--data-dir"), "{error}");

    if !nix::unistd::geteuid().is_root() {
        let locked = folder.path().join("locked");
        fs::create_dir(&locked).unwrap();
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).unwrap();
        let error = fails_to_start(&[
            "--data-dir",
            locked.to_str().unwrap(),
            "--api-port",
            "0",
            "--http-port",
            "0",
            "--metrics-port",
            "0",
        ]);
        assert!(error.contains("--data-dir"), "{error}");
    }
}

#[test]
fn a_second_start_on_the_same_folder_is_refused_and_harms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("state");
    let up = Up::start(&dir);
    let error = fails_to_start(&[
        "--data-dir",
        dir.to_str().unwrap(),
        "--api-port",
        "0",
        "--http-port",
        "0",
        "--metrics-port",
        "0",
    ]);
    assert!(error.contains("already"), "{error}");
    assert!(up.run(&["get", "namespaces"]).contains("default"), "the first one goes on");
    up.stop();
}

#[test]
fn a_reader_that_leaves_ends_a_command_quietly() {
    for args in [&["version"][..], &["crds"], &["completions", "bash"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(steer()).args(args).stdout(writer).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && error.is_empty(), "steer {args:?}: {}: {error}", output.status);
    }
}

#[test]
fn a_reader_that_leaves_does_not_take_the_control_plane_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = Command::new(steer())
        .args(["up", "--runtime=fake", "--api-port=0", "--http-port=0", "--data-dir"])
        .arg(folder.path())
        .stdout(writer)
        .spawn()
        .unwrap();
    eventually("the kubeconfig is written", || {
        assert_eq!(child.try_wait().unwrap(), None, "it goes on");
        folder.path().join("kubeconfig").exists().then_some(())
    });
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(child.wait().unwrap().success());
}
