//! `steer node`: a node of any control plane.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
};

use anyhow::Context as _;
use kube::Client;
use steersman_node::{Annotate, Node, NodeOptions, Publish, RuntimeChoice, ServicePublishing};

use crate::{
    cli::{NodeArgs, Runtime},
    client::load_config,
    signals,
};

/// Runs a node until told to stop.
pub(crate) async fn run(args: &NodeArgs) -> anyhow::Result<()> {
    let shutdown = signals::shutdown_token()?;
    let config = load_config(&args.connection).await?;
    let server = config.cluster_url.clone();
    let client = Client::try_from(config).context("the kubeconfig cannot be used")?;
    let client_ca_pem = match &args.client_ca_file {
        Some(path) => {
            Some(fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?)
        }
        None => None,
    };
    let defaults = NodeOptions::default();
    let services = if args.publish_services {
        ServicePublishing { publish: Publish::Loopback, annotate: Annotate::Yes, ..defaults.services.clone() }
    } else {
        ServicePublishing { publish: Publish::Never, ..defaults.services.clone() }
    };
    let options = NodeOptions {
        name: args.name.clone().unwrap_or_else(|| defaults.name.clone()),
        data_dir: args.data_dir.clone(),
        runtime: args.runtime.into(),
        max_pods: args.max_pods,
        kubelet_addr: args.kubelet_address,
        client_ca_pem,
        api_server: local(&server),
        egress_socket: args.egress_socket.clone(),
        services,
        ..defaults
    };
    let name = options.name.clone();
    let node = Node::start(client, options).await?;
    tracing::info!(%server, name, runtime = node.runtime().name(), "the node is ready");
    node.run(shutdown).await.context("the node cannot go on")
}

/// Where the API server is, if it is on this machine: what it tells others to reach it by may lead nowhere
/// then.
fn local(server: &http::Uri) -> Option<SocketAddr> {
    let address: IpAddr = server.host()?.trim_matches(['[', ']']).parse().ok()?;
    address.is_loopback().then(|| SocketAddr::new(address, server.port_u16().unwrap_or(443)))
}

impl From<Runtime> for RuntimeChoice {
    fn from(runtime: Runtime) -> Self {
        match runtime {
            Runtime::Auto => Self::Auto,
            Runtime::Sandbox => Self::Sandbox,
            Runtime::Process => Self::Process,
            Runtime::Fake => Self::Fake,
        }
    }
}
