//! The controller that makes the runs of schedules.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Patch;
use kube::core::ObjectMeta;
use serde_json::json;
use steersman::conditions::{self, ConditionStatus, Observation};
use steersman::{Context, Controller, Error, EventType, Key, Outcome, Predicate, Reconciler};
use tokio::time::Instant;

use super::plan::{Clockwork, Plan, Situation, plan};
use crate::dag::check;
use crate::types::{Observatory, ObservatorySpec, ObservatoryStatus, Phase, time};

/// Annotation of a run: the time for which it was made.
pub(crate) const SCHEDULED_AT: &str = "workflow.seventh-horizon.io/scheduled-at";

/// How often the state of the latest run is copied, at most.
const MIRROR: Duration = Duration::from_secs(1);
/// A machine that slept has missed its timers, and nobody told it.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Makes the runs of schedules.
#[derive(Debug, Default)]
pub(crate) struct Schedules {
    written: Mutex<HashMap<Key, Instant>>,
}

/// The controller that makes the runs of schedules.
pub(crate) fn controller() -> Controller<Schedules> {
    Controller::new("observatory-schedule", Schedules::default())
        .shares_its_kind()
        .field_manager(crate::OPERATOR)
        .owns::<Observatory>()
        .predicate(Predicate::generation_changed())
        .concurrency(2)
}

impl Reconciler for Schedules {
    type Object = Observatory;

    async fn reconcile(&self, object: Arc<Observatory>, cx: &Context) -> Result<Outcome, Error> {
        if !object.spec.is_scheduled() || object.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done);
        }
        let now = cx.now();
        let mut status = object.status.clone().unwrap_or_default();
        let problems = check(&object.spec);
        let clockwork = match Clockwork::new(&object.spec) {
            Ok(clockwork) if problems.is_empty() => clockwork,
            _ => {
                let all: Vec<String> = problems.iter().take(10).map(ToString::to_string).collect();
                let reason = problems.first().map_or("BadSchedule", |problem| problem.reason);
                return refuse(&object, status, reason, &all.join("; "), cx).await;
            }
        };
        let text = describe(&object.spec);
        if status.observed_schedule.as_deref() != Some(&text) {
            // Another schedule begins now; what it would have done before is nobody's loss.
            status.observed_schedule = Some(text);
            status.scheduled_until = Some(time(now));
        }
        let was_suspended =
            status.conditions.iter().any(|one| one.type_ == "Suspended" && one.status == "True");
        if was_suspended && !object.spec.suspend {
            // What was suspended was not missed.
            status.scheduled_until = Some(time(now));
        }
        let decided = status.scheduled_until.as_ref().map_or(now, |time| time.0);
        let mut runs = runs(&object, cx);
        let active = |runs: &BTreeMap<Timestamp, Arc<Observatory>>| -> BTreeSet<Timestamp> {
            runs.iter().filter(|(_, run)| !phase(run).is_over()).map(|(at, _)| *at).collect()
        };
        let situation =
            Situation { decided, now, active: active(&runs), existing: runs.keys().copied().collect() };
        let plan = plan(&object.spec, &clockwork, &situation);
        carry_out(&object, &plan, &runs, cx).await?;
        let acted = !plan.create.is_empty() || plan.decided != decided;
        if !plan.create.is_empty() {
            runs = self::runs(&object, cx);
        }
        status.scheduled_until = Some(time(plan.decided));
        if let Some(last) = plan.create.last() {
            status.last_schedule_time = Some(time(*last));
        }
        let next = clockwork.after(now.max(plan.decided)).filter(|_| !object.spec.suspend);
        status.next_schedule_time = next.map(time);
        status.active_runs =
            active(&runs).iter().filter_map(|at| runs.get(at)).map(|run| run.name_any()).collect();
        mirror(&object, &mut status, &runs, now);

        let changed = object.status.as_ref() != Some(&status);
        let mut wait = next.map(|next| Duration::try_from(next.duration_since(now)).unwrap_or_default());
        if changed {
            let since = self.since_write(cx.key());
            let news = acted || object.status.as_ref().map(|old| old.phase()) != status.phase;
            match since {
                Some(since) if since < MIRROR && !news => {
                    wait = Some(wait.unwrap_or(MIRROR).min(MIRROR.saturating_sub(since)));
                }
                _ => {
                    self.note_write(cx.key());
                    cx.apply_status(&status).await?;
                }
            }
        }
        // Only what the written status accounts for may go.
        clean_up(&object, &runs, cx).await?;
        Ok(wait.map_or(Outcome::Done, |wait| {
            let wait = wait.clamp(Duration::from_millis(1), LONGEST_WAIT);
            Outcome::RequeueAfter(wait, "the next run is due")
        }))
    }

    async fn gone(&self, key: &Key, _: &Context) -> Result<(), Error> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        Ok(())
    }
}

impl Schedules {
    fn since_write(&self, key: &Key) -> Option<Duration> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.get(key).map(Instant::elapsed)
    }

    fn note_write(&self, key: &Key) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.insert(key.clone(), Instant::now());
    }
}

/// The schedules in one text, to see that they changed.
fn describe(spec: &ObservatorySpec) -> String {
    let all: Vec<&str> = spec.all_schedules().collect();
    format!("{} ({})", all.join(", "), spec.timezone.as_deref().unwrap_or("UTC"))
}

/// The runs of a schedule by their time.
fn runs(object: &Observatory, cx: &Context) -> BTreeMap<Timestamp, Arc<Observatory>> {
    let all = cx.cache::<Observatory>().owned_by(&object.uid().unwrap_or_default());
    all.into_iter().filter_map(|run| Some((scheduled_at(&run)?, run))).collect()
}

fn scheduled_at(run: &Observatory) -> Option<Timestamp> {
    run.annotations().get(SCHEDULED_AT)?.parse().ok()
}

fn phase(run: &Observatory) -> Phase {
    run.status.as_ref().map(ObservatoryStatus::phase).unwrap_or_default()
}

/// The name of the run of this time.
fn run_name(schedule: &str, at: Timestamp) -> String {
    // Room for the minute within the 253 letters of a name.
    let schedule: String = schedule.chars().take(240).collect();
    format!("{}-{}", schedule.trim_end_matches(['-', '.']), at.as_second() / 60)
}

/// The run of this time.
fn run(object: &Observatory, at: Timestamp) -> Observatory {
    let spec = ObservatorySpec {
        schedule: None,
        schedules: Vec::new(),
        timezone: None,
        concurrency_policy: None,
        starting_deadline_seconds: None,
        catch_up: None,
        successful_runs_history_limit: None,
        failed_runs_history_limit: None,
        suspend: false,
        shutdown: None,
        rerun: None,
        ..object.spec.clone()
    };
    Observatory {
        metadata: ObjectMeta {
            name: Some(run_name(&object.name_any(), at)),
            namespace: object.namespace(),
            labels: object.metadata.labels.clone(),
            annotations: Some([(SCHEDULED_AT.to_owned(), at.to_string())].into()),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

async fn carry_out(
    object: &Observatory,
    plan: &Plan,
    runs: &BTreeMap<Timestamp, Arc<Observatory>>,
    cx: &Context,
) -> Result<(), Error> {
    for (at, why) in &plan.skipped {
        cx.event(EventType::Warning, "RunSkipped", format!("The run of {at} is left out: {why}"));
    }
    for run in plan.terminate.iter().filter_map(|at| runs.get(at)) {
        let patch = Patch::Merge(json!({"spec": {"shutdown": "Terminate"}}));
        match cx.patch::<Observatory, _>(&Key::of(&**run), &patch).await {
            Err(error) if error.has_code(404) => {}
            other => drop(other?),
        }
    }
    for &at in &plan.create {
        let run = run(object, at);
        match cx.create(&run).await {
            Ok(run) => {
                cx.event(EventType::Normal, "RunCreated", format!("Run {} is created", run.name_any()));
            }
            // Made before, by us or by another leader; or the name is a user's.
            Err(error) if error.has_code(409) => {
                tracing::debug!(run = run.name_any(), "the run exists already");
            }
            Err(error) => return Err(error.context(format!("creating run {}", run.name_any()))),
        }
    }
    Ok(())
}

/// Shows the latest run in the status of its schedule.
fn mirror(
    object: &Observatory,
    status: &mut ObservatoryStatus,
    runs: &BTreeMap<Timestamp, Arc<Observatory>>,
    now: Timestamp,
) {
    let generation = object.metadata.generation;
    status.observed_generation = generation;
    match runs.last_key_value().and_then(|(_, run)| run.status.as_ref()) {
        Some(latest) => {
            status.phase = Some(latest.phase());
            status.tasks.clone_from(&latest.tasks);
            status.encoded_tasks.clone_from(&latest.encoded_tasks);
            status.start_time.clone_from(&latest.start_time);
            status.completion_time.clone_from(&latest.completion_time);
            status.progress.clone_from(&latest.progress);
            status.reason.clone_from(&latest.reason);
            status.message.clone_from(&latest.message);
        }
        None if runs.is_empty() && status.last_schedule_time.is_some() => {}
        None => {
            status.phase = Some(Phase::Pending);
            status.reason = Some("Scheduled".to_owned());
            let next = status.next_schedule_time.as_ref();
            status.message = next.map(|next| format!("the next run is due at {}", next.0));
            status.progress = Some(format!("0/{}", object.spec.tasks.len()));
        }
    }
    let successes = runs.values().filter(|run| phase(run) == Phase::Succeeded);
    let ends = successes.filter_map(|run| run.status.as_ref()?.completion_time.clone());
    status.last_successful_time = ends.chain(status.last_successful_time.take()).max_by_key(|end| end.0);
    let suspended = object.spec.suspend;
    for (r#type, holds, reason) in [
        ("Valid", true, "Valid"),
        ("Suspended", suspended, if suspended { "Suspended" } else { "NotSuspended" }),
    ] {
        let said = Observation { r#type, status: holds.into(), reason, message: String::new(), generation };
        conditions::set(&mut status.conditions, now, said);
    }
}

async fn refuse(
    object: &Observatory,
    mut status: ObservatoryStatus,
    reason: &str,
    message: &str,
    cx: &Context,
) -> Result<Outcome, Error> {
    let generation = object.metadata.generation;
    status.phase = Some(Phase::Failed);
    status.reason = Some("Invalid".to_owned());
    status.message = Some(message.to_owned());
    status.observed_generation = generation;
    status.next_schedule_time = None;
    let said = Observation {
        r#type: "Valid",
        status: ConditionStatus::False,
        reason,
        message: message.to_owned(),
        generation,
    };
    conditions::set(&mut status.conditions, cx.now(), said);
    cx.apply_status(&status).await?;
    cx.event(EventType::Warning, "InvalidWorkflow", message);
    Ok(Outcome::Done)
}

/// Deletes the runs that are more than are to be kept.
async fn clean_up(
    object: &Observatory,
    runs: &BTreeMap<Timestamp, Arc<Observatory>>,
    cx: &Context,
) -> Result<(), Error> {
    let limit = |limit: Option<i32>, default: i32| usize::try_from(limit.unwrap_or(default)).unwrap_or(0);
    for (kept, wanted) in [
        (limit(object.spec.successful_runs_history_limit, 3), Phase::Succeeded),
        (limit(object.spec.failed_runs_history_limit, 1), Phase::Failed),
    ] {
        let ended = runs.values().rev().filter(|run| phase(run) == wanted);
        for run in ended.skip(kept).filter(|run| run.metadata.deletion_timestamp.is_none()) {
            cx.delete(&**run).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_named_after_its_schedule_and_minute() {
        let at: Timestamp = "2026-01-01T06:00:00Z".parse().expect("a timestamp");
        assert_eq!(run_name("nightly", at), "nightly-29454120");
        assert!(run_name(&"x".repeat(253), at).len() <= 253);
    }
}
