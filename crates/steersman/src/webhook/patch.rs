//! What a defaulter changed, as a JSON patch of the object that came in.

use serde_json::{Map, Value};

use crate::error::Error;

/// The patch that makes `raw` change as the typed object did; none when nothing changed.
///
/// The typed object may lack fields that the type does not know and have others that were absent. So the
/// change of the typed object is carried over to what came in, and that is compared.
pub(super) fn between(raw: &Value, before: &Value, after: &Value) -> Result<Option<Value>, Error> {
    let Some(change) = difference(before, after) else { return Ok(None) };
    let mut changed = raw.clone();
    merge(&mut changed, change);
    let patch = json_patch::diff(raw, &changed);
    if patch.0.is_empty() {
        return Ok(None);
    }
    Ok(Some(serde_json::to_value(patch)?))
}

/// What changed, where `null` stands for a field that went.
fn difference(before: &Value, after: &Value) -> Option<Value> {
    match (before, after) {
        (before, after) if before == after => None,
        (Value::Object(before), Value::Object(after)) => {
            let mut change = Map::new();
            for (key, value) in after {
                match before.get(key) {
                    Some(old) => change.extend(difference(old, value).map(|value| (key.clone(), value))),
                    None => drop(change.insert(key.clone(), value.clone())),
                }
            }
            for key in before.keys().filter(|key| !after.contains_key(*key)) {
                change.insert(key.clone(), Value::Null);
            }
            Some(Value::Object(change))
        }
        (_, after) => Some(after.clone()),
    }
}

fn merge(target: &mut Value, change: Value) {
    let Value::Object(change) = change else {
        *target = change;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(map) = target else { return };
    for (key, value) in change {
        if value.is_null() {
            map.remove(&key);
        } else {
            merge(map.entry(key).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_the_code_changed_is_patched() {
        let raw = json!({"metadata": {"name": "x"}, "spec": {"image": "i", "unknown": 1}});
        let before = json!({"metadata": {"name": "x"}, "spec": {"image": "i", "replicas": 1}});
        assert_eq!(between(&raw, &before, &before).expect("a patch"), None);
        let mut after = before.clone();
        after["spec"]["replicas"] = 2.into();
        after["metadata"]["labels"] = json!({"a": "b"});
        let patch = between(&raw, &before, &after).expect("a patch").expect("a change");
        let mut patched = raw;
        let operations: json_patch::Patch = serde_json::from_value(patch).expect("operations");
        json_patch::patch(&mut patched, &operations).expect("fits");
        assert_eq!(
            patched,
            json!({"metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {"image": "i", "unknown": 1, "replicas": 2}})
        );
    }
}
