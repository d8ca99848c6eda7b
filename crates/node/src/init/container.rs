//! Starting one program inside a pod.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::libc;
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{ForkResult, Pid, fork, pipe2};

use super::{root, step};
use crate::runtime::message::{Mount, Program};

/// The file system in which a program starts.
pub(super) enum Stage<'a> {
    /// The host's.
    Host,
    /// A new root with these mounts.
    Root {
        /// Where the root is assembled.
        mount_point: &'a Path,
        /// What is put into it.
        mounts: &'a [Mount],
    },
    /// That of a running program.
    Beside(Pid),
}

/// Forks and executes; returns once the program runs or could not be started.
pub(super) fn start(
    program: &Program,
    stage: &Stage<'_>,
    stdout: &OwnedFd,
    stderr: &OwnedFd,
) -> io::Result<Pid> {
    // Closed by a successful exec; carries the reason otherwise.
    let (failure, report) = pipe2(OFlag::O_CLOEXEC)?;
    // SAFETY: this process has one thread, so the child may run any code.
    #[allow(unsafe_code)]
    match unsafe { fork() }? {
        ForkResult::Child => {
            drop(failure);
            let error = match become_program(program, stage, stdout, stderr) {
                Err(error) => error,
                Ok(never) => match never {},
            };
            let _ = File::from(report).write_all(error.to_string().as_bytes());
            // SAFETY: ends the child without running the parent's exit handlers.
            #[allow(unsafe_code)]
            unsafe {
                libc::_exit(127)
            }
        }
        ForkResult::Parent { child } => {
            drop(report);
            let mut reason = String::new();
            File::from(failure).read_to_string(&mut reason)?;
            if reason.is_empty() {
                return Ok(child);
            }
            let _ = nix::sys::wait::waitpid(child, None);
            Err(io::Error::other(reason))
        }
    }
}

fn become_program(
    program: &Program,
    stage: &Stage<'_>,
    stdout: &OwnedFd,
    stderr: &OwnedFd,
) -> io::Result<std::convert::Infallible> {
    nix::unistd::setsid()?;
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    match stage {
        Stage::Host => {}
        Stage::Root { mount_point, mounts } => root::enter(mount_point, mounts)?,
        Stage::Beside(pid) => {
            let namespace = File::open(format!("/proc/{pid}/ns/mnt"))?;
            setns(namespace, CloneFlags::CLONE_NEWNS)?;
        }
    }
    if !program.working_dir.is_dir() {
        std::fs::create_dir_all(&program.working_dir)
            .map_err(|error| step(&format!("workingDir {}", program.working_dir.display()), error))?;
    }
    std::env::set_current_dir(&program.working_dir)
        .map_err(|error| step(&format!("workingDir {}", program.working_dir.display()), error))?;
    let path = find(program)?;
    let arguments = c_strings(program.argv.iter().cloned())?;
    let environment = c_strings(program.env.iter().map(|(name, value)| format!("{name}={value}")))?;
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    nix::unistd::dup2_stdout(stdout.as_fd())?;
    nix::unistd::dup2_stderr(stderr.as_fd())?;
    restore_signals()?;
    let path = CString::new(path.as_os_str().as_bytes())?;
    nix::unistd::execve(&path, &arguments, &environment)
        .map_err(|error| io::Error::other(format!("exec {}: {}", program.argv[0], error.desc())))
}

/// Looks the program up in the `PATH` of its own environment.
fn find(program: &Program) -> io::Result<PathBuf> {
    let Some(name) = program.argv.first().filter(|name| !name.is_empty()) else {
        return Err(io::Error::other("no command given"));
    };
    if name.contains('/') {
        return match Path::new(name).exists() {
            true => Ok(PathBuf::from(name)),
            false => Err(io::Error::other(format!("exec: \"{name}\": no such file or directory"))),
        };
    }
    let path = program.env.iter().find(|(key, _)| key == "PATH").map_or("", |(_, value)| value);
    std::env::split_paths(path)
        .map(|folder| folder.join(name))
        .find(|candidate| executable(candidate))
        .ok_or_else(|| io::Error::other(format!("exec: \"{name}\": executable file not found in $PATH")))
}

fn executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

fn c_strings(texts: impl Iterator<Item = String>) -> io::Result<Vec<CString>> {
    texts
        .map(|text| CString::new(text).map_err(|_| io::Error::other("argument or variable with a NUL byte")))
        .collect()
}

/// Gives the program the signal settings of a fresh process.
fn restore_signals() -> io::Result<()> {
    SigSet::empty().thread_set_mask()?;
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: installs the default action; no handler of ours is involved.
    #[allow(unsafe_code)]
    unsafe {
        // Rust ignores it in its own programs.
        sigaction(Signal::SIGPIPE, &default)?;
    }
    Ok(())
}
