//! Services and what belongs to them.

use serde_json::{Value, json};

use super::{default, default_text, each, object, spec};
use crate::engine::meta::object_mut;

pub(super) fn service(value: &mut Value) {
    let wanted = spec(value);
    default_text(wanted, "sessionAffinity", "None");
    match wanted.get("sessionAffinity").and_then(Value::as_str) {
        Some("None") => {
            wanted.remove("sessionAffinityConfig");
        }
        Some("ClientIP") => {
            let client = object(object(wanted, "sessionAffinityConfig"), "clientIP");
            default(client, "timeoutSeconds", 10_800);
        }
        _ => {}
    }
    default_text(wanted, "type", "ClusterIP");
    for port in each(wanted, "ports") {
        default_text(port, "protocol", "TCP");
        let target = port.get("targetPort");
        if target.is_none_or(|target| *target == json!(0) || *target == json!("")) {
            let number = port.get("port").cloned().unwrap_or_default();
            port.insert("targetPort".into(), number);
        }
    }
    let kind = wanted.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let outside = wanted.get("externalIPs").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") || kind == "ClusterIP" && outside {
        default_text(wanted, "externalTrafficPolicy", "Cluster");
    }
    if kind != "ExternalName" {
        default_text(wanted, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        default(wanted, "allocateLoadBalancerNodePorts", true);
        if let Some(balancer) = value.pointer_mut("/status/loadBalancer").and_then(Value::as_object_mut) {
            for ingress in
                each(balancer, "ingress").filter(|ingress| ingress.get("ip").is_some_and(|ip| ip != ""))
            {
                default(ingress, "ipMode", "VIP");
            }
        }
    }
}

pub(super) fn endpoints(value: &mut Value) {
    for subset in each(object_mut(value), "subsets") {
        for port in each(subset, "ports") {
            default_text(port, "protocol", "TCP");
        }
    }
}

pub(super) fn endpoint_slice(value: &mut Value) {
    for port in each(object_mut(value), "ports") {
        default(port, "name", "");
        default_text(port, "protocol", "TCP");
    }
}

pub(super) fn network_policy(value: &mut Value) {
    let wanted = spec(value);
    for direction in ["ingress", "egress"] {
        for rule in each(wanted, direction) {
            for port in each(rule, "ports") {
                default_text(port, "protocol", "TCP");
            }
        }
    }
    if wanted.get("policyTypes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let egress = wanted.get("egress").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        wanted.insert(
            "policyTypes".into(),
            if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) },
        );
    }
}
