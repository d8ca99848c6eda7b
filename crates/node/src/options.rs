//! What a node can be told.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use crate::image::Mapping;

/// Tells the wall-clock time. Tests hold their own.
pub type Clock = Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

/// Settings of a [`Node`](crate::Node).
#[derive(Clone)]
pub struct NodeOptions {
    /// Name of the Node object. Default: the host's name, in lower case.
    pub name: String,
    /// Where pods' folders, logs and records live. Default: `steersman-node` in the current folder.
    pub data_dir: PathBuf,
    /// How pods are run. Default: [`RuntimeChoice::Auto`].
    pub runtime: RuntimeChoice,
    /// The program to start again as `pod-init`, and what the image `steersman.io/steer` is.
    /// Default: the running program.
    pub program: PathBuf,
    /// Images that users map to programs of the host, looked at before the built-in ones.
    pub images: Vec<Mapping>,
    /// How many pods the node takes. Default: 250.
    pub max_pods: u32,
    /// Where the kubelet's endpoints listen; port 0 picks a free one. Its address is also the
    /// node's own in the Node object. Default: `127.0.0.1:0`.
    pub kubelet_addr: SocketAddr,
    /// Certificate of the authority whose clients may call the kubelet's endpoints. Without it
    /// only `/healthz` answers.
    pub client_ca_pem: Option<String>,
    /// Certificate and key for the kubelet's endpoints, both PEM. Default: made at start.
    pub serving_pem: Option<(String, String)>,
    /// Wall-clock time. Default: the system's.
    pub clock: Clock,
    /// The range of Service addresses, answered inside sandboxes. Default: `10.96.0.0/16`.
    pub service_range: (Ipv4Addr, u8),
    /// Where the API server is reached from the host, for the Service `default/kubernetes` whose
    /// own endpoint may not be reachable. Default: what its endpoints say.
    pub api_server: Option<SocketAddr>,
    /// A unix socket on which an API server asks with HTTP `CONNECT` for connections to Services and pods.
    /// None by default.
    pub egress_socket: Option<PathBuf>,
    /// Services that something on the host answers instead of pods. None by default.
    pub host_services: Vec<HostService>,
    /// How Services are made reachable from the host.
    pub services: ServicePublishing,
}

impl Default for NodeOptions {
    fn default() -> Self {
        NodeOptions {
            name: host_name(),
            data_dir: PathBuf::from("steersman-node"),
            runtime: RuntimeChoice::Auto,
            program: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("steer")),
            images: Vec::new(),
            max_pods: 250,
            kubelet_addr: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            client_ca_pem: None,
            serving_pem: None,
            clock: Arc::new(jiff::Timestamp::now),
            service_range: (Ipv4Addr::new(10, 96, 0, 0), 16),
            api_server: None,
            egress_socket: None,
            host_services: Vec::new(),
            services: ServicePublishing::default(),
        }
    }
}

impl fmt::Debug for NodeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeOptions")
            .field("name", &self.name)
            .field("data_dir", &self.data_dir)
            .field("runtime", &self.runtime)
            .field("program", &self.program)
            .field("kubelet_addr", &self.kubelet_addr)
            .field("services", &self.services)
            .finish_non_exhaustive()
    }
}

/// A Service that something on the host answers, on all of its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostService {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who answers.
    pub address: SocketAddr,
}

/// The host's name as Kubernetes accepts it.
fn host_name() -> String {
    let name =
        nix::unistd::gethostname().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '-' })
        .collect();
    match name.trim_matches(['-', '.']) {
        "" => "node".to_string(),
        name => name.to_string(),
    }
}

/// How pods are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RuntimeChoice {
    /// `sandbox` where it works, else `process`.
    #[default]
    Auto,
    /// Own namespaces, or a start-up error.
    Sandbox,
    /// Plain child processes.
    Process,
    /// No processes: pods are ready at once.
    Fake,
}

impl FromStr for RuntimeChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(RuntimeChoice::Auto),
            "sandbox" => Ok(RuntimeChoice::Sandbox),
            "process" => Ok(RuntimeChoice::Process),
            "fake" => Ok(RuntimeChoice::Fake),
            other => Err(format!("unknown runtime \"{other}\"; choose auto, sandbox, process or fake")),
        }
    }
}

impl fmt::Display for RuntimeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RuntimeChoice::Auto => "auto",
            RuntimeChoice::Sandbox => "sandbox",
            RuntimeChoice::Process => "process",
            RuntimeChoice::Fake => "fake",
        })
    }
}

/// How Services are made reachable from the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePublishing {
    /// Whether and where the node proxies Services at all. Default: [`Publish::Loopback`].
    pub publish: Publish,
    /// Whether the address is written into the Service as the annotation
    /// [`ADDRESS_ANNOTATION`](crate::ADDRESS_ANNOTATION). Default: [`Annotate::No`], because a
    /// cluster with several nodes has no single one; `steer up` says yes.
    pub annotate: Annotate,
    /// Ports to choose from; kept across restarts where possible. Default: 20000 to 29999, below
    /// Kubernetes' node ports and Linux' ephemeral ports.
    pub ports: std::ops::RangeInclusive<u16>,
}

impl Default for ServicePublishing {
    fn default() -> Self {
        ServicePublishing { publish: Publish::Loopback, annotate: Annotate::No, ports: 20_000..=29_999 }
    }
}

/// Whether Services are reachable from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publish {
    /// On 127.0.0.1 with a port of their own.
    Loopback,
    /// Only inside pods.
    Never,
}

/// Whether a published address is written into the Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Annotate {
    /// Written.
    Yes,
    /// Not written.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_read_as_it_is_written() {
        for choice in
            [RuntimeChoice::Auto, RuntimeChoice::Sandbox, RuntimeChoice::Process, RuntimeChoice::Fake]
        {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        let error = "docker".parse::<RuntimeChoice>().expect_err("unknown");
        assert!(error.contains("choose auto, sandbox, process or fake"), "{error}");
    }
}
