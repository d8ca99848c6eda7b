//! Moving one run on, as long as there is something to do.
//!
//! ```text
//!          ╭─────────────────────────────────────────────────────────╮
//!   news ──┴▶ see ─▶ tick ─▶ delete ─▶ begin to create ─▶ begin to write ─▶ wait for any of them
//! ```
//! Creations and the status are under way at the same time, each in a task of its own, and news
//! are heard meanwhile: neither many pods at once nor a large status hold up the next task.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use prometheus_client::metrics::histogram::Histogram;
use steersman::{Context, Error, EventType, Outcome};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::inbox::Mail;
use super::start::{Started, Wish, start};
use super::{CREATIONS, Live, Slot, TURN, Workflows, archive};
use crate::metrics::Ended;
use crate::run::Run;
use crate::types::{Observatory, Phase};

/// How long a workflow that waits for a place waits before it looks by itself.
const LOOK: Duration = Duration::from_secs(1);

/// A pod that is to be created.
struct Creation {
    workflow: Arc<Observatory>,
    task: u32,
    attempt: i32,
    name_taken: bool,
    wish: Wish,
    /// When the news came that made it possible.
    since: Option<Instant>,
}

impl Workflows {
    /// Moves a run on until there is nothing to do but wait.
    pub(super) async fn drive(
        &self,
        mut live: Box<Live>,
        mail: Mail,
        cx: &Context,
    ) -> Result<Outcome, Error> {
        let key = cx.key().clone();
        let began = Instant::now();
        let bell = self.inbox.bell(&key);
        let mut news = Some(mail);
        let mut creations = JoinSet::new();
        let mut writing = None;
        let (mut trouble, mut unwritten) = (None, false);
        loop {
            let mail = news.take().unwrap_or_else(|| self.inbox.take(&key));
            self.hear(&mut live, &mail, cx);
            if let Err(error) = self.kill(&mut live.run, cx).await {
                trouble.get_or_insert(error);
            }
            if trouble.is_none() && began.elapsed() < TURN {
                let most = CREATIONS.saturating_sub(creations.len());
                for creation in self.next_creations(&mut live, most, cx) {
                    creations.spawn(create(creation, self.metrics.hop_seconds.clone(), cx.fork()));
                }
            }
            self.tell(&mut live.run, cx);
            if writing.is_none() && !unwritten && self.until_write(&live) == Some(Duration::ZERO) {
                writing = Some(self.write(&mut live, cx));
            }
            if creations.is_empty() && writing.is_none() {
                break;
            }
            tokio::select! {
                biased;
                Some(created) = creations.join_next() => {
                    let answered = match created {
                        Ok((task, started)) => self.answered(&mut live.run, task, started, cx),
                        // The run does not know which: it must be made again from what there is.
                        Err(error) => return Err(Error::msg(format!("creating a pod came to nothing: {error}"))),
                    };
                    if let Err(error) = answered {
                        trouble.get_or_insert(error);
                    }
                }
                written = super::record::finished(&mut writing) => {
                    if let Err(error) = self.written(&mut live, written) {
                        // What stood in the way before was reported as well, or should have been.
                        unwritten = true;
                        trouble.get_or_insert(error);
                    }
                }
                () = bell.notified() => {}
            }
        }
        self.places.creating(&key, live.run.unborn());
        if trouble.is_none() && live.run.is_over() && !live.run.is_dirty() {
            self.places.withdraw(&key);
            self.ended(&live.run, cx);
            return Ok(Outcome::Requeue("the workflow has ended"));
        }
        let outcome = self.outcome(&live, trouble, began, cx);
        self.put_slot(key, Slot::Live(live));
        outcome
    }

    fn hear(&self, live: &mut Live, mail: &Mail, cx: &Context) {
        let pods = cx.cache::<Pod>();
        for key in &mail.pods {
            live.run.see(key, pods.get(key), cx.now());
        }
        live.run.tick(cx.now());
        live.startable.resize(live.run.startable(), mail.since);
    }

    /// Ends pods that have had their time, once their logs are kept.
    async fn kill(&self, run: &mut Run, cx: &Context) -> Result<(), Error> {
        let mut kills = run.take_kills().into_iter();
        while let Some(pod) = kills.next() {
            archive::keep_log(run.workflow(), &pod, cx).await;
            if let Err(error) = cx.delete(&*pod).await {
                run.kill_again(std::iter::once(pod).chain(kills));
                return Err(error);
            }
        }
        Ok(())
    }

    /// The pods that are to be created now, up to so many.
    fn next_creations(&self, live: &mut Live, most: usize, cx: &Context) -> Vec<Creation> {
        let workflow = Arc::clone(live.run.workflow());
        let (key, priority) = (cx.key(), workflow.spec.priority.unwrap_or(0));
        let run = &mut live.run;
        let mut refused = false;
        let tasks = run.next_starts(most, || {
            refused = !self.places.take(key, priority);
            !refused
        });
        if most > 0 {
            run.hold_back(refused.then(|| self.places.limits().describe()));
        }
        let wish = if run.is_ending() { Wish::Find } else { Wish::Create };
        let startable = &mut live.startable;
        let creation = |task| Creation {
            workflow: Arc::clone(&workflow),
            task,
            attempt: run.attempt(task),
            name_taken: run.is_name_taken(task),
            wish,
            since: startable.pop_front().flatten(),
        };
        tasks.into_iter().map(creation).collect()
    }

    /// Takes in what became of a pod that was to be created.
    fn answered(&self, run: &mut Run, task: u32, started: Started, cx: &Context) -> Result<(), Error> {
        let now = cx.now();
        match started {
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
                cx.event(EventType::Warning, "PodNotCreated", error.to_string());
                return Err(error.context("creating the pod of a task"));
            }
        }
        self.places.creating(cx.key(), run.unborn());
        Ok(())
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

    fn ended(&self, run: &Run, cx: &Context) {
        let status = run.last_report();
        let phase = status.phase();
        if let (Some(start), Some(end)) = (&status.start_time, &status.completion_time) {
            let seconds = end.0.duration_since(start.0).as_secs_f64();
            self.metrics.workflow_seconds.get_or_create(&Ended::new(phase)).observe(seconds.max(0.0));
        }
        let progress = status.progress.as_deref().unwrap_or_default();
        match phase {
            Phase::Succeeded => {
                let note = format!("All tasks have succeeded ({progress})");
                cx.event(EventType::Normal, "WorkflowSucceeded", note);
            }
            _ => {
                let why = status.message.as_deref().unwrap_or_default();
                let note = format!("{progress} tasks have succeeded: {why}");
                cx.event(EventType::Warning, "WorkflowFailed", note);
            }
        }
    }

    /// When to look at a run again if nothing happens before.
    fn outcome(
        &self,
        live: &Live,
        trouble: Option<Error>,
        began: Instant,
        cx: &Context,
    ) -> Result<Outcome, Error> {
        let key = cx.key();
        if let Some(error) = trouble {
            // Whoever waits behind it must not wait for its next attempt.
            self.places.withdraw(key);
            return Err(error);
        }
        if !live.run.could_start() {
            self.places.withdraw(key);
            return Ok(self.next(live, None, cx.now()));
        }
        if began.elapsed() >= TURN {
            return Ok(Outcome::Requeue("more pods are to be created"));
        }
        let priority = live.run.workflow().spec.priority.unwrap_or(0);
        self.places.wait(key, priority, live.run.startable());
        Ok(self.next(live, Some(LOOK), cx.now()))
    }

    fn next(&self, live: &Live, look: Option<Duration>, now: Timestamp) -> Outcome {
        let due = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or_default();
        let timer = live.run.next_timer().map(due);
        match [timer, self.until_write(live), look].into_iter().flatten().min() {
            // Never quite zero: what is due is done by then.
            Some(wait) => Outcome::RequeueAfter(wait.max(Duration::from_millis(1)), "something is due"),
            None => Outcome::Done,
        }
    }
}

async fn create(creation: Creation, hops: Histogram, cx: Context) -> (u32, Started) {
    let Creation { workflow, task, attempt, name_taken, wish, since } = creation;
    if let Some(since) = since {
        hops.observe(since.elapsed().as_secs_f64());
    }
    let spec = &workflow.spec.tasks[task as usize];
    (task, start(&workflow, spec, attempt, name_taken, wish, &cx).await)
}
