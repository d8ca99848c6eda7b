//! How pods are reached: services, endpoints, ingresses.

use serde_json::Value;

use super::column::{BuiltIn, Cell, age, column, few, labels, list, name, selector, text, wide};

pub(super) static SERVICES: &[BuiltIn] = &[
    name(),
    column("Type", "string", Cell::Text("/spec/type")),
    column("Cluster-IP", "string", Cell::Code(cluster_ip)),
    column("External-IP", "string", Cell::Code(external_ip)),
    column("Port(s)", "string", Cell::Code(service_ports)),
    age(),
    wide("Selector", Cell::Code(|object| labels(object.pointer("/spec/selector")).into())),
];

pub(super) static ENDPOINTS: &[BuiltIn] =
    &[name(), column("Endpoints", "string", Cell::Code(endpoints)), age()];

pub(super) static ENDPOINT_SLICES: &[BuiltIn] = &[
    name(),
    column("AddressType", "string", Cell::Text("/addressType")),
    column("Ports", "string", Cell::Code(slice_ports)),
    column("Endpoints", "string", Cell::Code(slice_endpoints)),
    age(),
];

pub(super) static INGRESSES: &[BuiltIn] = &[
    name(),
    column("Class", "string", Cell::TextOr("/spec/ingressClassName", "<none>")),
    column("Hosts", "string", Cell::Code(hosts)),
    column("Address", "string", Cell::Code(|object| balancer(object).into())),
    column(
        "Ports",
        "string",
        Cell::Code(|object| if list(object, "/spec/tls").next().is_some() { "80, 443" } else { "80" }.into()),
    ),
    age(),
];

pub(super) static INGRESS_CLASSES: &[BuiltIn] = &[
    name(),
    column("Controller", "string", Cell::Text("/spec/controller")),
    column("Parameters", "string", Cell::Code(parameters)),
    age(),
];

pub(super) static NETWORK_POLICIES: &[BuiltIn] = &[
    name(),
    column(
        "Pod-Selector",
        "string",
        Cell::Code(|object| selector(object.pointer("/spec/podSelector")).into()),
    ),
    age(),
];

pub(super) static SERVICE_CIDRS: &[BuiltIn] =
    &[name(), column("CIDRs", "string", Cell::Code(|object| joined(object, "/spec/cidrs").into())), age()];

pub(super) static IP_ADDRESSES: &[BuiltIn] = &[name(), column("ParentRef", "string", Cell::Code(parent))];

fn cluster_ip(object: &Value) -> Value {
    let first = text(object, "/spec/clusterIPs/0");
    let address = if first.is_empty() { text(object, "/spec/clusterIP") } else { first };
    if address.is_empty() { "<none>".into() } else { address.into() }
}

fn external_ip(object: &Value) -> Value {
    let external = joined(object, "/spec/externalIPs");
    match object["spec"]["type"].as_str().unwrap_or_default() {
        "ClusterIP" | "NodePort" if external.is_empty() => "<none>".into(),
        "ClusterIP" | "NodePort" => external.into(),
        "LoadBalancer" => {
            let parts: Vec<String> =
                [balancer(object), external].into_iter().filter(|part| !part.is_empty()).collect();
            if parts.is_empty() { "<pending>".into() } else { parts.join(",").into() }
        }
        "ExternalName" => text(object, "/spec/externalName").into(),
        _ => "<unknown>".into(),
    }
}

fn service_ports(object: &Value) -> Value {
    let ports: Vec<String> = list(object, "/spec/ports")
        .map(|port| {
            let number = port["port"].as_i64().unwrap_or_default();
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            match port["nodePort"].as_i64().unwrap_or_default() {
                0 => format!("{number}/{protocol}"),
                node => format!("{number}:{node}/{protocol}"),
            }
        })
        .collect();
    if ports.is_empty() { "<none>".into() } else { ports.join(",").into() }
}

/// The addresses of a load balancer.
fn balancer(object: &Value) -> String {
    let mut addresses: Vec<String> = list(object, "/status/loadBalancer/ingress")
        .map(|ingress| match text(ingress, "/ip") {
            address if address.is_empty() => text(ingress, "/hostname"),
            address => address,
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.sort();
    addresses.dedup();
    addresses.join(",")
}

fn endpoints(object: &Value) -> Value {
    let mut texts = Vec::new();
    for subset in list(object, "/subsets") {
        let addresses: Vec<String> = list(subset, "/addresses").map(|address| text(address, "/ip")).collect();
        let ports: Vec<i64> = list(subset, "/ports").filter_map(|port| port["port"].as_i64()).collect();
        if ports.is_empty() {
            texts.extend(addresses);
            continue;
        }
        for port in ports {
            texts.extend(addresses.iter().map(|address| {
                if address.contains(':') {
                    format!("[{address}]:{port}")
                } else {
                    format!("{address}:{port}")
                }
            }));
        }
    }
    few(&texts, 3, ",").into()
}

fn slice_ports(object: &Value) -> Value {
    let port = |port: &Value| match (port["port"].as_i64(), port["name"].as_str()) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "*".to_owned(),
    };
    unset_or_few(&list(object, "/ports").map(port).collect::<Vec<_>>())
}

fn slice_endpoints(object: &Value) -> Value {
    let addresses = list(object, "/endpoints").flat_map(|endpoint| list(endpoint, "/addresses"));
    unset_or_few(&addresses.filter_map(Value::as_str).map(ToOwned::to_owned).collect::<Vec<_>>())
}

fn unset_or_few(texts: &[String]) -> Value {
    if texts.is_empty() { "<unset>".into() } else { few(texts, 3, ",").into() }
}

fn hosts(object: &Value) -> Value {
    let rules = list(object, "/spec/rules");
    let hosts: Vec<String> = rules.map(|rule| text(rule, "/host")).filter(|host| !host.is_empty()).collect();
    if hosts.is_empty() { "*".into() } else { few(&hosts, 3, ",").into() }
}

fn parameters(object: &Value) -> Value {
    let reference = &object["spec"]["parameters"];
    if reference.is_null() {
        return "<none>".into();
    }
    let group = text(reference, "/apiGroup");
    let kind = text(reference, "/kind");
    let kind = if group.is_empty() { kind } else { format!("{kind}.{group}") };
    format!("{kind}/{}", text(reference, "/name")).into()
}

fn parent(object: &Value) -> Value {
    let reference = &object["spec"]["parentRef"];
    let parts = ["group", "resource", "namespace", "name"].map(|key| text(reference, &format!("/{key}")));
    let [group, resource, namespace, name] = parts;
    let resource = if group.is_empty() { resource } else { format!("{resource}.{group}") };
    let parts: Vec<String> =
        [resource, namespace, name].into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("/").into()
}

fn joined(object: &Value, place: &str) -> String {
    let texts: Vec<&str> = list(object, place).filter_map(Value::as_str).collect();
    texts.join(",")
}
