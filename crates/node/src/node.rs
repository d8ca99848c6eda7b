//! A node from start to end.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::Api;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::egress;
use crate::image::{ImageMap, Mapping};
use crate::kubelet::{self, Endpoints};
use crate::logs::Logs;
use crate::options::NodeOptions;
use crate::pod::{Keeper, Known, Recorder, Shared};
use crate::register::{Registration, machine_size};
use crate::runtime::{Network, Runtime, RuntimeError, RuntimeKind};
use crate::service::{Directory, Proxy, serve_names};
use crate::watch::{Change, follow};

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
    /// The socket for the API server could not be set up.
    #[error("cannot listen on the egress socket {}: {source}; choose another path with --egress-socket", path.display())]
    Egress {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The kubelet's endpoints could not be set up.
    #[error("cannot serve the kubelet's endpoints on {address}: {message}")]
    Endpoints {
        /// Where.
        address: SocketAddr,
        /// Why.
        message: String,
    },
}

/// A node that runs pods.
pub struct Node {
    client: kube::Client,
    options: NodeOptions,
    runtime: Arc<Runtime>,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    address: SocketAddr,
    registration: Registration,
    egress: Option<UnixListener>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("name", &self.options.name)
            .field("runtime", &self.runtime.kind())
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Node {
    /// Starts the runtime, ends what an earlier node left behind, and registers the node. Pods
    /// run once [`Node::run`] does.
    ///
    /// # Errors
    /// When the runtime does not work here, the endpoints cannot be served, or the API server
    /// refuses the node.
    pub async fn start(client: kube::Client, mut options: NodeOptions) -> Result<Self, NodeError> {
        // Pods have folders of their own to start in, so paths must mean the same everywhere.
        for path in [&mut options.data_dir, &mut options.program] {
            *path = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
        }
        let runtime = Runtime::start(&options).await?;
        let failed = |message: String| NodeError::Endpoints { address: options.kubelet_addr, message };
        let listener = TcpListener::bind(options.kubelet_addr)
            .await
            .map_err(|error| failed(format!("{error}; choose another address or port 0 for a free one")))?;
        let address = listener.local_addr().map_err(|error| failed(error.to_string()))?;
        let acceptor =
            kubelet::acceptor(&options, address.ip()).map_err(|error| failed(error.to_string()))?;
        let egress = match &options.egress_socket {
            Some(path) => Some(
                egress::listen(path).map_err(|source| NodeError::Egress { path: path.clone(), source })?,
            ),
            None => None,
        };
        let registration =
            Registration::new(client.clone(), &options, address, runtime.kind(), machine_size());
        registration
            .register()
            .await
            .map_err(|source| NodeError::Register { name: options.name.clone(), source: Box::new(source) })?;
        tracing::info!(
            name = options.name, runtime = runtime.kind().name(), %address, "node registered"
        );
        Ok(Node { client, options, runtime, listener, acceptor, address, registration, egress })
    }

    /// Which runtime was chosen.
    #[must_use]
    pub fn runtime(&self) -> RuntimeKind {
        self.runtime.kind()
    }

    /// How pods are reached from here.
    #[must_use]
    pub fn network(&self) -> Network {
        self.runtime.network().clone()
    }

    /// Where the kubelet's endpoints are.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Runs pods until the token is cancelled, then ends their processes. The Node object and
    /// the pods stay in the API server; a node that starts again runs them again.
    ///
    /// # Errors
    /// None today; the place for what a node cannot go on without.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), NodeError> {
        let Node { client, options, runtime, listener, acceptor, registration, address, egress } = self;
        let mut tasks = JoinSet::new();
        let network = runtime.network().clone();
        let directory = Directory::new(name_server(&options, &runtime));
        let (events, writer) = Recorder::new(client.clone(), options.name.clone(), options.clock.clone());
        let logs = Logs::new(&options.data_dir);
        let known = Known::default();
        let shared = Arc::new(Shared {
            client: client.clone(),
            runtime,
            images: RwLock::new(ImageMap::new(options.images.clone(), options.program.clone())),
            logs: logs.clone(),
            events,
            services: directory.clone(),
            clock: options.clock.clone(),
            data_dir: options.data_dir.clone(),
            host: address.ip(),
            size: machine_size(),
        });

        tasks.spawn(writer);
        tasks.spawn(registration.keep());
        let endpoints = Endpoints { pods: known.clone(), logs, clock: options.clock.clone() };
        tasks.spawn(kubelet::serve(listener, acceptor, endpoints, shutdown.clone()));
        if let Some(egress) = egress {
            tasks.spawn(egress::serve(egress, network.clone(), options.service_range, shutdown.clone()));
        }
        tasks.spawn(serve_names(network.clone(), directory.clone(), shutdown.clone()));

        let services = watched::<Service>(&mut tasks, Api::all(client.clone()), None);
        let slices = watched::<EndpointSlice>(&mut tasks, Api::all(client.clone()), None);
        let proxy = Proxy::new(client.clone(), network, directory.clone(), &options);
        tasks.spawn(proxy.run(services, slices, shutdown.clone()));

        let maps = watched::<ConfigMap>(
            &mut tasks,
            Api::namespaced(client.clone(), "kube-system"),
            Some("metadata.name=image-map".to_string()),
        );
        let images = ImageMap::new(options.images.clone(), options.program.clone());
        tasks.spawn(keep_images(Arc::clone(&shared), images, maps));

        let fields = format!("spec.nodeName={}", options.name);
        let pods = watched::<Pod>(&mut tasks, Api::all(client), Some(fields));
        directory.wait().await;
        Keeper::new(shared, known, shutdown).run(pods).await;
        tasks.shutdown().await;
        Ok(())
    }
}

/// Follows a kind in a task of its own.
fn watched<K>(tasks: &mut JoinSet<()>, api: Api<K>, fields: Option<String>) -> mpsc::Receiver<Change<K>>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    let (sender, receiver) = mpsc::channel(256);
    tasks.spawn(follow(api, fields, sender));
    receiver
}

/// Pods ask for names at the tenth address of the Service range, where clusters have theirs.
fn name_server(options: &NodeOptions, runtime: &Runtime) -> Option<Ipv4Addr> {
    let (network, _) = options.service_range;
    let tenth = u32::from(network).checked_add(10).map(Ipv4Addr::from);
    tenth.filter(|_| runtime.network().is_shared())
}

/// Keeps the table of images as the ConfigMap `kube-system/image-map` says.
async fn keep_images(shared: Arc<Shared>, own: ImageMap, mut changes: mpsc::Receiver<Change<ConfigMap>>) {
    while let Some(change) = changes.recv().await {
        let map = match change {
            Change::All(mut maps) => maps.pop(),
            Change::Set(map) => Some(*map),
            Change::Gone(_) => None,
        };
        let mappings = map.map(|map| mappings(&map)).unwrap_or_default();
        *shared.images.write().unwrap_or_else(PoisonError::into_inner) = own.with(&mappings);
    }
}

/// One `IMAGE=PROGRAM [ARGUMENTS]` a line, in any entry of the ConfigMap.
fn mappings(map: &ConfigMap) -> Vec<Mapping> {
    let lines = map.data.iter().flat_map(std::collections::BTreeMap::values).flat_map(|text| text.lines());
    lines
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| match Mapping::parse(line) {
            Ok(mapping) => Some(mapping),
            Err(error) => {
                tracing::warn!(error, "ConfigMap kube-system/image-map has a line without use");
                None
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_map_has_one_mapping_a_line() {
        let map: ConfigMap = serde_json::from_value(serde_json::json!({"data": {
            "images": "# databases\nredis=/usr/bin/redis-server --save ''\n\nbroken\napp=/opt/app",
        }}))
        .expect("a map");
        let names: Vec<String> = mappings(&map).into_iter().map(|one| one.image).collect();
        assert_eq!(names, ["redis", "app"]);
    }
}
