//! What is reported about a workflow.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How far a workflow or a task has come. There are no others; a `reason` says the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Not started.
    #[default]
    Pending,
    /// Started and not ended.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended otherwise.
    Failed,
}

impl Phase {
    /// As it stands in a status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// Whether nothing more will happen.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl JsonSchema for Phase {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Phase".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string"})
    }
}

/// The observed state of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservatoryStatus {
    /// The state of the workflow: Pending, Running, Succeeded or Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The state of every task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskStatus>,
    /// When the first task started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the last task ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// The time of the latest scheduled run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,
    /// What is known about the workflow in detail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,

    /// Why the workflow is in its phase, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many tasks have succeeded, of how many: `3/12`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// The tasks in full, where they would be too large for the server as they are: JSON,
    /// compressed with gzip, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoded_tasks: Option<String>,
    /// The latest rerun that was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun_id: Option<String>,
    /// Runs of the schedule that go on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub active_runs: Vec<String>,
    /// When the schedule makes its next run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_schedule_time: Option<Time>,
    /// When the latest run that succeeded ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_successful_time: Option<Time>,
    /// The schedule has been decided up to this time: its runs were made or left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_until: Option<Time>,
    /// The schedule that `scheduledUntil` belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_schedule: Option<String>,
}

/// The state of a task. Its times, pod and exit code are those of the latest attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskStatus {
    /// The task.
    pub name: String,
    /// The state of the task: Pending, Running, Succeeded or Failed.
    pub phase: Phase,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Why it is in its phase, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// Why it is in its phase, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of the latest attempt, from 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: i32,
    /// Attempts before this number belong to an earlier run of the workflow.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub first_attempt: i32,
    /// Its pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// The node on which it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The exit code of its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Earlier attempts, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptStatus>,
}

/// An attempt that ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttemptStatus {
    /// Its number, from 0.
    pub number: i32,
    /// Its pod, whose log is that of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// The exit code of its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why it failed, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl ObservatoryStatus {
    /// The phase; pending when nothing was reported yet.
    pub fn phase(&self) -> Phase {
        self.phase.unwrap_or_default()
    }
}

/// A time as it stands in a status: in whole seconds.
pub(crate) fn time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}
