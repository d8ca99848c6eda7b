//! Laying one object over another.

use serde_json::Value;

/// Lays `over` over `base`: objects are merged, lists of things with names are merged by name, all
/// else is replaced, and `null` removes.
pub(crate) fn overlay(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                match (base.get_mut(key), value) {
                    (_, Value::Null) => drop(base.remove(key)),
                    (Some(below), value) => overlay(below, value),
                    (None, value) => drop(base.insert(key.clone(), value.clone())),
                }
            }
        }
        (Value::Array(base), Value::Array(over)) if base.iter().chain(over).all(is_named) => {
            for value in over {
                match base.iter_mut().find(|below| below["name"] == value["name"]) {
                    Some(below) => overlay(below, value),
                    None => base.push(value.clone()),
                }
            }
        }
        (base, over) => *base = over.clone(),
    }
}

fn is_named(value: &Value) -> bool {
    value.get("name").is_some_and(Value::is_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn named_things_are_merged_and_all_else_is_replaced() {
        let cases = [
            (json!({"a": {"b": 1}}), json!({"a": {"c": 2}}), json!({"a": {"b": 1, "c": 2}})),
            (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
            (json!({"a": 1, "b": 2}), json!({"a": null}), json!({"b": 2})),
            (
                json!({"c": [{"name": "x", "image": "i"}]}),
                json!({"c": [{"name": "y"}, {"name": "x", "tty": true}]}),
                json!({"c": [{"name": "x", "image": "i", "tty": true}, {"name": "y"}]}),
            ),
        ];
        for (mut base, over, expected) in cases {
            overlay(&mut base, &over);
            assert_eq!(base, expected);
        }
    }
}
