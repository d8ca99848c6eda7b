//! Reading and writing `metadata`.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// Shorthands for the metadata of an object that is held as a tree.
pub(crate) trait Meta {
    /// A text field of metadata; empty when it is not there.
    fn meta_text(&self, field: &str) -> &str;
    /// A field of metadata.
    fn meta_get(&self, field: &str) -> Option<&Value>;
    /// Metadata, made when it is not there.
    fn meta_mut(&mut self) -> &mut Map<String, Value>;

    /// `metadata.name`
    fn name(&self) -> &str {
        self.meta_text("name")
    }

    /// `metadata.namespace`
    fn namespace(&self) -> &str {
        self.meta_text("namespace")
    }

    /// `metadata.uid`
    fn uid(&self) -> &str {
        self.meta_text("uid")
    }

    /// `metadata.resourceVersion`
    fn resource_version(&self) -> &str {
        self.meta_text("resourceVersion")
    }

    /// `metadata.generation`
    fn generation(&self) -> i64 {
        self.meta_get("generation").and_then(Value::as_i64).unwrap_or(0)
    }

    /// Whether deletion was asked for.
    fn is_deleting(&self) -> bool {
        self.meta_get("deletionTimestamp").is_some()
    }

    /// `metadata.finalizers`
    fn finalizers(&self) -> Vec<String> {
        let list = self.meta_get("finalizers").and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
    }

    /// Writes `metadata.finalizers`; none at all removes the field.
    fn set_finalizers(&mut self, finalizers: Vec<String>) {
        if finalizers.is_empty() {
            self.meta_mut().remove("finalizers");
        } else {
            self.meta_mut().insert("finalizers".into(), finalizers.into());
        }
    }

    /// Writes a field, or removes it.
    fn meta_set(&mut self, field: &str, value: Option<Value>) {
        match value {
            Some(value) => self.meta_mut().insert(field.into(), value),
            None => self.meta_mut().remove(field),
        };
    }
}

impl Meta for Value {
    fn meta_text(&self, field: &str) -> &str {
        self.meta_get(field).and_then(Value::as_str).unwrap_or_default()
    }

    fn meta_get(&self, field: &str) -> Option<&Value> {
        self.get("metadata")?.get(field).filter(|value| !value.is_null())
    }

    fn meta_mut(&mut self) -> &mut Map<String, Value> {
        object_mut(object_mut(self).entry("metadata").or_insert_with(empty))
    }
}

/// An empty JSON object.
pub(crate) fn empty() -> Value {
    Value::Object(Map::new())
}

/// The value as an object; whatever else it was is replaced.
pub(crate) fn object_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = empty();
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object just above"),
    }
}

/// A time as `metadata.creationTimestamp` writes it.
pub(crate) fn time_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Bytes for the store: kind and apiVersion first, so that views may be cut from the bytes, and without
/// `resourceVersion`, which the writer adds.
pub(crate) fn encode(object: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    out.extend_from_slice(prefix(text("kind"), text("apiVersion")).as_bytes());
    out.extend_from_slice(b"\"metadata\":{");
    let fields = object.get("metadata").and_then(Value::as_object);
    write_fields(&mut out, fields, &["resourceVersion"]);
    out.push(b'}');
    let rest_at = out.len();
    out.push(b',');
    let before = out.len();
    write_fields(&mut out, object.as_object(), &["kind", "apiVersion", "metadata"]);
    if out.len() == before {
        out.truncate(rest_at);
    }
    out.push(b'}');
    out
}

/// How the bytes of every object of a kind begin.
pub(crate) fn prefix(kind: &str, api_version: &str) -> String {
    format!("{{\"kind\":{},\"apiVersion\":{},", Value::from(kind), Value::from(api_version))
}

fn write_fields(out: &mut Vec<u8>, map: Option<&Map<String, Value>>, without: &[&str]) {
    let mut first = true;
    for (key, value) in map.into_iter().flatten().filter(|(key, _)| !without.contains(&key.as_str())) {
        if !first {
            out.push(b',');
        }
        first = false;
        // Writing into memory cannot fail, and map keys are text.
        let _ = serde_json::to_writer(&mut *out, key);
        out.push(b':');
        let _ = serde_json::to_writer(&mut *out, value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bytes_begin_with_kind_and_version_and_hold_no_revision() {
        let object = json!({"data": {"a": "b"}, "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "7", "name": "x"}});
        assert_eq!(
            String::from_utf8(encode(&object)).expect("text"),
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"},"data":{"a":"b"}}"#
        );
        assert_eq!(
            String::from_utf8(encode(&json!({"kind": "K", "apiVersion": "v1"}))).expect("text"),
            r#"{"kind":"K","apiVersion":"v1","metadata":{}}"#
        );
    }

    #[test]
    fn metadata_is_made_when_it_is_not_there() {
        let mut object = json!({});
        object.meta_set("name", Some("a".into()));
        object.set_finalizers(vec!["f".into()]);
        assert_eq!(object, json!({"metadata": {"name": "a", "finalizers": ["f"]}}));
        object.set_finalizers(Vec::new());
        assert_eq!((object.name(), object.finalizers().len(), object.is_deleting()), ("a", 0, false));
    }
}
