//! The command line: what can be asked of `steer`, and nothing of how it is done.

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

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
    #[command(flatten)]
    pub(crate) inherited: crate::observatory::InheritedArgs,
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
    /// Address of the kubelet endpoints (logs); port 0 picks a free one
    #[arg(long, env = "STEER_KUBELET_ADDRESS", default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub(crate) kubelet_address: std::net::SocketAddr,
    /// Certificate authority whose clients may call the kubelet endpoints (PEM)
    #[arg(long, env = "STEER_CLIENT_CA_FILE", value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,
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
pub(crate) struct ServeEchoArgs {
    /// Port to listen on; $PORT by default, else 80
    #[arg(long)]
    pub(crate) port: Option<u16>,
}

/// What can be done about plugins.
#[derive(Subcommand, Debug)]
pub(crate) enum PluginCommand {
    /// Check a plugin against the contract; it really applies and destroys
    Conformance(ConformanceArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ConformanceArgs {
    /// The operator's settings for the plugin, as JSON
    #[arg(long, default_value = "{}", value_name = "JSON")]
    pub(crate) settings: String,
    /// Parameters of the resource that it makes and destroys, as JSON
    #[arg(long, default_value = "{}", value_name = "JSON")]
    pub(crate) parameters: String,
    /// How long an answer may take, in seconds
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub(crate) timeout: u64,
    /// The plugin: a program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// What can be done with workflows.
#[derive(Subcommand, Debug)]
pub(crate) enum WorkflowCommand {
    /// Check files without a cluster; every problem with its line and column
    Lint {
        /// Files; - is standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Submit the workflows of a file
    Run {
        #[command(flatten)]
        client: ClientArgs,
        /// The file; - is standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Name to give the workflow instead of the one in the file
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Wait for the end and show how it goes; exit code 1 if it fails
        #[arg(long, short)]
        watch: bool,
    },
    /// List workflows, newest first
    List {
        #[command(flatten)]
        client: ClientArgs,
        /// Of all namespaces
        #[arg(long, short = 'A')]
        all_namespaces: bool,
    },
    /// Show a workflow and its tasks
    Get(WorkflowArgs),
    /// Follow a workflow to its end; exit code 1 if it fails
    Watch(WorkflowArgs),
    /// Print what the tasks wrote
    Logs {
        #[command(flatten)]
        workflow: WorkflowArgs,
        /// Only this task
        #[arg(value_name = "TASK")]
        task: Option<String>,
        /// Go on as more is written
        #[arg(long, short)]
        follow: bool,
    },
    /// End a workflow early: running tasks finish, no further ones start
    Stop {
        #[command(flatten)]
        workflow: WorkflowArgs,
        /// End running tasks too
        #[arg(long)]
        now: bool,
    },
    /// Run again what did not succeed, or the tasks named and what depends on them
    Retry {
        #[command(flatten)]
        workflow: WorkflowArgs,
        /// Tasks to run again
        #[arg(value_name = "TASK")]
        tasks: Vec<String>,
        /// Run everything again
        #[arg(long, conflicts_with = "tasks")]
        all: bool,
    },
    /// Draw a workflow
    Graph {
        #[command(flatten)]
        workflow: WorkflowArgs,
        /// As what
        #[arg(long, short, value_enum, default_value = "text")]
        output: Drawing,
    },
    /// Say why a task is not running
    Explain {
        #[command(flatten)]
        workflow: WorkflowArgs,
        /// The task
        #[arg(value_name = "TASK")]
        task: String,
    },
}

#[derive(Args, Debug)]
pub(crate) struct WorkflowArgs {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// The workflow; for `graph` also a file
    #[arg(value_name = "WORKFLOW")]
    pub(crate) name: String,
}

#[derive(Args, Debug)]
pub(crate) struct InfraArgs {
    #[command(subcommand)]
    pub(crate) command: InfraCommand,
    /// Address of the REST API; by default that of the `steer up` of this folder, else http://localhost:8000
    #[arg(long, global = true, env = "STEER_REST_URL", value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Bearer token for it
    #[arg(long, global = true, env = "STEER_REST_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// Print what the API answered, as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What can be asked about infrastructure.
#[derive(Subcommand, Debug)]
pub(crate) enum InfraCommand {
    /// List resource types
    Types,
    /// List resources, newest first
    List {
        /// Only those that are pending, reconciling, ready, failed or deleting
        #[arg(long, value_name = "STATUS")]
        status: Option<String>,
        /// Only those of this action plugin
        #[arg(long, value_name = "NAME")]
        plugin: Option<String>,
        /// Only those of this type
        #[arg(long = "type", value_name = "NAME")]
        kind: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
    /// Show a resource
    Get(InfraResource),
    /// List the attempts for a resource, newest first, also for one that is gone (by its number)
    History {
        #[command(flatten)]
        resource: InfraResource,
        /// At most so many
        #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
    /// Reconcile a resource now
    Reconcile(InfraResource),
    /// Print what the last successful attempt brought forth, as JSON
    Outputs(InfraResource),
}

#[derive(Args, Debug)]
pub(crate) struct InfraResource {
    /// The resource: its number, TYPE/NAME, or TYPE/VERSION/NAME
    #[arg(value_name = "RESOURCE")]
    pub(crate) name: String,
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

/// How a workflow is drawn.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drawing {
    /// Lines of text
    Text,
    /// A picture
    Svg,
    /// For Markdown
    Mermaid,
}

#[derive(Args, Debug)]
pub(crate) struct ResolverArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// Address that takes requests; port 8012 of $HOST or of every address by default
    #[arg(long, env = "STEER_RESOLVER_ADDRESS", value_parser = address, value_name = "ADDRESS")]
    pub(crate) proxy_address: Option<std::net::SocketAddr>,
    /// Address of health, metrics and activity; port 8013 by default
    #[arg(long, env = "STEER_RESOLVER_INTERNAL_ADDRESS", value_parser = address, value_name = "ADDRESS")]
    pub(crate) internal_address: Option<std::net::SocketAddr>,
}

/// What can be done with what scales to zero.
#[derive(Subcommand, Debug)]
pub(crate) enum ElastiCommand {
    /// List ElastiServices
    List {
        #[command(flatten)]
        client: ClientArgs,
        /// Of all namespaces
        #[arg(long, short = 'A')]
        all_namespaces: bool,
    },
    /// Show one and what troubles it
    Get(ElastiServiceArgs),
    /// Wake its target
    Wake(ElastiServiceArgs),
    /// Put its target to sleep without waiting for the cooldown, unless somebody needs it
    Sleep(ElastiServiceArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ElastiServiceArgs {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// The ElastiService
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
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
