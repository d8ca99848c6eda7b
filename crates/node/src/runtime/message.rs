//! What the node and the processes it starts say to each other.
//!
//! Every message is one JSON document in one packet of a `SOCK_SEQPACKET` pair; file descriptors
//! travel beside it. The other end of the pair closing is the signal that the other side died.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The first message to a re-executed process: what it is to become.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Setup {
    /// Hold the network that all pods share.
    Gateway(GatewaySetup),
    /// Be the first process of a pod.
    Pod(PodSetup),
}

/// How the shared network is laid out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct GatewaySetup {
    /// The gateway's own address, which pods use as their default route.
    pub(crate) address: Ipv4Addr,
    /// Length of the pod network's prefix.
    pub(crate) prefix: u8,
    /// The range of Service addresses, answered by the gateway.
    pub(crate) services: (Ipv4Addr, u8),
}

/// What a pod's first process must set up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PodSetup {
    /// How far the pod is kept apart from the host.
    pub(crate) isolation: Isolation,
    /// The pod's host name.
    pub(crate) hostname: String,
    /// An empty folder on which the containers' root is assembled.
    pub(crate) mount_point: PathBuf,
}

/// How far a pod is kept apart from the host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Isolation {
    /// Plain child processes.
    None,
    /// Own user, mount, pid, IPC and host-name namespaces.
    Namespaces {
        /// The user and group that the pod's processes see themselves as.
        user: u32,
        /// See `user`.
        group: u32,
        /// The process that holds the shared network, when the pod has its own part of it.
        gateway: Option<u32>,
    },
}

/// The pod's side of the network, sent once the gateway has attached it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Interface {
    /// The pod's address.
    pub(crate) address: Ipv4Addr,
    /// Length of the pod network's prefix.
    pub(crate) prefix: u8,
    /// The default route.
    pub(crate) gateway: Ipv4Addr,
}

/// From the node to a pod's first process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ToPod {
    /// The network is attached (or the pod has none of its own): finish setting up.
    Attached(Option<Interface>),
    /// Start a program. Carries three descriptors: the [`Program`] as JSON, stdout, stderr.
    Start {
        /// Chosen by the node; later messages refer to it.
        id: u64,
    },
    /// Send a signal to the program, and with `SIGKILL` to all that it started.
    Signal {
        /// Which program.
        id: u64,
        /// The signal's number.
        signal: i32,
    },
}

/// From a pod's first process to the node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum FromPod {
    /// The namespaces exist; the network may be attached.
    Unshared,
    /// Programs may be started.
    Ready,
    /// Setting up failed; the process ends.
    Failed {
        /// What could not be done.
        message: String,
    },
    /// The program runs.
    Started {
        /// Which program.
        id: u64,
        /// Its process id as the pod sees it.
        pid: i32,
    },
    /// The program could not be started.
    Refused {
        /// Which program.
        id: u64,
        /// Why.
        message: String,
    },
    /// The program ended.
    Exited {
        /// Which program.
        id: u64,
        /// How.
        exit: Exit,
    },
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Exit {
    /// The code as shells and Kubernetes count it: 128 plus the signal's number for signals.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }
}

/// A program to run inside a pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Program {
    /// The program and its arguments.
    pub(crate) argv: Vec<String>,
    /// The whole environment.
    pub(crate) env: Vec<(String, String)>,
    /// The folder to start in.
    pub(crate) working_dir: PathBuf,
    /// Where it runs.
    pub(crate) place: Place,
}

/// The file system that a program sees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// A root of its own with these mounts; without namespaces, the host's.
    Own(Vec<Mount>),
    /// That of a program that already runs.
    Beside(u64),
}

/// One mount inside a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mount {
    /// File or folder on the host.
    pub(crate) source: PathBuf,
    /// Absolute path in the container.
    pub(crate) target: PathBuf,
    /// Whether the container may write.
    pub(crate) access: Access,
}

/// Whether a mount may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Access {
    /// Only read.
    ReadOnly,
    /// Read and written.
    ReadWrite,
}

/// From the node to the gateway.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ToGateway {
    /// Give the process's network namespace an interface `eth0` on the pod network.
    Attach {
        /// The process.
        pid: u32,
        /// Name of the gateway's end.
        link: String,
    },
    /// Hand out this many unconnected TCP sockets.
    Sockets {
        /// How many.
        count: usize,
    },
    /// Hand out a listening TCP socket.
    Listen {
        /// Where it listens.
        address: SocketAddr,
    },
    /// Hand out a bound UDP socket.
    Bind {
        /// Where it is bound.
        address: SocketAddr,
    },
}

/// From the gateway to the node; one answer for each request, in order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum FromGateway {
    /// The network stands.
    Ready,
    /// Done; sockets travel beside it.
    Done,
    /// Not done.
    Failed {
        /// Why.
        message: String,
    },
}
