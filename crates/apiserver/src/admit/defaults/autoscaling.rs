//! Autoscalers.

use serde_json::{Map, Value, json};

use super::{default, spec};

pub(super) fn autoscaler(value: &mut Value) {
    let first_version = value["apiVersion"] == "autoscaling/v1";
    let wanted = spec(value);
    default(wanted, "minReplicas", 1);
    if first_version {
        return;
    }
    if wanted.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        wanted.insert(
            "metrics".into(),
            json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]),
        );
    }
    if let Some(behavior) = wanted.get_mut("behavior").and_then(Value::as_object_mut) {
        let up = json!({
            "stabilizationWindowSeconds": 0, "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}],
        });
        let down = json!({"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]});
        rules(behavior, "scaleUp", up);
        rules(behavior, "scaleDown", down);
    }
}

/// Rules that are given win over those that are usual.
fn rules(behavior: &mut Map<String, Value>, field: &str, mut usual: Value) {
    for (key, value) in behavior.get(field).and_then(Value::as_object).into_iter().flatten() {
        usual[key] = value.clone();
    }
    behavior.insert(field.to_owned(), usual);
}
