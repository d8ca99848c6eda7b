//! One run of a workflow, kept in memory while it goes on.
//!
//! ```text
//!   pods, status ──restore──▶ Run ──next_starts──▶ pods to create
//!   pod events ───see───────▶  │  ──kills────────▶ pods to delete
//!   the clock ────tick──────▶  └────report───────▶ status to write
//! ```
//!
//! Nothing here talks to a server. A run can be thrown away at any time: pods and status say
//! everything that is needed to make it again.

pub mod names;
pub mod observe;
mod pod;
mod report;
mod restore;
pub mod retry;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use steersman::{EventType, Key};

use self::observe::{End, Failure, Image, Sight, Verdict, observe};
pub use self::pod::pod;
pub use self::restore::begin_rerun;
use self::retry::Past;
use crate::dag::{Engine, Gate, State};
use crate::types::{
    AttemptStatus, DurationText, FailurePolicy, Observatory, ObservatoryStatus, Phase, Shutdown, TaskSpec,
    TaskStatus, time,
};

/// How long an image may be unusable before the attempt counts as failed.
const IMAGE_PATIENCE: Duration = Duration::from_secs(600);

/// A run of a workflow.
pub struct Run {
    workflow: Arc<Observatory>,
    uid: String,
    engine: Engine,
    /// What is reported of each task, always up to date.
    tasks: Vec<TaskStatus>,
    live: Vec<Live>,
    /// Which task a pod belongs to, for pods that go without a word.
    pods: HashMap<Key, u32>,
    /// When to look at a task again; entries that no longer hold are skipped.
    timers: BinaryHeap<Reverse<(Timestamp, u32)>>,
    /// Tasks that hold a slot and whose pod is not known to exist.
    starting: Vec<u32>,
    kills: Vec<Arc<Pod>>,
    /// Pods that ended and whose end is not written yet.
    ended: Vec<Key>,
    ending: Option<Ending>,
    /// What was reported last, apart from the tasks.
    status: ObservatoryStatus,
    started: Option<Timestamp>,
    notes: Vec<Note>,
    /// Whether attempts that ended succeeded, and how many seconds they took.
    lengths: Vec<(bool, f64)>,
    timeouts: u64,
    dirty: bool,
}

/// What is known of a task besides its status.
#[derive(Clone, Debug, Default)]
struct Live {
    pod: Option<Arc<Pod>>,
    /// The plain name is another's.
    name_taken: bool,
    /// When the first attempt of this run was made.
    first: Option<Timestamp>,
    image: Image,
    /// We asked for the pod's end, for this reason.
    killed: Option<Kill>,
    retry_at: Option<Timestamp>,
}

/// Why we end a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kill {
    Timeout,
    TotalTimeout,
    StartTimeout,
    Workflow,
}

/// Why a workflow ends before all of its tasks have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The user asked to stop.
    Stopped,
    /// The user asked to terminate.
    Terminated,
    /// It took too long.
    TimedOut,
    /// A task failed and no other shall start.
    FailFast,
}

impl Ending {
    fn reason(self) -> &'static str {
        match self {
            Self::Stopped => "Stopped",
            Self::Terminated => "Terminated",
            Self::TimedOut => "TimedOut",
            Self::FailFast => "NotStarted",
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::Stopped => "the workflow was stopped",
            Self::Terminated => "the workflow was terminated",
            Self::TimedOut => "the workflow took longer than timeouts.workflow",
            Self::FailFast => "another task failed and failurePolicy is Stop",
        }
    }

    fn ends_running_tasks(self) -> bool {
        matches!(self, Self::Terminated | Self::TimedOut)
    }
}

/// Something worth an event and a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Normal or Warning.
    pub r#type: EventType,
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub text: String,
}

impl Run {
    /// The uid of the workflow.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The workflow as it was seen last.
    pub fn workflow(&self) -> &Arc<Observatory> {
        &self.workflow
    }

    /// A task as the user wrote it.
    pub fn task(&self, task: u32) -> &TaskSpec {
        &self.workflow.spec.tasks[task as usize]
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Takes over settings that may change while a workflow runs: suspension, limits, shutdown,
    /// timeouts. Tasks must be the same.
    pub fn update(&mut self, workflow: Arc<Observatory>) {
        let changed = workflow.metadata.generation != self.workflow.metadata.generation;
        self.workflow = workflow;
        self.dirty |= changed;
        self.apply_settings();
    }

    fn apply_settings(&mut self) {
        let spec = &self.workflow.spec;
        self.engine.set_limit(spec.concurrency());
        let closed = spec.suspend || self.ending.is_some();
        self.engine.set_gate(if closed { Gate::Closed } else { Gate::Open });
        match spec.shutdown {
            Some(Shutdown::Stop) => self.end_early(Ending::Stopped),
            Some(Shutdown::Terminate) => self.end_early(Ending::Terminated),
            None => {}
        }
    }

    // === what happens ===

    /// Takes in the state of a pod, or that it is gone.
    pub fn see(&mut self, key: &Key, pod: Option<Arc<Pod>>, now: Timestamp) {
        let Some(pod) = pod else {
            if let Some(task) = self.pods.remove(key) {
                self.lost(task, key, now);
            }
            return;
        };
        let Some((task, attempt)) = self.identify(&pod) else {
            return;
        };
        let current = self.tasks[task as usize].attempt;
        if attempt != current || self.engine.state(task) != State::Running {
            // An attempt that is already accounted for.
            let over = matches!(observe(&pod), Sight::Ended(_));
            if over && names::is_unrecorded(&pod) && !self.ended.contains(key) {
                self.ended.push(key.clone());
            }
            return;
        }
        self.pods.insert(key.clone(), task);
        let live = &mut self.live[task as usize];
        live.first.get_or_insert_with(|| created(&pod).unwrap_or(now));
        let sight = observe(&pod);
        live.pod = Some(pod);
        self.take_in(task, sight, now);
    }

    /// The task and attempt of a pod of this run.
    fn identify(&self, pod: &Pod) -> Option<(u32, i32)> {
        let task = self.engine.graph().index(names::task_of(pod)?)?;
        let attempt = names::attempt_of(pod)?;
        names::is_ours(pod, &self.uid, &self.task(task).name, attempt).then_some((task, attempt))
    }

    fn take_in(&mut self, task: u32, sight: Sight, now: Timestamp) {
        let pod = self.live[task as usize].pod.clone();
        let before = self.tasks[task as usize].clone();
        let status = &mut self.tasks[task as usize];
        status.pod_name = pod.as_ref().map(|pod| pod.name_any());
        status.node_name = pod.as_ref().and_then(|pod| pod.spec.as_ref()?.node_name.clone());
        match sight {
            Sight::Waiting { reason, message, image } => {
                status.phase = Phase::Pending;
                status.reason = Some(reason);
                status.message = message;
                self.live[task as usize].image = image;
            }
            Sight::Running { since } => {
                status.phase = Phase::Running;
                status.reason = None;
                status.message = None;
                let began = since.or_else(|| created(pod.as_deref()?)).unwrap_or(now);
                status.start_time.get_or_insert(time(began));
            }
            Sight::Ended(end) => {
                self.end(task, end, now);
                return;
            }
        }
        self.dirty |= self.tasks[task as usize] != before;
        self.set_timer(task);
        // A shutdown may have come before the pod.
        if self.ending.is_some_and(Ending::ends_running_tasks) {
            self.kill(task, Kill::Workflow);
        }
    }

    fn lost(&mut self, task: u32, key: &Key, now: Timestamp) {
        let live = &self.live[task as usize];
        let was_current = live.pod.as_ref().is_some_and(|pod| Key::of(&**pod) == *key);
        if self.engine.state(task) != State::Running || !was_current {
            return;
        }
        let end = End {
            verdict: Verdict::Failed(Failure::Error),
            started: self.tasks[task as usize].start_time.as_ref().map(|time| time.0),
            ended: None,
            exit_code: None,
            reason: Some("PodLost".to_owned()),
            message: Some(format!("pod {} is gone and nobody knows how it ended", key.name())),
        };
        self.end(task, end, now);
    }

    /// An attempt is over.
    fn end(&mut self, task: u32, mut end: End, now: Timestamp) {
        self.explain_kill(task, &mut end);
        let index = task as usize;
        let live = std::mem::take(&mut self.live[index]);
        if let Some(pod) = &live.pod {
            self.pods.remove(&Key::of(&**pod));
            if names::is_unrecorded(pod) {
                self.ended.push(Key::of(&**pod));
            }
        }
        self.live[index].first = live.first;
        self.dirty = true;
        let status = &mut self.tasks[index];
        let started = end.started.or(status.start_time.as_ref().map(|time| time.0));
        status.start_time = started.map(time);
        status.completion_time = Some(time(end.ended.unwrap_or(now)));
        status.exit_code = end.exit_code;
        status.reason = end.reason;
        status.message = end.message;
        if let Some(started) = started {
            let length = end.ended.unwrap_or(now).duration_since(started).as_secs_f64();
            self.lengths.push((end.verdict == Verdict::Succeeded, length.max(0.0)));
        }
        let Verdict::Failed(failure) = end.verdict else {
            status.phase = Phase::Succeeded;
            self.engine.succeeded(task);
            return;
        };
        if failure == Failure::Timeout {
            self.timeouts += 1;
        }
        let next = match live.killed {
            Some(Kill::TotalTimeout | Kill::Workflow) => retry::Next::Fail,
            _ if self.ending.is_some() => retry::Next::Fail,
            _ => {
                let from = status.first_attempt;
                let earlier: Vec<AttemptStatus> =
                    status.attempts.iter().filter(|attempt| attempt.number >= from).cloned().collect();
                let past = Past { earlier: &earlier, first: live.first, failure, started };
                retry::decide(self.workflow.spec.tasks[index].retry.as_ref(), past, now)
            }
        };
        match next {
            retry::Next::Again(wait) => self.try_again(task, wait, now),
            retry::Next::Fail => self.fail(task),
        }
    }

    /// Says why we ended a pod, instead of that it was deleted.
    fn explain_kill(&self, task: u32, end: &mut End) {
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
    fn kill_by_deadline(&self, task: u32, started: Option<Timestamp>) -> Option<Kill> {
        let pod = self.live[task as usize].pod.as_ref()?;
        let deleted = pod.metadata.deletion_timestamp.as_ref()?.0.as_second();
        let asked = deleted - pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        let (deadline, kill) = self.deadline(task, started)?;
        (asked >= deadline.as_second()).then_some(kill)
    }

    fn try_again(&mut self, task: u32, wait: Duration, now: Timestamp) {
        let status = &mut self.tasks[task as usize];
        let number = status.attempt;
        status.attempts.push(AttemptStatus {
            number,
            pod_name: status.pod_name.take(),
            start_time: status.start_time.take(),
            completion_time: status.completion_time.take(),
            exit_code: status.exit_code.take(),
            reason: status.reason.take(),
        });
        let why = status.message.take().unwrap_or_default();
        status.attempt += 1;
        status.node_name = None;
        status.phase = Phase::Pending;
        status.reason = Some("Retrying".to_owned());
        let at = now.saturating_add(SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX));
        let at = at.unwrap_or(Timestamp::MAX);
        let text = match wait.is_zero() {
            true => format!("attempt {} failed: {why}", number + 1),
            false => format!("attempt {} failed: {why}; the next one starts at {}", number + 1, time(at).0),
        };
        status.message = Some(text.clone());
        let name = status.name.clone();
        self.note(EventType::Warning, "TaskRetrying", format!("Task {name}: {text}"));
        self.engine.wait(task);
        match wait.is_zero() {
            true => self.engine.resume(task),
            false => {
                self.live[task as usize].retry_at = Some(at);
                self.set_timer(task);
            }
        }
    }

    fn fail(&mut self, task: u32) {
        let status = &mut self.tasks[task as usize];
        status.phase = Phase::Failed;
        let name = status.name.clone();
        let why = status.message.clone().unwrap_or_default();
        self.note(EventType::Warning, "TaskFailed", format!("Task {name} failed: {why}"));
        for other in self.engine.failed(task) {
            let status = &mut self.tasks[other as usize];
            if status.phase != Phase::Failed {
                status.phase = Phase::Failed;
                status.reason = Some("UpstreamFailed".to_owned());
                status.message = Some(format!("task {name} failed"));
            }
        }
    }

    /// Ends the workflow early if the first failure is to do that.
    fn apply_failure_policy(&mut self) {
        let stop = self.workflow.spec.failure_policy == Some(FailurePolicy::Stop);
        if stop && self.engine.count(State::Failed) > 0 {
            self.end_early(Ending::FailFast);
        }
    }

    /// Lets nothing further start.
    fn end_early(&mut self, ending: Ending) {
        let graver = match self.ending {
            None => true,
            Some(before) => ending.ends_running_tasks() && !before.ends_running_tasks(),
        };
        if !graver || self.engine.is_over() {
            return;
        }
        self.ending = Some(ending);
        self.dirty = true;
        self.engine.set_gate(Gate::Closed);
        for task in self.engine.omit_rest() {
            let status = &mut self.tasks[task as usize];
            status.phase = Phase::Failed;
            status.reason = Some(ending.reason().to_owned());
            status.message = Some(ending.message().to_owned());
        }
        if ending.ends_running_tasks() {
            for task in self.engine.graph().tasks() {
                if self.engine.state(task) == State::Running {
                    self.kill(task, Kill::Workflow);
                }
            }
        }
    }

    fn kill(&mut self, task: u32, why: Kill) {
        let live = &mut self.live[task as usize];
        if let Some(pod) = &live.pod
            && live.killed.is_none()
        {
            live.killed = Some(why);
            self.kills.push(Arc::clone(pod));
        }
    }

    // === time ===

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

    fn look_at(&mut self, task: u32, now: Timestamp) {
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
                let status = &mut self.tasks[task as usize];
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

    fn set_timer(&mut self, task: u32) {
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
    fn deadline(&self, task: u32, started: Option<Timestamp>) -> Option<(Timestamp, Kill)> {
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

    fn workflow_deadline(&self) -> Option<Timestamp> {
        let length = self.workflow.spec.timeouts.as_ref()?.workflow.as_ref()?.get()?;
        self.started?.saturating_add(SignedDuration::try_from(length).ok()?).ok()
    }

    // === what to do ===

    /// Up to `most` tasks whose pods are to be created now. Each must be answered with
    /// [`Run::started`], [`Run::refused`] or [`Run::unanswered`].
    pub fn next_starts(&mut self, most: usize) -> Vec<u32> {
        self.apply_failure_policy();
        let mut tasks = std::mem::take(&mut self.starting);
        // The pod of one may have been heard of, and even have ended, before its answer.
        tasks.retain(|&task| {
            self.engine.state(task) == State::Running && self.live[task as usize].pod.is_none()
        });
        while tasks.len() < most
            && let Some(task) = self.engine.next()
        {
            tasks.push(task);
        }
        let later = tasks.split_off(tasks.len().min(most));
        self.starting = later;
        tasks
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
        let status = &mut self.tasks[task as usize];
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
        let status = &mut self.tasks[task as usize];
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

    fn note(&mut self, r#type: EventType, reason: &'static str, text: String) {
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
        std::mem::take(&mut self.ended)
    }
}

/// When a pod was made.
fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}
