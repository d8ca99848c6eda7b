//! Services as pods see them: variables and names.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::watch;

use super::table::ServiceKey;

/// What is known of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Entry {
    /// Its own address; `None` for a headless one.
    pub(crate) address: Option<IpAddr>,
    /// Its ports, each with where it is published on the host.
    pub(crate) ports: Vec<(String, u16, Option<SocketAddr>)>,
    /// Addresses of its endpoints, for headless ones.
    pub(crate) endpoints: Vec<IpAddr>,
}

/// From where Services are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// From inside the pod network, where their own addresses answer.
    Inside,
    /// From the host's network, where only published ones do.
    Host,
}

/// All Services.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    entries: Arc<RwLock<BTreeMap<ServiceKey, Entry>>>,
    name_server: Option<Ipv4Addr>,
    /// Whether Services were listed once.
    known: Arc<watch::Sender<bool>>,
}

impl Directory {
    /// An empty one; names are served at this address inside the pod network.
    pub(crate) fn new(name_server: Option<Ipv4Addr>) -> Self {
        Directory { entries: Arc::default(), name_server, known: Arc::new(watch::channel(false).0) }
    }

    /// Where pods ask for names.
    pub(crate) fn name_server(&self) -> Option<Ipv4Addr> {
        self.name_server
    }

    /// What is known of a Service.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Entry> {
        let key = ServiceKey { namespace: namespace.to_string(), name: name.to_string() };
        self.entries.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    /// Whether a Service has this address.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.values().any(|entry| entry.address == Some(address))
    }

    pub(super) fn set(&self, key: ServiceKey, entry: Option<Entry>) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        match entry {
            Some(entry) => entries.insert(key, entry),
            None => entries.remove(&key),
        };
    }

    pub(super) fn listed(&self) {
        self.known.send_replace(true);
    }

    /// Waits until Services are known, so that the first pods have their variables; not for long,
    /// because a pod without them is better than none.
    pub(crate) async fn wait(&self) {
        let mut known = self.known.subscribe();
        let _ = tokio::time::timeout(Duration::from_secs(5), known.wait_for(|known| *known)).await;
    }

    /// The variables of a pod: Services of its namespace and the API server.
    pub(crate) fn variables(&self, namespace: &str, view: View) -> Vec<(String, String)> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let mut variables = Vec::new();
        for (key, entry) in entries.iter() {
            let api_server = key.namespace == "default" && key.name == "kubernetes";
            if key.namespace == namespace || api_server {
                variables.extend(service_variables(&key.name, entry, view));
            }
        }
        variables
    }
}

fn service_variables(name: &str, entry: &Entry, view: View) -> Vec<(String, String)> {
    let prefix = name.to_uppercase().replace(['-', '.'], "_");
    let reach = |(_, port, published): &(String, u16, Option<SocketAddr>)| match view {
        View::Inside => entry.address.map(|address| SocketAddr::new(address, *port)),
        View::Host => *published,
    };
    let Some((first, at)) = entry.ports.first().and_then(|port| Some((port, reach(port)?))) else {
        return Vec::new();
    };
    let mut variables = vec![
        (format!("{prefix}_SERVICE_HOST"), at.ip().to_string()),
        (format!("{prefix}_SERVICE_PORT"), at.port().to_string()),
    ];
    for port in &entry.ports {
        if let (false, Some(at)) = (port.0.is_empty(), reach(port)) {
            let name = port.0.to_uppercase().replace('-', "_");
            variables.push((format!("{prefix}_SERVICE_PORT_{name}"), at.port().to_string()));
        }
    }
    variables.push((format!("{prefix}_PORT"), format!("tcp://{at}")));
    for port in std::iter::once(first).chain(entry.ports.iter().skip(1)) {
        if let Some(at) = reach(port) {
            let stem = format!("{prefix}_PORT_{}_TCP", port.1);
            variables.push((stem.clone(), format!("tcp://{at}")));
            variables.push((format!("{stem}_PROTO"), "tcp".to_string()));
            variables.push((format!("{stem}_PORT"), at.port().to_string()));
            variables.push((format!("{stem}_ADDR"), at.ip().to_string()));
        }
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_finds_services_of_its_namespace_and_the_api_server() {
        let directory = Directory::new(None);
        let published: SocketAddr = "127.0.0.1:20001".parse().expect("address");
        let entry = Entry {
            address: Some(IpAddr::from([10, 96, 0, 5])),
            ports: vec![("http".into(), 80, Some(published))],
            endpoints: vec![],
        };
        let key = |namespace: &str, name: &str| ServiceKey { namespace: namespace.into(), name: name.into() };
        directory.set(key("ns", "my-web"), Some(entry.clone()));
        directory.set(key("other", "x"), Some(entry.clone()));
        directory.set(key("default", "kubernetes"), Some(entry));
        let find = |view, name: &str| {
            let all = directory.variables("ns", view);
            all.into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
        };
        assert_eq!(find(View::Inside, "MY_WEB_SERVICE_HOST").as_deref(), Some("10.96.0.5"));
        assert_eq!(find(View::Inside, "MY_WEB_SERVICE_PORT_HTTP").as_deref(), Some("80"));
        assert_eq!(find(View::Host, "MY_WEB_SERVICE_PORT").as_deref(), Some("20001"));
        assert_eq!(find(View::Inside, "MY_WEB_PORT_80_TCP").as_deref(), Some("tcp://10.96.0.5:80"));
        assert!(find(View::Host, "KUBERNETES_SERVICE_HOST").is_some());
        assert!(find(View::Host, "X_SERVICE_HOST").is_none());
    }
}
