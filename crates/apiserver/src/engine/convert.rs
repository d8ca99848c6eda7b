//! Between the version of a request and the version of storage.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::{api_version, meta::object_mut};
use crate::{schema, types::Resource};

/// The object as it is stored, where no webhook is asked for that.
pub(crate) fn to_storage<'a>(resource: &Resource, object: &'a Value) -> Cow<'a, Value> {
    let to = &*resource.storage.api_version;
    if object["apiVersion"] == to {
        return Cow::Borrowed(object);
    }
    Cow::Owned(between(resource, object.clone(), to))
}

/// A stored object as the resource shows it, where no webhook is asked for that.
pub(crate) fn from_storage(resource: &Resource, object: Value) -> Value {
    let mut object = between(resource, object, &api_version(resource));
    if differs(resource) {
        schema::canonical(&mut object, &resource.schema);
    }
    object
}

/// Whether stored bytes differ from what the resource shows in more than their `apiVersion`.
pub(crate) fn differs(resource: &Resource) -> bool {
    let shown = api_version(resource);
    *resource.storage.api_version != *shown && matches!(&*resource.kind, "Event" | "HorizontalPodAutoscaler")
}

/// An object in another version of its kind; a custom resource loses what that version does not know.
pub(crate) fn between(resource: &Resource, object: Value, to: &str) -> Value {
    let from = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    if from == to {
        return object;
    }
    let mut object = convert(object, &from, to);
    if let Some(schema) = resource.versions.as_ref().and_then(|versions| versions.schemas.get(to)) {
        schema::prune(&mut object, schema);
    }
    object
}

fn convert(mut object: Value, from: &str, to: &str) -> Value {
    if from == to {
        return object;
    }
    match (from, to) {
        ("v1", "events.k8s.io/v1") => {
            event(&mut object, &CORE_TO_EVENTS);
            for field in ["reportingController", "reportingInstance"] {
                if object[field] == "" {
                    object_mut(&mut object).remove(field);
                }
            }
        }
        ("events.k8s.io/v1", "v1") => {
            event(&mut object, &EVENTS_TO_CORE);
            for field in ["reportingComponent", "reportingInstance"] {
                object_mut(&mut object).entry(field).or_insert_with(|| "".into());
            }
        }
        ("autoscaling/v1", "autoscaling/v2") => autoscaler_to_v2(&mut object),
        ("autoscaling/v2", "autoscaling/v1") => autoscaler_to_v1(&mut object),
        _ => {}
    }
    object_mut(&mut object).insert("apiVersion".into(), to.into());
    object
}

const CORE_TO_EVENTS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

const EVENTS_TO_CORE: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

fn event(object: &mut Value, renames: &[(&str, &str)]) {
    let map = object_mut(object);
    for (before, after) in renames {
        if let Some(value) = map.remove(*before) {
            map.insert((*after).to_owned(), value);
        }
    }
}

fn autoscaler_to_v2(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec").map(object_mut)
        && let Some(percent) = spec.remove("targetCPUUtilizationPercentage")
    {
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        spec.insert(
            "metrics".into(),
            json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]),
        );
    }
    if let Some(status) = object.get_mut("status").map(object_mut)
        && let Some(percent) = status.remove("currentCPUUtilizationPercentage")
    {
        let current = json!({"averageUtilization": percent});
        status.insert(
            "currentMetrics".into(),
            json!([{"type": "Resource", "resource": {"name": "cpu", "current": current}}]),
        );
    }
}

fn autoscaler_to_v1(object: &mut Value) {
    let cpu = |list: Option<Value>, target: &str, value: &str| {
        list?.as_array()?.iter().find(|metric| metric["resource"]["name"] == "cpu")?["resource"][target]
            .get(value)
            .cloned()
    };
    if let Some(spec) = object.get_mut("spec").map(object_mut) {
        let metrics = spec.remove("metrics");
        spec.remove("behavior");
        insert(spec, "targetCPUUtilizationPercentage", cpu(metrics, "target", "averageUtilization"));
    }
    if let Some(status) = object.get_mut("status").map(object_mut) {
        let metrics = status.remove("currentMetrics");
        status.remove("conditions");
        insert(status, "currentCPUUtilizationPercentage", cpu(metrics, "current", "averageUtilization"));
    }
}

fn insert(map: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        map.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_keep_all_they_say_in_both_groups() {
        let core = json!({"apiVersion": "v1", "kind": "Event", "reportingComponent": "", "reportingInstance": "", "involvedObject": {"name": "p"}, "message": "m", "count": 2, "reason": "R"});
        let there = convert(core.clone(), "v1", "events.k8s.io/v1");
        assert_eq!(there["regarding"]["name"], "p");
        assert_eq!(
            (&there["note"], &there["deprecatedCount"], &there["reason"]),
            (&json!("m"), &json!(2), &json!("R"))
        );
        assert_eq!(convert(there, "events.k8s.io/v1", "v1"), core);
    }

    #[test]
    fn autoscalers_keep_their_cpu_target() {
        let old = json!({"apiVersion": "autoscaling/v1", "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}});
        let new = convert(old.clone(), "autoscaling/v1", "autoscaling/v2");
        assert_eq!(new["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50);
        assert_eq!(convert(new, "autoscaling/v2", "autoscaling/v1"), old);
    }
}
