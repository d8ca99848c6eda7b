//! A node for an existing control plane, as small as it can be:
//! `node KUBECONFIG DATA_DIR [CLIENT_CA]`.
//!
//! The tests of the runtime start this program too, because a pod's first process is the node's
//! own program started again.

use std::path::PathBuf;

use steersman_node::programs::{EchoOptions, pause, serve_echo};
use steersman_node::{Node, NodeOptions, sandbox_init};
use tokio_util::sync::CancellationToken;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        // Before any thread is started.
        Some("pod-init") => Ok(sandbox_init()?),
        Some(command) => start(command, &arguments[1..]),
        None => Err(USAGE.into()),
    }
}

const USAGE: &str = "usage: node KUBECONFIG DATA_DIR [CLIENT_CA]";

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn start(command: &str, arguments: &[String]) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match (command, arguments) {
            ("pause", _) => Ok(pause().await?),
            ("serve-echo", _) => {
                let options = EchoOptions::from_env(|name| std::env::var(name).ok())?;
                Ok(serve_echo(options, stop_on_signal()).await?)
            }
            (kubeconfig, [data_dir, rest @ ..]) => node(kubeconfig, data_dir, rest.first()).await,
            _ => Err(USAGE.into()),
        }
    })
}

async fn node(kubeconfig: &str, data_dir: &str, client_ca: Option<&String>) -> Outcome {
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    let client = kube::Client::try_from(config)?;
    let options = NodeOptions {
        data_dir: PathBuf::from(data_dir),
        runtime: std::env::var("STEER_RUNTIME").as_deref().unwrap_or("auto").parse()?,
        client_ca_pem: client_ca.map(std::fs::read_to_string).transpose()?,
        ..NodeOptions::default()
    };
    let node = Node::start(client, options).await?;
    Ok(node.run(stop_on_signal()).await?)
}

/// A token that is cancelled by Ctrl-C or SIGTERM.
fn stop_on_signal() -> CancellationToken {
    let token = CancellationToken::new();
    let cancel = token.clone();
    tokio::spawn(async move {
        let _ = pause().await;
        cancel.cancel();
    });
    token
}
