//! `steer up` on PostgreSQL, and backups while it runs: from one store into the other.

mod support;

use std::process::{Command, Stdio};

use support::{Up, eventually, steer};
use xtask::parts;

fn names(up: &Up) -> Vec<String> {
    let maps = up.objects(&["configmaps", "-n", "default"]);
    let mut names: Vec<String> =
        maps.iter().filter_map(|map| Some(map["metadata"]["name"].as_str()?.to_owned())).collect();
    names.retain(|name| name.starts_with("mine-"));
    names.sort();
    names
}

fn make(up: &Up, folder: &std::path::Path, name: &str) {
    let file = folder.join(format!("{name}.yaml"));
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\ndata: {{a: b}}\n"
    );
    std::fs::write(&file, text).unwrap();
    up.run(&["apply", "-f", &file.display().to_string()]);
}

#[test]
fn a_backup_of_sqlite_is_restored_into_postgresql_while_both_run() {
    let Some(mut postgres) = parts::or_skip(parts::postgres()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup.gz");
    let file = file.display().to_string();

    let sqlite = Up::start(&folder.path().join("one"));
    make(&sqlite, folder.path(), "mine-a");
    make(&sqlite, folder.path(), "mine-b");
    assert!(sqlite.run(&["backup", &file]).contains("bytes written to"));
    sqlite.run(&["delete", "configmap", "mine-a", "-n", "default"]);
    make(&sqlite, folder.path(), "mine-later");
    assert!(sqlite.run(&["restore", &file]).contains("1 created"));
    assert_eq!(names(&sqlite), ["mine-a", "mine-b"]);
    sqlite.stop();

    let url = postgres.url();
    let store = ["--store", url.as_str()];
    let up = Up::start_with(&folder.path().join("two"), &store);
    make(&up, folder.path(), "mine-other");
    up.run(&["restore", &file]);
    assert_eq!(names(&up), ["mine-a", "mine-b"]);

    // A second one is told who has the database.
    let second = Command::new(steer())
        .args(["up", "--api-port", "0", "--http-port", "0", "--metrics-port", "0", "--data-dir"])
        .arg(folder.path().join("three"))
        .args(store)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(3), "{said}");
    assert!(said.contains("is in use by process") && said.contains("choose another database"), "{said}");

    // The database goes away and comes back under it.
    postgres.kill();
    let refused = up.refuse(&["delete", "configmap", "mine-a", "-n", "default"]);
    assert!(refused.contains("could not be completed at this time, please try again"), "{refused}");
    assert_eq!(names(&up), ["mine-a", "mine-b"], "reads go on");
    postgres.start_again().unwrap();
    eventually("writes go on", || {
        up.steer(&["delete", "configmap", "mine-a", "-n", "default"]).status.success().then_some(())
    });

    // It is killed, and the next one finds everything.
    up.kill();
    let up = Up::start_with(&folder.path().join("two"), &store);
    assert_eq!(names(&up), ["mine-b"]);
    up.stop();
}

#[test]
fn what_is_no_backup_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let up = Up::start_with(&folder.path().join("one"), &["--memory"]);
    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "Dear diary").unwrap();
    let refused = up.refuse(&["restore", &file.display().to_string()]);
    assert!(refused.contains("this is no backup"), "{refused}");
    up.stop();
}
