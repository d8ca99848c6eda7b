//! PostgreSQL starts, answers and goes, also when the process that started it is killed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use xtask::parts;

#[test]
fn a_server_answers_queries_and_leaves_no_process_behind() {
    let Some(postgres) = parts::or_skip(parts::postgres()) else { return };
    assert_eq!(postgres.query("select 6 * 7").expect("answered"), "42");
    let pid = postgres.process().expect("running").pid();
    let folder = postgres.folder().to_path_buf();
    drop(postgres);
    assert!(members(pid).is_empty());
    assert!(!folder.exists());
}

#[test]
fn a_server_ends_when_the_process_that_started_it_is_killed() {
    let found = parts::Part::Postgres.state();
    if parts::or_skip(found).is_none() {
        return;
    }
    let mut runner = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["parts", "run", "postgres"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut line = String::new();
    let printed = runner.stdout.take().expect("a pipe");
    BufReader::new(printed).read_line(&mut line).expect("read");
    assert!(line.starts_with("export DATABASE_URL=postgres://"), "{line}");
    let servers = children(runner.id());
    assert_eq!(servers.len(), 1, "the server is the runner's only child");
    assert!(!members(servers[0]).is_empty());

    runner.kill().expect("killed");
    runner.wait().expect("reaped");

    parts::wait_until(Duration::from_secs(30), || match members(servers[0]) {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?} still run")),
    })
    .expect("everything is gone");
}

/// The processes for which `pick` holds, given parent and group.
fn processes(pick: impl Fn(u32, u32) -> bool) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("a process table").flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // After the name, which is in parentheses: state, parent, group.
        let Some((head, rest)) = stat.rsplit_once(')') else { continue };
        let fields: Vec<_> = rest.split_whitespace().collect();
        let number = |index: usize| fields.get(index).and_then(|field| field.parse().ok());
        let (Some(parent), Some(group)) = (number(1), number(2)) else { continue };
        let pid: Option<u32> = head.split_whitespace().next().and_then(|pid| pid.parse().ok());
        if fields.first() != Some(&"Z") && pick(parent, group) {
            found.extend(pid);
        }
    }
    found
}

fn children(parent: u32) -> Vec<u32> {
    processes(|of, _| of == parent)
}

/// PostgreSQL's helpers leave the group of the server, but stay its children.
fn members(server: u32) -> Vec<u32> {
    processes(|parent, group| parent == server || group == server)
}
