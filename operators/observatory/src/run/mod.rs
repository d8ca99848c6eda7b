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
mod time;
mod work;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use steersman::{EventType, Key};

use self::observe::{End, Failure, Image, Sight, Verdict, observe};
pub use self::pod::pod;
pub use self::report::Report;
pub use self::restore::begin_rerun;
use self::retry::Past;
use crate::dag::{Engine, Gate, State};
use crate::types::{
    AttemptStatus, FailurePolicy, Observatory, ObservatoryStatus, Phase, Shutdown, TaskSpec, TaskStatus, time,
};

/// A run of a workflow.
pub struct Run {
    workflow: Arc<Observatory>,
    uid: String,
    engine: Engine,
    /// What is reported of each task, always up to date.
    tasks: Vec<Arc<TaskStatus>>,
    live: Vec<Live>,
    /// Which task a pod belongs to, for pods that go without a word.
    pods: HashMap<Key, u32>,
    /// When to look at a task again; entries that no longer hold are skipped.
    timers: BinaryHeap<Reverse<(Timestamp, u32)>>,
    /// Tasks that hold a slot and whose pod is not known to exist.
    starting: Vec<u32>,
    kills: Vec<Arc<Pod>>,
    /// Pods that ended and whose end is not written yet.
    ended: BTreeSet<Key>,
    /// Why tasks that could start do not, if others run in their place.
    held_back: Option<String>,
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
            if over && names::is_unrecorded(&pod) {
                self.ended.insert(key.clone());
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
        let before = TaskStatus::clone(&self.tasks[task as usize]);
        let status = Arc::make_mut(&mut self.tasks[task as usize]);
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
        self.dirty |= *self.tasks[task as usize] != before;
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
                self.ended.insert(Key::of(&**pod));
            }
        }
        self.live[index].first = live.first;
        self.dirty = true;
        let status = Arc::make_mut(&mut self.tasks[index]);
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
                let spread = names::spread(&self.uid, &status.name, status.attempt);
                let past = Past { earlier: &earlier, first: live.first, failure, started, spread };
                retry::decide(self.workflow.spec.tasks[index].retry.as_ref(), past, now)
            }
        };
        match next {
            retry::Next::Again(wait) => self.try_again(task, wait, now),
            retry::Next::Fail => self.fail(task),
        }
    }

    fn try_again(&mut self, task: u32, wait: Duration, now: Timestamp) {
        let status = Arc::make_mut(&mut self.tasks[task as usize]);
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
        let status = Arc::make_mut(&mut self.tasks[task as usize]);
        status.phase = Phase::Failed;
        let name = status.name.clone();
        let why = status.message.clone().unwrap_or_default();
        self.note(EventType::Warning, "TaskFailed", format!("Task {name} failed: {why}"));
        for other in self.engine.failed(task) {
            let status = Arc::make_mut(&mut self.tasks[other as usize]);
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
            let status = Arc::make_mut(&mut self.tasks[task as usize]);
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
}

/// When a pod was made.
fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}
