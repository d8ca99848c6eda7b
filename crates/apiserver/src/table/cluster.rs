//! Everything else that people list: nodes, namespaces, events, configuration, roles, policies.

use jiff::Timestamp;
use serde_json::Value;

use super::column::{BuiltIn, Cell, age, column, has_condition, list, name, since, text, wide};

pub(super) static NODES: &[BuiltIn] = &[
    name(),
    column("Status", "string", Cell::Code(node_status)),
    column("Roles", "string", Cell::Code(node_roles)),
    age(),
    column("Version", "string", Cell::Text("/status/nodeInfo/kubeletVersion")),
    wide("Internal-IP", Cell::Code(|node| node_address(node, "InternalIP"))),
    wide("External-IP", Cell::Code(|node| node_address(node, "ExternalIP"))),
    wide("OS-Image", Cell::TextOr("/status/nodeInfo/osImage", "<unknown>")),
    wide("Kernel-Version", Cell::Code(kernel)),
    wide("Container-Runtime", Cell::TextOr("/status/nodeInfo/containerRuntimeVersion", "<unknown>")),
];

pub(super) static NAMESPACES: &[BuiltIn] =
    &[name(), column("Status", "string", Cell::Text("/status/phase")), age()];

pub(super) static EVENTS: &[BuiltIn] = &[
    column("Last Seen", "string", Cell::Timed(last_seen)),
    column("Type", "string", Cell::Text("/type")),
    column("Reason", "string", Cell::Text("/reason")),
    column("Object", "string", Cell::Code(event_object)),
    wide("Subobject", Cell::Code(|event| text(subject(event), "/fieldPath").into())),
    wide("Source", Cell::Code(event_source)),
    column(
        "Message",
        "string",
        Cell::Code(|event| {
            let message = text(event, "/message");
            let message = if message.is_empty() { text(event, "/note") } else { message };
            message.trim().into()
        }),
    ),
    wide("First Seen", Cell::Timed(|event, now| first_seen(event, now).into())),
    wide("Count", Cell::Code(event_count)),
    BuiltIn { name: "Name", kind: "string", priority: 1, cell: Cell::Text("/metadata/name") },
];

pub(super) static CONFIG_MAPS: &[BuiltIn] = &[
    name(),
    column(
        "Data",
        "string",
        Cell::Code(|object| {
            let count = |key: &str| object[key].as_object().map_or(0, serde_json::Map::len);
            (count("data") + count("binaryData")).into()
        }),
    ),
    age(),
];

pub(super) static SECRETS: &[BuiltIn] = &[
    name(),
    column("Type", "string", Cell::Text("/type")),
    column("Data", "string", Cell::Count("/data")),
    age(),
];

pub(super) static RESOURCE_QUOTAS: &[BuiltIn] = &[
    name(),
    column("Request", "string", Cell::Code(|quota| quotas(quota, Quota::Requests))),
    column("Limit", "string", Cell::Code(|quota| quotas(quota, Quota::Limits))),
    age(),
];

pub(super) static LEASES: &[BuiltIn] =
    &[name(), column("Holder", "string", Cell::Text("/spec/holderIdentity")), age()];

pub(super) static SERVICE_ACCOUNTS: &[BuiltIn] = &[name(), age()];

pub(super) static ROLE_BINDINGS: &[BuiltIn] = &[
    name(),
    column(
        "Role",
        "string",
        Cell::Code(|binding| {
            format!("{}/{}", text(binding, "/roleRef/kind"), text(binding, "/roleRef/name")).into()
        }),
    ),
    age(),
    wide("Users", Cell::Code(|binding| subjects(binding, "User"))),
    wide("Groups", Cell::Code(|binding| subjects(binding, "Group"))),
    wide("ServiceAccounts", Cell::Code(|binding| subjects(binding, "ServiceAccount"))),
];

pub(super) static API_SERVICES: &[BuiltIn] = &[
    name(),
    column(
        "Service",
        "string",
        Cell::Code(|service| match text(service, "/spec/service/name") {
            name if name.is_empty() => "Local".into(),
            name => format!("{}/{name}", text(service, "/spec/service/namespace")).into(),
        }),
    ),
    column(
        "Available",
        "string",
        Cell::Code(|service| {
            if has_condition(service, "Available", "True") { "True" } else { "False" }.into()
        }),
    ),
    age(),
];

pub(super) static PRIORITY_CLASSES: &[BuiltIn] = &[
    name(),
    column("Value", "integer", Cell::Number("/value")),
    column("Global-Default", "boolean", Cell::Flag("/globalDefault")),
    age(),
    column("PreemptionPolicy", "string", Cell::Text("/preemptionPolicy")),
];

pub(super) static RUNTIME_CLASSES: &[BuiltIn] =
    &[name(), column("Handler", "string", Cell::Text("/handler")), age()];

pub(super) static VALIDATING_POLICIES: &[BuiltIn] = &[
    name(),
    column("Validations", "integer", Cell::Count("/spec/validations")),
    column("ParamKind", "string", Cell::Code(param_kind)),
    age(),
];

pub(super) static MUTATING_POLICIES: &[BuiltIn] = &[
    name(),
    column("Mutations", "integer", Cell::Count("/spec/mutations")),
    column("ParamKind", "string", Cell::Code(param_kind)),
    age(),
];

pub(super) static POLICY_BINDINGS: &[BuiltIn] = &[
    name(),
    column("PolicyName", "string", Cell::Text("/spec/policyName")),
    column("ParamRef", "string", Cell::Code(param_ref)),
    age(),
];

pub(super) static WEBHOOKS: &[BuiltIn] =
    &[name(), column("Webhooks", "integer", Cell::Count("/webhooks")), age()];

pub(super) static SIGNING_REQUESTS: &[BuiltIn] = &[
    name(),
    age(),
    column("SignerName", "string", Cell::Text("/spec/signerName")),
    column("Requestor", "string", Cell::Text("/spec/username")),
    column("RequestedDuration", "string", Cell::TextOr("/spec/expirationSeconds", "<none>")),
    column("Condition", "string", Cell::Code(request_condition)),
];

fn node_status(node: &Value) -> Value {
    let ready = list(node, "/status/conditions").find(|condition| condition["type"] == "Ready");
    let mut status = match ready {
        None => "Unknown".to_owned(),
        Some(condition) if condition["status"] == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
    };
    if node["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    status.into()
}

fn node_roles(node: &Value) -> Value {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let mut roles: Vec<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() { "<none>".into() } else { roles.join(",").into() }
}

fn node_address(node: &Value, kind: &str) -> Value {
    let address = list(node, "/status/addresses").find(|address| address["type"] == kind);
    address.map_or_else(|| "<none>".into(), |address| address["address"].clone())
}

fn kernel(node: &Value) -> Value {
    let version = match text(node, "/status/nodeInfo/kernelVersion") {
        version if version.is_empty() => "<unknown>".to_owned(),
        version => version,
    };
    match text(node, "/status/nodeInfo/architecture") {
        architecture if architecture.is_empty() => version.into(),
        architecture => format!("{version} ({architecture})").into(),
    }
}

/// What an event is about, in both of its API groups.
fn subject(event: &Value) -> &Value {
    if event["involvedObject"].is_null() { &event["regarding"] } else { &event["involvedObject"] }
}

fn event_object(event: &Value) -> Value {
    let subject = subject(event);
    let kind = text(subject, "/kind").to_lowercase();
    match text(subject, "/name") {
        name if name.is_empty() => kind.into(),
        name => format!("{kind}/{name}").into(),
    }
}

fn event_source(event: &Value) -> Value {
    let either = |one: &str, other: &str| match text(event, one) {
        found if found.is_empty() => text(event, other),
        found => found,
    };
    let component = either("/source/component", "/deprecatedSource/component");
    let component =
        if component.is_empty() { either("/reportingComponent", "/reportingController") } else { component };
    let host = either("/source/host", "/deprecatedSource/host");
    let host = if host.is_empty() { text(event, "/reportingInstance") } else { host };
    if host.is_empty() { component.into() } else { format!("{component}, {host}").into() }
}

fn time_of<'a>(event: &'a Value, places: &[&str]) -> Option<&'a Value> {
    places.iter().find_map(|place| event.pointer(place).filter(|time| time.is_string()))
}

fn first_seen(event: &Value, now: Timestamp) -> String {
    since(time_of(event, &["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]), now)
}

fn last_seen(event: &Value, now: Timestamp) -> Value {
    let places = ["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp"];
    match time_of(event, &places) {
        Some(time) => since(Some(time), now).into(),
        None => first_seen(event, now).into(),
    }
}

fn event_count(event: &Value) -> Value {
    let count = ["/series/count", "/count", "/deprecatedCount"]
        .iter()
        .find_map(|place| event.pointer(place)?.as_i64());
    count.filter(|count| *count != 0).unwrap_or(1).into()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quota {
    Requests,
    Limits,
}

fn quotas(quota: &Value, which: Quota) -> Value {
    let hard = quota["status"]["hard"].as_object().into_iter().flatten();
    let texts: Vec<String> = hard
        .filter(|(resource, _)| resource.starts_with("limits.") == (which == Quota::Limits))
        .map(|(resource, hard)| {
            let used = quota["status"]["used"][resource].as_str().unwrap_or("0");
            format!("{resource}: {used}/{}", hard.as_str().unwrap_or_default())
        })
        .collect();
    texts.join(", ").into()
}

fn subjects(binding: &Value, kind: &str) -> Value {
    let subjects = list(binding, "/subjects").filter(|subject| subject["kind"] == kind);
    let names: Vec<String> = subjects
        .map(|subject| match (kind, text(subject, "/namespace")) {
            ("ServiceAccount", namespace) if !namespace.is_empty() => {
                format!("{namespace}/{}", text(subject, "/name"))
            }
            _ => text(subject, "/name"),
        })
        .collect();
    names.join(", ").into()
}

fn param_kind(policy: &Value) -> Value {
    let part = |key: &str| text(policy, &format!("/spec/paramKind/{key}"));
    if policy["spec"]["paramKind"].is_null() {
        return "<unset>".into();
    }
    format!("{}/{}", part("apiVersion"), part("kind")).into()
}

fn param_ref(binding: &Value) -> Value {
    let part = |key: &str| text(binding, &format!("/spec/paramRef/{key}"));
    match (part("name"), part("namespace")) {
        (name, _) if name.is_empty() => "<unset>".into(),
        (name, namespace) if namespace.is_empty() => format!("*/{name}").into(),
        (name, namespace) => format!("{namespace}/{name}").into(),
    }
}

fn request_condition(request: &Value) -> Value {
    let has = |kind: &str| list(request, "/status/conditions").any(|condition| condition["type"] == kind);
    let mut words = Vec::new();
    match (has("Approved"), has("Denied")) {
        (_, true) => words.push("Denied"),
        (true, false) => words.push("Approved"),
        (false, false) => words.push("Pending"),
    }
    if has("Failed") {
        words.push("Failed");
    }
    if !text(request, "/status/certificate").is_empty() {
        words.push("Issued");
    }
    words.join(",").into()
}
