//! Making a run from what the server knows: pods first, then the last status.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use steersman::Key;

use super::observe::{Failure, Sight, is_node_fault, observe};
use super::retry::{Next, Past, decide};
use super::{Ending, Live, Run, created, names};
use crate::dag::{Engine, Graph, State};
use crate::types::{
    AttemptStatus, Observatory, ObservatoryStatus, Phase, Rerun, RerunMode, Shutdown, TaskSpec, TaskStatus,
    time,
};

impl Run {
    /// Takes up a run where it stands. The workflow must be free of problems.
    ///
    /// `status` is the last that is known; `pods` are all that the workflow owns.
    pub fn restore(
        workflow: Arc<Observatory>,
        mut status: ObservatoryStatus,
        pods: &[Arc<Pod>],
        now: Timestamp,
    ) -> Self {
        let graph = Arc::new(Graph::new(&workflow.spec.tasks));
        status.unpack();
        let mut known: HashMap<String, TaskStatus> =
            status.tasks.drain(..).map(|task| (task.name.clone(), task)).collect();
        let tasks: Vec<Arc<TaskStatus>> = workflow
            .spec
            .tasks
            .iter()
            .map(|task| {
                let fresh = || TaskStatus { name: task.name.clone(), ..TaskStatus::default() };
                Arc::new(known.remove(&task.name).unwrap_or_else(fresh))
            })
            .collect();
        let mut run = Self {
            uid: workflow.uid().unwrap_or_default(),
            engine: Engine::new(&graph, workflow.spec.concurrency()),
            live: vec![Live::default(); tasks.len()],
            tasks,
            pods: HashMap::new(),
            timers: BinaryHeap::new(),
            starting: Vec::new(),
            kills: Vec::new(),
            ended: BTreeSet::new(),
            held_back: None,
            ending: None,
            started: status.start_time.as_ref().map(|time| time.0),
            status,
            notes: Vec::new(),
            lengths: Vec::new(),
            timeouts: 0,
            dirty: true,
            workflow,
        };
        let mut attempts = run.sort(pods);
        // What ended because the workflow does must not be tried again.
        let ending = match run.workflow.spec.shutdown {
            Some(Shutdown::Stop) => Some(Ending::Stopped),
            Some(Shutdown::Terminate) => Some(Ending::Terminated),
            None => run.workflow_deadline().filter(|at| *at <= now).map(|_| Ending::TimedOut),
        };
        run.ending = ending;
        for &task in graph.order() {
            run.take_up(task, attempts.remove(&task).unwrap_or_default(), now);
        }
        run.ending = None;
        if let Some(ending) = ending {
            run.end_early(ending);
        }
        run.apply_settings();
        run
    }

    /// The pods of each task by attempt; those of tasks that are no more are to go.
    fn sort(&mut self, pods: &[Arc<Pod>]) -> HashMap<u32, BTreeMap<i32, Arc<Pod>>> {
        self.started = self.started.or_else(|| pods.iter().filter_map(|pod| created(pod)).min());
        let mut sorted: HashMap<u32, BTreeMap<i32, Arc<Pod>>> = HashMap::new();
        for pod in pods {
            match self.identify(pod) {
                Some((task, attempt)) => {
                    sorted.entry(task).or_default().insert(attempt, Arc::clone(pod));
                }
                None if names::task_of(pod).is_some() => {
                    if pod.metadata.deletion_timestamp.is_none() {
                        self.kills.push(Arc::clone(pod));
                    }
                    if names::is_unrecorded(pod) {
                        self.ended.insert(Key::of(&**pod));
                    }
                }
                None => {}
            }
        }
        sorted
    }

    fn take_up(&mut self, task: u32, mut pods: BTreeMap<i32, Arc<Pod>>, now: Timestamp) {
        let first_attempt = self.tasks[task as usize].first_attempt;
        let first = pods.range(first_attempt..).next().and_then(|(_, pod)| created(pod));
        let status = Arc::make_mut(&mut self.tasks[task as usize]);
        let recorded = status.attempts.iter().filter(|attempt| attempt.number >= first_attempt);
        let recorded = recorded.filter_map(|attempt| attempt.start_time.as_ref()).map(|time| time.0).min();
        self.live[task as usize].first = [first, recorded].into_iter().flatten().min();

        // Attempts that were made after the last status was written.
        let newest =
            pods.last_key_value().map_or(status.attempt, |(&attempt, _)| attempt.max(status.attempt));
        while status.attempt < newest {
            let number = status.attempt;
            let end = pods.get(&number).and_then(|pod| match observe(pod) {
                Sight::Ended(end) => Some((pod.name_any(), end)),
                _ => None,
            });
            let mut past = AttemptStatus {
                number,
                pod_name: status.pod_name.take(),
                start_time: status.start_time.take(),
                completion_time: status.completion_time.take(),
                exit_code: status.exit_code.take(),
                reason: status.reason.take(),
            };
            if let Some((name, end)) = end {
                past.pod_name = Some(name);
                past.start_time = end.started.map(time);
                past.completion_time = end.ended.map(time);
                past.exit_code = end.exit_code;
                past.reason = end.reason;
            }
            status.attempts.push(past);
            let name = std::mem::take(&mut status.name);
            let attempts = std::mem::take(&mut status.attempts);
            let first_attempt = status.first_attempt;
            *status =
                TaskStatus { name, attempts, first_attempt, attempt: number + 1, ..TaskStatus::default() };
        }
        let current = pods.remove(&newest);
        for pod in pods.values().filter(|pod| names::is_unrecorded(pod)) {
            self.ended.insert(Key::of(&**pod));
        }
        let status = &self.tasks[task as usize];
        match (status.phase, current) {
            (Phase::Succeeded, pod) => {
                self.release(pod.as_deref());
                self.engine.take_over(task);
                self.engine.succeeded(task);
            }
            (Phase::Failed, pod) => {
                self.release(pod.as_deref());
                if self.engine.state(task) != State::Omitted {
                    self.engine.take_over(task);
                    self.fail(task);
                }
            }
            (_, Some(pod)) => {
                self.engine.take_over(task);
                self.see(&Key::of(&*pod), Some(pod), now);
            }
            // A status that was too large for the server names no pods.
            (phase, None) if status.pod_name.is_some() || phase == Phase::Running => {
                let name = status.pod_name.clone().unwrap_or_else(|| status.name.clone());
                self.engine.take_over(task);
                self.lost_for_good(task, &name, now);
            }
            (_, None) if status.attempt > status.first_attempt => self.wait_on(task, now),
            (_, None) => {}
        }
    }

    fn release(&mut self, pod: Option<&Pod>) {
        if let Some(pod) = pod.filter(|pod| names::is_unrecorded(pod)) {
            self.ended.insert(Key::of(pod));
        }
    }

    fn lost_for_good(&mut self, task: u32, name: &str, now: Timestamp) {
        // Seen as the pod that it was, so that it counts as lost.
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.namespace = self.workflow.namespace();
        let key = Key::of(&pod);
        self.live[task as usize].pod = Some(Arc::new(pod));
        self.lost(task, &key, now);
    }

    /// A wait between attempts goes on.
    fn wait_on(&mut self, task: u32, now: Timestamp) {
        let status = &self.tasks[task as usize];
        let Some((last, earlier)) = status.attempts.split_last() else {
            return;
        };
        let from = status.first_attempt;
        let earlier: Vec<AttemptStatus> =
            earlier.iter().filter(|attempt| attempt.number >= from).cloned().collect();
        let fault = last.reason.as_deref().is_some_and(is_node_fault);
        let past = Past {
            earlier: &earlier,
            first: None,
            failure: if fault { Failure::Infrastructure } else { Failure::Exit },
            started: last.start_time.as_ref().map(|time| time.0),
            spread: names::spread(&self.uid, &status.name, last.number),
        };
        // That there is another attempt was decided before; only its time is asked for.
        let mut retry = self.task(task).retry.clone().unwrap_or_default();
        retry.policy = Some(crate::types::RetryPolicy::Always);
        let wait = match decide(Some(&retry), past, now) {
            Next::Again(wait) => SignedDuration::try_from(wait).unwrap_or_default(),
            Next::Fail => SignedDuration::ZERO,
        };
        let ended = last.completion_time.as_ref().map_or(now, |time| time.0);
        let at = ended.saturating_add(wait).unwrap_or(now);
        self.engine.wait(task);
        self.live[task as usize].retry_at = Some(at);
        self.set_timer(task);
    }
}

/// Puts the tasks that are to run again back to their beginning. Their next attempts get new
/// numbers; what was done before stays on record.
pub fn begin_rerun(spec: &[TaskSpec], status: &mut ObservatoryStatus, rerun: &Rerun, now: Timestamp) {
    let graph = Graph::new(spec);
    let mut again = vec![false; spec.len()];
    match rerun.mode {
        RerunMode::All => again.fill(true),
        RerunMode::FromFailed => {
            for task in status.tasks.iter().filter(|task| task.phase != Phase::Succeeded) {
                if let Some(index) = graph.index(&task.name) {
                    again[index as usize] = true;
                }
            }
        }
        RerunMode::Tasks => {
            for index in rerun.tasks.iter().filter_map(|name| graph.index(name)) {
                again[index as usize] = true;
            }
        }
    }
    // What was built on a result that is made anew is made anew.
    for &task in graph.order() {
        if graph.dependencies(task).iter().any(|&other| again[other as usize]) {
            again[task as usize] = true;
        }
    }
    for task in &mut status.tasks {
        let Some(index) = graph.index(&task.name) else { continue };
        if !again[index as usize] {
            continue;
        }
        if task.pod_name.is_some() {
            task.attempts.push(AttemptStatus {
                number: task.attempt,
                pod_name: task.pod_name.take(),
                start_time: task.start_time.take(),
                completion_time: task.completion_time.take(),
                exit_code: task.exit_code.take(),
                reason: task.reason.take(),
            });
            task.attempt += 1;
        }
        task.first_attempt = task.attempt;
        task.phase = Phase::Pending;
        task.start_time = None;
        task.completion_time = None;
        task.exit_code = None;
        task.node_name = None;
        task.reason = None;
        task.message = None;
    }
    status.rerun_id = Some(rerun.id.clone());
    status.phase = Some(Phase::Running);
    status.start_time = Some(time(now));
    status.completion_time = None;
    status.reason = None;
    status.message = None;
}
