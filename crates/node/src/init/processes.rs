//! Finding and ending processes by what the kernel says of them.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// A process that cannot be mistaken for a later one of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Its number.
    pub(crate) pid: i32,
    /// When it started, in clock ticks since boot.
    pub(crate) started: u64,
}

impl Identity {
    /// Reads it for a running process.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = Stat::read(pid)?;
        Some(Identity { pid, started: stat.started })
    }

    /// Whether that very process still exists.
    pub(crate) fn alive(&self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.started == self.started && stat.state != 'Z')
    }
}

/// Ends what an earlier node left behind: the recorded process if it still is that process, and
/// every process whose environment carries `marker` and whose session is the recorded one's.
/// Returns how many processes were ended.
pub(crate) fn sweep(recorded: &[Identity], marker: &str) -> usize {
    let mut ended = 0;
    for identity in recorded {
        if identity.alive() && kill(Pid::from_raw(identity.pid), Signal::SIGKILL).is_ok() {
            ended += 1;
        }
    }
    for (pid, stat) in all() {
        let ours = recorded.iter().any(|one| one.pid == stat.session && stat.started >= one.started);
        if ours && marked(pid, marker) && kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok() {
            ended += 1;
        }
    }
    ended
}

fn marked(pid: i32, marker: &str) -> bool {
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|text| text.split(|byte| *byte == 0).any(|one| one == marker.as_bytes()))
}

/// Kills the leader's process group and every process of its session.
pub(super) fn kill_session(leader: Pid) {
    let _ = nix::sys::signal::killpg(leader, Signal::SIGKILL);
    for (pid, stat) in all() {
        if stat.session == leader.as_raw() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// Kills children until none is left; as orphans come to us, so do theirs. Bounded, because a
/// process in uninterruptible sleep cannot be waited for.
pub(super) fn kill_descendants() {
    let me = std::process::id();
    for _ in 0..64 {
        for (pid, stat) in all() {
            if u32::try_from(stat.parent) == Ok(me) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(_) => return,
            Ok(WaitStatus::StillAlive) => std::thread::sleep(std::time::Duration::from_millis(1)),
            Ok(_) => {}
        }
    }
}

/// The fields of `/proc/<pid>/stat` that matter here.
struct Stat {
    state: char,
    parent: i32,
    session: i32,
    started: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?)
    }

    /// The name in parentheses may hold anything, also parentheses and spaces.
    fn parse(text: &str) -> Option<Stat> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        Some(Stat {
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

fn all() -> Vec<(i32, Stat)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, Stat::read(pid)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse_the_fields() {
        let text = "42 (a) S (b)) S 7 42 43 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 2 3";
        let stat = Stat::parse(text).expect("parsed");
        assert_eq!((stat.state, stat.parent, stat.session, stat.started), ('S', 7, 43, 12345));
    }

    #[test]
    fn a_process_of_the_same_number_but_another_start_is_left_alone() {
        let pid = i32::try_from(std::process::id()).expect("small");
        let me = Identity::of(pid).expect("running");
        assert!(me.alive());
        let other = Identity { started: me.started + 1, ..me };
        assert!(!other.alive());
        assert_eq!(sweep(&[other], "NO_SUCH_MARKER=1"), 0);
    }
}
