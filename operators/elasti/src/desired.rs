//! What an ElastiService declares: the private Service, and the slices that lead to the resolver.

use crate::names;
use crate::options::ElastiOptions;
use crate::ports::Own;
use crate::world::{self, SERVICE_NAME, SLICE_MANAGER};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use kube::ResourceExt;
use kube::core::ObjectMeta;
use std::net::IpAddr;

/// The Service that leads to the pods whatever the public one does. Always inside the cluster:
/// a second load balancer would cost, and its annotations would claim the first one's name.
pub(crate) fn private_service(public: &Service) -> Service {
    let spec = public.spec.clone().unwrap_or_default();
    let ports = spec.ports.map(|ports| {
        ports.into_iter().map(|port| ServicePort { node_port: None, ..port }).collect::<Vec<_>>()
    });
    Service {
        metadata: metadata(names::private_service(&public.name_any()), public),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".into()),
            selector: spec.selector,
            ports,
            publish_not_ready_addresses: spec.publish_not_ready_addresses,
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// The slices that lead to the resolver, one per family of addresses.
pub(crate) fn slices(
    public: &Service,
    resolvers: &[IpAddr],
    own: &Own,
    options: &ElastiOptions,
) -> Vec<EndpointSlice> {
    let name = names::slice(&public.name_any());
    let four: Vec<&IpAddr> = resolvers.iter().filter(|address| address.is_ipv4()).collect();
    let six: Vec<&IpAddr> = resolvers.iter().filter(|address| address.is_ipv6()).collect();
    [(four, "IPv4", name.clone()), (six, "IPv6", format!("{name}-v6"))]
        .into_iter()
        .filter(|(addresses, _, _)| !addresses.is_empty())
        .map(|(addresses, family, name)| {
            let mut metadata = metadata(name, public);
            metadata.labels = Some(
                [(SERVICE_NAME, public.name_any()), (SLICE_MANAGER, names::MANAGED_BY.to_owned())]
                    .map(|(key, value)| (key.to_owned(), value))
                    .into(),
            );
            EndpointSlice {
                metadata,
                address_type: family.into(),
                endpoints: Some(addresses.into_iter().map(endpoint).collect()),
                ports: Some(endpoint_ports(public, own, options.proxy_port)),
            }
        })
        .collect()
}

fn metadata(name: String, public: &Service) -> ObjectMeta {
    ObjectMeta { name: Some(name), namespace: public.namespace(), ..ObjectMeta::default() }
}

/// Readiness is spelt out: some ingresses skip endpoints that leave it open.
fn endpoint(address: &IpAddr) -> Endpoint {
    Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(true),
            serving: Some(true),
            terminating: Some(false),
        }),
        ..Endpoint::default()
    }
}

/// Every port of the Service, leading to its own at the resolver, or to the one that all share.
fn endpoint_ports(public: &Service, own: &Own, proxy: u16) -> Vec<EndpointPort> {
    world::ports(public)
        .into_iter()
        .map(|port| EndpointPort {
            port: Some(own.get(&port.number).copied().unwrap_or(proxy).into()),
            name: Some(port.name),
            protocol: Some("TCP".into()),
            ..EndpointPort::default()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn public() -> Service {
        serde_json::from_value(json!({"metadata": {"name": "service", "namespace": "shop",
            "annotations": {"external-dns": "x"}, "labels": {"app": "web"}},
            "spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.9", "selector": {"app": "web"}, "ports": [
                {"name": "http", "port": 80, "nodePort": 31000},
                {"name": "grpc", "port": 9000}, {"name": "dns", "port": 53, "protocol": "UDP"}]}}))
        .expect("a Service")
    }

    #[test]
    fn the_private_service_stays_inside_the_cluster() {
        let private = private_service(&public());
        let spec = private.spec.clone().expect("a spec");
        assert_eq!(private.name_any(), "elasti-service-pvt-9df6b026a8");
        assert_eq!((spec.type_.as_deref(), spec.cluster_ip), (Some("ClusterIP"), None));
        assert!(spec.ports.expect("ports").iter().all(|port| port.node_port.is_none()));
        assert!(private.annotations().is_empty());
    }

    #[test]
    fn slices_have_every_port_and_say_that_they_are_ready() {
        let resolvers = ["10.0.0.1", "fd00::1"].map(|text| text.parse().expect("an address"));
        let own = Own::from([(9000, 10_007)]);
        let slices = slices(&public(), &resolvers, &own, &ElastiOptions::default());
        assert_eq!(slices.len(), 2);
        let four = &slices[0];
        assert_eq!(four.name_any(), "elasti-service-endpointslice-to-resolver-9df6b026a8");
        assert_eq!(four.labels()[SERVICE_NAME], "service");
        let ports: Vec<_> = four
            .ports
            .iter()
            .flatten()
            .map(|port| (port.name.clone().unwrap_or_default(), port.port))
            .collect();
        assert_eq!(ports, [("http".to_owned(), Some(8012)), ("grpc".to_owned(), Some(10_007))]);
        let conditions =
            four.endpoints.as_ref().and_then(|all| all[0].conditions.clone()).expect("conditions");
        assert_eq!(conditions.ready, Some(true));
        assert_eq!(slices[1].address_type, "IPv6");
    }
}
