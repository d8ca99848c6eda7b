//! What runs pods: deployments, sets, jobs.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    column::{BuiltIn, Cell, age, column, has_condition, labels, list, name, selector, since, text, wide},
    human_duration,
};

const CONTAINERS: BuiltIn =
    wide("Containers", Cell::Code(|object| containers(object, "/spec/template/spec", "name")));
const IMAGES: BuiltIn =
    wide("Images", Cell::Code(|object| containers(object, "/spec/template/spec", "image")));
const SELECTOR: BuiltIn =
    wide("Selector", Cell::Code(|object| selector(object.pointer("/spec/selector")).into()));

pub(super) static DEPLOYMENTS: &[BuiltIn] = &[
    name(),
    column("Ready", "string", Cell::Code(ready)),
    column("Up-to-date", "string", Cell::Number("/status/updatedReplicas")),
    column("Available", "string", Cell::Number("/status/availableReplicas")),
    age(),
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) static REPLICA_SETS: &[BuiltIn] = &[
    name(),
    column("Desired", "integer", Cell::Number("/spec/replicas")),
    column("Current", "integer", Cell::Number("/status/replicas")),
    column("Ready", "integer", Cell::Number("/status/readyReplicas")),
    age(),
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) static REPLICATION_CONTROLLERS: &[BuiltIn] = &[
    name(),
    column("Desired", "integer", Cell::Number("/spec/replicas")),
    column("Current", "integer", Cell::Number("/status/replicas")),
    column("Ready", "integer", Cell::Number("/status/readyReplicas")),
    age(),
    CONTAINERS,
    IMAGES,
    wide("Selector", Cell::Code(|object| labels(object.pointer("/spec/selector")).into())),
];

pub(super) static STATEFUL_SETS: &[BuiltIn] =
    &[name(), column("Ready", "string", Cell::Code(ready)), age(), CONTAINERS, IMAGES];

pub(super) static DAEMON_SETS: &[BuiltIn] = &[
    name(),
    column("Desired", "integer", Cell::Number("/status/desiredNumberScheduled")),
    column("Current", "integer", Cell::Number("/status/currentNumberScheduled")),
    column("Ready", "integer", Cell::Number("/status/numberReady")),
    column("Up-to-date", "integer", Cell::Number("/status/updatedNumberScheduled")),
    column("Available", "integer", Cell::Number("/status/numberAvailable")),
    column(
        "Node Selector",
        "string",
        Cell::Code(|object| labels(object.pointer("/spec/template/spec/nodeSelector")).into()),
    ),
    age(),
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) static JOBS: &[BuiltIn] = &[
    name(),
    column("Status", "string", Cell::Code(job_status)),
    column("Completions", "string", Cell::Code(completions)),
    column("Duration", "string", Cell::Timed(job_duration)),
    age(),
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) static CRON_JOBS: &[BuiltIn] = &[
    name(),
    column("Schedule", "string", Cell::Text("/spec/schedule")),
    column("Timezone", "string", Cell::TextOr("/spec/timeZone", "<none>")),
    column("Suspend", "boolean", Cell::Code(suspend)),
    column("Active", "integer", Cell::Count("/status/active")),
    column("Last Schedule", "string", Cell::Timed(last_schedule)),
    age(),
    wide(
        "Containers",
        Cell::Code(|object| containers(object, "/spec/jobTemplate/spec/template/spec", "name")),
    ),
    wide("Images", Cell::Code(|object| containers(object, "/spec/jobTemplate/spec/template/spec", "image"))),
    wide("Selector", Cell::Code(|object| selector(object.pointer("/spec/jobTemplate/spec/selector")).into())),
];

pub(super) static POD_TEMPLATES: &[BuiltIn] = &[
    name(),
    column("Containers", "string", Cell::Code(|object| containers(object, "/template/spec", "name"))),
    column("Images", "string", Cell::Code(|object| containers(object, "/template/spec", "image"))),
    column(
        "Pod Labels",
        "string",
        Cell::Code(|object| labels(object.pointer("/template/metadata/labels")).into()),
    ),
];

pub(super) static CONTROLLER_REVISIONS: &[BuiltIn] = &[
    name(),
    column("Controller", "string", Cell::Code(controller)),
    column("Revision", "string", Cell::Number("/revision")),
    age(),
];

pub(super) static DISRUPTION_BUDGETS: &[BuiltIn] = &[
    name(),
    column("Min Available", "string", Cell::TextOr("/spec/minAvailable", "N/A")),
    column("Max Unavailable", "string", Cell::TextOr("/spec/maxUnavailable", "N/A")),
    column("Allowed Disruptions", "integer", Cell::Number("/status/disruptionsAllowed")),
    age(),
];

pub(super) static AUTOSCALERS: &[BuiltIn] = &[
    name(),
    column(
        "Reference",
        "string",
        Cell::Code(|object| {
            let target = |key: &str| text(object, &format!("/spec/scaleTargetRef/{key}"));
            format!("{}/{}", target("kind"), target("name")).into()
        }),
    ),
    column("Targets", "string", Cell::Code(targets)),
    column("MinPods", "string", Cell::TextOr("/spec/minReplicas", "<unset>")),
    column("MaxPods", "string", Cell::Number("/spec/maxReplicas")),
    column("Replicas", "string", Cell::Number("/status/currentReplicas")),
    age(),
];

fn ready(object: &Value) -> Value {
    let number = |place: &str| object.pointer(place).and_then(Value::as_i64).unwrap_or_default();
    format!("{}/{}", number("/status/readyReplicas"), number("/spec/replicas")).into()
}

fn containers(object: &Value, spec: &str, key: &str) -> Value {
    let texts: Vec<&str> = list(object, &format!("{spec}/containers"))
        .map(|container| container[key].as_str().unwrap_or_default())
        .collect();
    texts.join(",").into()
}

fn job_status(object: &Value) -> Value {
    let is = |kind: &str| has_condition(object, kind, "True");
    match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if !object["metadata"]["deletionTimestamp"].is_null() => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
    .into()
}

fn completions(object: &Value) -> Value {
    let succeeded = object["status"]["succeeded"].as_i64().unwrap_or_default();
    if let Some(completions) = object["spec"]["completions"].as_i64() {
        return format!("{succeeded}/{completions}").into();
    }
    match object["spec"]["parallelism"].as_i64().unwrap_or_default() {
        parallelism if parallelism > 1 => format!("{succeeded}/1 of {parallelism}").into(),
        _ => format!("{succeeded}/1").into(),
    }
}

fn job_duration(object: &Value, now: Timestamp) -> Value {
    let time = |key: &str| object["status"][key].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    time("startTime")
        .map_or_else(String::new, |start| human_duration(start, time("completionTime").unwrap_or(now)))
        .into()
}

fn suspend(object: &Value) -> Value {
    match object["spec"]["suspend"].as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    }
    .into()
}

fn last_schedule(object: &Value, now: Timestamp) -> Value {
    match object.pointer("/status/lastScheduleTime").filter(|time| time.is_string()) {
        Some(time) => since(Some(time), now).into(),
        None => "<none>".into(),
    }
}

fn controller(object: &Value) -> Value {
    let owner = list(object, "/metadata/ownerReferences").find(|owner| owner["controller"] == true);
    let Some(owner) = owner else { return "<none>".into() };
    let group = owner["apiVersion"]
        .as_str()
        .and_then(|version| version.rsplit_once('/'))
        .map_or("", |(group, _)| group);
    let kind = owner["kind"].as_str().unwrap_or_default().to_lowercase();
    let kind = if group.is_empty() { kind } else { format!("{kind}.{group}") };
    format!("{kind}/{}", owner["name"].as_str().unwrap_or_default()).into()
}

fn targets(object: &Value) -> Value {
    if let Some(percent) = object["spec"]["targetCPUUtilizationPercentage"].as_i64() {
        let current = object["status"]["currentCPUUtilizationPercentage"].as_i64();
        let current = current.map_or_else(|| "<unknown>".to_owned(), |current| format!("{current}%"));
        return format!("cpu: {current}/{percent}%").into();
    }
    let statuses: Vec<&Value> = list(object, "/status/currentMetrics").collect();
    let texts: Vec<String> = list(object, "/spec/metrics")
        .enumerate()
        .map(|(at, metric)| target(metric, statuses.get(at).copied().unwrap_or(&Value::Null)))
        .collect();
    super::column::few(&texts, 2, ", ").into()
}

/// One metric: what it is, what it should be.
fn target(metric: &Value, status: &Value) -> String {
    let kind = metric["type"].as_str().unwrap_or_default();
    let Some(first) = kind.chars().next() else { return "<unknown type>".to_owned() };
    let key = format!("{}{}", first.to_lowercase(), &kind[first.len_utf8()..]);
    let (wanted, current) = (&metric[&key]["target"], &status[&key]["current"]);
    let name = match kind {
        "Resource" | "ContainerResource" => format!("{}: ", text(metric, &format!("/{key}/name"))),
        _ => String::new(),
    };
    let or_unknown = |text: String| if text.is_empty() { "<unknown>".to_owned() } else { text };
    if wanted["averageValue"].is_string() {
        let average = if matches!(kind, "External" | "Object") { " (avg)" } else { "" };
        let current = or_unknown(text(current, "/averageValue"));
        return format!("{name}{current}/{}{average}", text(wanted, "/averageValue"));
    }
    if wanted["value"].is_string() {
        return format!("{name}{}/{}", or_unknown(text(current, "/value")), text(wanted, "/value"));
    }
    let percent = |value: &Value, or: &str| {
        value.as_i64().map_or_else(|| or.to_owned(), |percent| format!("{percent}%"))
    };
    let current = percent(&current["averageUtilization"], "<unknown>");
    format!("{name}{current}/{}", percent(&wanted["averageUtilization"], "<auto>"))
}
