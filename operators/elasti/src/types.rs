//! The ElastiService resource.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What should sleep when nobody needs it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "elasti.truefoundry.com",
    version = "v1alpha1",
    kind = "ElastiService",
    plural = "elastiservices",
    singular = "elastiservice",
    namespaced,
    status = "ElastiServiceStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A Service whose pods sleep while nobody needs them.",
    printcolumn = r#"{"name": "Mode", "type": "string", "jsonPath": ".status.mode"}"#,
    printcolumn = r#"{"name": "Target", "type": "string", "jsonPath": ".spec.scaleTargetRef.name"}"#,
    printcolumn = r#"{"name": "Replicas", "type": "integer", "jsonPath": ".status.replicas"}"#,
    printcolumn = r#"{"name": "Last-Up", "type": "date", "jsonPath": ".status.lastScaledUpTime"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ElastiServiceSpec {
    /// What is scaled: a Deployment, a StatefulSet, a Rollout, or anything else with a scale.
    pub scale_target_ref: ScaleTargetRef,
    /// The name of the Service, in the same namespace.
    #[schemars(length(min = 1))]
    pub service: String,
    /// To how many replicas the target is woken.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub min_target_replicas: i32,
    /// For how many seconds nobody must have needed the service before it sleeps.
    #[serde(default = "fifteen_minutes")]
    #[schemars(range(min = 0, max = 604_800))]
    pub cooldown_period: i32,
    /// Who decides whether somebody needs it. It sleeps when all of them agree that nobody does;
    /// without any it never sleeps by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<Trigger>,
    /// An autoscaler that must rest while the target sleeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaler: Option<Autoscaler>,
    /// When sleeping is allowed at all. Always, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled_period: Option<EnabledPeriod>,
    /// Requests that the resolver answers itself, so that health checks wake nobody. The first that
    /// fits counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub probe_response: Vec<ProbeResponse>,
}

fn one() -> i32 {
    1
}

fn fifteen_minutes() -> i32 {
    900
}

/// What is scaled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleTargetRef {
    /// Its group and version, such as `apps/v1`.
    #[schemars(length(min = 1))]
    pub api_version: String,
    /// Its kind, such as `Deployment`; `deployments` and `rollouts` are understood too.
    #[schemars(length(min = 1))]
    pub kind: String,
    /// Its name.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// Who decides whether somebody needs the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    /// Where the answer comes from.
    #[serde(rename = "type")]
    pub kind: TriggerType,
    /// What the source needs to know. `prometheus`: `query`, `threshold`, and optionally
    /// `serverAddress`, `uptimeFilter` and `headers`. `resolver`: nothing.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "anything")]
    pub metadata: Map<String, Value>,
}

fn anything(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Where the answer comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TriggerType {
    /// A query to a Prometheus server.
    #[default]
    Prometheus,
    /// The requests that the resolver sees; it then stays in the path while the target is awake.
    Resolver,
}

/// An autoscaler that must rest while the target sleeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Autoscaler {
    /// Which one.
    #[serde(rename = "type")]
    pub kind: AutoscalerType,
    /// The name of its object, in the same namespace.
    pub name: String,
}

/// Which autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AutoscalerType {
    /// A HorizontalPodAutoscaler, which rests by itself at zero replicas.
    Hpa,
    /// A ScaledObject of KEDA, which is paused.
    Keda,
}

/// When sleeping is allowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnabledPeriod {
    /// When the period begins: five fields of cron, in UTC.
    #[serde(default = "midnight")]
    pub schedule: String,
    /// How long it lasts, such as `8h` or `1h30m`.
    #[serde(default = "all_day")]
    pub duration: String,
}

fn midnight() -> String {
    "0 0 * * *".to_owned()
}

fn all_day() -> String {
    "24h".to_owned()
}

/// How it stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ElastiServiceStatus {
    /// Whether requests go to the pods (`serve`) or through the resolver (`proxy`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// When this status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reconciled_time: Option<Time>,
    /// When the target was last woken or seen to be needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scaled_up_time: Option<Time>,
    /// Since when the resolver has been in the path of a target that is about to sleep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switched_time: Option<Time>,
    /// Which port of the resolver stands for each port of the Service, whatever is said over it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "resolver_ports")]
    pub resolver_ports: Vec<ResolverPort>,
    /// How many replicas the target should have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: requests are answered or held. TargetFound, TriggerHealthy and ResolverReachable:
    /// what it depends on is there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "steersman::conditions::schema")]
    pub conditions: Vec<Condition>,
}

/// A port of the resolver that stands for a port of the Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolverPort {
    /// The port of the Service.
    #[schemars(schema_with = "port_number")]
    pub port: u16,
    /// The port of the resolver.
    #[schemars(schema_with = "port_number")]
    pub resolver_port: u16,
}

/// Kubernetes knows no format for sixteen bits.
fn port_number(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "integer", "format": "int32", "minimum": 0, "maximum": 65535})
}

/// Ports are a map by the port of the Service.
fn resolver_ports(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut schema = <Vec<ResolverPort>>::json_schema(generator);
    schema.insert("x-kubernetes-list-type".into(), "map".into());
    schema.insert("x-kubernetes-list-map-keys".into(), serde_json::json!(["port"]));
    schema
}

/// Which way requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Through the resolver.
    Proxy,
    /// To the pods.
    Serve,
}

/// The definition of the ElastiService resource, as `kubectl apply` takes it.
pub fn crd() -> CustomResourceDefinition {
    ElastiService::crd()
}

pub use crate::probe::{
    MatchType, NamedMatch, PathMatch, PathMatchType, ProbeAnswer, ProbeMethod, ProbeResponse,
};

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_defaults_are_those_that_were_meant() {
        let spec: ElastiServiceSpec = serde_json::from_value(json!({
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "deployments", "name": "web"},
            "service": "web", "enabledPeriod": {}}))
        .expect("a spec");
        assert_eq!((spec.min_target_replicas, spec.cooldown_period), (1, 900));
        let period = spec.enabled_period.expect("a period");
        assert_eq!((period.schedule.as_str(), period.duration.as_str()), ("0 0 * * *", "24h"));
    }

    #[test]
    fn the_definition_has_the_known_names_and_bounds() {
        let crd = serde_json::to_value(crd()).expect("a CRD");
        assert_eq!(crd["metadata"]["name"], "elastiservices.elasti.truefoundry.com");
        let version = &crd["spec"]["versions"][0];
        assert_eq!(version["name"], "v1alpha1");
        assert_eq!(version["subresources"]["status"], json!({}));
        let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
        assert_eq!(spec["required"], json!(["scaleTargetRef", "service"]));
        assert_eq!(spec["properties"]["minTargetReplicas"]["default"], 1);
        assert_eq!(spec["properties"]["cooldownPeriod"]["maximum"].as_f64(), Some(604_800.0));
        let metadata = &spec["properties"]["triggers"]["items"]["properties"]["metadata"];
        assert_eq!(metadata["x-kubernetes-preserve-unknown-fields"], true);
    }
}
