//! A pod that is held by a helper process, with namespaces or without.

use std::io::{self, Seek, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::sync::Arc;

use super::channel::{AsyncChannel, Packet};
use super::gateway::Gateway;
use super::message::{FromPod, Isolation, PodSetup, Program, Setup, ToPod};
use super::record::Records;
use super::spawner::{Helper, Spawner};
use super::{Happening, PodPlan};

/// The node's side of a pod's first process.
#[derive(Debug)]
pub(super) struct InitPod {
    /// Taken when the pod is destroyed.
    process: Option<Child>,
    channel: AsyncChannel,
    last: u64,
    /// Where programs are noted that no pid namespace holds together.
    notes: Option<(Arc<Records>, String)>,
}

impl InitPod {
    pub(super) async fn start(
        spawner: &Spawner,
        records: &Arc<Records>,
        plan: &PodPlan,
        isolation: Isolation,
        attach: Option<(&Gateway, Ipv4Addr)>,
    ) -> io::Result<Self> {
        let Helper { process, channel } = spawner.spawn(&plan.title).await?;
        if let Ok(pid) = i32::try_from(process.id()) {
            records.add(&plan.uid, pid);
        }
        let notes = match isolation {
            Isolation::None => Some((Arc::clone(records), plan.uid.clone())),
            Isolation::Namespaces { .. } => None,
        };
        let pod = InitPod { process: Some(process), channel, last: 0, notes };
        let setup =
            PodSetup { isolation, hostname: plan.hostname.clone(), mount_point: plan.folder.join("mnt") };
        pod.channel.send(&Setup::Pod(setup), &[]).await?;
        pod.expect(|message| matches!(message, FromPod::Unshared)).await?;
        let interface = match (attach, &pod.process) {
            (Some((gateway, address)), Some(process)) => Some(gateway.attach(process.id(), address).await?),
            _ => None,
        };
        pod.channel.send(&ToPod::Attached(interface), &[]).await?;
        pod.expect(|message| matches!(message, FromPod::Ready)).await?;
        Ok(pod)
    }

    async fn expect(&self, wanted: impl Fn(&FromPod) -> bool) -> io::Result<()> {
        match self.channel.receive::<FromPod>().await? {
            Some(Packet { message, .. }) if wanted(&message) => Ok(()),
            Some(Packet { message: FromPod::Failed { message }, .. }) => Err(io::Error::other(message)),
            Some(_) => Err(io::Error::other("unexpected answer from the pod's first process")),
            None => Err(io::Error::other("the pod's first process ended while it was set up")),
        }
    }

    pub(super) async fn run(
        &mut self,
        program: &Program,
        stdout: &OwnedFd,
        stderr: &OwnedFd,
    ) -> io::Result<u64> {
        self.last += 1;
        let id = self.last;
        // An environment can be larger than a packet.
        let mut file = std::fs::File::from(nix::sys::memfd::memfd_create(
            c"program",
            nix::sys::memfd::MFdFlags::MFD_CLOEXEC,
        )?);
        file.write_all(&serde_json::to_vec(program)?)?;
        file.rewind()?;
        let descriptors = [file.as_fd(), stdout.as_fd(), stderr.as_fd()];
        self.channel.send(&ToPod::Start { id }, &descriptors).await?;
        Ok(id)
    }

    pub(super) async fn signal(&mut self, id: u64, signal: i32) -> io::Result<()> {
        self.channel.send(&ToPod::Signal { id, signal }, &[]).await
    }

    pub(super) async fn next(&mut self) -> Happening {
        loop {
            let message = match self.channel.receive::<FromPod>().await {
                Ok(Some(packet)) => packet.message,
                Ok(None) => return Happening::Lost,
                Err(error) => {
                    tracing::warn!(%error, "cannot hear the pod's first process");
                    return Happening::Lost;
                }
            };
            match message {
                FromPod::Started { id, pid } => {
                    if let Some((records, uid)) = &self.notes {
                        records.add(uid, pid);
                    }
                    return Happening::Started { id };
                }
                FromPod::Refused { id, message } => return Happening::Refused { id, message },
                FromPod::Exited { id, exit } => return Happening::Exited { id, exit },
                FromPod::Unshared | FromPod::Ready | FromPod::Failed { .. } => {}
            }
        }
    }

    /// Kills the first process as a failing machine would.
    #[cfg(test)]
    pub(super) fn kill_for_test(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
        }
    }

    pub(super) async fn destroy(mut self) {
        let Some(mut process) = self.process.take() else { return };
        // A closed channel asks politely: the first process ends what is left, then itself.
        drop(self);
        let ended = tokio::task::spawn_blocking(move || wait_or_kill(&mut process)).await;
        if let Err(error) = ended {
            tracing::warn!(%error, "cannot wait for a pod's first process");
        }
    }
}

/// Waits for the process for two seconds, then kills it. Runs on a thread of its own.
fn wait_or_kill(process: &mut Child) {
    for _ in 0..400 {
        match process.try_wait() {
            Ok(None) => std::thread::sleep(std::time::Duration::from_millis(5)),
            Ok(Some(_)) | Err(_) => return,
        }
    }
    let _ = process.kill();
    let _ = process.wait();
}

impl Drop for InitPod {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
