//! Tasks for the plugins that start runs elsewhere.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use steersman_infra::action::{Progress, Task};
use steersman_infra::types::Operation;

/// When everything here happens, in seconds since 1970.
pub(crate) const NOW: i64 = 1_800_000_000;

/// A task that began `seconds` ago, configured by `config` and, over it, by `more`.
pub(crate) fn task(seconds: u64, mut config: Value, more: &Value) -> Task {
    let now = Timestamp::from_second(NOW).expect("a time");
    for (name, value) in more.as_object().cloned().unwrap_or_default() {
        config[name] = value;
    }
    Task {
        attempt: "attempt-1".into(),
        started_at: now.checked_sub(Duration::from_secs(seconds)).expect("a time"),
        operation: Operation::Apply,
        name: "pg".into(),
        namespace: "default".into(),
        uid: "u".into(),
        type_name: "T".into(),
        type_version: "v1".into(),
        generation: 1,
        parameters: Map::from_iter([("storage-gb".to_owned(), json!(5)), ("engine".to_owned(), json!("pg"))]),
        config: config.as_object().cloned().expect("a configuration"),
        last_run: None,
        outputs: Map::new(),
        now,
    }
}

/// What is kept of a run that is under way.
pub(crate) fn checkpoint(progress: &Progress) -> Value {
    match progress {
        Progress::Running { checkpoint, .. } => checkpoint.clone(),
        other => panic!("it should run: {other:?}"),
    }
}
