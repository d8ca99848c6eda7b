//! The WebApp resource.

mod schema;
pub mod v1beta1;

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, LocalObjectReference, Probe};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use steersman::convert::Converter;

/// What a web application should be.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    printcolumn = r#"{"name": "URL", "type": "string", "jsonPath": ".status.url", "priority": 1}"#,
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
    /// What to run instead of the image's own program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The program's arguments instead of the image's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables beside PORT, which is the port above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::by_name::<EnvVar>")]
    pub env: Vec<EnvVar>,
    /// ConfigMaps and Secrets whose entries become environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<EnvFromSource>,
    /// What each replica needs and may use at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// When a replica may get requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness_probe: Option<Probe>,
    /// When a replica must be started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness_probe: Option<Probe>,
    /// When a replica has started, so that the other probes begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup_probe: Option<Probe>,
    /// When the image is fetched: Always, IfNotPresent or Never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Secrets that open the registry of the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::by_name::<LocalObjectReference>")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// How the application is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSettings>,
    /// Restricted: no root, no new privileges, no capabilities, a read-only file system. The image
    /// must be made for that; Default leaves it to the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_profile: Option<SecurityProfile>,
    /// A pod template that is laid over the one made from the fields above: objects are merged,
    /// lists of named things (containers, volumes) by name. The application's container is called
    /// webapp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::anything")]
    pub pod_template: Option<serde_json::Value>,
}

/// What a replica needs and may use, as in a pod: cpu, memory and others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// What must be free on a node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, IntOrString>,
    /// What it may use at most.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, IntOrString>,
}

/// How an application is reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceSettings {
    /// ClusterIP: within the cluster. NodePort and LoadBalancer: from outside too.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<ServiceType>,
    /// The port under which it is reached, where that is not the one it serves on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_535))]
    pub port: Option<i32>,
    /// Annotations of the Service, for load balancers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Gives the Service no address of its own: its name leads to every replica. May not be
    /// changed later.
    #[serde(default, skip_serializing_if = "is_false")]
    pub headless: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// From where a Service is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// From within the cluster.
    ClusterIP,
    /// At a port of every node.
    NodePort,
    /// At an address of its own.
    LoadBalancer,
}

/// When an image is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    /// Each time a replica starts.
    Always,
    /// Where it is not there yet.
    IfNotPresent,
    /// Not at all.
    Never,
}

/// How far the application is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SecurityProfile {
    /// As far as its image wants.
    Default,
    /// No root, no new privileges, no capabilities, a read-only file system.
    Restricted,
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
    /// Where the application is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
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
/// Created ─▶ Reconciling ─▶ WaitingForPodsReady ─▶ Ready ◀──▶ Scaling
///                                                    └─▶ Deleting ─▶ (gone)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Nobody has looked at it yet. The definition says so, no operator writes it.
    Created,
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
///
/// `v1beta1` is served once somebody converts it, which the operator's webhooks do.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = schema::with_rules(WebApp::crd());
    for mut version in v1beta1::WebApp::crd().spec.versions {
        version.served = false;
        version.storage = false;
        crd.spec.versions.push(version);
    }
    crd
}

/// Converts between all versions of WebApp.
pub fn converter() -> Converter<WebApp> {
    Converter::new().spoke::<v1beta1::WebApp>()
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
