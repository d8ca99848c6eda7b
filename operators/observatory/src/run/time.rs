//! Time limits and waits of a run.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::observe::{End, Failure, Image, Verdict};
use super::{Ending, Kill, Run, created};
use crate::dag::State;
use crate::types::{DurationText, time};

/// How long an image may be unusable before the attempt counts as failed.
const IMAGE_PATIENCE: Duration = Duration::from_secs(600);

impl Run {
    /// Does what is due.
    pub fn tick(&mut self, now: Timestamp) {
        self.apply_failure_policy();
        if self.workflow_deadline().is_some_and(|deadline| deadline <= now) {
            self.end_early(Ending::TimedOut);
        }
        while let Some(&Reverse((at, task))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            self.look_at(task, now);
        }
    }

    pub(super) fn look_at(&mut self, task: u32, now: Timestamp) {
        let live = &self.live[task as usize];
        let started = self.tasks[task as usize].start_time.as_ref().map(|time| time.0);
        let due = self.deadline(task, started).filter(|(at, _)| *at <= now);
        match self.engine.state(task) {
            State::Running => {
                if let Some((_, kill)) = due {
                    self.kill(task, kill);
                }
            }
            State::Waiting if matches!(due, Some((_, Kill::TotalTimeout))) => {
                let limit =
                    self.task(task).total_timeout.as_ref().map(ToString::to_string).unwrap_or_default();
                let status = Arc::make_mut(&mut self.tasks[task as usize]);
                status.reason = Some("TimedOut".to_owned());
                status.message = Some(format!("all attempts together took longer than {limit}"));
                status.completion_time = Some(time(now));
                self.dirty = true;
                self.fail(task);
            }
            State::Waiting if live.retry_at.is_some_and(|at| at <= now) => {
                self.live[task as usize].retry_at = None;
                self.engine.resume(task);
            }
            _ => {}
        }
    }

    /// When something is due without anything happening before.
    pub fn next_timer(&self) -> Option<Timestamp> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        [timer, self.workflow_deadline().filter(|_| self.ending.is_none())].into_iter().flatten().min()
    }

    pub(super) fn set_timer(&mut self, task: u32) {
        let started = self.tasks[task as usize].start_time.as_ref().map(|time| time.0);
        let live = &self.live[task as usize];
        if live.killed.is_some() {
            return;
        }
        let deadline = self.deadline(task, started).map(|(at, _)| at);
        if let Some(at) = [deadline, live.retry_at].into_iter().flatten().min() {
            self.timers.push(Reverse((at, task)));
        }
    }

    /// When the attempt has had its time, and which limit that is.
    pub(super) fn deadline(&self, task: u32, started: Option<Timestamp>) -> Option<(Timestamp, Kill)> {
        let spec = self.task(task);
        let live = &self.live[task as usize];
        let plus = |from: Timestamp, length: Duration| {
            from.saturating_add(SignedDuration::try_from(length).ok()?).ok()
        };
        let parsed = |text: &Option<DurationText>| text.as_ref().and_then(DurationText::get);
        let total = live.first.zip(parsed(&spec.total_timeout));
        let total = total.and_then(|(first, length)| Some((plus(first, length)?, Kill::TotalTimeout)));
        let attempt = match started {
            _ if live.pod.is_none() => None,
            Some(started) => {
                parsed(&spec.timeout).and_then(|length| Some((plus(started, length)?, Kill::Timeout)))
            }
            None => {
                let image = (live.image == Image::Unusable).then_some(IMAGE_PATIENCE);
                let length = parsed(&spec.start_timeout).or(image);
                let from = live.pod.as_deref().and_then(created);
                from.zip(length).and_then(|(from, length)| Some((plus(from, length)?, Kill::StartTimeout)))
            }
        };
        [attempt, total].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    pub(super) fn workflow_deadline(&self) -> Option<Timestamp> {
        let length = self.workflow.spec.timeouts.as_ref()?.workflow.as_ref()?.get()?;
        self.started?.saturating_add(SignedDuration::try_from(length).ok()?).ok()
    }

    /// Says why we ended a pod, instead of that it was deleted.
    pub(super) fn explain_kill(&self, task: u32, end: &mut End) {
        let spec = self.task(task);
        let limit = |text: &Option<DurationText>| text.as_ref().map(ToString::to_string).unwrap_or_default();
        let killed = self.live[task as usize].killed.or_else(|| self.kill_by_deadline(task, end.started));
        let (reason, message, failure) = match killed {
            _ if end.verdict == Verdict::Succeeded => return,
            None => return,
            Some(Kill::Timeout) => {
                ("TimedOut", format!("took longer than {}", limit(&spec.timeout)), Failure::Timeout)
            }
            Some(Kill::TotalTimeout) => (
                "TimedOut",
                format!("all attempts together took longer than {}", limit(&spec.total_timeout)),
                Failure::Timeout,
            ),
            Some(Kill::StartTimeout) => {
                let why = self.tasks[task as usize].message.clone().unwrap_or_default();
                let after =
                    if spec.start_timeout.is_some() { limit(&spec.start_timeout) } else { "10m".to_owned() };
                let message = format!("did not start within {after}: {why}");
                ("StartTimeout", message.trim_end_matches(": ").to_owned(), Failure::Error)
            }
            Some(Kill::Workflow) => {
                let ending = self.ending.unwrap_or(Ending::Terminated);
                (ending.reason(), ending.message().to_owned(), Failure::Error)
            }
        };
        end.verdict = Verdict::Failed(failure);
        end.reason = Some(reason.to_owned());
        end.message = Some(message);
    }

    /// After a restart, the pod itself tells that it was deleted because its time was up.
    pub(super) fn kill_by_deadline(&self, task: u32, started: Option<Timestamp>) -> Option<Kill> {
        let pod = self.live[task as usize].pod.as_ref()?;
        let deleted = pod.metadata.deletion_timestamp.as_ref()?.0.as_second();
        let asked = deleted - pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        let (deadline, kill) = self.deadline(task, started)?;
        (asked >= deadline.as_second()).then_some(kill)
    }
}
