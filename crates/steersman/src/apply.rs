//! Server-side apply: what is sent, and how to see that nothing needs to be.
//!
//! The server notes for each field manager which fields it applied. When a declared object
//! names exactly those fields and the live object has the same values in them, applying it
//! again would change nothing. The managed fields describe lists by their keys, so they are
//! all the schema this comparison needs.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::cache::Header;

/// Makes a declared object fit to be applied: without nulls, and without what only the server
/// may say.
pub(crate) fn clean(object: &mut Value) {
    drop_nulls(object);
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in [
            "managedFields",
            "resourceVersion",
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "generation",
            "selfLink",
        ] {
            meta.remove(field);
        }
    }
}

/// Takes away members that are null: an absent option of a Rust type.
pub(crate) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Whether `manager` applied this object to the main resource at some time.
pub(crate) fn was_applied(live: &Header, manager: &str) -> bool {
    entry(live, manager, "").is_some()
}

/// Whether applying `declared` as `manager` would change nothing in the live object.
pub(crate) fn is_settled(declared: &Value, live: &Header, manager: &str, subresource: &str) -> bool {
    let Some((version, fields)) = entry(live, manager, subresource) else {
        return false;
    };
    if declared.get("apiVersion").and_then(Value::as_str) != Some(version.as_str()) {
        return false;
    }
    let (Value::Object(declared), Some(live), Value::Object(fields)) =
        (declared, members(live.json()), &fields)
    else {
        return false;
    };
    // The identity of an object is never among the managed fields.
    let identity =
        |path: &[&str]| matches!(path, ["apiVersion" | "kind"] | ["metadata", "name" | "namespace" | "uid"]);
    let mut named = fields.keys().filter(|name| name.as_str() != ".").count();
    for (name, value) in declared.iter().filter(|(name, _)| !identity(&[name])) {
        let mut rest = None;
        if name == "metadata"
            && let Some(meta) = value.as_object()
        {
            let mut meta = meta.clone();
            meta.retain(|field, _| !identity(&["metadata", field]));
            if meta.is_empty() {
                continue;
            }
            rest = Some(Value::Object(meta));
        }
        let (Some(live), Some(Value::Object(fields))) =
            (live.get(name.as_str()), fields.get(&format!("f:{name}")))
        else {
            return false;
        };
        if !same_part(rest.as_ref().unwrap_or(value), live, fields) {
            return false;
        }
        named = named.saturating_sub(1);
    }
    named == 0
}

/// The members of a JSON object, each as it is written.
fn members(json: &[u8]) -> Option<BTreeMap<String, &RawValue>> {
    serde_json::from_slice(json).ok()
}

/// Like [`same`] for a part of the live object that is not decoded yet. A large one is decoded
/// member by member, and no further than to the first difference.
fn same_part(declared: &Value, live: &RawValue, fields: &Map<String, Value>) -> bool {
    if let Value::Object(declared) = declared
        && fields.keys().any(|name| name != ".")
        && let Some(live) = members(live.get().as_bytes())
    {
        let named = fields.keys().filter(|name| name.as_str() != ".").count();
        return named == declared.len()
            && declared.iter().all(|(name, value)| {
                match (live.get(name.as_str()), fields.get(&format!("f:{name}"))) {
                    (Some(live), Some(Value::Object(fields))) => {
                        serde_json::from_str(live.get()).is_ok_and(|live: Value| same(value, &live, fields))
                    }
                    _ => false,
                }
            });
    }
    serde_json::from_str(live.get()).is_ok_and(|live: Value| same(declared, &live, fields))
}

/// The fields that a manager applied, and the version in which it did.
fn entry(live: &Header, manager: &str, subresource: &str) -> Option<(String, Value)> {
    let entries: Value = serde_json::from_slice(live.managed_fields()).ok()?;
    let text = |entry: &Value, field: &str| {
        let value = entry.get(field).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let entry = entries.as_array()?.iter().find(|entry| {
        text(entry, "manager") == manager
            && text(entry, "operation") == "Apply"
            && text(entry, "subresource") == subresource
    })?;
    Some((text(entry, "apiVersion"), entry.get("fieldsV1")?.clone()))
}

fn same_fields(
    declared: &Map<String, Value>,
    live: &Map<String, Value>,
    fields: &Map<String, Value>,
) -> bool {
    let named = fields.keys().filter(|name| name.as_str() != ".").count();
    named == declared.len()
        && declared.iter().all(|(name, value)| match (live.get(name), fields.get(&format!("f:{name}"))) {
            (Some(live), Some(Value::Object(fields))) => same(value, live, fields),
            _ => false,
        })
}

/// Whether a declared value and all that was applied before are the same in the live object.
fn same(declared: &Value, live: &Value, fields: &Map<String, Value>) -> bool {
    let has_children = fields.keys().any(|name| name != ".");
    if !has_children {
        return equal(declared, live);
    }
    match (declared, live) {
        (Value::Object(declared), Value::Object(live)) => same_fields(declared, live, fields),
        (Value::Array(declared), Value::Array(live)) => same_items(declared, live, fields),
        _ => false,
    }
}

/// Lists whose items are known by keys (`k:{…}`) or by value (`v:…`).
fn same_items(declared: &[Value], live: &[Value], fields: &Map<String, Value>) -> bool {
    let named = fields.keys().filter(|name| name.as_str() != ".").count();
    if named != declared.len() {
        return false;
    }
    declared.iter().all(|item| {
        let mut matching = fields
            .iter()
            .filter_map(|(name, children)| Some((identify(name)?, children)))
            .filter(|(identity, _)| identity.fits(item));
        let (Some((identity, children)), None) = (matching.next(), matching.next()) else {
            return false;
        };
        match (identity, children) {
            (Identity::Value(value), _) => live.contains(&value),
            (Identity::Keys(keys), Value::Object(children)) => {
                let live = live.iter().find(|live| has_keys(live, &keys));
                live.is_some_and(|live| same(item, live, children))
            }
            _ => false,
        }
    })
}

enum Identity {
    Keys(Map<String, Value>),
    Value(Value),
}

impl Identity {
    /// Whether a declared item can be the one meant; a key that it leaves out is a default.
    fn fits(&self, item: &Value) -> bool {
        match self {
            Self::Value(value) => item == value,
            Self::Keys(keys) => {
                keys.iter().all(|(key, value)| item.get(key).is_none_or(|declared| declared == value))
            }
        }
    }
}

fn identify(name: &str) -> Option<Identity> {
    if let Some(keys) = name.strip_prefix("k:") {
        return serde_json::from_str(keys).ok().map(Identity::Keys);
    }
    let value = name.strip_prefix("v:")?;
    serde_json::from_str(value).ok().map(Identity::Value)
}

fn has_keys(live: &Value, keys: &Map<String, Value>) -> bool {
    keys.iter().all(|(key, value)| live.get(key) == Some(value))
}

fn equal(declared: &Value, live: &Value) -> bool {
    match (declared, live) {
        (Value::Number(declared), Value::Number(live)) => {
            declared == live || declared.as_f64() == live.as_f64()
        }
        _ => declared == live,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use k8s_openapi::api::apps::v1::Deployment;
    use serde_json::json;

    use super::*;
    use crate::object::Object;

    fn live() -> Header {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "9",
                "labels": {"app": "web", "added-by": "someone"},
                "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "WebApp", "name": "web",
                    "uid": "o", "controller": true, "blockOwnerDeletion": true}],
                "managedFields": [
                    {"manager": "webapp", "operation": "Apply", "apiVersion": "apps/v1", "fieldsV1": {
                        "f:metadata": {"f:labels": {"f:app": {}}, "f:ownerReferences": {"k:{\"uid\":\"o\"}": {}}},
                        "f:spec": {
                            "f:replicas": {},
                            "f:selector": {},
                            "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {
                                ".": {}, "f:name": {}, "f:image": {},
                                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}
                            }}}}
                        }
                    }},
                    {"manager": "kcm", "operation": "Update", "apiVersion": "apps/v1", "fieldsV1": {"f:status": {}}}
                ]
            },
            "spec": {
                "replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "revisionHistoryLimit": 10,
                "template": {"spec": {"containers": [{"name": "web", "image": "nginx", "imagePullPolicy": "Always",
                    "ports": [{"containerPort": 80, "protocol": "TCP"}]}], "restartPolicy": "Always"}}
            },
            "status": {"replicas": 3}
        });
        let managers = BTreeSet::from(["webapp".to_owned()]);
        Header::scan(object.to_string().as_bytes(), &Deployment::api_resource(), &managers)
            .expect("an object")
    }

    fn declared() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"},
                "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "WebApp", "name": "web",
                    "uid": "o", "controller": true, "blockOwnerDeletion": true}]},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
                "template": {"spec": {"containers": [{"name": "web", "image": "nginx", "ports": [{"containerPort": 80}]}]}}}
        })
    }

    #[test]
    fn the_same_declaration_is_settled_whatever_others_and_defaults_added() {
        assert!(is_settled(&declared(), &live(), "webapp", ""));
        assert!(was_applied(&live(), "webapp"));
    }

    #[test]
    fn every_difference_is_seen() {
        let changes: [(&str, Value); 6] = [
            ("/spec/replicas", json!(4)),
            ("/metadata/labels", json!({"app": "web", "new": "label"})),
            ("/metadata/labels", json!({})),
            ("/spec/selector/matchLabels/app", json!("other")),
            ("/spec/template/spec/containers/0/image", json!("nginx:2")),
            ("/spec/template/spec/containers/0/ports/0/containerPort", json!(81)),
        ];
        for (path, value) in changes {
            let mut declared = declared();
            *declared.pointer_mut(path).expect(path) = value;
            assert!(!is_settled(&declared, &live(), "webapp", ""), "{path}");
        }
    }

    #[test]
    fn a_field_that_is_no_longer_declared_must_be_sent_away() {
        let mut less = declared();
        less["spec"].as_object_mut().expect("a spec").remove("replicas");
        assert!(!is_settled(&less, &live(), "webapp", ""));
        let mut fewer = declared();
        fewer["spec"]["template"]["spec"]["containers"] = json!([]);
        assert!(!is_settled(&fewer, &live(), "webapp", ""));
    }

    #[test]
    fn another_manager_or_subresource_has_settled_nothing() {
        assert!(!is_settled(&declared(), &live(), "kcm", ""));
        assert!(!is_settled(&declared(), &live(), "webapp", "status"));
        assert!(!was_applied(&live(), "kcm"));
    }

    #[test]
    fn drift_in_a_declared_field_is_not_settled() {
        let mut drifted: Value = serde_json::from_slice(live().json()).expect("JSON");
        drifted["spec"]["replicas"] = json!(1);
        let managers = BTreeSet::from(["webapp".to_owned()]);
        let drifted = Header::scan(drifted.to_string().as_bytes(), &Deployment::api_resource(), &managers)
            .expect("an object");
        assert!(!is_settled(&declared(), &drifted, "webapp", ""));
    }

    #[test]
    fn what_only_the_server_says_is_not_sent() {
        let mut object = json!({"metadata": {"name": "a", "creationTimestamp": null, "uid": "u", "resourceVersion": "1"},
            "spec": {"a": null, "b": [{"c": null}]}, "status": {}});
        clean(&mut object);
        assert_eq!(object, json!({"metadata": {"name": "a"}, "spec": {"b": [{}]}}));
    }
}
