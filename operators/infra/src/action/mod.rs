//! The contract between the controller and what acts on the outside world.
//!
//! ```text
//!   describe ── configure ── validate ── plan ── apply ──▶ Running ── resume ──▶ … ──▶ Done
//!                                                destroy                  cancel
//!                          detect_drift, outputs (only with the capability)
//! ```
//! The contract is one, and has two forms: this trait for plugins in the operator's process, and
//! the same messages as lines of JSON for plugins in a process of their own, in any language
//! ([`crate::plugin`]). The types here are both: what they are in JSON is what is on the wire.
//!
//! Before `apply` or `destroy` is called, the attempt with its id is in the resource's status.
//! Plugins hand the id on as an idempotency key wherever the other side takes one. Long waits
//! are [`Progress::Running`]: the checkpoint is kept in the status, no worker waits, and after a
//! crash [`Action::resume`] goes on from it. Without a checkpoint it is unknown whether the
//! action has begun; `resume` must find out, or repeat it in a way that the other side takes as
//! the same request.
//!
//! Plugins keep nothing in memory that a restart may not lose: everything they need is in the
//! [`Task`].

pub mod github;
pub mod gitlab;
pub mod http;
mod registry;
mod template;
pub mod terraform;
pub mod web;

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use registry::Registry;

use crate::types::Operation;

/// The version of this contract. Minor numbers only add.
pub const CONTRACT: &str = "1.0";

/// What a plugin says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The name that resources use.
    pub name: String,
    /// The plugin's own version.
    pub version: String,
    /// What it can do beyond applying and destroying.
    pub capabilities: Vec<Capability>,
}

impl Description {
    /// A plugin that can do this beyond applying and destroying.
    pub fn new(name: &str, version: &str, capabilities: impl Into<Vec<Capability>>) -> Self {
        Self { name: name.to_owned(), version: version.to_owned(), capabilities: capabilities.into() }
    }

    /// Whether the plugin can do something that not every plugin can.
    pub fn can(&self, what: Capability) -> bool {
        self.capabilities.contains(&what)
    }
}

/// What not every plugin can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// Tell what would change before doing it.
    Plan,
    /// Tell whether the infrastructure is still as it should be, without touching it.
    DetectDrift,
    /// Stop what is under way.
    Cancel,
    /// Tell the outputs of what is there, without touching it.
    Outputs,
    /// Answer several calls at the same time. Means something only to plugins in a process of
    /// their own; all others must be able to.
    Concurrent,
}

/// What is to be done: one resource, one attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Id of the attempt, the idempotency key of everything done in it.
    pub attempt: String,
    /// When the attempt began.
    pub started_at: Timestamp,
    /// What it is to achieve.
    pub operation: Operation,
    /// Name of the resource within its type.
    pub name: String,
    /// Namespace of the resource.
    pub namespace: String,
    /// Its uid: the same name later is another resource.
    pub uid: String,
    /// Name of its type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Version of its type.
    pub type_version: String,
    /// Which change of the resource this is about.
    pub generation: i64,
    /// What is wanted, with defaults.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// The plugin's configuration: operator's, type's and resource's settings, the last winning.
    #[serde(default)]
    pub config: Map<String, Value>,
    /// What the last run left behind.
    #[serde(default)]
    pub last_run: Option<Value>,
    /// What the last successful attempt brought forth.
    #[serde(default)]
    pub outputs: Map<String, Value>,
    /// The time.
    pub now: Timestamp,
}

/// How many things an attempt touches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Changes {
    /// Things that are made.
    pub created: u32,
    /// Things that are changed.
    pub updated: u32,
    /// Things that are taken away.
    pub deleted: u32,
}

/// What would change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Plan {
    /// Whether there is anything to do.
    pub needed: Needed,
    /// How much.
    pub changes: Changes,
    /// The same for people.
    pub text: String,
}

/// Whether there is anything to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Needed {
    /// Something must change.
    #[default]
    Yes,
    /// All is as it should be.
    No,
}

/// How far an action is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Progress {
    /// It goes on elsewhere.
    Running {
        /// What [`Action::resume`] needs.
        checkpoint: Value,
        /// When to ask again.
        #[serde(rename = "after_seconds", default = "soon", with = "seconds")]
        after: Duration,
        /// How it stands, for people.
        #[serde(default)]
        message: String,
    },
    /// It is done.
    Done(Completed),
    /// It has ended without success.
    Failed {
        /// Why, for people.
        message: String,
        /// What to keep about the run.
        #[serde(default)]
        last_run: Option<Value>,
    },
}

/// What a finished action leaves behind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Completed {
    /// What it brought forth.
    pub outputs: Map<String, Value>,
    /// What it changed, if the plugin knows better than the plan.
    pub changes: Option<Changes>,
    /// What happened, for people.
    pub text: String,
    /// What to keep about the run.
    pub last_run: Option<Value>,
}

/// Whether the infrastructure is still as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "drift", content = "what", rename_all = "lowercase")]
pub enum Drift {
    /// It is.
    None,
    /// It is not; the sentence says in what.
    Found(String),
}

/// Why an action could not be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActionError {
    /// Nothing was done; trying again may help.
    #[error("{message}")]
    Transient {
        /// Why.
        message: String,
        /// How long the other side wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// Nothing was done, and trying again will not help before something is changed.
    #[error("{0}")]
    Permanent(String),
    /// It may have been done: the answer is missing.
    #[error("{0}")]
    Unknown(String),
}

impl ActionError {
    /// Nothing was done; trying again may help.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::Transient { message: message.into(), retry_after: None }
    }

    /// Nothing was done, and trying again will not help.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::Permanent(message.into())
    }
}

/// What an [`Action`] returns.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, ActionError>>;

/// Acts on the outside world for resources.
pub trait Action: Send + Sync + 'static {
    /// What the plugin is and can, as far as it is known.
    fn describe(&self) -> Description;

    /// Gets ready to be asked, and says what the plugin is and can. Asked before every attempt,
    /// so it costs nothing when there is nothing to do.
    fn configure(&self) -> Answer<'_, Description> {
        Box::pin(std::future::ready(Ok(self.describe())))
    }

    /// Ends what only serves further calls, such as a process. The next call may bring it back.
    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Whether configuration and parameters are complete: [`ActionError::Permanent`] with what is
    /// missing and where to put it if they are not.
    fn validate<'a>(&'a self, task: &'a Task) -> Answer<'a, ()>;

    /// Finds out what would change; touches nothing. Asked only with [`Capability::Plan`].
    fn plan<'a>(&'a self, task: &'a Task) -> Answer<'a, Plan> {
        let _ = task;
        Box::pin(std::future::ready(Ok(Plan::default())))
    }

    /// Makes the infrastructure as it should be, or begins to.
    fn apply<'a>(&'a self, task: &'a Task) -> Answer<'a, Progress>;

    /// Takes the infrastructure away, or begins to.
    fn destroy<'a>(&'a self, task: &'a Task) -> Answer<'a, Progress>;

    /// Looks how an action stands; without a checkpoint, finds out whether it has begun.
    ///
    /// An error means that it could not be found out: it is asked again.
    fn resume<'a>(&'a self, task: &'a Task, checkpoint: Option<&'a Value>) -> Answer<'a, Progress>;

    /// Looks whether the infrastructure is still as it should be; touches nothing. Asked only
    /// with [`Capability::DetectDrift`].
    fn detect_drift<'a>(&'a self, task: &'a Task) -> Answer<'a, Drift> {
        let _ = task;
        Box::pin(std::future::ready(Ok(Drift::None)))
    }

    /// Tells the outputs of what is there; touches nothing. Asked only with
    /// [`Capability::Outputs`], when a plan finds nothing to do.
    fn outputs<'a>(&'a self, task: &'a Task) -> Answer<'a, Map<String, Value>> {
        Box::pin(std::future::ready(Ok(task.outputs.clone())))
    }

    /// Stops an apply that is under way. Asked only with [`Capability::Cancel`].
    fn cancel<'a>(&'a self, task: &'a Task, checkpoint: Option<&'a Value>) -> Answer<'a, ()> {
        let _ = (task, checkpoint);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// When to ask again where a plugin does not say.
fn soon() -> Duration {
    Duration::from_secs(5)
}

/// Durations as numbers of seconds.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(duration.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| D::Error::custom(format!("{seconds} is no number of seconds")))
    }
}
