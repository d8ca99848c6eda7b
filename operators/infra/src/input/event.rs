//! What inputs bring: a wish about one resource.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::types::is_label;

/// What is wished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wish {
    /// The resource shall be there, and like this.
    #[default]
    Apply,
    /// It shall go.
    Delete,
    /// It shall be looked at now.
    Reconcile,
}

/// A wish about one resource, with the fields of `POST /api/v1/resources`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Event {
    /// What makes it the same event when it comes again. Inputs have one of their own where the
    /// sender gives none.
    #[serde(default)]
    pub id: Option<String>,
    /// What is wished.
    #[serde(default, rename = "operation")]
    pub wish: Wish,
    /// Name of the resource within its type.
    pub name: String,
    /// Name of its type.
    pub resource_type_name: String,
    /// Version of its type.
    #[serde(default)]
    pub resource_type_version: String,
    /// The plugin that acts.
    #[serde(default)]
    pub action_plugin: Option<String>,
    /// The parameters.
    #[serde(default)]
    pub spec: Map<String, Value>,
    /// Settings of the plugin for this resource.
    #[serde(default)]
    pub plugin_config: Map<String, Value>,
    /// Anything else that belongs to the resource.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

/// Where the fields of an event are in a message of somebody else: texts that begin with `/` are
/// JSON pointers into the message, everything else stands for itself. Without a mapping a message
/// is an event.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Mapping(Map<String, Value>);

const FIELDS: [&str; 9] = [
    "id",
    "operation",
    "name",
    "resource_type_name",
    "resource_type_version",
    "action_plugin",
    "spec",
    "plugin_config",
    "metadata",
];

impl Mapping {
    /// Whether every field is one of an event.
    ///
    /// # Errors
    /// With the name of one that is not.
    pub fn check(&self) -> Result<(), String> {
        match self.0.keys().find(|name| !FIELDS.contains(&name.as_str())) {
            Some(unknown) => Err(format!("mapping has {unknown:?}; an event has {}", FIELDS.join(", "))),
            None => Ok(()),
        }
    }

    /// The event in a message.
    ///
    /// # Errors
    /// With what is missing or wrong, for whoever sent it.
    pub fn read(&self, message: &Value) -> Result<Event, String> {
        let mut fields = match (self.0.is_empty(), message) {
            (true, Value::Object(fields)) => fields.clone(),
            (true, _) => return Err("the message is no JSON object".into()),
            (false, _) => Map::new(),
        };
        for (name, place) in &self.0 {
            let value = match place.as_str().filter(|place| place.starts_with('/')) {
                Some(pointer) => message.pointer(pointer).cloned(),
                None => Some(place.clone()),
            };
            // What is not there is as if it had not been mapped.
            if let Some(value) = value.filter(|value| !value.is_null()) {
                let value = match (name.as_str(), value) {
                    ("id", Value::Number(number)) => Value::String(number.to_string()),
                    (_, value) => value,
                };
                fields.insert(name.clone(), value);
            }
        }
        let event: Event =
            serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())?;
        if !is_label(&event.name) {
            return Err(format!(
                "{:?} is no name: one has letters a to z, digits and dashes, at most 63",
                event.name
            ));
        }
        Ok(event)
    }

    /// The event in the bytes of a message.
    ///
    /// # Errors
    /// As [`Mapping::read`], and when the bytes are no JSON.
    pub fn read_bytes(&self, message: &[u8]) -> Result<Event, String> {
        let message =
            serde_json::from_slice(message).map_err(|error| format!("the message is no JSON: {error}"))?;
        self.read(&message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_mapping_finds_the_event_in_somebody_elses_message() {
        let mapping: Mapping = serde_json::from_value(json!({
            "id": "/delivery", "name": "/cluster/name", "spec": "/cluster/spec", "operation": "/wish",
            "resource_type_name": "Box", "resource_type_version": "v1", "metadata": {"from": "queue"}}))
        .expect("a mapping");
        mapping.check().expect("known fields");
        let message = json!({"delivery": 17, "cluster": {"name": "pg", "spec": {"size": 3}}});
        let event = mapping.read(&message).expect("an event");
        assert_eq!((event.id.as_deref(), event.wish, event.name.as_str()), (Some("17"), Wish::Apply, "pg"));
        assert_eq!((event.spec["size"].as_i64(), &event.metadata["from"]), (Some(3), &json!("queue")));
        let odd: Mapping = serde_json::from_value(json!({"nmae": "/x"})).expect("a mapping");
        assert!(odd.check().expect_err("unknown").contains("\"nmae\""));
    }

    #[test]
    fn messages_that_are_no_events_are_explained() {
        let plain = Mapping::default();
        for (message, why) in [
            ("", "the message is no JSON"),
            ("[]", "the message is no JSON object"),
            ("{}", "missing field `name`"),
            (r#"{"name": "x"}"#, "missing field `resource_type_name`"),
            (r#"{"name": "../x", "resource_type_name": "Box"}"#, "\"../x\" is no name"),
            (
                r#"{"name": "x", "resource_type_name": "Box", "operation": "explode"}"#,
                "unknown variant `explode`",
            ),
            (r#"{"name": "x", "resource_type_name": "Box", "spec": 5}"#, "invalid type"),
        ] {
            let error = plain.read_bytes(message.as_bytes()).expect_err(message);
            assert!(error.starts_with(why), "{message}: {error}");
        }
    }
}
