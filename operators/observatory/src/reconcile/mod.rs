//! Workflows that run: from news of pods to the pods that come next.
//!
//! ```text
//!   pod changed ─▶ Inbox ─▶ queue ─▶ reconcile: see ─▶ tick ─▶ create, delete ─▶ status ─▶ finalizers
//!                     ╰──── also heard while the status is being written ────▲
//! ```
//!
//! Pods are created before anything is reported. Each carries a finalizer that goes once its
//! end is in the status, so that an end is never forgotten and an attempt never made twice.

mod inbox;
mod record;
mod settle;
mod start;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use prometheus_client::metrics::gauge::Gauge;
use steersman::conditions::{self, ConditionStatus, Observation};
use steersman::{Context, Controller, Error, EventType, Key, Outcome, Predicate, Reconciler};
use tokio::time::Instant;

use self::inbox::{Inbox, Mail};
use self::start::{Started, Wish, start};
use crate::dag::{Problem, check};
use crate::metrics::{Ended, Metrics};
use crate::run::observe::{Sight, observe};
use crate::run::{Run, begin_rerun, names};
use crate::types::{Observatory, ObservatoryStatus, Phase, TaskStatus};

/// How many pods are created or released at the same time for one workflow.
const PARALLEL: usize = 16;
/// How many pods are created before looking at what else has happened.
const BATCH: usize = 32;
/// How long one workflow may keep a worker to itself while it has things to do.
const TURN: Duration = Duration::from_secs(5);

/// Runs workflows.
#[derive(Debug)]
pub(crate) struct Workflows {
    inbox: Inbox,
    slots: Mutex<HashMap<Key, Slot>>,
    metrics: Metrics,
}

/// What is kept in memory of a workflow.
enum Slot {
    /// It runs.
    Live(Box<Live>),
    /// The one with this uid is over and everything about it is done but what time brings.
    Settled(String),
}

struct Live {
    run: Run,
    /// When the status was written last, or the run was taken up.
    written: Instant,
    /// How long that took.
    cost: Duration,
    _active: Active,
}

/// Counts a workflow as running while it is kept.
struct Active(Gauge);

impl Active {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Live(live) => write!(f, "Live({})", live.run.uid()),
            Self::Settled(uid) => write!(f, "Settled({uid})"),
        }
    }
}

/// The controller that runs workflows.
pub(crate) fn controller(metrics: Metrics) -> Controller<Workflows> {
    let inbox = Inbox::default();
    let news = inbox.clone();
    let workflows = Workflows { inbox, slots: Mutex::default(), metrics };
    Controller::new("observatory", workflows)
        .field_manager(crate::OPERATOR)
        .watches::<Pod>(move |pod, _| news.put(pod))
        .index::<Pod>("observatory", inbox::index)
        .predicate(Predicate::generation_changed())
        .concurrency(8)
}

impl Reconciler for Workflows {
    type Object = Observatory;

    async fn reconcile(&self, object: Arc<Observatory>, cx: &Context) -> Result<Outcome, Error> {
        let began = Instant::now();
        let result = self.reconcile_inner(object, cx).await;
        self.metrics.reconciles.inc();
        self.metrics.reconcile_seconds.observe(began.elapsed().as_secs_f64());
        if result.is_err() {
            self.metrics.errors.inc();
        }
        result
    }

    async fn gone(&self, key: &Key, cx: &Context) -> Result<(), Error> {
        let known = self.take_slot(key).is_some();
        let mail = self.inbox.take(key);
        // All pods at first; afterwards those of which something is heard.
        let pods = match known || mail.pods.is_empty() {
            true => cx.cache::<Pod>().by_index("observatory", key.as_str()),
            false => mail.pods.iter().filter_map(|pod| cx.cache::<Pod>().get(pod)).collect(),
        };
        record::release(&pods, cx).await?;
        self.inbox.forget(key);
        Ok(())
    }
}

impl Workflows {
    async fn reconcile_inner(&self, object: Arc<Observatory>, cx: &Context) -> Result<Outcome, Error> {
        let key = cx.key().clone();
        let slot = self.take_slot(&key);
        let mail = self.inbox.take(&key);
        let uid = object.uid().unwrap_or_default();
        if object.metadata.deletion_timestamp.is_some() || object.spec.is_scheduled() {
            // Its pods go, or are another run's by now; none of them is waited for.
            let pods = cx.cache::<Pod>().owned_by(&uid);
            record::release(&pods, cx).await?;
            return Ok(Outcome::Done);
        }
        let live = match slot {
            Some(Slot::Live(live)) if live.run.uid() == uid => match self.update(live, &object, &mail, cx) {
                Ok(live) => live,
                Err(known) => match self.take_up(&object, *known, cx).await? {
                    Some(live) => live,
                    None => return Ok(Outcome::Done),
                },
            },
            slot => {
                let status = object.status.clone().unwrap_or_default();
                if is_finished(&object, &status) {
                    let settled = matches!(slot, Some(Slot::Settled(known)) if known == uid);
                    return self.settle(&object, &status, &mail, settled, cx).await;
                }
                // Another object had the name before: its pods are let go.
                let all = cx.cache::<Pod>().by_index("observatory", key.as_str());
                let strangers: Vec<Arc<Pod>> =
                    all.into_iter().filter(|pod| !is_owned_by(pod, &uid)).collect();
                record::release(&strangers, cx).await?;
                match self.take_up(&object, status, cx).await? {
                    Some(live) => live,
                    None => return Ok(Outcome::Done),
                }
            }
        };
        self.drive(live, mail, cx).await
    }

    /// Brings a run that is in memory up to date with its object. Gives the status it would
    /// report when its tasks are others by now and it must be taken up anew.
    fn update(
        &self,
        mut live: Box<Live>,
        object: &Arc<Observatory>,
        mail: &Mail,
        cx: &Context,
    ) -> Result<Box<Live>, Box<ObservatoryStatus>> {
        let run = &mut live.run;
        let same = object.metadata.generation == run.workflow().metadata.generation
            || (object.spec.tasks == run.workflow().spec.tasks && check(&object.spec).is_empty());
        if !same {
            let now = cx.now();
            for key in &mail.pods {
                run.see(key, cx.cache::<Pod>().get(key), now);
            }
            return Err(Box::new(run.report(now)));
        }
        run.update(Arc::clone(object));
        Ok(live)
    }

    /// Makes a run from what is known. None when the workflow has problems; they are reported.
    async fn take_up(
        &self,
        object: &Arc<Observatory>,
        mut status: ObservatoryStatus,
        cx: &Context,
    ) -> Result<Option<Box<Live>>, Error> {
        let problems = check(&object.spec);
        let pods = cx.cache::<Pod>().owned_by(&object.uid().unwrap_or_default());
        if !problems.is_empty() {
            self.refuse(object, status, &problems, &pods, cx).await?;
            return Ok(None);
        }
        if let Some(rerun) = &object.spec.rerun
            && status.rerun_id.as_ref() != Some(&rerun.id)
        {
            match status.phase().is_over() && status.start_time.is_some() {
                true => {
                    begin_rerun(&object.spec.tasks, &mut status, rerun, cx.now());
                    // Written first: the new attempts must not be taken for old ones.
                    cx.apply_status(&status).await?;
                    cx.event(EventType::Normal, "RerunStarted", format!("Rerun {} has started", rerun.id));
                }
                false => status.rerun_id = Some(rerun.id.clone()),
            }
        }
        if status.start_time.is_none() {
            // What was refused before was not begun.
            status = ObservatoryStatus {
                rerun_id: status.rerun_id,
                conditions: status.conditions,
                ..Default::default()
            };
            let count = object.spec.tasks.len();
            cx.event(EventType::Normal, "WorkflowAccepted", format!("{count} tasks are to run"));
        }
        let run = Run::restore(Arc::clone(object), status, &pods, cx.now());
        let active = Active::new(&self.metrics.active);
        Ok(Some(Box::new(Live { run, written: Instant::now(), cost: Duration::ZERO, _active: active })))
    }

    /// Reports problems. What runs goes on to its end, unattended but not forgotten.
    async fn refuse(
        &self,
        object: &Observatory,
        mut status: ObservatoryStatus,
        problems: &[Problem],
        pods: &[Arc<Pod>],
        cx: &Context,
    ) -> Result<(), Error> {
        let message = describe(problems);
        let busy = pods.iter().any(|pod| !matches!(observe(pod), Sight::Ended(_)));
        status.phase = Some(if busy { Phase::Running } else { Phase::Failed });
        status.reason = Some("Invalid".to_owned());
        status.message = Some(message.clone());
        status.observed_generation = object.metadata.generation;
        if status.tasks.is_empty() {
            let pending = |name: &String| TaskStatus { name: name.clone(), ..TaskStatus::default() };
            status.tasks = object.spec.tasks.iter().map(|task| pending(&task.name)).collect();
        }
        status.progress.get_or_insert_with(|| format!("0/{}", object.spec.tasks.len()));
        conditions::set(
            &mut status.conditions,
            cx.now(),
            Observation {
                r#type: "Valid",
                status: ConditionStatus::False,
                reason: problems[0].reason,
                message: message.clone(),
                generation: object.metadata.generation,
            },
        );
        cx.apply_status(&status).await?;
        cx.event(EventType::Warning, "InvalidWorkflow", message);
        let ended: Vec<Arc<Pod>> =
            pods.iter().filter(|pod| matches!(observe(pod), Sight::Ended(_))).cloned().collect();
        record::release(&ended, cx).await
    }

    /// Moves a run on until there is nothing to do but wait.
    async fn drive(&self, mut live: Box<Live>, mail: Mail, cx: &Context) -> Result<Outcome, Error> {
        let key = cx.key().clone();
        let began = Instant::now();
        let bell = self.inbox.bell(&key);
        let mut mail = Some(mail);
        let result = loop {
            let news = mail.take().unwrap_or_else(|| self.inbox.take(&key));
            match self.step(&mut live.run, news, cx).await {
                Err(error) => {
                    // What stands in the way is reported as well.
                    if self.until_write(&live) == Some(Duration::ZERO) {
                        self.record(&mut live, &bell, cx).await.unwrap_or_else(|error| {
                            tracing::debug!(%error, "the status could not be written either");
                        });
                    }
                    break Err(error);
                }
                Ok(Progress::More) if began.elapsed() < TURN => continue,
                Ok(Progress::More) => break Ok(Outcome::Requeue("more pods are to be created")),
                Ok(Progress::Nothing) => {}
            }
            self.tell(&mut live.run, cx);
            let wait = self.until_write(&live);
            match wait {
                Some(Duration::ZERO) => {
                    if let Err(error) = self.record(&mut live, &bell, cx).await {
                        break Err(error);
                    }
                    if live.run.is_over() && !live.run.is_dirty() {
                        self.finished(&live.run, cx);
                        return Ok(Outcome::Requeue("the workflow has ended"));
                    }
                }
                wait => break Ok(self.next(&live.run, wait, cx.now())),
            }
        };
        self.tell(&mut live.run, cx);
        self.put_slot(key, Slot::Live(live));
        result
    }

    /// Takes in news, then creates and deletes what they lead to.
    async fn step(&self, run: &mut Run, mail: Mail, cx: &Context) -> Result<Progress, Error> {
        let pods = cx.cache::<Pod>();
        for key in &mail.pods {
            run.see(key, pods.get(key), cx.now());
        }
        run.tick(cx.now());
        let mut kills = run.take_kills().into_iter();
        while let Some(pod) = kills.next() {
            if let Err(error) = cx.delete(&*pod).await {
                run.kill_again(std::iter::once(pod).chain(kills));
                return Err(error);
            }
        }
        let tasks = run.next_starts(BATCH);
        if tasks.is_empty() {
            return Ok(Progress::Nothing);
        }
        if let Some(since) = mail.since {
            self.metrics.hop_seconds.observe(since.elapsed().as_secs_f64());
        }
        let workflow = Arc::clone(run.workflow());
        let wish = if run.is_ending() { Wish::Find } else { Wish::Create };
        let wanted: Vec<(u32, i32, bool)> =
            tasks.iter().map(|&task| (task, run.attempt(task), run.is_name_taken(task))).collect();
        let results: Vec<(u32, Started)> = futures::stream::iter(wanted)
            .map(|(task, attempt, taken)| {
                let workflow = &workflow;
                async move {
                    let spec = &workflow.spec.tasks[task as usize];
                    (task, start(workflow, spec, attempt, taken, wish, cx).await)
                }
            })
            .buffer_unordered(PARALLEL)
            .collect()
            .await;
        let now = cx.now();
        let mut failure = None;
        for (task, result) in results {
            match result {
                Started::Pod(pod) => {
                    self.metrics.pods_created.inc();
                    if run.attempt(task) > 0 {
                        self.metrics.retries.inc();
                    }
                    run.started(pod, now);
                }
                Started::Refused(message) => run.refused(task, message, now),
                Started::Absent => run.never_started(task),
                Started::Unknown { name_taken, error } => {
                    run.unanswered(task, name_taken, &error.to_string());
                    failure.get_or_insert(error);
                }
            }
        }
        match failure {
            Some(error) => {
                cx.event(EventType::Warning, "PodNotCreated", error.to_string());
                Err(error.context("creating the pod of a task"))
            }
            None => Ok(Progress::More),
        }
    }

    /// Passes on what happened in a run.
    fn tell(&self, run: &mut Run, cx: &Context) {
        for note in run.take_notes() {
            cx.event(note.r#type, note.reason, note.text);
        }
        for (succeeded, seconds) in run.take_lengths() {
            let phase = if succeeded { Phase::Succeeded } else { Phase::Failed };
            self.metrics.step_seconds.get_or_create(&Ended::new(phase)).observe(seconds);
        }
        self.metrics.timeouts.inc_by(run.take_timeouts());
    }

    fn finished(&self, run: &Run, cx: &Context) {
        let status = run.last_report();
        let phase = status.phase();
        if let (Some(start), Some(end)) = (&status.start_time, &status.completion_time) {
            let seconds = end.0.duration_since(start.0).as_secs_f64();
            self.metrics.workflow_seconds.get_or_create(&Ended::new(phase)).observe(seconds.max(0.0));
        }
        let progress = status.progress.as_deref().unwrap_or_default();
        match phase {
            Phase::Succeeded => {
                cx.event(
                    EventType::Normal,
                    "WorkflowSucceeded",
                    format!("All tasks have succeeded ({progress})"),
                );
            }
            _ => {
                let why = status.message.as_deref().unwrap_or_default();
                let note = format!("{progress} tasks have succeeded: {why}");
                cx.event(EventType::Warning, "WorkflowFailed", note);
            }
        }
    }

    fn next(&self, run: &Run, write: Option<Duration>, now: Timestamp) -> Outcome {
        let timer = run.next_timer().map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        match [timer, write].into_iter().flatten().min() {
            // Never quite zero: what is due is done by then.
            Some(wait) => Outcome::RequeueAfter(wait.max(Duration::from_millis(1)), "something is due"),
            None => Outcome::Done,
        }
    }

    fn take_slot(&self, key: &Key) -> Option<Slot> {
        self.slots().remove(key)
    }

    fn put_slot(&self, key: Key, slot: Slot) {
        self.slots().insert(key, slot);
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Key, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a step left something for the next one.
enum Progress {
    More,
    Nothing,
}

/// Whether the workflow has run, and nothing asks for another run.
fn is_finished(object: &Observatory, status: &ObservatoryStatus) -> bool {
    let rerun = object.spec.rerun.as_ref().is_some_and(|rerun| status.rerun_id.as_ref() != Some(&rerun.id));
    // One that was refused gets another chance with each change.
    let refused = status.reason.as_deref() == Some("Invalid")
        && status.observed_generation != object.metadata.generation;
    status.phase().is_over() && !rerun && !refused
}

fn is_owned_by(pod: &Pod, uid: &str) -> bool {
    pod.labels().get(names::UID).is_some_and(|found| found == uid)
}

/// The first problems, in sentences.
fn describe(problems: &[Problem]) -> String {
    const SHOWN: usize = 10;
    let mut lines: Vec<String> = problems.iter().take(SHOWN).map(ToString::to_string).collect();
    if problems.len() > SHOWN {
        lines.push(format!("and {} more", problems.len() - SHOWN));
    }
    lines.join("; ")
}
