//! A pod's first process: sets the namespaces up, starts programs, reaps them, and takes
//! everything with it when it ends.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

use super::container::{self, Stage};
use super::netlink::{Netlink, link};
use super::{processes, root, step, unshare_as};
use crate::runtime::channel::{Channel, Packet};
use crate::runtime::message::{Exit, FromPod, Interface, Isolation, Place, PodSetup, Program, ToPod};

/// Becomes the pod and serves the node until it is gone.
pub(super) fn run(channel: &Channel, setup: &PodSetup) -> io::Result<()> {
    match &setup.isolation {
        Isolation::None => {
            // What containers leave behind must come to us, not to the host's first process.
            nix::sys::prctl::set_child_subreaper(true)?;
            // No kernel cleans up after us here: when the node dies, live on until that is done.
            nix::sys::prctl::set_pdeathsig(None)?;
            channel.send(&FromPod::Unshared, &[])?;
            serve(channel, setup)
        }
        Isolation::Namespaces { user, group, gateway } => {
            unshare_all(*user, *group, *gateway)?;
            channel.send(&FromPod::Unshared, &[])?;
            // SAFETY: this process has one thread, so the child may run any code.
            #[allow(unsafe_code)]
            match unsafe { fork() }? {
                ForkResult::Child => {
                    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
                    serve(channel, setup)
                }
                ForkResult::Parent { child } => {
                    // The first process of a pid namespace is reaped last of all in it.
                    while waitpid(child, None) == Err(Errno::EINTR) {}
                    Ok(())
                }
            }
        }
    }
}

fn unshare_all(user: u32, group: u32, gateway: Option<u32>) -> io::Result<()> {
    let mut flags = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    if let Some(gateway) = gateway {
        // Only from inside the gateway's user namespace may links be made into the pod's.
        let namespace =
            File::open(format!("/proc/{gateway}/ns/user")).map_err(|error| step("gateway", error))?;
        setns(namespace, CloneFlags::CLONE_NEWUSER).map_err(|error| step("join gateway", error))?;
        flags |= CloneFlags::CLONE_NEWNET;
    }
    unshare_as(user, group, flags)
}

fn serve(channel: &Channel, setup: &PodSetup) -> io::Result<()> {
    let Some(Packet { message: ToPod::Attached(interface), .. }) = channel.receive()? else {
        return Ok(());
    };
    if matches!(setup.isolation, Isolation::Namespaces { .. }) {
        nix::unistd::sethostname(&setup.hostname).map_err(|error| step("hostname", error))?;
        root::make_private()?;
    }
    if let Some(interface) = interface {
        configure(&interface)?;
    }
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    // A terminal's Ctrl-C reaches every process of the group; the pod ends when the node says so.
    for polite in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(polite);
    }
    signals.thread_block()?;
    let children = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    channel.send(&FromPod::Ready, &[])?;
    let mut pod = Pod { channel, setup, running: BTreeMap::new() };
    let ended = pod.work(&children);
    pod.end();
    ended
}

fn configure(interface: &Interface) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    netlink.up(link("lo")?)?;
    let eth0 = link("eth0")?;
    netlink
        .add_address(eth0, interface.address, interface.prefix)
        .map_err(|error| step("pod address", error))?;
    netlink.up(eth0).map_err(|error| step("pod link", error))?;
    netlink.add_default_route(eth0, interface.gateway).map_err(|error| step("default route", error))?;
    // Programs that are not root may listen on port 80, as in any container.
    std::fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")
        .map_err(|error| step("ip_unprivileged_port_start", error))
}

struct Pod<'a> {
    channel: &'a Channel,
    setup: &'a PodSetup,
    /// Programs by the node's number; each is the leader of its own session.
    running: BTreeMap<u64, Pid>,
}

impl Pod<'_> {
    /// Until the node is gone.
    fn work(&mut self, children: &SignalFd) -> io::Result<()> {
        loop {
            let mut waiting = [
                PollFd::new(self.channel.as_fd(), PollFlags::POLLIN),
                PollFd::new(children.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut waiting, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [asked, died] = waiting.map(|one| one.revents().is_some_and(|events| !events.is_empty()));
            if died {
                while let Ok(Some(_)) = children.read_signal() {}
                self.reap()?;
            }
            if asked {
                match self.channel.receive::<ToPod>()? {
                    None => return Ok(()),
                    Some(packet) => self.obey(packet)?,
                }
            }
        }
    }

    fn obey(&mut self, packet: Packet<ToPod>) -> io::Result<()> {
        match packet.message {
            ToPod::Attached(_) => Ok(()),
            ToPod::Start { id } => {
                let answer = match self.start(packet.descriptors) {
                    Ok(pid) => {
                        self.running.insert(id, pid);
                        FromPod::Started { id, pid: pid.as_raw() }
                    }
                    Err(error) => FromPod::Refused { id, message: error.to_string() },
                };
                self.channel.send(&answer, &[])
            }
            ToPod::Signal { id, signal } => {
                if let Some(pid) = self.running.get(&id) {
                    if signal == libc::SIGKILL {
                        processes::kill_session(*pid);
                    } else if let Ok(signal) = Signal::try_from(signal) {
                        let _ = kill(*pid, signal);
                    }
                }
                Ok(())
            }
        }
    }

    fn start(&self, descriptors: Vec<OwnedFd>) -> io::Result<Pid> {
        let Ok([program, stdout, stderr]) = <[OwnedFd; 3]>::try_from(descriptors) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "three descriptors expected"));
        };
        let mut text = Vec::new();
        File::from(program).read_to_end(&mut text)?;
        let program: Program = serde_json::from_slice(&text)?;
        let stage = match (&self.setup.isolation, &program.place) {
            (Isolation::None, _) => Stage::Host,
            (Isolation::Namespaces { .. }, Place::Own(mounts)) => {
                Stage::Root { mount_point: &self.setup.mount_point, mounts }
            }
            (Isolation::Namespaces { .. }, Place::Beside(id)) => match self.running.get(id) {
                Some(pid) => Stage::Beside(*pid),
                None => return Err(io::Error::other("the container does not run")),
            },
        };
        container::start(&program, &stage, &stdout, &stderr)
    }

    /// Reaps whatever ended and tells the node about its programs.
    fn reap(&mut self) -> io::Result<()> {
        loop {
            let (pid, exit) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, Exit::Code(code)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, Exit::Signal(signal as i32)),
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(()),
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let Some(id) = self.running.iter().find(|(_, one)| **one == pid).map(|(id, _)| *id) else {
                continue;
            };
            self.running.remove(&id);
            // A container is over when its program is: what it started goes with it.
            processes::kill_session(pid);
            self.channel.send(&FromPod::Exited { id, exit }, &[])?;
        }
    }

    /// Kills what is left. In a pid namespace the kernel does the same a moment later.
    fn end(&mut self) {
        for pid in std::mem::take(&mut self.running).into_values() {
            processes::kill_session(pid);
        }
        processes::kill_descendants();
    }
}
