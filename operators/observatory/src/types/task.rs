//! One task of a workflow.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::EnvVarSource;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DurationText, PodTemplate};

/// One task: a container that runs to its end after the tasks it depends on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskSpec {
    /// Names the task within its workflow; any text of at most 253 characters.
    pub name: String,

    /// The container image.
    pub image: String,

    /// Replaces the image's entry point.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,

    /// Replaces the image's arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,

    /// Names of the tasks that must have succeeded before this one starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<String>,

    /// Environment variables of the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,

    /// The directory in which the container starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,

    /// When the image is pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,

    /// Computing resources of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// What happens after a failed attempt. There is one attempt by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,

    /// How long one attempt may take, counted from the start of its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationText>,

    /// How long all attempts and the waits between them may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_timeout: Option<DurationText>,

    /// How long an attempt may wait for its container to start. By default ten minutes when the
    /// image cannot be had, and for ever when no node has room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_timeout: Option<DurationText>,

    /// Among the tasks that could start, those of higher priority go first. 0 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,

    /// Merged into the task's pod after the workflow's template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<PodTemplate>,
}

/// An environment variable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvVar {
    /// Its name.
    pub name: String,
    /// Its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Where its value comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvVarSource>,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    /// Before every start.
    Always,
    /// When the node does not have it.
    IfNotPresent,
    /// Never.
    Never,
}

impl ImagePullPolicy {
    /// As it stands in a pod.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// Computing resources of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// The most it may use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::crd::quantities")]
    pub limits: BTreeMap<String, IntOrString>,
    /// What is set aside for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::crd::quantities")]
    pub requests: BTreeMap<String, IntOrString>,
}

/// What happens after a failed attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// How many further attempts there may be after the first. 0 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub limit: Option<i32>,
    /// Which failures are tried again. `OnFailure` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<RetryPolicy>,
    /// How long to wait before the next attempt. Not at all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// How many times an attempt is repeated whose container never started because of the node:
    /// evicted, shut down, preempted. Does not count against `limit`. 3 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub infra_limit: Option<i32>,
}

/// Which failures are tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RetryPolicy {
    /// The container ended with an exit code other than 0, or took too long.
    #[default]
    OnFailure,
    /// The container never ran to its end: its pod was lost, deleted, or could not start.
    OnError,
    /// The node was at fault: evicted, shut down, preempted, lost.
    OnTransientError,
    /// All of them.
    Always,
}

/// How long to wait before the next attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Backoff {
    /// The wait before the second attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<DurationText>,
    /// What each further wait is multiplied with. 2 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1.0))]
    pub factor: Option<f64>,
    /// Each wait is made longer by up to this share of it, by another one for each task and
    /// attempt, so that what failed together does not come back together. 0 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub jitter: Option<f64>,
    /// The longest single wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<DurationText>,
    /// After this long since the first attempt started there is no further one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration: Option<DurationText>,
}
