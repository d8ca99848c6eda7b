//! The WebApp resource.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a web application should be.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "WebApp",
    plural = "webapps",
    singular = "webapp",
    shortname = "wa",
    category = "all",
    namespaced,
    status = "WebAppStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A web application: a number of replicas of an image behind one address.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn = r#"{"name": "Image", "type": "string", "jsonPath": ".spec.image"}"#,
    printcolumn = r#"{"name": "Desired", "type": "integer", "jsonPath": ".spec.replicas"}"#,
    printcolumn = r#"{"name": "Available", "type": "integer", "jsonPath": ".status.availableReplicas"}"#,
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct WebAppSpec {
    /// The image to run. Its program learns the port to serve on from the environment variable
    /// PORT.
    #[schemars(length(min = 1))]
    pub image: String,
    /// How many replicas to run.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// The port on which the application serves, and under which it is reached.
    #[serde(default = "http")]
    #[schemars(range(min = 1, max = 65_535))]
    pub port: i32,
}

fn one() -> i32 {
    1
}

fn http() -> i32 {
    80
}

/// How a web application is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebAppStatus {
    /// Replicas there are, available or not.
    #[serde(default)]
    pub replicas: i32,
    /// Replicas that are ready to serve.
    #[serde(default)]
    pub available_replicas: i32,
    /// The labels of the application's pods, for autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Where the application is in its life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Available: enough replicas serve. Progressing: a change is being rolled out. Degraded:
    /// something is wrong that waiting will not mend.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "steersman::conditions::schema")]
    pub conditions: Vec<Condition>,
}

/// Where a WebApp is in its life.
///
/// ```text
/// (created) ─▶ Reconciling ─▶ WaitingForPodsReady ─▶ Ready ◀──▶ Scaling
///                                                      └─▶ Deleting ─▶ (gone)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// The operator has declared the Deployment and the Service.
    Reconciling,
    /// A rollout is under way, and not every replica is ready.
    WaitingForPodsReady,
    /// Every replica is available.
    Ready,
    /// The number of replicas changes.
    Scaling,
    /// The WebApp waits for what it owns to go.
    Deleting,
    /// The WebApp cannot be had as it is; its conditions say why.
    Failed,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The definition of the WebApp resource, as `kubectl apply` takes it.
pub fn crd() -> CustomResourceDefinition {
    WebApp::crd()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn schema() -> Value {
        let crd = serde_json::to_value(crd()).expect("a CRD");
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
    }

    #[test]
    fn the_definition_asks_for_an_image_and_bounds_the_numbers() {
        let schema = schema();
        let spec = &schema["properties"]["spec"];
        assert_eq!(spec["required"], serde_json::json!(["image"]));
        assert_eq!(spec["properties"]["image"]["minLength"], 1);
        assert_eq!(spec["properties"]["replicas"]["minimum"].as_f64(), Some(0.0));
        assert_eq!(spec["properties"]["replicas"]["default"], 1);
        assert_eq!(spec["properties"]["port"]["default"], 80);
        assert_eq!(spec["properties"]["port"]["maximum"].as_f64(), Some(65_535.0));
        let conditions = &schema["properties"]["status"]["properties"]["conditions"];
        assert_eq!(conditions["x-kubernetes-list-type"], "map");
    }

    #[test]
    fn the_manifest_in_the_tree_is_up_to_date() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/crd/bases");
        steersman_test::assert_manifest(folder, &crd());
    }

    #[test]
    fn a_missing_port_is_80_and_missing_replicas_are_one() {
        let spec: WebAppSpec =
            serde_json::from_value(serde_json::json!({"image": "nginx:1.25"})).expect("a spec");
        assert_eq!((spec.port, spec.replicas), (80, 1));
    }
}
