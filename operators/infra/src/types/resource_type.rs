//! A type of infrastructure, with the schema of its parameters.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What resources of one type and version look like.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infra.steersman.io",
    version = "v1",
    kind = "ResourceType",
    plural = "resourcetypes",
    singular = "resourcetype",
    shortname = "rt",
    status = "ResourceTypeStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A type of infrastructure: a name, a version, and a schema for the parameters of its resources.",
    printcolumn = r#"{"name": "Type", "type": "string", "jsonPath": ".spec.name"}"#,
    printcolumn = r#"{"name": "Version", "type": "string", "jsonPath": ".spec.version"}"#,
    printcolumn = r#"{"name": "Deprecated", "type": "boolean", "jsonPath": ".spec.deprecated"}"#,
    printcolumn = r#"{"name": "Valid", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Valid\")].status"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceTypeSpec {
    /// The type's name as people write it, such as DatabaseCluster.
    #[schemars(length(min = 1, max = 255))]
    pub name: String,
    /// The version, such as v1beta1. Versions stand side by side.
    #[schemars(length(min = 1, max = 50))]
    pub version: String,
    /// What the type is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The schema of `spec.parameters`: OpenAPI v3 or JSON Schema. References must be local.
    #[schemars(schema_with = "super::free_form")]
    pub schema: Value,
    /// Whether people should use another version. Resources of the type keep working.
    #[serde(default)]
    pub deprecated: bool,
    /// Anything that belongs to the type. `action_defaults.<plugin>` configures action plugins
    /// for all resources of the type.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "super::free_form")]
    pub metadata: Map<String, Value>,
}

/// Whether a type can be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceTypeStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Valid: the schema is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "steersman::conditions::schema")]
    pub conditions: Vec<Condition>,
}
