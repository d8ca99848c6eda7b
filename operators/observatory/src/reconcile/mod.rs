//! Workflows that run: from news of pods to the pods that come next.
//!
//! ```text
//!   pod changed ─▶ Inbox ─▶ queue ─▶ reconcile: see ─▶ tick ─▶ create, delete ─▶ status ─▶ finalizers
//!                     ╰──── also heard while the status is being written ────▲
//! ```
//!
//! Pods are created before anything is reported. Each carries a finalizer that goes once its
//! end is in the status, so that an end is never forgotten and an attempt never made twice.

mod archive;
mod drive;
mod inbox;
mod places;
mod record;
mod settle;
mod start;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use prometheus_client::metrics::gauge::Gauge;
use steersman::conditions::{self, ConditionStatus, Observation};
use steersman::{Cache, Context, Controller, Error, EventType, Key, Outcome, Predicate, Reconciler};
use tokio::time::Instant;

use self::inbox::{Inbox, Mail};
pub use self::places::Limits;
use self::places::Places;
use self::record::Form;
use crate::dag::{Problem, check};
use crate::metrics::Metrics;
use crate::run::observe::{Sight, observe};
use crate::run::{Run, begin_rerun, names};
use crate::types::{Observatory, ObservatoryStatus, Phase, TaskStatus};

/// How many workflows are looked at at the same time. Most of them wait for the server meanwhile.
const WORKERS: usize = 32;
/// How many pods are created at the same time for one workflow: what becomes possible at once is asked
/// for at once.
const CREATIONS: usize = 64;
/// How many are let go at the same time. Nobody waits for that, and creations must not wait behind it.
const RELEASES: usize = 8;
/// How long one workflow may keep a worker to itself while it has things to do.
const TURN: Duration = Duration::from_secs(1);

/// Runs workflows.
#[derive(Debug)]
pub(crate) struct Workflows {
    inbox: Inbox,
    places: Places,
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
    /// How much of the status the server takes.
    form: Form,
    /// Of each task that could start, when the news came that let it; none if no news did.
    startable: VecDeque<Option<Instant>>,
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
pub(crate) fn controller(metrics: Metrics, limits: Limits) -> Controller<Workflows> {
    let (inbox, places) = (Inbox::default(), Places::new(limits));
    let (letters, freed) = (inbox.clone(), places.clone());
    let news = move |pod: &Pod, cache: &Cache| {
        let mut keys = letters.put(pod);
        for waiting in freed.see(&Key::of(pod), &cache.view()) {
            letters.ring(&waiting);
            keys.push(waiting);
        }
        keys
    };
    let workflows = Workflows { inbox, places, slots: Mutex::default(), metrics };
    Controller::new("observatory", workflows)
        .field_manager(crate::OPERATOR)
        .watches::<Pod>(news)
        .index::<Pod>("observatory", inbox::index)
        .predicate(Predicate::generation_changed())
        .concurrency(WORKERS)
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
        self.forget_places(key);
        self.inbox.forget(key);
        Ok(())
    }
}

impl Workflows {
    async fn reconcile_inner(&self, object: Arc<Observatory>, cx: &Context) -> Result<Outcome, Error> {
        let key = cx.key().clone();
        self.places.count(|| cx.cache());
        let slot = self.take_slot(&key);
        let mail = self.inbox.take(&key);
        let uid = object.uid().unwrap_or_default();
        if object.metadata.deletion_timestamp.is_some() || object.spec.is_scheduled() {
            // Its pods go, or are another run's by now; none of them is waited for.
            self.forget_places(&key);
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
                let mut status = object.status.clone().unwrap_or_default();
                status.unpack();
                if is_finished(&object, &status) {
                    self.forget_places(&key);
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
            return Err(Box::new(run.report(now).into_status()));
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
                    record::write_status(status.clone(), Form::Whole, cx).await?;
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
        Ok(Some(Box::new(Live {
            run,
            written: Instant::now(),
            cost: Duration::ZERO,
            form: Form::Whole,
            startable: VecDeque::new(),
            _active: active,
        })))
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
        record::write_status(status, Form::Whole, cx).await?;
        cx.event(EventType::Warning, "InvalidWorkflow", message);
        let ended: Vec<Arc<Pod>> =
            pods.iter().filter(|pod| matches!(observe(pod), Sight::Ended(_))).cloned().collect();
        record::release(&ended, cx).await
    }

    /// A workflow that does not run takes no place and waits for none.
    fn forget_places(&self, key: &Key) {
        self.places.creating(key, 0);
        self.places.withdraw(key);
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
