//! What is reported of a run.

use std::sync::Arc;

use jiff::Timestamp;
use steersman::conditions::{self, ConditionStatus, Observation};

use super::Run;
use crate::dag::State;
use crate::types::{ObservatoryStatus, Phase, TaskStatus, time};

/// What is to be written about a run. Its tasks are shared with the run, so that making a report
/// of a large one costs little.
#[derive(Clone, Debug)]
pub struct Report {
    status: ObservatoryStatus,
    tasks: Vec<Arc<TaskStatus>>,
}

impl Report {
    /// As it stands in the object.
    pub fn into_status(mut self) -> ObservatoryStatus {
        self.status.tasks = self.tasks.into_iter().map(Arc::unwrap_or_clone).collect();
        self.status
    }
}

impl Run {
    /// The status to be written now. Marks the run as reported.
    pub fn report(&mut self, now: Timestamp) -> Report {
        self.dirty = false;
        let phase = self.phase();
        let mut status = std::mem::take(&mut self.status);
        let generation = self.workflow.metadata.generation;
        status.phase = Some(phase);
        status.start_time = self.started.map(time);
        status.completion_time = match phase.is_over() {
            true => status.completion_time.or_else(|| {
                let ends = self.tasks.iter().filter_map(|task| task.completion_time.clone());
                ends.max_by_key(|end| end.0).or_else(|| Some(time(now)))
            }),
            false => None,
        };
        status.observed_generation = generation;
        status.progress = Some(format!("{}/{}", self.engine.count(State::Succeeded), self.tasks.len()));
        (status.reason, status.message) = self.reason();
        let mut set = |r#type: &str, holds: ConditionStatus, reason: &str, message: String| {
            let said = Observation { r#type, status: holds, reason, message, generation };
            conditions::set(&mut status.conditions, now, said);
        };
        set("Valid", ConditionStatus::True, "Valid", String::new());
        let suspended = self.workflow.spec.suspend;
        let word = if suspended { "Suspended" } else { "NotSuspended" };
        set("Suspended", suspended.into(), word, String::new());
        let (holds, word) = match phase {
            Phase::Succeeded => (ConditionStatus::True, "Succeeded"),
            Phase::Failed => (ConditionStatus::False, status.reason.as_deref().unwrap_or("Failed")),
            _ => (ConditionStatus::Unknown, "InProgress"),
        };
        set("Succeeded", holds, word, status.message.clone().unwrap_or_default());
        self.status = status.clone();
        Report { status, tasks: self.tasks.clone() }
    }

    /// The phase of the workflow: failed only when nothing runs any more.
    pub fn phase(&self) -> Phase {
        if self.is_over() {
            return match self.engine.count(State::Succeeded) == self.tasks.len() {
                true => Phase::Succeeded,
                false => Phase::Failed,
            };
        }
        if self.started.is_some() { Phase::Running } else { Phase::Pending }
    }

    fn reason(&self) -> (Option<String>, Option<String>) {
        let word = |reason: &str, message: String| (Some(reason.to_owned()), Some(message));
        if self.phase() == Phase::Succeeded {
            return (None, None);
        }
        if let Some(ending) = self.ending.filter(|ending| *ending != super::Ending::FailFast) {
            return word(ending.reason(), ending.message().to_owned());
        }
        let failed = self.engine.count(State::Failed);
        if failed > 0 {
            // The first to fail is the one to look at.
            let root = self
                .tasks
                .iter()
                .filter(|task| {
                    task.phase == Phase::Failed && task.reason.as_deref() != Some("UpstreamFailed")
                })
                .min_by_key(|task| task.completion_time.as_ref().map(|end| end.0));
            let mut message = root.map_or_else(String::new, |task| {
                format!(
                    "task {} failed: {}",
                    task.name,
                    task.message.as_deref().unwrap_or("no reason was given")
                )
            });
            if failed > 1 {
                message.push_str(&format!(" (and {} more)", failed - 1));
            }
            return word("TaskFailed", message);
        }
        if let Some(why) = &self.held_back {
            return word("Limited", why.clone());
        }
        if self.workflow.spec.suspend {
            return word("Suspended", "spec.suspend is true: no further task starts".to_owned());
        }
        (None, None)
    }
}
