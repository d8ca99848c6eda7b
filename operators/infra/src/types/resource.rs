//! One piece of infrastructure.

use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ID, ResourceStatus, State, short_name};

/// What one piece of infrastructure should be.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infra.steersman.io",
    version = "v1",
    kind = "Resource",
    plural = "resources",
    singular = "resource",
    namespaced,
    status = "ResourceStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A piece of infrastructure: parameters of a type, and the plugin that makes it so.",
    printcolumn = r#"{"name": "Type", "type": "string", "jsonPath": ".spec.type"}"#,
    printcolumn = r#"{"name": "Version", "type": "string", "jsonPath": ".spec.typeVersion"}"#,
    printcolumn = r#"{"name": "Plugin", "type": "string", "jsonPath": ".spec.actionPlugin"}"#,
    printcolumn = r#"{"name": "Status", "type": "string", "jsonPath": ".status.state"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name": "Message", "type": "string", "priority": 1, "jsonPath": ".status.message"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSpec {
    /// The name of the type.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 255))]
    pub type_name: String,
    /// The version of the type.
    #[schemars(length(min = 1, max = 50))]
    pub type_version: String,
    /// The plugin that acts.
    #[schemars(length(min = 1, max = 63))]
    pub action_plugin: String,
    /// What is wanted, by the type's schema.
    #[serde(default)]
    #[schemars(schema_with = "super::free_form")]
    pub parameters: Map<String, Value>,
    /// Configures the plugin for this resource, before the type's and the operator's settings.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "super::free_form")]
    pub plugin_config: Map<String, Value>,
    /// Anything else that belongs to the resource.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "super::free_form")]
    pub metadata: Map<String, Value>,
}

impl Resource {
    /// The number by which the REST face knows it, once it has one.
    pub fn id(&self) -> Option<i64> {
        self.labels().get(ID)?.parse().ok()
    }

    /// Its name within its type.
    pub fn short_name(&self) -> &str {
        short_name(&self.spec.type_name, self.metadata.name.as_deref().unwrap_or_default())
    }

    /// Where it is in its life. A change that nobody has taken up yet is pending.
    pub fn state(&self) -> State {
        let status = self.status.as_ref();
        if self.metadata.deletion_timestamp.is_some() {
            return State::Deleting;
        }
        let state = status.and_then(|status| status.state).unwrap_or(State::Pending);
        let seen = status.and_then(|status| status.observed_generation);
        match state {
            State::Ready | State::Failed if seen != self.metadata.generation => State::Pending,
            state => state,
        }
    }
}
