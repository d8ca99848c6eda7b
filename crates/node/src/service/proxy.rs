//! Keeps a listener for every port of every Service.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::directory::{Directory, Entry};
use super::forward::{Backends, forward};
use super::ports::Ports;
use super::table::{self, Port, ServiceKey, Slices};
use crate::ADDRESS_ANNOTATION;
use crate::options::{Annotate, NodeOptions, Publish};
use crate::runtime::Network;
use crate::watch::Change;

/// Who writes the annotation.
const MANAGER: &str = "steersman-node";

/// The Services of the cluster as this node serves them.
pub(crate) struct Proxy {
    client: kube::Client,
    network: Network,
    directory: Directory,
    /// Services that something on the host answers, whatever their slices say.
    host: BTreeMap<ServiceKey, SocketAddr>,
    publish: Publish,
    annotate: Annotate,
    ports: Ports,
    services: BTreeMap<ServiceKey, Service>,
    slices: Slices,
    /// Listeners by Service and port.
    open: BTreeMap<(ServiceKey, u16), Open>,
    tasks: JoinSet<()>,
    /// Both kinds must have been listed before anything is served or taken away.
    listed: (Listed, Listed),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listed {
    NotYet,
    Yes,
}

/// What is open for one port of a Service.
struct Open {
    backends: Arc<Backends>,
    published: Option<SocketAddr>,
    /// Addresses that listen, with their tasks.
    listeners: BTreeMap<Place, AbortHandle>,
}

/// Where a listener is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// On 127.0.0.1, with a port that we chose.
    Published,
    /// On the host.
    Host(SocketAddr),
    /// In the pod network.
    Pods(SocketAddr),
}

impl Proxy {
    /// One without Services.
    pub(crate) fn new(
        client: kube::Client,
        network: Network,
        directory: Directory,
        options: &NodeOptions,
    ) -> Self {
        let file = options.data_dir.join("services.json");
        Proxy {
            client,
            network,
            directory,
            host: host_services(options),
            publish: options.services.publish,
            annotate: options.services.annotate,
            ports: Ports::open(file, options.services.ports.clone()),
            services: BTreeMap::new(),
            slices: Slices::default(),
            open: BTreeMap::new(),
            tasks: JoinSet::new(),
            listed: (Listed::NotYet, Listed::NotYet),
        }
    }

    /// Follows Services and EndpointSlices until the node ends.
    pub(crate) async fn run(
        mut self,
        mut services: mpsc::Receiver<Change<Service>>,
        mut slices: mpsc::Receiver<Change<EndpointSlice>>,
        shutdown: CancellationToken,
    ) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                Some(change) = services.recv() => self.service_changed(change).await,
                Some(change) = slices.recv() => self.slice_changed(change).await,
                Some(_) = self.tasks.join_next() => {}
                else => return,
            }
        }
    }

    async fn service_changed(&mut self, change: Change<Service>) {
        match change {
            Change::Set(service) => {
                let key = ServiceKey::of(&service);
                self.services.insert(key.clone(), *service);
                self.settle(&key).await;
            }
            Change::Gone(service) => {
                let key = ServiceKey::of(&service);
                self.services.remove(&key);
                self.settle(&key).await;
            }
            Change::All(services) => {
                let before: BTreeSet<ServiceKey> = self.services.keys().cloned().collect();
                self.services = services.into_iter().map(|one| (ServiceKey::of(&one), one)).collect();
                self.listed.0 = Listed::Yes;
                self.settle_all(before).await;
            }
        }
    }

    async fn slice_changed(&mut self, change: Change<EndpointSlice>) {
        let key = match change {
            Change::Set(slice) => self.slices.set(*slice),
            Change::Gone(slice) => self.slices.remove(&slice),
            Change::All(slices) => {
                self.slices.reset(slices);
                self.listed.1 = Listed::Yes;
                self.settle_all(BTreeSet::new()).await;
                None
            }
        };
        if let Some(key) = key {
            self.settle(&key).await;
        }
    }

    async fn settle_all(&mut self, mut keys: BTreeSet<ServiceKey>) {
        if self.listed != (Listed::Yes, Listed::Yes) {
            return;
        }
        keys.extend(self.services.keys().cloned());
        for key in keys {
            self.settle(&key).await;
        }
        self.directory.listed();
    }

    /// Makes what is open for a Service what should be.
    async fn settle(&mut self, key: &ServiceKey) {
        if self.listed != (Listed::Yes, Listed::Yes) {
            return;
        }
        let Some(service) = self.services.get(key).cloned() else {
            self.directory.set(key.clone(), None);
            self.close(key, &BTreeSet::new());
            return;
        };
        let address = table::cluster_address(&service);
        let mut ports = table::ports(&service, &self.slices.of(key));
        if let Some(address) = self.host.get(key) {
            for port in &mut ports {
                port.backends = vec![*address];
            }
        }
        let endpoints: BTreeSet<IpAddr> =
            ports.iter().flat_map(|port| port.backends.iter().map(SocketAddr::ip)).collect();
        let mut entry = Entry { address, ports: Vec::new(), endpoints: endpoints.into_iter().collect() };
        if address.is_some() {
            self.close(key, &ports.iter().map(|port| port.number).collect());
            for port in &ports {
                let published = self.settle_port(key, address, port).await;
                entry.ports.push((port.name.clone(), port.number, published));
            }
        }
        let annotation = annotation(&entry);
        self.directory.set(key.clone(), Some(entry));
        if let (Annotate::Yes, Some(value)) = (self.annotate, annotation) {
            self.annotate(&service, &value);
        }
    }

    async fn settle_port(
        &mut self,
        key: &ServiceKey,
        address: Option<IpAddr>,
        port: &Port,
    ) -> Option<SocketAddr> {
        let id = (key.clone(), port.number);
        let mut open = self.open.remove(&id).unwrap_or_else(|| Open {
            backends: Arc::default(),
            published: None,
            listeners: BTreeMap::new(),
        });
        open.backends.set(&port.backends);
        let wanted = self.places(address, port);
        open.listeners.retain(|place, task| {
            let keep = wanted.contains(place);
            if !keep {
                task.abort();
            }
            keep
        });
        for place in wanted {
            if open.listeners.contains_key(&place) {
                continue;
            }
            match self.listen(key, port, place).await {
                Ok(listener) => {
                    if place == Place::Published {
                        open.published = listener.local_addr().ok();
                    }
                    let task = forward(listener, Arc::clone(&open.backends), self.network.clone());
                    open.listeners.insert(place, self.tasks.spawn(task));
                }
                Err(error) => tracing::debug!(
                    service = key.name, namespace = key.namespace, ?place, %error,
                    "a Service is not served there"
                ),
            }
        }
        let published = open.published;
        self.open.insert(id, open);
        published
    }

    fn places(&self, address: Option<IpAddr>, port: &Port) -> BTreeSet<Place> {
        let mut places = BTreeSet::new();
        if self.publish == Publish::Loopback {
            places.insert(Place::Published);
            if let Some(node_port) = port.node_port {
                places.insert(Place::Host(SocketAddr::from((Ipv4Addr::LOCALHOST, node_port))));
            }
        }
        if let Some(address) = address {
            let address = SocketAddr::new(address, port.number);
            if self.network.is_shared() {
                places.insert(Place::Pods(address));
            } else if address.ip().is_loopback() {
                places.insert(Place::Host(address));
            }
        }
        places
    }

    async fn listen(&mut self, key: &ServiceKey, port: &Port, place: Place) -> std::io::Result<TcpListener> {
        match place {
            Place::Published => self.ports.listen(&port_name(key, port.number)).await,
            Place::Host(address) => TcpListener::bind(address).await,
            Place::Pods(address) => self.network.listen(address).await,
        }
    }

    /// Closes what a Service no longer has.
    fn close(&mut self, key: &ServiceKey, keep: &BTreeSet<u16>) {
        let gone: Vec<(ServiceKey, u16)> =
            self.open.keys().filter(|(known, port)| known == key && !keep.contains(port)).cloned().collect();
        for id in gone {
            if let Some(open) = self.open.remove(&id) {
                open.listeners.values().for_each(AbortHandle::abort);
            }
            self.ports.forget(&port_name(&id.0, id.1));
        }
    }

    /// Writes the published address into the Service.
    fn annotate(&mut self, service: &Service, value: &str) {
        if service.annotations().get(ADDRESS_ANNOTATION).map(String::as_str) == Some(value) {
            return;
        }
        let namespace = service.namespace().unwrap_or_default();
        let api: Api<Service> = Api::namespaced(self.client.clone(), &namespace);
        let name = service.name_any();
        // The uid keeps the apply from creating a Service that has just been deleted.
        let patch = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": name,
                "uid": service.metadata.uid,
                "annotations": {ADDRESS_ANNOTATION: value},
            },
        });
        self.tasks.spawn(async move {
            let params = PatchParams::apply(MANAGER).force();
            if let Err(error) = api.patch(&name, &params, &Patch::Apply(patch)).await {
                tracing::debug!(%error, service = name, "address not written");
            }
        });
    }
}

fn host_services(options: &NodeOptions) -> BTreeMap<ServiceKey, SocketAddr> {
    let key = |namespace: &str, name: &str| ServiceKey { namespace: namespace.into(), name: name.into() };
    let others = options.host_services.iter().map(|one| (key(&one.namespace, &one.name), one.address));
    let api_server = options.api_server.map(|address| (key("default", "kubernetes"), address));
    others.chain(api_server).collect()
}

fn port_name(key: &ServiceKey, port: u16) -> String {
    format!("{}/{}/{port}", key.namespace, key.name)
}

/// `127.0.0.1:20001`, or with several ports `http=127.0.0.1:20001,metrics=127.0.0.1:20002`.
fn annotation(entry: &Entry) -> Option<String> {
    let published: Vec<(&String, &u16, SocketAddr)> = entry
        .ports
        .iter()
        .filter_map(|(name, number, published)| Some((name, number, (*published)?)))
        .collect();
    match published.as_slice() {
        [] => None,
        [(_, _, address)] => Some(address.to_string()),
        several => Some(
            several
                .iter()
                .map(|(name, number, address)| match name.is_empty() {
                    true => format!("{number}={address}"),
                    false => format!("{name}={address}"),
                })
                .collect::<Vec<_>>()
                .join(","),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_annotation_names_every_published_port() {
        let at = |port: u16| Some(SocketAddr::from(([127, 0, 0, 1], port)));
        let entry = |ports| Entry { address: None, ports, endpoints: vec![] };
        assert_eq!(annotation(&entry(vec![("http".into(), 80, None)])), None);
        let one = entry(vec![("http".into(), 80, at(20_001))]);
        assert_eq!(annotation(&one).as_deref(), Some("127.0.0.1:20001"));
        let two = entry(vec![("http".into(), 80, at(20_001)), (String::new(), 81, at(20_002))]);
        assert_eq!(annotation(&two).as_deref(), Some("http=127.0.0.1:20001,81=127.0.0.1:20002"));
    }
}
