//! What a run wants done, and what came of it.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use steersman::{EventType, Key};

use super::observe::{End, Failure, Verdict};
use super::{Ending, Note, Run, created};
use crate::dag::State;
use crate::types::ObservatoryStatus;

impl Run {
    /// Up to `most` tasks whose pods are to be created now, as long as there is a place for each.
    /// Each must be answered with [`Run::started`], [`Run::refused`] or [`Run::unanswered`].
    pub fn next_starts(&mut self, most: usize, mut has_place: impl FnMut() -> bool) -> Vec<u32> {
        self.apply_failure_policy();
        let mut tasks = std::mem::take(&mut self.starting);
        // The pod of one may have been heard of, and even have ended, before its answer.
        tasks.retain(|&task| {
            self.engine.state(task) == State::Running && self.live[task as usize].pod.is_none()
        });
        while tasks.len() < most
            && self.could_start()
            && has_place()
            && let Some(task) = self.engine.start_next()
        {
            tasks.push(task);
        }
        let later = tasks.split_off(tasks.len().min(most));
        self.starting = later;
        tasks
    }

    /// Whether a task could start now, as far as the workflow is concerned.
    pub fn could_start(&self) -> bool {
        self.engine.has_room() && self.engine.count(State::Ready) > 0
    }

    /// How many tasks could start now, as far as the workflow is concerned.
    pub fn startable(&self) -> usize {
        self.engine.room().min(self.engine.count(State::Ready))
    }

    /// How many tasks hold a slot without a pod that is known.
    pub fn unborn(&self) -> usize {
        self.engine.count(State::Running).saturating_sub(self.pods.len())
    }

    /// Says why tasks that could start do not.
    pub fn hold_back(&mut self, why: Option<String>) {
        self.dirty |= self.held_back != why;
        self.held_back = why;
    }

    /// The number of the attempt that a task is at.
    pub fn attempt(&self, task: u32) -> i32 {
        self.tasks[task as usize].attempt
    }

    /// Whether the plain name of a task's pod was found to be another's.
    pub fn is_name_taken(&self, task: u32) -> bool {
        self.live[task as usize].name_taken
    }

    /// The pod of a task exists.
    pub fn started(&mut self, pod: Arc<Pod>, now: Timestamp) {
        self.started = self.started.or(Some(created(&pod).unwrap_or(now)));
        self.dirty = true;
        let key = Key::of(&*pod);
        self.see(&key, Some(pod), now);
    }

    /// A task that was to start has no pod, and gets none: the workflow ends.
    pub fn never_started(&mut self, task: u32) {
        let ending = self.ending.unwrap_or(Ending::Stopped);
        let status = Arc::make_mut(&mut self.tasks[task as usize]);
        status.reason = Some(ending.reason().to_owned());
        status.message = Some(ending.message().to_owned());
        self.dirty = true;
        self.fail(task);
    }

    /// Whether the workflow ends before all of its tasks have run.
    pub fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// The server will never take the pod of a task.
    pub fn refused(&mut self, task: u32, message: String, now: Timestamp) {
        let end = End {
            verdict: Verdict::Failed(Failure::Error),
            started: None,
            ended: None,
            exit_code: None,
            reason: Some("InvalidPod".to_owned()),
            message: Some(message),
        };
        self.end(task, end, now);
    }

    /// It is not known whether the pod of a task was created; it must be asked again. The task
    /// keeps its slot.
    pub fn unanswered(&mut self, task: u32, name_taken: bool, why: &str) {
        self.live[task as usize].name_taken |= name_taken;
        self.starting.push(task);
        let status = Arc::make_mut(&mut self.tasks[task as usize]);
        if status.message.as_deref() != Some(why) {
            status.reason = Some("PodNotCreated".to_owned());
            status.message = Some(why.to_owned());
            self.dirty = true;
        }
    }

    /// Pods that are to be deleted now.
    pub fn take_kills(&mut self) -> Vec<Arc<Pod>> {
        std::mem::take(&mut self.kills)
    }

    /// Asks again for the end of pods whose deletion failed.
    pub fn kill_again(&mut self, pods: impl IntoIterator<Item = Arc<Pod>>) {
        self.kills.extend(pods);
    }

    /// What happened since the last call.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// Whether attempts that ended since the last call succeeded, and how many seconds they took.
    pub fn take_lengths(&mut self) -> Vec<(bool, f64)> {
        std::mem::take(&mut self.lengths)
    }

    /// How many attempts took too long since the last call.
    pub fn take_timeouts(&mut self) -> u64 {
        std::mem::take(&mut self.timeouts)
    }

    pub(super) fn note(&mut self, r#type: EventType, reason: &'static str, text: String) {
        self.notes.push(Note { r#type, reason, text });
    }

    /// Whether nothing runs and nothing ever will.
    pub fn is_over(&self) -> bool {
        self.engine.is_over()
    }

    /// Whether the status on the server is out of date.
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// What was reported last, apart from the tasks.
    pub fn last_report(&self) -> &ObservatoryStatus {
        &self.status
    }

    /// Marks the status as to be written again: the last attempt failed.
    pub fn write_again(&mut self, ended: Vec<Key>) {
        self.dirty = true;
        self.ended.extend(ended);
    }

    /// Pods whose end is in the status that [`Run::report`] gives; their finalizers go once it
    /// is written.
    pub fn take_ended(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.ended).into_iter().collect()
    }
}
