//! What runs in the processes that the node starts from its own binary.
//!
//! The node never forks itself: a threaded process may do next to nothing between fork and exec.
//! It starts its own program again with the hidden subcommand `pod-init` and a unix socket as
//! standard input; that process is single-threaded and may unshare, mount and fork at leisure.
//!
//! ```text
//! node ──► gateway                    user + network namespace: bridge, Service range
//!      └─► pod-init ──► first process    user, mount, pid, ipc, uts (+ network) namespaces
//!                         ├─► container      own mount namespace
//!                         └─► container
//! ```
//!
//! When the node dies its end of the socket closes, the first process ends and the kernel kills
//! everything in its pid namespace. Every link of the chain also asks for `SIGKILL` on its
//! parent's death, for the case that it is stopped or busy at that moment. Without namespaces the
//! first process kills what it has started, and what that has started, before it ends.

mod container;
mod gateway;
pub(crate) mod netlink;
mod pod;
mod processes;
mod root;

use std::io;
use std::os::fd::OwnedFd;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;

use crate::runtime::channel::Channel;
use crate::runtime::message::{FromGateway, FromPod, Setup};

pub(crate) use processes::{Identity, sweep};

/// The entry of the hidden subcommand `pod-init`: becomes what the node says over standard input.
///
/// Must be called before any thread is started.
///
/// # Errors
/// When it was not started by a node.
pub fn sandbox_init() -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    let channel = Channel::new(take_stdin()?);
    let packet = channel.receive::<Setup>().map_err(|error| {
        io::Error::new(error.kind(), format!("pod-init is started by a node, not by hand ({error})"))
    })?;
    let Some(packet) = packet else { return Ok(()) };
    match packet.message {
        Setup::Gateway(setup) => gateway::run(&channel, &setup).inspect_err(|error| {
            let message = error.to_string();
            let _ = channel.send(&FromGateway::Failed { message }, &[]);
        }),
        Setup::Pod(setup) => pod::run(&channel, &setup).inspect_err(|error| {
            let message = error.to_string();
            let _ = channel.send(&FromPod::Failed { message }, &[]);
        }),
    }
}

/// Moves the socket away from descriptor 0, so that no child inherits it.
fn take_stdin() -> io::Result<OwnedFd> {
    let socket = nix::fcntl::fcntl(io::stdin(), nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(3))?;
    let null = std::fs::File::open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    // SAFETY: `F_DUPFD_CLOEXEC` has just returned this descriptor; nothing else owns it.
    #[allow(unsafe_code)]
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(socket) })
}

/// Enters new namespaces as `user` and `group`, which stand for the ones outside.
fn unshare_as(user: u32, group: u32, flags: CloneFlags) -> io::Result<()> {
    let outer_user = nix::unistd::geteuid();
    let outer_group = nix::unistd::getegid();
    unshare(flags | CloneFlags::CLONE_NEWUSER).map_err(|error| step("unshare", error))?;
    // An unprivileged process may map its group only once it has given up setgroups(2).
    std::fs::write("/proc/self/setgroups", "deny").map_err(|error| step("setgroups", error))?;
    std::fs::write("/proc/self/uid_map", format!("{user} {outer_user} 1"))
        .map_err(|error| step("uid_map", error))?;
    std::fs::write("/proc/self/gid_map", format!("{group} {outer_group} 1"))
        .map_err(|error| step("gid_map", error))?;
    // Changing credentials clears it.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    Ok(())
}

/// Says which step failed.
fn step(what: &str, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
