//! The command line: what can be asked of `steer`, and nothing of how it is done.

mod elasti;
mod infra;
mod workflow;

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::{
    elasti::{ElastiCommand, ElastiServiceArgs, ResolverArgs},
    infra::{ConformanceArgs, InfraArgs, InfraCommand, PluginCommand},
    workflow::{Drawing, WorkflowArgs, WorkflowCommand},
};

use crate::store::StoreChoice;

/// Kubernetes operators in Rust: written, tested and run, with a cluster or without one.
#[derive(Parser, Debug)]
#[command(name = "steer", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    /// How much to log: error, warn, info, debug, trace, or a filter such as `steersman=debug,info`.
    #[arg(long, global = true, env = "STEER_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a control plane, a node and all operators on this machine
    #[command(after_help = UP_HELP)]
    Up(UpArgs),
    /// Run operators against the cluster of your kubeconfig
    Run(Box<RunArgs>),
    /// Join a control plane as a node that runs pods as processes of this machine
    Node(NodeArgs),
    /// Create or change objects so that they match files
    Apply(ApplyArgs),
    /// List objects
    Get(GetArgs),
    /// Show an object in full, with its events
    Describe(DescribeArgs),
    /// Set how many replicas an object has
    Scale(ScaleArgs),
    /// Delete objects
    Delete(DeleteArgs),
    /// Print what a container wrote
    Logs(LogsArgs),
    /// Check, run and follow workflows (Observatories)
    #[command(subcommand)]
    Workflow(WorkflowCommand),
    /// Show, wake and put to sleep what scales to zero (ElastiServices)
    #[command(subcommand)]
    Elasti(ElastiCommand),
    /// Hold requests to sleeping services, have them woken, and hand the requests on
    Resolver(ResolverArgs),
    /// Help for those who write plugins
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Look at infrastructure (ResourceTypes and Resources) and its history
    Infra(InfraArgs),
    /// Write everything in a running `steer up` to a file
    Backup(BackupArgs),
    /// Make a running `steer up` what a backup shows: what is not in it is deleted
    Restore(BackupArgs),
    /// Print the admin kubeconfig of `steer up`, or its path
    Kubeconfig(KubeconfigArgs),
    /// Write the CustomResourceDefinitions of the operators
    Crds(CrdsArgs),
    /// Write the accounts and roles that the operators need on a cluster
    Rbac(RbacArgs),
    /// Print the version
    Version,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },

    /// Answer HTTP requests with what was asked (a program of the image steersman.io/steer)
    #[command(hide = true)]
    ServeEcho(ServeEchoArgs),
    /// Do nothing until told to stop (a program of the image steersman.io/steer)
    #[command(hide = true)]
    Pause,
    /// Become the first process of a pod; started by the node
    #[command(hide = true)]
    PodInit {
        /// What it is for, to be read in a list of processes
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        label: Vec<String>,
    },
}

const UP_HELP: &str = "\
Everything listens on loopback and needs no root, no container engine and no database. \
Ctrl-C stops it; the state stays in the data folder and the next `steer up` goes on from it.

Exit codes: 0 stopped as asked, 1 failed, 2 wrong usage, 3 could not start.";

#[derive(Args, Debug)]
pub(crate) struct UpArgs {
    /// Folder for the state: database, certificates, kubeconfig, logs of pods
    #[arg(long, env = "STEER_DATA_DIR", default_value = ".steersman", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// Port of the Kubernetes API; 0 picks a free one
    #[arg(long, env = "STEER_API_PORT", default_value_t = 6443, value_name = "PORT")]
    pub(crate) api_port: u16,
    /// Port of the REST API; 0 picks a free one
    #[arg(long, env = "STEER_HTTP_PORT", default_value_t = 8000, value_name = "PORT")]
    pub(crate) http_port: u16,
    /// Port of metrics and health; 0 picks a free one, as it does by default beside --http-port 0
    #[arg(
        long,
        env = "STEER_METRICS_PORT",
        default_value_t = 8080,
        default_value_if("http_port", "0", "0"),
        value_name = "PORT"
    )]
    pub(crate) metrics_port: u16,
    /// Port of wake-up calls to the operator of ElastiServices; 0 picks a free one, as it does by default
    /// beside --http-port 0
    #[arg(
        long,
        env = "STEER_ELASTI_PORT",
        default_value_t = 8014,
        default_value_if("http_port", "0", "0"),
        value_name = "PORT"
    )]
    pub(crate) elasti_port: u16,
    /// Bearer token that the REST API asks for; needed where --bind is not loopback
    #[arg(long, env = "STEER_REST_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub(crate) rest_token: Option<String>,
    /// Port of the operators' webhooks; 0 picks a free one, as it does by default beside --http-port 0
    #[arg(
        long,
        env = "STEER_WEBHOOK_PORT",
        default_value_t = 9443,
        default_value_if("http_port", "0", "0"),
        value_name = "PORT"
    )]
    pub(crate) webhook_port: u16,
    #[command(flatten)]
    pub(crate) policy: crate::webhooks::PolicyArgs,
    /// Who may use the REST API without a token
    #[arg(long, env = "STEER_REST_ACCESS", default_value = "auto", value_enum)]
    pub(crate) rest_access: RestAccess,
    /// Address to listen on
    #[arg(long, env = "STEER_BIND", default_value = "127.0.0.1", value_name = "ADDRESS")]
    pub(crate) bind: IpAddr,
    #[command(flatten)]
    pub(crate) observatory: crate::observatory::ObservatoryArgs,
    /// How pods are run
    #[arg(long, env = "STEER_RUNTIME", default_value = "auto", value_enum)]
    pub(crate) runtime: Runtime,
    /// How many pods the node takes
    #[arg(long, env = "STEER_MAX_PODS", default_value_t = 250, value_name = "N")]
    pub(crate) max_pods: u32,
    /// Who gives pods their nodes
    #[arg(long, env = "STEER_SCHEDULER", default_value = "own", value_enum)]
    pub(crate) scheduler: Scheduler,
    /// Keep everything in memory; nothing survives a restart
    #[arg(long)]
    pub(crate) memory: bool,
    /// Where objects are kept: sqlite (a file in the data folder, the default), memory, or a PostgreSQL
    /// database as postgres://user:password@host:5432/database; by default the one that DB_* name, if any
    #[arg(
        long,
        env = "STEER_STORE",
        hide_env_values = true,
        value_name = "STORE",
        conflicts_with = "memory"
    )]
    pub(crate) store: Option<StoreChoice>,
}

/// How pods are run.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runtime {
    /// Sandboxes where this machine allows them, else plain processes
    Auto,
    /// Own user, mount, process and network namespaces per pod
    Sandbox,
    /// Plain child processes on the host's network
    Process,
    /// Nothing runs; pods are reported ready (for load tests)
    Fake,
}

/// Who gives pods their nodes.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheduler {
    /// The scheduler within
    Own,
    /// Nobody here; other programs bind pods
    None,
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Which operators
    #[arg(value_enum, required = true, num_args = 1..)]
    pub(crate) operators: Vec<Operator>,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// Namespace of the Lease that makes one replica the leader
    #[arg(long, env = "POD_NAMESPACE", default_value = "default", value_name = "NAMESPACE")]
    pub(crate) lease_namespace: String,
    /// Run without leader election; safe only with a single replica
    #[arg(long)]
    pub(crate) no_leader_election: bool,
    /// KubeElasti's way to say the same
    #[arg(long, hide = true, num_args = 0..=1, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) leader_elect: bool,
    /// Address of the metrics endpoint; port 0 picks a free one. Of several operators the first is there,
    /// the others at free ports that the log names
    #[arg(
        long,
        alias = "metrics-bind-address",
        env = "STEER_METRICS_ADDRESS",
        default_value = "127.0.0.1:8080",
        value_parser = address,
        value_name = "ADDRESS"
    )]
    pub(crate) metrics_address: std::net::SocketAddr,
    #[command(flatten)]
    pub(crate) metrics: crate::metrics::MetricsArgs,
    /// Address of the health endpoints; port 0 picks a free one
    #[arg(
        long,
        alias = "health-probe-bind-address",
        env = "STEER_HEALTH_ADDRESS",
        default_value = "127.0.0.1:8081",
        value_parser = address,
        value_name = "ADDRESS"
    )]
    pub(crate) health_address: std::net::SocketAddr,
    /// Address of the REST API of `infra`; port 0 picks a free one
    #[arg(long, env = "STEER_REST_ADDRESS", default_value = "127.0.0.1:8000", value_name = "ADDRESS")]
    pub(crate) rest_address: std::net::SocketAddr,
    /// Bearer token that the REST API asks for; needed where its address is not loopback
    #[arg(long, env = "STEER_REST_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub(crate) rest_token: Option<String>,
    /// Who may use the REST API without a token
    #[arg(long, env = "STEER_REST_ACCESS", default_value = "auto", value_enum)]
    pub(crate) rest_access: RestAccess,
    /// Folder of `infra` for its history and Terraform's modules and states
    #[arg(long, env = "STEER_DATA_DIR", default_value = ".steersman/infra", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    #[command(flatten)]
    pub(crate) elasti: ElastiArgs,
    #[command(flatten)]
    pub(crate) webhooks: crate::webhooks::WebhookArgs,
    #[command(flatten)]
    pub(crate) observatory: crate::observatory::ObservatoryArgs,
    /// Create or update the operators' CustomResourceDefinitions first
    #[arg(long)]
    pub(crate) install_crds: bool,
}

/// What only `elasti` is told.
#[derive(Args, Debug)]
pub(crate) struct ElastiArgs {
    /// Address of the wake-up calls to `elasti`; port 0 picks a free one
    #[arg(
        long,
        env = "STEER_ELASTI_ADDRESS",
        default_value = "127.0.0.1:8013",
        value_parser = address,
        value_name = "ADDRESS"
    )]
    pub(crate) elasti_address: std::net::SocketAddr,
    /// Namespaces whose ElastiServices are looked after, separated by commas; all by default, or
    /// $WATCH_NAMESPACES
    #[arg(long, value_name = "NAMESPACES")]
    pub(crate) watch_namespace: Option<String>,
}

/// An address; `:8080` is every address of the machine, as in Go.
fn address(text: &str) -> Result<std::net::SocketAddr, String> {
    let whole = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    whole.parse().map_err(|_| "expected an address and a port, such as 127.0.0.1:8080".to_owned())
}

/// An operator.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    /// Web applications (example.com/v1 WebApp)
    Webapp,
    /// Workflows (workflow.seventh-horizon.io/v1alpha1 Observatory)
    Observatory,
    /// Infrastructure (infra.steersman.io/v1 Resource and ResourceType), with its REST API
    Infra,
    /// Scale to zero (elasti.truefoundry.com/v1alpha1 ElastiService)
    Elasti,
    /// Every operator
    All,
}

#[derive(Args, Debug)]
pub(crate) struct NodeArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// Name of the node; the host's name by default
    #[arg(long, env = "STEER_NODE_NAME", value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Folder for pods and their logs
    #[arg(long, env = "STEER_DATA_DIR", default_value = ".steersman/node", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// How pods are run
    #[arg(long, env = "STEER_RUNTIME", default_value = "auto", value_enum)]
    pub(crate) runtime: Runtime,
    /// How many pods the node takes
    #[arg(long, env = "STEER_MAX_PODS", default_value_t = 250, value_name = "N")]
    pub(crate) max_pods: u32,
    /// Address of the kubelet endpoints (logs); port 0 picks a free one
    #[arg(long, env = "STEER_KUBELET_ADDRESS", default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub(crate) kubelet_address: std::net::SocketAddr,
    /// Certificate authority whose clients may call the kubelet endpoints (PEM)
    #[arg(long, env = "STEER_CLIENT_CA_FILE", value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,
    /// Unix socket on which the API server asks for connections to Services, for webhooks in pods
    /// (its egress selector for `cluster`, with HTTPConnect)
    #[arg(long, env = "STEER_EGRESS_SOCKET", value_name = "PATH")]
    pub(crate) egress_socket: Option<PathBuf>,
    /// Publish every Service on 127.0.0.1 and name the address in an annotation
    #[arg(long)]
    pub(crate) publish_services: bool,
}

/// Where to send requests.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct ConnectionArgs {
    /// Kubeconfig file; by default $KUBECONFIG, then the one of `steer up` in this folder, then ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// Where to send requests, and about which namespace.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct ClientArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// Namespace
    #[arg(long, short, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// The file
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// Files or folders of YAML or JSON; - is standard input
    #[arg(long = "filename", short = 'f', required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Take over fields that someone else manages
    #[arg(long)]
    pub(crate) force: bool,
    /// Say what would happen; change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// Types, separated by commas (pods,services), then names; or TYPE/NAME
    #[arg(required = true, value_name = "TYPE")]
    pub(crate) what: Vec<String>,
    /// Of all namespaces
    #[arg(long, short = 'A')]
    pub(crate) all_namespaces: bool,
    /// Only objects with these labels (app=web,tier!=cache)
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,
    /// Format
    #[arg(long, short, value_enum)]
    pub(crate) output: Option<Output>,
}

/// A format.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// More columns
    Wide,
    /// Whole objects as YAML
    Yaml,
    /// Whole objects as JSON
    Json,
    /// TYPE/NAME, a line each
    Name,
}

#[derive(Args, Debug)]
pub(crate) struct DescribeArgs {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// TYPE NAME, or TYPE/NAME
    #[arg(required = true, value_name = "TYPE")]
    pub(crate) what: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct ScaleArgs {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// TYPE NAME, or TYPE/NAME
    #[arg(required = true, value_name = "TYPE")]
    pub(crate) what: Vec<String>,
    /// How many
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) replicas: i32,
}

#[derive(Args, Debug)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// TYPE NAME…, or TYPE/NAME
    #[arg(required_unless_present = "files", value_name = "TYPE")]
    pub(crate) what: Vec<String>,
    /// What these files name
    #[arg(long = "filename", short = 'f', value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// No error where it is not there
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
    /// Return at once instead of waiting until it is gone
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// How long to wait, in seconds
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    pub(crate) timeout: u64,
}

#[derive(Args, Debug)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// A pod, or TYPE/NAME of something that has pods (deployment/web, webapp/web)
    #[arg(value_name = "POD")]
    pub(crate) pod: String,
    /// Container, where the pod has several
    #[arg(long, short, value_name = "NAME")]
    pub(crate) container: Option<String>,
    /// Go on as more is written
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only the last lines
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<u32>,
    /// Of the container's previous run
    #[arg(long, short)]
    pub(crate) previous: bool,
    /// With the time of each line
    #[arg(long)]
    pub(crate) timestamps: bool,
}

#[derive(Args, Debug)]
pub(crate) struct KubeconfigArgs {
    /// Data folder of `steer up`
    #[arg(long, env = "STEER_DATA_DIR", default_value = ".steersman", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// Print the path instead of the contents
    #[arg(long)]
    pub(crate) path: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CrdsArgs {
    /// Write one file per definition into this folder instead of printing them
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// With --dir: change nothing, fail if a file differs
    #[arg(long, requires = "dir")]
    pub(crate) check: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RbacArgs {
    /// Write the files below this folder, as config/ has them, instead of printing them
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct ServeEchoArgs {
    /// Port to listen on; $PORT by default, else 80
    #[arg(long)]
    pub(crate) port: Option<u16>,
}

/// Who may use the REST API where it needs no token.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestAccess {
    /// Programs on this machine on a loopback address; elsewhere a token is needed
    Auto,
    /// Whoever reaches it under a local name: for a container whose port is published on loopback
    Published,
    /// Everybody who reaches it
    Everybody,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_understood_as_in_go() {
        let metrics = |args: &[&str]| match Cli::try_parse_from([&["steer", "run", "elasti"], args].concat())
        {
            Ok(Cli { command: Command::Run(args), .. }) => {
                Some((args.metrics_address.to_string(), args.leader_elect))
            }
            _ => None,
        };
        assert_eq!(metrics(&[]), Some(("127.0.0.1:8080".into(), true)));
        assert_eq!(
            metrics(&["--metrics-bind-address=:9000", "--leader-elect=false"]),
            Some(("0.0.0.0:9000".into(), false))
        );
        assert_eq!(metrics(&["--leader-elect"]), Some(("127.0.0.1:8080".into(), true)));
        assert_eq!(metrics(&["--metrics-bind-address=nowhere"]), None);
    }

    #[test]
    fn metrics_get_a_free_port_where_the_rest_api_does() {
        let port = |args: &[&str]| match Cli::try_parse_from([&["steer", "up"], args].concat()) {
            Ok(Cli { command: Command::Up(args), .. }) => Some(args.metrics_port),
            _ => None,
        };
        assert_eq!(port(&[]), Some(8080));
        assert_eq!(port(&["--api-port=0", "--http-port=0"]), Some(0));
        assert_eq!(port(&["--http-port=0", "--metrics-port=9000"]), Some(9000));
    }
}
