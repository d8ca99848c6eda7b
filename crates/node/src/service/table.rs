//! From Services and EndpointSlices to what is listened on and where it leads. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;

/// A Service by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServiceKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ServiceKey {
    pub(crate) fn of(service: &Service) -> Self {
        ServiceKey { namespace: service.namespace().unwrap_or_default(), name: service.name_any() }
    }

    /// The Service that a slice belongs to, by its label alone: whoever writes slices for a
    /// Service takes part in it.
    pub(crate) fn of_slice(slice: &EndpointSlice) -> Option<Self> {
        let name = slice.labels().get("kubernetes.io/service-name")?.clone();
        Some(ServiceKey { namespace: slice.namespace().unwrap_or_default(), name })
    }
}

/// One port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) number: u16,
    pub(crate) node_port: Option<u16>,
    /// Where connections go, in a stable order.
    pub(crate) backends: Vec<SocketAddr>,
}

/// The TCP ports of a Service with their endpoints.
pub(crate) fn ports<'a>(
    service: &Service,
    slices: &(impl Iterator<Item = &'a EndpointSlice> + Clone),
) -> Vec<Port> {
    let Some(spec) = &service.spec else { return Vec::new() };
    if spec.type_.as_deref() == Some("ExternalName") {
        return Vec::new();
    }
    let tcp = |protocol: Option<&str>| protocol.is_none_or(|protocol| protocol == "TCP");
    spec.ports
        .iter()
        .flatten()
        .filter(|port| tcp(port.protocol.as_deref()))
        .filter_map(|port| {
            let name = port.name.clone().unwrap_or_default();
            let narrow = |number: i32| u16::try_from(number).ok().filter(|number| *number > 0);
            Some(Port {
                number: narrow(port.port)?,
                node_port: port.node_port.and_then(narrow),
                backends: backends(&name, slices.clone()),
                name,
            })
        })
        .collect()
}

/// The endpoints of a port: those that are ready; when none is, those that still serve while
/// they end, so that a rollout of a single replica loses nothing.
fn backends<'a>(name: &str, slices: impl Iterator<Item = &'a EndpointSlice>) -> Vec<SocketAddr> {
    let mut ready = BTreeSet::new();
    let mut ending = BTreeSet::new();
    for slice in slices {
        let ports = slice.ports.iter().flatten();
        let Some(number) = ports
            .filter(|port| port.name.as_deref().unwrap_or_default() == name)
            .find_map(|port| u16::try_from(port.port?).ok())
        else {
            continue;
        };
        for endpoint in slice.endpoints.iter().flatten() {
            let conditions = endpoint.conditions.as_ref();
            let is_ready = conditions.and_then(|one| one.ready).unwrap_or(true);
            let serves = conditions.and_then(|one| one.serving).unwrap_or(is_ready);
            let addresses = endpoint.addresses.iter().filter_map(|text| text.parse::<IpAddr>().ok());
            for address in addresses {
                let address = SocketAddr::new(address, number);
                if is_ready {
                    ready.insert(address);
                } else if serves {
                    ending.insert(address);
                }
            }
        }
    }
    let chosen = if ready.is_empty() { ending } else { ready };
    chosen.into_iter().collect()
}

/// The address at which a Service is reached inside the cluster.
pub(crate) fn cluster_address(service: &Service) -> Option<IpAddr> {
    service.spec.as_ref()?.cluster_ip.as_deref()?.parse().ok()
}

/// Slices by the Service they belong to.
#[derive(Debug, Default)]
pub(crate) struct Slices(BTreeMap<ServiceKey, BTreeMap<String, EndpointSlice>>);

impl Slices {
    /// Puts one in; returns the Service that it changes.
    pub(crate) fn set(&mut self, slice: EndpointSlice) -> Option<ServiceKey> {
        let key = ServiceKey::of_slice(&slice)?;
        self.0.entry(key.clone()).or_default().insert(slice.name_any(), slice);
        Some(key)
    }

    /// Takes one out; returns the Service that it changes.
    pub(crate) fn remove(&mut self, slice: &EndpointSlice) -> Option<ServiceKey> {
        let key = ServiceKey::of_slice(slice)?;
        self.0.get_mut(&key)?.remove(&slice.name_any());
        Some(key)
    }

    /// Replaces all of them.
    pub(crate) fn reset(&mut self, slices: Vec<EndpointSlice>) {
        self.0.clear();
        for slice in slices {
            self.set(slice);
        }
    }

    /// Those of a Service.
    pub(crate) fn of(&self, key: &ServiceKey) -> impl Iterator<Item = &EndpointSlice> + Clone {
        self.0.get(key).into_iter().flat_map(BTreeMap::values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Service {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "web", "namespace": "ns"},
            "spec": {"clusterIP": "10.96.0.5", "ports": [
                {"name": "http", "port": 80, "nodePort": 30080},
                {"name": "dns", "port": 53, "protocol": "UDP"},
            ]},
        }))
        .expect("a service")
    }

    fn slice(name: &str, port: &str, endpoints: &serde_json::Value) -> EndpointSlice {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "namespace": "ns",
                "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "ports": [{"name": port, "port": 8080}],
            "endpoints": endpoints,
        }))
        .expect("a slice")
    }

    fn shown(slices: &[EndpointSlice]) -> Vec<String> {
        let ports = ports(&service(), &slices.iter());
        assert_eq!(ports.len(), 1, "only TCP");
        ports[0].backends.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ready_endpoints_of_every_slice_take_part() {
        let slices = [
            slice(
                "a",
                "http",
                &serde_json::json!([
                    {"addresses": ["10.244.0.3"], "conditions": {"ready": true}},
                    {"addresses": ["10.244.0.2"], "conditions": {"ready": false, "serving": true}},
                ]),
            ),
            slice("b", "http", &serde_json::json!([{"addresses": ["10.244.0.9"]}])),
            slice("c", "other", &serde_json::json!([{"addresses": ["10.244.0.7"]}])),
        ];
        assert_eq!(shown(&slices), ["10.244.0.3:8080", "10.244.0.9:8080"]);
    }

    #[test]
    fn when_none_is_ready_those_that_end_still_serve() {
        let slices = [slice(
            "a",
            "http",
            &serde_json::json!([
                {"addresses": ["10.244.0.2"], "conditions": {"ready": false, "serving": true}},
                {"addresses": ["10.244.0.3"], "conditions": {"ready": false, "serving": false}},
            ]),
        )];
        assert_eq!(shown(&slices), ["10.244.0.2:8080"]);
    }

    #[test]
    fn a_slice_without_the_label_belongs_to_nobody() {
        let mut slices = Slices::default();
        let mut stray = slice("a", "http", &serde_json::json!([]));
        stray.metadata.labels = None;
        assert_eq!(slices.set(stray), None);
        let key = slices.set(slice("a", "http", &serde_json::json!([]))).expect("its service");
        assert_eq!(key.name, "web");
        assert_eq!(slices.of(&key).count(), 1);
    }

    #[test]
    fn a_headless_service_has_no_address() {
        let mut headless = service();
        assert!(cluster_address(&headless).is_some());
        headless.spec.as_mut().expect("spec").cluster_ip = Some("None".into());
        assert_eq!(cluster_address(&headless), None);
    }
}
