//! The Observatory resource: what a user writes and what is reported back.
//!
//! Everything that is not one of the first four fields of [`ObservatorySpec`] or the first six
//! of [`TaskSpec`] is optional and may be left out.

mod crd;
mod duration;
mod packed;
mod status;
mod task;

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::crd::crd;
pub use self::duration::{DurationError, DurationText};
pub(crate) use self::status::time;
pub use self::status::{AttemptStatus, ObservatoryStatus, Phase, TaskStatus};
pub use self::task::{Backoff, EnvVar, ImagePullPolicy, Resources, Retry, RetryPolicy, TaskSpec};

/// The API group.
pub const GROUP: &str = "workflow.seventh-horizon.io";

/// A workflow: tasks that run as pods, each after those it depends on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "workflow.seventh-horizon.io",
    version = "v1alpha1",
    kind = "Observatory",
    plural = "observatories",
    singular = "observatory",
    shortname = "obs",
    namespaced,
    status = "ObservatoryStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A workflow of tasks that run as pods, each after those it depends on."
)]
#[serde(rename_all = "camelCase")]
pub struct ObservatorySpec {
    /// The tasks of the workflow. They and their dependencies form a directed graph without cycles.
    #[schemars(length(min = 1))]
    pub tasks: Vec<TaskSpec>,

    /// When to run, in cron's five fields; without it the workflow runs once, now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,

    /// Starts no further task, or no further scheduled run, while it is true. What runs goes on.
    #[serde(default)]
    pub suspend: bool,

    /// How many tasks may run at the same time.
    #[serde(default = "default_max_concurrent")]
    #[schemars(range(min = 1))]
    pub max_concurrent: i32,

    /// Further schedules; a time that several of them name counts once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<String>,

    /// The time zone of the schedules, a name such as `Europe/Berlin`. UTC by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,

    /// What happens when a run is due while an earlier one goes on. `Allow` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_policy: Option<ConcurrencyPolicy>,

    /// How late a scheduled run may start. A run that is later is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub starting_deadline_seconds: Option<i64>,

    /// Which of the runs that were missed, while nothing could start them, are made up for.
    /// `Latest` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<CatchUp>,

    /// How many succeeded runs of a schedule are kept. 3 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub successful_runs_history_limit: Option<i32>,

    /// How many failed runs of a schedule are kept. 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub failed_runs_history_limit: Option<i32>,

    /// What a failed task means for tasks that do not depend on it. `Continue` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<FailurePolicy>,

    /// How long the workflow may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,

    /// Ends the workflow: `Stop` lets running tasks finish, `Terminate` ends them too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown: Option<Shutdown>,

    /// Runs tasks of a finished workflow again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun: Option<Rerun>,

    /// How long a finished workflow is kept. For ever by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Ttl>,

    /// Which pods of finished tasks are deleted, and when. None by default.
    #[serde(default, rename = "podGC", skip_serializing_if = "Option::is_none")]
    pub pod_gc: Option<PodGc>,

    /// What becomes of the log of a pod that the operator deletes. `BeforeDelete` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_archive: Option<LogArchive>,

    /// Among workflows that wait because the operator runs as many tasks as it may, those of
    /// higher priority go first. 0 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,

    /// How much task pods are restricted. `Hardened` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_profile: Option<SecurityProfile>,

    /// Merged into the pod of every task; a list whose items have names is merged by name, and
    /// the task's container is named `task`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<PodTemplate>,
}

fn default_max_concurrent() -> i32 {
    10
}

/// What happens when a scheduled run is due while an earlier one goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConcurrencyPolicy {
    /// Both run.
    #[default]
    Allow,
    /// The new run is left out.
    Forbid,
    /// The earlier run is terminated.
    Replace,
    /// The new run waits until the earlier one has ended.
    Queue,
}

/// Which missed runs are made up for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CatchUp {
    /// None that is more than a minute late.
    None,
    /// The latest one.
    #[default]
    Latest,
    /// All, at most the latest hundred.
    All,
}

/// What a failed task means for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FailurePolicy {
    /// Tasks that do not depend on it still run.
    #[default]
    Continue,
    /// No further task starts.
    Stop,
}

/// How to end a workflow early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Shutdown {
    /// No further task starts; running ones finish.
    Stop,
    /// Running tasks are ended as well.
    Terminate,
}

/// How long a workflow may take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// From the start of the first task to the end of the last; tasks that run then are ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<DurationText>,
}

/// Runs tasks of a finished workflow again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rerun {
    /// Any text; every new value causes one rerun.
    pub id: String,
    /// Which tasks run again. `FromFailed` by default.
    #[serde(default)]
    pub mode: RerunMode,
    /// The tasks to run again in mode `Tasks`, with all that depend on them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<String>,
}

/// Which tasks run again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RerunMode {
    /// Those that did not succeed.
    #[default]
    FromFailed,
    /// Those that are named, and all that depend on them.
    Tasks,
    /// All.
    All,
}

/// How long a finished workflow is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ttl {
    /// After any end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_completion: Option<DurationText>,
    /// After success; goes before `afterCompletion`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_success: Option<DurationText>,
    /// After failure; goes before `afterCompletion`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_failure: Option<DurationText>,
}

/// Which pods of finished tasks are deleted, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGc {
    /// Which pods. `Never` by default.
    #[serde(default)]
    pub strategy: PodGcStrategy,
    /// How long after that. At once by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<DurationText>,
}

/// Which pods of finished tasks are deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodGcStrategy {
    /// None.
    #[default]
    Never,
    /// Those that succeeded.
    OnSuccess,
    /// Every one that ended.
    OnCompletion,
    /// All, once the workflow has succeeded.
    OnWorkflowSuccess,
    /// All, once the workflow has ended.
    OnWorkflowCompletion,
}

/// What becomes of the log of a pod that the operator deletes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LogArchive {
    /// Its end is kept in the ConfigMap `<pod>-log`, which goes with the workflow.
    #[default]
    BeforeDelete,
    /// It is lost.
    Never,
}

/// How much task pods are restricted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SecurityProfile {
    /// No privilege escalation, all capabilities dropped, the runtime's seccomp profile.
    #[default]
    Hardened,
    /// The same, and neither root nor a writable root file system.
    Strict,
    /// Nothing is set; what the cluster and the pod template say holds.
    Unset,
}

/// Merged into the pod of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplate {
    /// Labels and annotations to add.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<PodTemplateMetadata>,
    /// Any fields of a pod's spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd::any_object")]
    pub spec: Option<serde_json::Map<String, serde_json::Value>>,
}

/// Labels and annotations to add to pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplateMetadata {
    /// Labels; those of the operator cannot be replaced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations; those of the operator cannot be replaced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl ObservatorySpec {
    /// Whether runs are made on a schedule, instead of one run now.
    pub fn is_scheduled(&self) -> bool {
        self.schedule.is_some() || !self.schedules.is_empty()
    }

    /// All schedules.
    pub fn all_schedules(&self) -> impl Iterator<Item = &str> {
        self.schedule.iter().chain(&self.schedules).map(String::as_str)
    }

    /// How many tasks may run at the same time; at least one.
    pub fn concurrency(&self) -> usize {
        usize::try_from(self.max_concurrent).unwrap_or(1).max(1)
    }
}
