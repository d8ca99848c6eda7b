//! What is kept about one attempt.

use std::time::Duration;

use jiff::Timestamp;

/// How one attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Id of the attempt; recorded once however often it is told.
    pub attempt: String,
    /// Number of the resource.
    pub resource_id: i64,
    /// Its uid.
    pub resource_uid: String,
    /// Its name.
    pub resource_name: String,
    /// Its type and version.
    pub resource_type: String,
    /// The plugin that acted.
    pub action_plugin: String,
    /// The generation that was attempted.
    pub generation: i64,
    /// Whether it succeeded.
    pub success: bool,
    /// `completed`, or the phase in which it failed.
    pub phase: String,
    /// Why it failed.
    pub error_message: Option<String>,
    /// Things made.
    pub created: u32,
    /// Things changed.
    pub updated: u32,
    /// Things taken away.
    pub deleted: u32,
    /// What was to change.
    pub plan: Option<String>,
    /// What happened.
    pub apply: Option<String>,
    /// Why the attempt was made.
    pub trigger: String,
    /// Whether it was made because of drift.
    pub drift: bool,
    /// How long it took.
    pub duration: Duration,
    /// When it ended.
    pub time: Timestamp,
}
