//! Reading the world: Services, their endpoints, and the resolvers.

use crate::names;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use steersman::View;
use steersman_resolver::{Backend, ServicePort};

/// The label by which a slice says whose it is.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label by which a slice says who looks after it.
pub(crate) const SLICE_MANAGER: &str = "endpointslice.kubernetes.io/managed-by";

/// The slices of a Service, without ours.
pub(crate) fn native(
    slices: &View<EndpointSlice>,
    namespace: &str,
    service: &str,
) -> Vec<Arc<EndpointSlice>> {
    slices.list_where(namespace, |header| {
        let labels = header.labels();
        labels.get(SERVICE_NAME).is_some_and(|name| name == service)
            && labels.get(SLICE_MANAGER).is_none_or(|manager| manager != names::MANAGED_BY)
    })
}

/// Whether an endpoint takes requests, and says so.
fn is_ready(endpoint: &Endpoint) -> bool {
    let Some(conditions) = &endpoint.conditions else { return false };
    conditions.ready == Some(true) && conditions.terminating != Some(true)
}

/// The addresses of endpoints that are ready.
pub(crate) fn ready(slices: &[Arc<EndpointSlice>]) -> Vec<IpAddr> {
    let endpoints = slices.iter().flat_map(|slice| &slice.endpoints).flatten().filter(|one| is_ready(one));
    let addresses: BTreeSet<IpAddr> =
        endpoints.flat_map(|endpoint| &endpoint.addresses).filter_map(|text| text.parse().ok()).collect();
    addresses.into_iter().collect()
}

/// How many pods a Service has, ready or not.
pub(crate) fn endpoints(slices: &[Arc<EndpointSlice>]) -> usize {
    slices.iter().flat_map(|slice| &slice.endpoints).map(Vec::len).sum()
}

/// The ports of a Service over which requests can come.
pub(crate) fn ports(service: &Service) -> Vec<ServicePort> {
    let ports = service.spec.iter().flat_map(|spec| &spec.ports).flatten();
    ports
        .filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"))
        .filter_map(|port| {
            let number = u16::try_from(port.port).ok()?;
            Some(ServicePort { number, name: port.name.clone().unwrap_or_default() })
        })
        .collect()
}

/// The pods behind a Service that are ready, with their ports.
pub(crate) fn backends(ports: &[ServicePort], slices: &[Arc<EndpointSlice>]) -> Vec<Backend> {
    let mut found: BTreeMap<IpAddr, BTreeMap<u16, u16>> = BTreeMap::new();
    for slice in slices {
        let named: BTreeMap<&str, u16> = slice
            .ports
            .iter()
            .flatten()
            .filter_map(|port| Some((port.name.as_deref().unwrap_or(""), u16::try_from(port.port?).ok()?)))
            .collect();
        let mapped: BTreeMap<u16, u16> =
            ports.iter().filter_map(|port| Some((port.number, *named.get(port.name.as_str())?))).collect();
        let endpoints = slice.endpoints.iter().flatten().filter(|endpoint| is_ready(endpoint));
        // All addresses of one endpoint are the same pod.
        for address in endpoints.filter_map(|endpoint| endpoint.addresses.first()?.parse().ok()) {
            found.entry(address).or_default().extend(&mapped);
        }
    }
    found.into_iter().map(|(address, ports)| Backend { address, ports }).collect()
}

/// Why a Service cannot be made to sleep, in words for the user.
pub(crate) fn problem(service: &Service) -> Option<String> {
    let name = service.name_any();
    let spec = service.spec.clone().unwrap_or_default();
    if spec.type_.as_deref() == Some("ExternalName") {
        return Some(format!("Service {name} is an ExternalName: it has no pods that could sleep"));
    }
    if spec.cluster_ip.as_deref() == Some("None") {
        return Some(format!(
            "Service {name} is headless: its clients look for the pods themselves and would never ask the \
             resolver; give it a cluster IP"
        ));
    }
    if spec.selector.unwrap_or_default().is_empty() {
        return Some(format!("Service {name} has no selector, so that nothing says when its pods are ready"));
    }
    ports(service).is_empty().then(|| format!("Service {name} has no TCP port"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn slice(value: Value) -> Vec<Arc<EndpointSlice>> {
        vec![Arc::new(serde_json::from_value(value).expect("a slice"))]
    }

    #[test]
    fn only_endpoints_that_say_that_they_are_ready_count() {
        let slices =
            slice(json!({"addressType": "IPv4", "ports": [{"name": "web", "port": 8080}], "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
            {"addresses": ["10.0.0.3"], "conditions": {"ready": true, "terminating": true}},
            {"addresses": ["10.0.0.4"], "conditions": {}},
            {"addresses": ["10.0.0.5"]}]}));
        assert_eq!(ready(&slices), ["10.0.0.1".parse::<IpAddr>().expect("an address")]);
        let port = ServicePort { number: 80, name: "web".into() };
        let backends = backends(&[port], &slices);
        assert_eq!(backends.len(), 1);
        assert_eq!(backends[0].ports, BTreeMap::from([(80, 8080)]));
    }

    #[test]
    fn services_that_cannot_sleep_are_told_why() {
        for (spec, expected) in [
            (json!({"type": "ExternalName", "externalName": "example.com"}), "is an ExternalName"),
            (json!({"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]}), "is headless"),
            (json!({"ports": [{"port": 80}]}), "has no selector"),
            (json!({"selector": {"a": "b"}, "ports": [{"port": 53, "protocol": "UDP"}]}), "has no TCP port"),
        ] {
            let service: Service = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec}))
                .expect("a Service");
            let problem = problem(&service).expect(expected);
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
