//! Which EndpointSlices a Service should have, decided without any I/O.
//!
//! The pods of a Service are grouped by the ports they really listen on (a named target port may
//! be another number in every pod). Each group fills slices of at most a hundred endpoints.
//! Endpoints stay in the slice they are in, so that one pod that comes or goes changes one slice.

use crate::owner::controller_reference;
use crate::pods::{is_ready, is_terminal, named_port, node_name};
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The label by which a slice names its Service.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label by which a slice names the one who maintains it.
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Us. Slices that say otherwise are never touched.
pub(super) const MANAGER: &str = "endpointslice-controller.k8s.io";
/// The label of slices of a Service without an address of its own.
const HEADLESS: &str = "service.kubernetes.io/headless";
/// Most endpoints in one slice.
const FULL: usize = 100;

/// One write to an EndpointSlice.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Create a slice; its name is generated.
    Create(Box<EndpointSlice>),
    /// Replace the content of a slice of ours.
    Replace(Box<EndpointSlice>),
    /// Delete a slice of ours that is empty.
    Delete(Arc<EndpointSlice>),
}

/// Plans the slices of a Service with a selector.
///
/// `pods` are those that match; `slices` all slices that name the Service and are ours;
/// `node` finds a node by name, for its zone.
pub(super) fn plan(
    service: &Service,
    pods: &[Arc<Pod>],
    slices: Vec<Arc<EndpointSlice>>,
    node: impl Fn(&str) -> Option<Arc<Node>>,
) -> Vec<Action> {
    let mut slices: Vec<Slice> = slices.into_iter().map(Slice::of).collect();
    slices.sort_by_key(|slice| slice.live.as_ref().map(|live| live.name_any()));
    let mut planned = Vec::new();
    for family in families(service) {
        let mut groups = grouped(service, pods, family, &node);
        if groups.is_empty() {
            // An empty slice says "I looked, and there is nothing": proxies rely on it.
            let ports = Vec::new();
            groups.insert(PortsKey::of(&ports), Group::new(ports));
        }
        for (_, group) in groups {
            planned.append(&mut fill(group, family, &mut slices));
        }
    }
    let mut actions: Vec<Action> = planned.into_iter().filter_map(|slice| slice.action(service)).collect();
    actions.extend(slices.into_iter().filter_map(|slice| slice.live).map(Action::Delete));
    actions
}

/// The endpoints of a Service in its first address family, grouped by their ports.
pub(super) fn groups(service: &Service, pods: &[Arc<Pod>]) -> Vec<(Vec<EndpointPort>, Vec<Endpoint>)> {
    let family = families(service).first().copied().unwrap_or(Family::V4);
    let groups = grouped(service, pods, family, |_| None);
    groups.into_values().map(|group| (group.ports, group.endpoints)).collect()
}

fn grouped(
    service: &Service,
    pods: &[Arc<Pod>],
    family: Family,
    node: impl Fn(&str) -> Option<Arc<Node>>,
) -> BTreeMap<PortsKey, Group> {
    let mut groups: BTreeMap<PortsKey, Group> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| is_published(pod)) {
        let Some(endpoint) = endpoint(pod, service, family, &node) else { continue };
        let ports = ports(service, pod);
        groups.entry(PortsKey::of(&ports)).or_insert_with(|| Group::new(ports)).endpoints.push(endpoint);
    }
    groups
}

/// Whether the kind of Service has endpoints that we find.
pub(super) fn is_ours(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    let selects = spec.and_then(|spec| spec.selector.as_ref()).is_some_and(|selector| !selector.is_empty());
    selects && spec.and_then(|spec| spec.type_.as_deref()) != Some("ExternalName")
}

/// Whether a pod appears in a Service's slices at all: it has an address and has not finished. One
/// on its way out stays in, marked as terminating.
fn is_published(pod: &Pod) -> bool {
    !is_terminal(pod) && addresses(pod).next().is_some()
}

/// The address families of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    fn holds(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self == Self::V4)
    }
}

fn families(service: &Service) -> Vec<Family> {
    let spec = service.spec.as_ref();
    let named: Vec<Family> = spec
        .and_then(|spec| spec.ip_families.as_ref())
        .into_iter()
        .flatten()
        .filter_map(|family| match family.as_str() {
            "IPv4" => Some(Family::V4),
            "IPv6" => Some(Family::V6),
            _ => None,
        })
        .collect();
    if !named.is_empty() {
        return named;
    }
    let address = spec.and_then(|spec| spec.cluster_ip.as_deref()).and_then(|ip| ip.parse::<IpAddr>().ok());
    vec![if address.is_some_and(|address| address.is_ipv6()) { Family::V6 } else { Family::V4 }]
}

fn addresses(pod: &Pod) -> impl Iterator<Item = IpAddr> {
    let status = pod.status.as_ref();
    let many =
        status.and_then(|status| status.pod_ips.as_ref()).into_iter().flatten().map(|ip| ip.ip.as_str());
    let one = status.and_then(|status| status.pod_ip.as_deref());
    let listed = status.and_then(|status| status.pod_ips.as_ref()).is_some_and(|ips| !ips.is_empty());
    many.chain(one.filter(move |_| !listed)).filter_map(|ip| ip.parse().ok())
}

fn endpoint(
    pod: &Pod,
    service: &Service,
    family: Family,
    node: impl Fn(&str) -> Option<Arc<Node>>,
) -> Option<Endpoint> {
    let addresses: Vec<String> =
        addresses(pod).filter(|address| family.holds(*address)).map(|address| address.to_string()).collect();
    if addresses.is_empty() {
        return None;
    }
    let spec = service.spec.as_ref();
    let serving = is_ready(pod);
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let publish_all = spec.and_then(|spec| spec.publish_not_ready_addresses).unwrap_or(false);
    let zone = node_name(pod)
        .and_then(node)
        .and_then(|node| node.labels().get("topology.kubernetes.io/zone").cloned());
    let pod_spec = pod.spec.as_ref();
    let in_subdomain =
        pod_spec.and_then(|spec| spec.subdomain.as_deref()) == Some(service.name_any().as_str());
    let hostname =
        pod_spec.and_then(|spec| spec.hostname.clone()).filter(|name| in_subdomain && !name.is_empty());
    Some(Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(publish_all || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname,
        node_name: node_name(pod).map(str::to_owned),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".into()),
            namespace: pod.namespace(),
            name: Some(pod.name_any()),
            uid: pod.uid(),
            ..ObjectReference::default()
        }),
        zone,
        ..Endpoint::default()
    })
}

/// The ports a Service's traffic goes to in one pod. A named port the pod does not have is left
/// out.
fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref()).into_iter().flatten();
    ports
        .filter_map(|port| {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let number = match &port.target_port {
                None | Some(IntOrString::Int(0)) => port.port,
                Some(IntOrString::Int(number)) => *number,
                Some(IntOrString::String(name)) => named_port(pod, name, protocol)?,
            };
            Some(EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(number),
                protocol: Some(protocol.into()),
                app_protocol: port.app_protocol.clone(),
            })
        })
        .collect()
}

/// Ports in a form that can be compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PortsKey(Vec<(String, i32, String, Option<String>)>);

impl PortsKey {
    fn of(ports: &[EndpointPort]) -> Self {
        let mut key: Vec<_> = ports
            .iter()
            .map(|port| {
                let name = port.name.clone().unwrap_or_default();
                let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".into());
                (name, port.port.unwrap_or(0), protocol, port.app_protocol.clone())
            })
            .collect();
        key.sort();
        Self(key)
    }
}

/// Endpoints that listen on the same ports.
struct Group {
    ports: Vec<EndpointPort>,
    endpoints: Vec<Endpoint>,
}

impl Group {
    fn new(ports: Vec<EndpointPort>) -> Self {
        Self { ports, endpoints: Vec::new() }
    }
}

/// A slice that is there, or is to be.
struct Slice {
    live: Option<Arc<EndpointSlice>>,
    family: &'static str,
    ports: Vec<EndpointPort>,
    endpoints: Vec<Endpoint>,
}

impl Slice {
    fn of(live: Arc<EndpointSlice>) -> Self {
        let family = if live.address_type == "IPv6" { "IPv6" } else { "IPv4" };
        Self {
            family,
            ports: live.ports.clone().unwrap_or_default(),
            endpoints: endpoints(&live).to_vec(),
            live: Some(live),
        }
    }

    fn action(self, service: &Service) -> Option<Action> {
        let labels = labels(service);
        let ports = Some(self.ports).filter(|ports| !ports.is_empty());
        match self.live {
            Some(live) => {
                let same = endpoints(&live) == self.endpoints
                    && PortsKey::of(live.ports.as_deref().unwrap_or_default())
                        == PortsKey::of(ports.as_deref().unwrap_or_default())
                    && *live.labels() == labels;
                if same {
                    return None;
                }
                let mut slice = Arc::unwrap_or_clone(live);
                slice.metadata.labels = Some(labels);
                slice.metadata.managed_fields = None;
                slice.endpoints = Some(self.endpoints);
                slice.ports = ports;
                Some(Action::Replace(Box::new(slice)))
            }
            None => Some(Action::Create(Box::new(EndpointSlice {
                metadata: ObjectMeta {
                    generate_name: Some(format!("{}-", service.name_any())),
                    namespace: service.namespace(),
                    labels: Some(labels),
                    owner_references: Some(vec![controller_reference(service)]),
                    ..ObjectMeta::default()
                },
                address_type: self.family.into(),
                endpoints: Some(self.endpoints),
                ports,
            }))),
        }
    }
}

/// The endpoints in a slice.
fn endpoints(slice: &EndpointSlice) -> &[Endpoint] {
    slice.endpoints.as_deref().unwrap_or_default()
}

/// The labels of a Service's slices: the Service's own, and those that say whose they are.
fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.labels().clone();
    for reserved in [SERVICE_NAME, MANAGED_BY, HEADLESS] {
        labels.remove(reserved);
    }
    let address = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref());
    if matches!(address, None | Some("" | "None")) {
        labels.insert(HEADLESS.into(), String::new());
    }
    labels.insert(SERVICE_NAME.into(), service.name_any());
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    labels
}

/// Distributes a group over the slices that already serve its ports, and new ones for the rest.
/// Slices that are used leave `slices`.
fn fill(group: Group, family: Family, slices: &mut Vec<Slice>) -> Vec<Slice> {
    let key = PortsKey::of(&group.ports);
    let fits = |slice: &Slice| slice.family == family.name() && PortsKey::of(&slice.ports) == key;
    let (mut mine, rest): (Vec<Slice>, Vec<Slice>) = std::mem::take(slices).into_iter().partition(fits);
    *slices = rest;
    let mut wanted: BTreeMap<String, Endpoint> =
        group.endpoints.into_iter().map(|endpoint| (identity(&endpoint), endpoint)).collect();
    // What stays, stays where it is.
    for slice in &mut mine {
        let kept = std::mem::take(&mut slice.endpoints);
        slice.endpoints = kept.iter().filter_map(|endpoint| wanted.remove(&identity(endpoint))).collect();
        let overflow = slice.endpoints.split_off(slice.endpoints.len().min(FULL));
        wanted.extend(overflow.into_iter().map(|endpoint| (identity(&endpoint), endpoint)));
    }
    let mut newcomers: Vec<Endpoint> = wanted.into_values().collect();
    newcomers.reverse();
    // The fullest first, so that few slices change and few are left.
    mine.sort_by_key(|slice| std::cmp::Reverse(slice.endpoints.len()));
    for slice in &mut mine {
        while slice.endpoints.len() < FULL {
            let Some(endpoint) = newcomers.pop() else { break };
            slice.endpoints.push(endpoint);
        }
    }
    while !newcomers.is_empty() || mine.is_empty() {
        let endpoints = newcomers.split_off(newcomers.len().saturating_sub(FULL)).into_iter().rev().collect();
        mine.push(Slice { live: None, family: family.name(), ports: group.ports.clone(), endpoints });
    }
    // Empty slices go, but for the last one.
    let used = mine.iter().filter(|slice| !slice.endpoints.is_empty()).count();
    let keep = used.max(1);
    let spare = mine.split_off(keep.min(mine.len()));
    slices.extend(spare);
    mine
}

/// What makes two endpoints the same one.
fn identity(endpoint: &Endpoint) -> String {
    let target = endpoint.target_ref.as_ref();
    let uid = target.and_then(|target| target.uid.as_deref()).unwrap_or_default();
    let name = target.and_then(|target| target.name.as_deref()).unwrap_or_default();
    format!("{name}/{uid}/{}", endpoint.addresses.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(spec: &Value) -> Service {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "n", "uid": "svc", "labels": {"team": "a"}}, "spec": spec
        }))
        .expect("a service")
    }

    fn plain() -> Service {
        service(&json!({"clusterIP": "10.96.0.5", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
            "ports": [{"port": 80, "targetPort": 8080}]}))
    }

    fn pod(number: usize, change: impl FnOnce(&mut Value)) -> Arc<Pod> {
        let mut value = json!({
            "metadata": {"name": format!("p{number:03}"), "namespace": "n", "uid": format!("u{number}")},
            "spec": {"nodeName": "node", "containers": []},
            "status": {"phase": "Running", "podIP": format!("10.244.0.{number}"),
                "podIPs": [{"ip": format!("10.244.0.{number}")}],
                "conditions": [{"type": "Ready", "status": "True"}]}
        });
        change(&mut value);
        Arc::new(serde_json::from_value(value).expect("a pod"))
    }

    fn no_node(_: &str) -> Option<Arc<Node>> {
        None
    }

    /// Carries out a plan: what is there afterwards.
    fn carry_out(actions: Vec<Action>, slices: &[Arc<EndpointSlice>]) -> Vec<Arc<EndpointSlice>> {
        let mut after: BTreeMap<String, Arc<EndpointSlice>> =
            slices.iter().map(|slice| (slice.name_any(), slice.clone())).collect();
        for (number, action) in actions.into_iter().enumerate() {
            match action {
                Action::Create(mut slice) => {
                    slice.metadata.name = Some(format!("web-{}-{number}", after.len()));
                    after.insert(slice.name_any(), Arc::new(*slice));
                }
                Action::Replace(slice) => {
                    after.insert(slice.name_any(), Arc::new(*slice));
                }
                Action::Delete(slice) => {
                    after.remove(&slice.name_any());
                }
            }
        }
        after.into_values().collect()
    }

    #[test]
    fn a_service_without_pods_has_one_empty_slice() {
        let actions = plan(&plain(), &[], vec![], no_node);
        let slices = carry_out(actions, &[]);
        assert_eq!(slices.len(), 1);
        assert!(endpoints(&slices[0]).is_empty());
        assert_eq!(slices[0].labels()[SERVICE_NAME], "web");
        assert_eq!(slices[0].labels()[MANAGED_BY], MANAGER);
        assert_eq!(slices[0].labels()["team"], "a");
        assert_eq!(plan(&plain(), &[], slices, no_node), vec![], "and that is all");
    }

    #[test]
    fn conditions_tell_ready_serving_and_terminating_apart() {
        let pods = [
            pod(1, |_| {}),
            pod(2, |pod| pod["status"]["conditions"][0]["status"] = "False".into()),
            pod(3, |pod| pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into()),
            pod(4, |pod| pod["status"]["phase"] = "Failed".into()),
            pod(5, |pod| pod["status"] = json!({"phase": "Pending"})),
        ];
        let slices = carry_out(plan(&plain(), &pods, vec![], no_node), &[]);
        let seen: Vec<_> = endpoints(&slices[0])
            .iter()
            .map(|endpoint| {
                let conditions = endpoint.conditions.clone().unwrap_or_default();
                (endpoint.addresses[0].as_str(), conditions.ready, conditions.serving, conditions.terminating)
            })
            .collect();
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(
            seen,
            [("10.244.0.1", yes, yes, no), ("10.244.0.2", no, no, no), ("10.244.0.3", no, yes, yes),]
        );
        assert_eq!(slices[0].ports.as_ref().map(|ports| ports[0].port), Some(Some(8080)));
    }

    #[test]
    fn a_service_may_publish_pods_that_are_not_ready() {
        let mut service = plain();
        service.spec.get_or_insert_default().publish_not_ready_addresses = Some(true);
        let unready = pod(1, |pod| pod["status"]["conditions"] = json!([]));
        let slices = carry_out(plan(&service, &[unready], vec![], no_node), &[]);
        let conditions = endpoints(&slices[0])[0].conditions.clone().unwrap_or_default();
        assert_eq!((conditions.ready, conditions.serving), (Some(true), Some(false)));
    }

    #[test]
    fn a_named_port_may_be_another_number_in_every_pod() {
        let service = service(&json!({"clusterIP": "None", "ipFamilies": ["IPv4"],
            "ports": [{"name": "http", "port": 80, "targetPort": "web"}]}));
        let port = |number: i32| {
            move |pod: &mut Value| {
                pod["spec"]["containers"] =
                    json!([{"name": "c", "ports": [{"name": "web", "containerPort": number}]}]);
            }
        };
        let pods = [pod(1, port(8080)), pod(2, port(9090)), pod(3, port(8080)), pod(4, |_| {})];
        let slices = carry_out(plan(&service, &pods, vec![], no_node), &[]);
        let mut seen: Vec<_> = slices
            .iter()
            .map(|slice| (slice.ports.as_ref().and_then(|ports| ports[0].port), endpoints(slice).len()))
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, [(None, 1), (Some(8080), 2), (Some(9090), 1)]);
        assert!(slices[0].labels().contains_key(HEADLESS));
    }

    #[test]
    fn slices_hold_a_hundred_and_one_pod_changes_one_slice() {
        let pods: Vec<_> = (1..=240).map(|number| pod(number, |_| {})).collect();
        let slices = carry_out(plan(&plain(), &pods, vec![], no_node), &[]);
        let mut sizes: Vec<_> = slices.iter().map(|slice| endpoints(slice).len()).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [40, 100, 100]);
        assert_eq!(plan(&plain(), &pods, slices.clone(), no_node), vec![]);
        let without: Vec<_> = pods.iter().filter(|pod| pod.name_any() != "p007").cloned().collect();
        assert_eq!(plan(&plain(), &without, slices.clone(), no_node).len(), 1);
        let few: Vec<_> = pods[..50].to_vec();
        let left = carry_out(plan(&plain(), &few, slices.clone(), no_node), &slices);
        assert_eq!(left.iter().map(|slice| endpoints(slice).len()).sum::<usize>(), 50);
        let none = carry_out(plan(&plain(), &[], left.clone(), no_node), &left);
        assert_eq!(none.len(), 1);
    }

    #[test]
    fn each_address_family_has_its_own_slices() {
        let mut service = plain();
        service.spec.get_or_insert_default().ip_families = Some(vec!["IPv4".into(), "IPv6".into()]);
        let dual = pod(1, |pod| pod["status"]["podIPs"] = json!([{"ip": "10.244.0.1"}, {"ip": "fd00::1"}]));
        let slices = carry_out(plan(&service, &[dual], vec![], no_node), &[]);
        let mut seen: Vec<_> = slices
            .iter()
            .map(|slice| (slice.address_type.as_str(), endpoints(slice)[0].addresses[0].as_str()))
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, [("IPv4", "10.244.0.1"), ("IPv6", "fd00::1")]);
    }

    #[test]
    fn services_without_a_selector_are_somebody_elses_business() {
        assert!(is_ours(&plain()));
        assert!(!is_ours(&service(&json!({"ports": [{"port": 80}]}))));
        assert!(!is_ours(&service(&json!({"type": "ExternalName", "selector": {"a": "b"}}))));
    }
}
