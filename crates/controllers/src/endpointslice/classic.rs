//! Endpoints, the predecessor of EndpointSlices: one object per Service, which older clients still
//! read.

use super::plan::{self, is_ours};
use super::{selecting, selector};
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort as SlicePort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::core::SelectorExt;
use std::sync::Arc;
use steersman::{Context, Controller, Error, Outcome, Reconciler};

/// Most addresses in one object; the rest is left out, and an annotation says so.
const MOST: usize = 1_000;
/// The annotation of an object that could not take all addresses.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// Keeps the Endpoints of Services.
#[derive(Debug)]
pub(crate) struct ClassicEndpoints;

/// The controller that keeps Endpoints.
pub(crate) fn controller() -> Controller<ClassicEndpoints> {
    Controller::new("endpoint-controller", ClassicEndpoints)
        .shares_its_kind()
        .owns::<Endpoints>()
        .watches::<Pod>(selecting)
        .concurrency(4)
}

impl Reconciler for ClassicEndpoints {
    type Object = Service;

    async fn reconcile(&self, service: Arc<Service>, cx: &Context) -> Result<Outcome, Error> {
        if !is_ours(&service) || service.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done);
        }
        let selector = selector(&service);
        let namespace = service.namespace().unwrap_or_default();
        let pods = cx.cache::<Pod>().list_where(&namespace, |header| selector.matches(&header.labels()));
        match cx.apply(&endpoints(&service, &pods)).await {
            Err(error) if crate::replicaset::is_namespace_terminating(&error) => Ok(Outcome::Done),
            other => other.map(|_| Outcome::Done),
        }
    }
}

/// The Endpoints of a Service with these pods.
fn endpoints(service: &Service, pods: &[Arc<Pod>]) -> Endpoints {
    let mut left = MOST;
    let mut all = 0;
    let groups = plan::groups(service, pods);
    let subsets: Vec<EndpointSubset> = groups
        .into_iter()
        .filter(|(ports, _)| !ports.is_empty() || has_no_ports(service))
        .map(|(ports, endpoints)| {
            let mut subset = EndpointSubset {
                ports: Some(ports.iter().map(port).collect()).filter(|ports: &Vec<_>| !ports.is_empty()),
                ..EndpointSubset::default()
            };
            for endpoint in endpoints {
                let conditions = endpoint.conditions.as_ref();
                // One that is leaving is in neither list, as long as nothing asks for it.
                let (ready, leaving) =
                    (conditions.and_then(|c| c.ready), conditions.and_then(|c| c.terminating));
                let list = match (ready, leaving) {
                    (Some(true), _) => &mut subset.addresses,
                    (_, Some(true)) => continue,
                    _ => &mut subset.not_ready_addresses,
                };
                all += 1;
                if left > 0 {
                    left -= 1;
                    list.get_or_insert_default().push(address(endpoint));
                }
            }
            subset
        })
        .filter(|subset| subset.addresses.is_some() || subset.not_ready_addresses.is_some())
        .collect();
    let truncated = (all > MOST).then(|| [(OVER_CAPACITY.to_owned(), "truncated".to_owned())].into());
    Endpoints {
        metadata: ObjectMeta {
            name: Some(service.name_any()),
            namespace: service.namespace(),
            labels: service.metadata.labels.clone(),
            annotations: truncated,
            ..ObjectMeta::default()
        },
        subsets: Some(subsets).filter(|subsets| !subsets.is_empty()),
    }
}

fn has_no_ports(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.ports.as_ref()).is_none_or(Vec::is_empty)
}

fn address(endpoint: Endpoint) -> EndpointAddress {
    EndpointAddress {
        ip: endpoint.addresses.into_iter().next().unwrap_or_default(),
        hostname: endpoint.hostname,
        node_name: endpoint.node_name,
        target_ref: endpoint.target_ref,
    }
}

fn port(port: &SlicePort) -> EndpointPort {
    EndpointPort {
        name: port.name.clone().filter(|name| !name.is_empty()),
        port: port.port.unwrap_or_default(),
        protocol: port.protocol.clone(),
        app_protocol: port.app_protocol.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service() -> Service {
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "n"}, "spec": {
            "clusterIP": "10.96.0.5", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}}))
        .expect("a service")
    }

    fn pod(number: usize, ready: &str) -> Arc<Pod> {
        let ip = format!("10.244.{}.{}", number / 250, number % 250);
        let pod = json!({"metadata": {"name": format!("p{number}"), "uid": format!("u{number}")},
            "spec": {"containers": []}, "status": {"phase": "Running", "podIP": ip,
                "conditions": [{"type": "Ready", "status": ready}]}});
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    #[test]
    fn ready_pods_and_others_are_listed_apart() {
        let object = endpoints(&service(), &[pod(1, "True"), pod(2, "False"), pod(3, "True")]);
        let subsets = object.subsets.expect("subsets");
        assert_eq!(subsets.len(), 1);
        let ips = |list: &Option<Vec<EndpointAddress>>| {
            list.iter().flatten().map(|address| address.ip.clone()).collect::<Vec<_>>()
        };
        assert_eq!(ips(&subsets[0].addresses), ["10.244.0.1", "10.244.0.3"]);
        assert_eq!(ips(&subsets[0].not_ready_addresses), ["10.244.0.2"]);
        assert_eq!(subsets[0].ports.as_ref().map(|ports| ports[0].port), Some(8080));
    }

    #[test]
    fn without_pods_there_are_no_subsets() {
        assert_eq!(endpoints(&service(), &[]).subsets, None);
    }

    #[test]
    fn too_many_addresses_are_cut_and_that_is_said() {
        let pods: Vec<_> = (1..=1_100).map(|number| pod(number, "True")).collect();
        let object = endpoints(&service(), &pods);
        assert_eq!(object.annotations()[OVER_CAPACITY], "truncated");
        let kept: usize = object.subsets.iter().flatten().flat_map(|s| &s.addresses).map(Vec::len).sum();
        assert_eq!(kept, MOST);
    }
}
