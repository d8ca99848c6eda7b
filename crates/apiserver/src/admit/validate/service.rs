//! Services and their endpoints.

use std::net::IpAddr;

use serde_json::Value;

use super::{
    super::{metadata::check_labels, names},
    check::{IMMUTABLE, each, one_of, port, port_or_name, text, unique},
};
use crate::{schema::FieldError, server::LoopbackEndpoints};

pub(super) fn service(object: &Value, live: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let kind = text(spec, "type");
    one_of(spec, "type", "spec", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], errors);
    one_of(spec, "sessionAffinity", "spec", &["ClientIP", "None"], errors);
    check_labels(spec.get("selector"), "spec.selector", errors);
    let ports = spec["ports"].as_array().map_or(0, Vec::len);
    let headless = text(spec, "clusterIP") == "None";
    if ports == 0 && !headless && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    if kind == "ExternalName" {
        let name = text(spec, "externalName").trim_end_matches('.');
        if name.is_empty() {
            errors.push(FieldError::required("spec.externalName", ""));
        } else {
            errors.extend(
                names::subdomain(name)
                    .into_iter()
                    .map(|why| FieldError::invalid("spec.externalName", name, why)),
            );
        }
    }
    for (path, item) in each(spec, "ports", "spec") {
        service_port(item, &path, kind, ports, errors);
    }
    unique(
        each(spec, "ports", "spec").map(|(path, item)| (format!("{path}.name"), text(item, "name"))),
        errors,
    );
    let mut seen = std::collections::HashSet::new();
    for (path, item) in each(spec, "ports", "spec") {
        if !seen.insert((item["port"].as_i64(), text(item, "protocol"))) {
            errors.push(FieldError::duplicate(
                path,
                serde_json::json!({"port": item["port"], "protocol": item["protocol"]}),
            ));
        }
    }
    if let Some(live) = live {
        let old = &live["spec"];
        let external = kind == "ExternalName" || text(old, "type") == "ExternalName";
        let (now, before) = (text(spec, "clusterIP"), text(old, "clusterIP"));
        if !external && !before.is_empty() && now != before {
            errors.push(FieldError::invalid(
                "spec.clusterIPs[0]",
                spec["clusterIPs"].clone(),
                "may not change once set",
            ));
        }
    }
}

fn service_port(item: &Value, field: &str, kind: &str, ports: usize, errors: &mut Vec<FieldError>) {
    let name = text(item, "name");
    if name.is_empty() && ports > 1 {
        errors.push(FieldError::required(format!("{field}.name"), ""));
    } else if !name.is_empty() {
        errors.extend(
            names::label(name).into_iter().map(|why| FieldError::invalid(format!("{field}.name"), name, why)),
        );
    }
    port(item["port"].as_i64().unwrap_or(0), &format!("{field}.port"), errors);
    one_of(item, "protocol", field, &["SCTP", "TCP", "UDP"], errors);
    port_or_name(&item["targetPort"], &format!("{field}.targetPort"), errors);
    if kind == "ClusterIP" && item["nodePort"].as_i64().is_some_and(|number| number != 0) {
        errors.push(FieldError::forbidden(
            format!("{field}.nodePort"),
            "may not be used when `type` is 'ClusterIP'",
        ));
    }
}

/// An address that traffic may be sent to.
fn endpoint_address(text: &str, field: &str, loopback: LoopbackEndpoints, errors: &mut Vec<FieldError>) {
    let Ok(address) = text.parse::<IpAddr>() else {
        errors.push(FieldError::invalid(
            field,
            text,
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ));
        return;
    };
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    };
    if address.is_unspecified() {
        errors.push(FieldError::invalid(field, text, format!("may not be unspecified ({text})")));
    }
    if address.is_loopback() && loopback == LoopbackEndpoints::Refuse {
        errors.push(FieldError::invalid(
            field,
            text,
            "may not be in the loopback range (127.0.0.0/8, ::1/128)",
        ));
    }
    if link_local {
        errors.push(FieldError::invalid(
            field,
            text,
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        ));
    }
    if address.is_multicast() {
        errors.push(FieldError::invalid(
            field,
            text,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ));
    }
}

pub(super) fn endpoints(object: &Value, loopback: LoopbackEndpoints, errors: &mut Vec<FieldError>) {
    for (path, subset) in each(object, "subsets", "") {
        for list in ["addresses", "notReadyAddresses"] {
            for (path, address) in each(subset, list, &path) {
                endpoint_address(text(address, "ip"), &format!("{path}.ip"), loopback, errors);
            }
        }
        for (path, item) in each(subset, "ports", &path) {
            port(item["port"].as_i64().unwrap_or(0), &format!("{path}.port"), errors);
        }
    }
}

pub(super) fn endpoint_slice(
    object: &Value,
    live: Option<&Value>,
    loopback: LoopbackEndpoints,
    errors: &mut Vec<FieldError>,
) {
    let kind = text(object, "addressType");
    one_of(object, "addressType", "", &["FQDN", "IPv4", "IPv6"], errors);
    let count = object["endpoints"].as_array().map_or(0, Vec::len);
    if count > 1000 {
        errors.push(FieldError::too_many("endpoints", count as u64, 1000));
    }
    for (path, endpoint) in each(object, "endpoints", "") {
        let addresses = endpoint["addresses"].as_array().map_or(0, Vec::len);
        if addresses == 0 {
            errors.push(FieldError::required(format!("{path}.addresses"), "must contain at least 1 address"));
        } else if addresses > 100 {
            errors.push(FieldError::too_many(format!("{path}.addresses"), addresses as u64, 100));
        }
        for (path, address) in each(endpoint, "addresses", &path) {
            let address = address.as_str().unwrap_or_default();
            let fits = match kind {
                "IPv4" => address.parse::<std::net::Ipv4Addr>().is_ok(),
                "IPv6" => address.parse::<std::net::Ipv6Addr>().is_ok(),
                _ => {
                    errors.extend(
                        names::subdomain(address)
                            .into_iter()
                            .map(|why| FieldError::invalid(&path, address, why)),
                    );
                    continue;
                }
            };
            if fits {
                endpoint_address(address, &path, loopback, errors);
            } else {
                errors.push(FieldError::invalid(&path, address, format!("must be an {kind} address")));
            }
        }
    }
    for (path, item) in each(object, "ports", "") {
        if let Some(number) = item["port"].as_i64() {
            port(number, &format!("{path}.port"), errors);
        }
        one_of(item, "protocol", &path, &["SCTP", "TCP", "UDP"], errors);
    }
    unique(
        each(object, "ports", "").map(|(path, item)| (format!("{path}.name"), text(item, "name"))),
        errors,
    );
    if let Some(live) = live
        && kind != text(live, "addressType")
    {
        errors.push(FieldError::invalid("addressType", kind, IMMUTABLE));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice_complaints(slice: &Value, loopback: LoopbackEndpoints) -> Vec<String> {
        let mut errors = Vec::new();
        endpoint_slice(slice, None, loopback, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn loopback_endpoints_need_the_flag() {
        let slice = json!({"addressType": "IPv4", "endpoints": [{"addresses": ["127.64.0.1"]}], "ports": [{"name": "", "port": 80, "protocol": "TCP"}]});
        assert_eq!(slice_complaints(&slice, LoopbackEndpoints::Accept), Vec::<String>::new());
        assert_eq!(
            slice_complaints(&slice, LoopbackEndpoints::Refuse),
            [
                "endpoints[0].addresses[0]: Invalid value: \"127.64.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)"
            ]
        );
    }
}
