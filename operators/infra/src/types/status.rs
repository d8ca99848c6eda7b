//! How a piece of infrastructure is doing, and what is being done about it.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Where a resource is in its life.
///
/// ```text
/// pending ─▶ reconciling ─▶ ready ─▶ deleting ─▶ (gone)
///                 ▲  └─▶ failed
///                 └────────┘ after a growing delay
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Waits for its first reconcile, or for one after a change.
    Pending,
    /// A plugin is at work.
    Reconciling,
    /// As it should be.
    Ready,
    /// The last attempt failed; there will be another.
    Failed,
    /// Being destroyed.
    Deleting,
}

impl State {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Reconciling => "reconciling",
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::Deleting => "deleting",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What an attempt is to achieve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// That the infrastructure is as the parameters say.
    Apply,
    /// That it is gone.
    Destroy,
}

/// How far an attempt has come. Written before what it names is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttemptPhase {
    /// The plugin is looking for what would change; nothing has been touched.
    Planning,
    /// The plugin may have acted.
    Applying,
    /// The plugin may have begun to destroy.
    Destroying,
}

/// Why an attempt was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The resource is new.
    Initial,
    /// What is wanted has changed.
    SpecChange,
    /// The resource is being deleted.
    Deletion,
    /// The last attempt failed.
    Retry,
    /// The infrastructure was no longer as it should be.
    Drift,
    /// Somebody asked for it.
    Manual,
}

impl Trigger {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::SpecChange => "spec_change",
            Self::Deletion => "deletion",
            Self::Retry => "retry",
            Self::Drift => "drift",
            Self::Manual => "manual",
        }
    }
}

/// An attempt that is under way. Whoever wrote it into the status, by compare-and-swap, is the
/// one who acts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// The run's id, which is also the idempotency key of everything done in it.
    pub id: String,
    /// What it is to achieve.
    pub operation: Operation,
    /// Why it was made.
    pub trigger: Trigger,
    /// How far it has come.
    pub phase: AttemptPhase,
    /// The generation it is about.
    pub generation: i64,
    /// When it began.
    #[schemars(schema_with = "time")]
    pub started_at: Timestamp,
    /// What the plugin needs to go on after a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::free_form_atomic")]
    pub checkpoint: Option<Value>,
    /// When to look again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub poll_at: Option<Timestamp>,
    /// How often in a row looking has failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub poll_failures: u32,
    /// Whether it is being stopped because the resource is to go.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cancelling: bool,
}

/// How a piece of infrastructure is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceStatus {
    /// Where the resource is in its life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// The same in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The generation that was last attempted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The generation that was last brought about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reconciled_generation: Option<i64>,
    /// When an attempt last ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub last_reconcile_time: Option<Timestamp>,
    /// The attempt that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// What the last attempt was to achieve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<Operation>,
    /// Attempts so far.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// Attempts in a row that failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// When a failed attempt is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub next_attempt_at: Option<Timestamp>,
    /// The value of the annotation `infra.steersman.io/reconcile` that was last acted upon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_trigger: Option<String>,
    /// What the plugin keeps about the last run, such as where to find it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::free_form_atomic")]
    pub last_run: Option<Value>,
    /// What the last successful attempt brought forth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::free_form_atomic")]
    pub outputs: Option<Map<String, Value>>,
    /// Ready: as it should be. Reconciling: a plugin is at work. Degraded: the last attempt failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "steersman::conditions::schema")]
    pub conditions: Vec<Condition>,
}

/// The reason of the condition `Ready` while the plugin cannot be asked.
pub(crate) const PLUGIN_UNAVAILABLE: &str = "PluginUnavailable";

impl ResourceStatus {
    /// Whether nothing can be attempted because the plugin cannot be asked.
    pub fn waits_for_plugin(&self) -> bool {
        self.conditions.iter().any(|it| it.type_ == "Ready" && it.reason == PLUGIN_UNAVAILABLE)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}
