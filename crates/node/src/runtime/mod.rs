//! Running the processes of pods: one interface, three ways.
//!
//! | runtime | how | needs |
//! |---|---|---|
//! | [`Sandbox`](RuntimeKind::Sandbox) | own user, mount, pid and network namespaces | user namespaces |
//! | [`Process`](RuntimeKind::Process) | plain child processes | nothing |
//! | [`Fake`](RuntimeKind::Fake) | no processes at all | nothing |

pub(crate) mod channel;
mod fake;
mod gateway;
mod init;
pub(crate) mod message;
mod network;
mod record;
mod spawner;
#[cfg(test)]
pub(crate) mod tests;

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use message::Exit;
pub(crate) use message::{Access, Mount, Place, Program};
pub use network::Network;
pub(crate) use network::in_pod_network;

use fake::FakePod;
use gateway::Gateway;
use init::InitPod;
use message::Isolation;
use network::Addresses;
pub(crate) use record::MARKER;
use record::Records;
use spawner::Spawner;

use crate::options::{NodeOptions, RuntimeChoice};

/// Which runtime is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeKind {
    /// Namespaces.
    Sandbox,
    /// Plain child processes.
    Process,
    /// No processes; containers are ready at once and end when told to.
    Fake,
}

impl RuntimeKind {
    /// The name as users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RuntimeKind::Sandbox => "sandbox",
            RuntimeKind::Process => "process",
            RuntimeKind::Fake => "fake",
        }
    }
}

/// Why a runtime could not be started.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The data folder cannot be used.
    #[error("cannot use {path}: {source}; choose another data folder or make it writable")]
    Folder {
        /// Which folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Namespaces were asked for and cannot be had.
    #[error("runtime sandbox does not work here ({0}); allow user namespaces, or use runtime process")]
    Sandbox(#[source] io::Error),
    /// The helper processes could not be started.
    #[error("cannot start helper processes: {0}")]
    Spawn(#[source] io::Error),
}

/// Starts pods, each in a way of its own.
#[derive(Debug)]
pub(crate) struct Runtime {
    kind: RuntimeKind,
    network: Network,
    addresses: Addresses,
    spawner: Option<Spawner>,
    records: Arc<Records>,
    host_address: IpAddr,
}

/// What a runtime needs to know to make room for a pod.
#[derive(Debug, Clone)]
pub(crate) struct PodPlan {
    /// `namespace/name`, for people who look at the process list.
    pub(crate) title: String,
    /// The pod's uid.
    pub(crate) uid: String,
    /// Its host name.
    pub(crate) hostname: String,
    /// The pod's folder.
    pub(crate) folder: PathBuf,
    /// Where its traffic goes.
    pub(crate) network: PodNetwork,
    /// User and group that its processes see themselves as.
    pub(crate) user: (u32, u32),
    /// An address that it would like to keep.
    pub(crate) wanted: Option<IpAddr>,
}

/// Where a pod's traffic goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodNetwork {
    /// The host's network.
    Host,
    /// An address of its own.
    Own,
}

/// What happens in a pod's processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Happening {
    /// The program runs.
    Started { id: u64 },
    /// The program could not be started.
    Refused { id: u64, message: String },
    /// The program ended.
    Exited { id: u64, exit: Exit },
    /// The pod's first process is gone, and with it everything in the pod.
    Lost,
}

impl Runtime {
    /// Chooses and starts a runtime, and ends what an earlier node left behind.
    pub(crate) async fn start(options: &NodeOptions) -> Result<Arc<Self>, RuntimeError> {
        let folder = options.data_dir.join("pods");
        std::fs::create_dir_all(&folder)
            .map_err(|source| RuntimeError::Folder { path: folder.clone(), source })?;
        let records = Records::open(&options.data_dir)
            .map_err(|source| RuntimeError::Folder { path: options.data_dir.clone(), source })?;
        if options.runtime == RuntimeChoice::Fake {
            return Ok(Arc::new(Self::new(options, RuntimeKind::Fake, None, None, records)));
        }
        let spawner = Spawner::start(&options.program).map_err(RuntimeError::Spawn)?;
        if options.runtime == RuntimeChoice::Process {
            let kind = RuntimeKind::Process;
            return Ok(Arc::new(Self::new(options, kind, Some(spawner), None, records)));
        }
        match Gateway::start(&spawner, options.service_range).await {
            Ok(gateway) => {
                let kind = RuntimeKind::Sandbox;
                Ok(Arc::new(Self::new(options, kind, Some(spawner), Some(gateway), records)))
            }
            Err(error) if options.runtime == RuntimeChoice::Auto => {
                tracing::warn!(%error, "runtime sandbox does not work here; using runtime process");
                let kind = RuntimeKind::Process;
                Ok(Arc::new(Self::new(options, kind, Some(spawner), None, records)))
            }
            Err(error) => Err(RuntimeError::Sandbox(error)),
        }
    }

    fn new(
        options: &NodeOptions,
        kind: RuntimeKind,
        spawner: Option<Spawner>,
        gateway: Option<Gateway>,
        records: Records,
    ) -> Self {
        let addresses = match kind {
            RuntimeKind::Process => Addresses::new(Ipv4Addr::new(127, 64, 0, 0), 12),
            RuntimeKind::Sandbox | RuntimeKind::Fake => {
                Addresses::new(network::POD_NETWORK, network::POD_PREFIX)
            }
        };
        Runtime {
            kind,
            network: Network::new(gateway),
            addresses,
            spawner,
            records: Arc::new(records),
            host_address: options.kubelet_addr.ip(),
        }
    }

    /// Which runtime it is.
    pub(crate) fn kind(&self) -> RuntimeKind {
        self.kind
    }

    /// The way to pods' ports.
    pub(crate) fn network(&self) -> &Network {
        &self.network
    }

    /// Makes room for a pod; programs are started in it afterwards.
    pub(crate) async fn create(&self, plan: &PodPlan) -> io::Result<Pod> {
        let address = match plan.network {
            PodNetwork::Host => None,
            PodNetwork::Own => Some(self.addresses.take(plan.wanted)?),
        };
        let made = match self.create_at(plan, address.as_ref().map(|one| one.address())).await {
            Ok(made) => made,
            Err(error) => return Err(error),
        };
        Ok(Pod {
            address: address.as_ref().map_or(self.host_address, |one| IpAddr::V4(one.address())),
            _lease: address,
            made,
        })
    }

    async fn create_at(&self, plan: &PodPlan, address: Option<Ipv4Addr>) -> io::Result<Made> {
        let Some(spawner) = &self.spawner else { return Ok(Made::Fake(FakePod::default())) };
        let gateway = match self.kind {
            RuntimeKind::Sandbox => self.network.gateway(),
            _ => None,
        };
        let isolation = match self.kind {
            RuntimeKind::Sandbox => Isolation::Namespaces {
                user: plan.user.0,
                group: plan.user.1,
                gateway: gateway.filter(|_| address.is_some()).map(Gateway::pid),
            },
            _ => Isolation::None,
        };
        let attach = gateway.zip(address);
        let pod = InitPod::start(spawner, &self.records, plan, isolation, attach).await?;
        Ok(Made::Init(Box::new(pod)))
    }

    /// Ends everything in a pod, waits until it is gone, and forgets it.
    pub(crate) async fn destroy(&self, uid: &str, pod: Pod) {
        self.network.forget(pod.address());
        pod.destroy().await;
        self.records.forget(uid);
    }
}

/// Room for a pod's programs.
#[derive(Debug)]
pub(crate) struct Pod {
    address: IpAddr,
    /// Returns the address when the pod is gone.
    _lease: Option<network::Lease>,
    made: Made,
}

#[derive(Debug)]
enum Made {
    Init(Box<InitPod>),
    Fake(FakePod),
}

impl Pod {
    /// The pod's address.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// Starts a program; [`Pod::next`] says how it went. Returns the program's number.
    pub(crate) async fn run(
        &mut self,
        program: &Program,
        stdout: OwnedFd,
        stderr: OwnedFd,
    ) -> io::Result<u64> {
        match &mut self.made {
            Made::Init(pod) => pod.run(program, &stdout, &stderr).await,
            Made::Fake(pod) => Ok(pod.run(program)),
        }
    }

    /// Sends a signal to a program, and with `SIGKILL` to all that it started.
    pub(crate) async fn signal(&mut self, id: u64, signal: i32) -> io::Result<()> {
        match &mut self.made {
            Made::Init(pod) => pod.signal(id, signal).await,
            Made::Fake(pod) => {
                pod.signal(id, signal);
                Ok(())
            }
        }
    }

    /// Waits for the next thing to happen. Cancel safe.
    pub(crate) async fn next(&mut self) -> Happening {
        match &mut self.made {
            Made::Init(pod) => pod.next().await,
            Made::Fake(pod) => pod.next().await,
        }
    }

    /// Ends everything in the pod and waits until it is gone.
    async fn destroy(self) {
        if let Made::Init(pod) = self.made {
            pod.destroy().await;
        }
    }
}

/// A pipe whose reading end the node keeps.
pub(crate) fn pipe() -> io::Result<(tokio::net::unix::pipe::Receiver, OwnedFd)> {
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    nix::fcntl::fcntl(&read, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))?;
    Ok((tokio::net::unix::pipe::Receiver::from_owned_fd(read)?, write))
}

/// The folders of one pod.
#[derive(Debug, Clone)]
pub(crate) struct PodFolder(PathBuf);

impl PodFolder {
    /// That of the pod with this uid. Uids come from the API server; anything that is not a plain
    /// name is refused, because it becomes a path.
    pub(crate) fn new(data_dir: &Path, uid: &str) -> io::Result<Self> {
        let plain = !uid.is_empty()
            && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        match plain {
            true => Ok(PodFolder(data_dir.join("pods").join(uid))),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("pod uid \"{uid}\" is not a plain name"),
            )),
        }
    }

    /// Makes the folder and those inside it.
    pub(crate) fn create(&self) -> io::Result<()> {
        for inner in ["volumes", "root", "mnt", "etc", "termination"] {
            std::fs::create_dir_all(self.0.join(inner))?;
        }
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&self.0, std::fs::Permissions::from_mode(0o700))
    }

    /// The pod's folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A container's own writable folder, its `$POD_ROOT`.
    pub(crate) fn root(&self, container: &str) -> PathBuf {
        self.0.join("root").join(container)
    }

    /// Where a volume's content lies.
    pub(crate) fn volume(&self, name: &str) -> PathBuf {
        self.0.join("volumes").join(name)
    }

    /// Where what a claim holds lies: beside the pods, so that it outlives them. Names of claims and
    /// namespaces become a path, so that only plain ones are taken.
    pub(crate) fn claim(&self, namespace: &str, name: &str) -> io::Result<PathBuf> {
        let plain = |text: &str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
            text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
                && text.bytes().all(allowed)
        };
        let data = self.0.parent().and_then(Path::parent).filter(|_| plain(namespace) && plain(name));
        let data = data.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("claim \"{name}\" is not a plain name"))
        })?;
        Ok(data.join("claims").join(namespace).join(name))
    }

    /// Where a container's termination message is read from.
    pub(crate) fn termination(&self, container: &str) -> PathBuf {
        self.0.join("termination").join(container)
    }

    /// A file of the pod's own `/etc`.
    pub(crate) fn etc(&self, name: &str) -> PathBuf {
        self.0.join("etc").join(name)
    }

    /// Removes everything.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match std::fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}
