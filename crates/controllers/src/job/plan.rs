//! What a Job should do next, and what it reports, decided without any I/O.

use super::indexes;
use crate::owner::controller_reference;
use crate::pods::{self, deletion_order, is_active, is_ready};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

/// Most pods created or deleted in one go; the rest follows in the next.
const BURST: usize = 500;
/// The wait after a first failure, doubled with each one that follows it.
const BACK_OFF: SignedDuration = SignedDuration::from_secs(10);
/// The longest such wait.
const LONGEST: SignedDuration = SignedDuration::from_mins(10);
/// Where a pod of an Indexed Job says which one it is, as a label and as an annotation.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The pods of a Job, counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Count {
    /// Neither finished nor on their way out.
    active: Vec<Arc<Pod>>,
    ready: i32,
    /// On their way out.
    terminating: i32,
    /// Pods, or indexes, that succeeded.
    succeeded: i32,
    failed: i32,
    /// Of an Indexed Job: those that succeeded.
    done: BTreeSet<i32>,
    /// Of an Indexed Job: those that may not be tried again.
    lost: BTreeSet<i32>,
    /// Restarts within pods that still run.
    restarts: i32,
    /// Failures since the last success, and when the last one was.
    row: (u32, Option<Timestamp>),
}

/// How a Job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is more to do.
    Open,
    /// All is done.
    Complete,
    /// It failed, for this reason and with these words.
    Failed(&'static str, &'static str),
}

/// The writes that bring a Job further.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// How it stands.
    pub(super) verdict: Verdict,
    /// Pods to create; of an Indexed Job with their index.
    pub(super) create: Vec<Option<i32>>,
    /// Pods to delete.
    pub(super) delete: Vec<Arc<Pod>>,
    /// When to look again though nothing has changed.
    pub(super) next: Option<SignedDuration>,
}

/// Counts the pods of a Job. What a status once counted stays counted when its pod is gone.
pub(super) fn count(job: &Job, pods: Vec<Arc<Pod>>) -> Count {
    let (spec, before) = (spec(job), job.status.clone().unwrap_or_default());
    let mut count = Count::default();
    let (mut succeeded, mut failed) = (0, 0);
    let mut failures: BTreeMap<i32, i32> = BTreeMap::new();
    let mut ends: Vec<(Option<Timestamp>, bool)> = Vec::new();
    let end = spec.completions.unwrap_or(0);
    if is_indexed(spec) {
        count.done = indexes::read(before.completed_indexes.as_deref().unwrap_or_default(), end);
        count.lost = indexes::read(before.failed_indexes.as_deref().unwrap_or_default(), end);
    }
    for pod in pods {
        match pods::phase(&pod) {
            "Succeeded" => {
                succeeded += 1;
                count.done.extend(index(&pod).filter(|index| *index < end));
                ends.push((finished(&pod), true));
            }
            "Failed" => {
                failed += 1;
                if let Some(index) = index(&pod).filter(|index| *index < end) {
                    *failures.entry(index).or_default() += 1;
                }
                ends.push((finished(&pod), false));
            }
            _ if is_active(&pod) => {
                count.ready += i32::from(is_ready(&pod));
                count.restarts += restarts(&pod);
                count.active.push(pod);
            }
            _ => count.terminating += 1,
        }
    }
    if let Some(limit) = spec.backoff_limit_per_index {
        let lost = failures.iter().filter(|(_, failed)| **failed > limit).map(|(index, _)| *index);
        count.lost.extend(lost);
    }
    count.lost.retain(|index| !count.done.contains(index));
    count.succeeded = if is_indexed(spec) {
        i32::try_from(count.done.len()).unwrap_or(i32::MAX)
    } else {
        succeeded.max(before.succeeded.unwrap_or(0))
    };
    count.failed = failed.max(before.failed.unwrap_or(0));
    ends.sort();
    let row: Vec<_> = ends.iter().rev().take_while(|(_, success)| !success).collect();
    let last = row.first().and_then(|(at, _)| *at);
    count.row = (u32::try_from(row.len()).unwrap_or(u32::MAX), last);
    count
}

/// Decides what is next for a Job that has not ended.
pub(super) fn plan(job: &Job, count: &Count, now: Timestamp) -> Plan {
    let spec = spec(job);
    let mut plan = Plan { verdict: verdict(job, count, now), create: vec![], delete: vec![], next: None };
    if plan.verdict != Verdict::Open {
        plan.delete = count.active.clone();
        return plan;
    }
    if job.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    if spec.suspend == Some(true) {
        plan.delete = count.active.clone();
        return plan;
    }
    if let Some(seconds) = spec.active_deadline_seconds {
        plan.next = Some(SignedDuration::from_secs(seconds) - running_for(job, now));
    }
    let (keep, surplus) = divide(spec, count);
    let parallelism = spec.parallelism.unwrap_or(1).max(0);
    let wanted = match spec.completions {
        // The first success means that there is no more work to begin.
        None if count.succeeded > 0 => length(&keep),
        None => parallelism,
        Some(completions) => {
            let lost = i32::try_from(count.lost.len()).unwrap_or(i32::MAX);
            parallelism.min((completions - count.succeeded - lost).max(0))
        }
    };
    let excess = usize::try_from(length(&keep) - wanted).unwrap_or(0);
    let (mut delete, mut keep) = (surplus, keep);
    keep.sort_by(|a, b| deletion_order(a, b, |_| 0));
    delete.extend(keep.drain(..excess));
    delete.truncate(BURST);
    plan.delete = delete;
    let leaving =
        if spec.pod_replacement_policy.as_deref() == Some("Failed") { count.terminating } else { 0 };
    let missing = usize::try_from(wanted - length(&keep) - leaving).unwrap_or(0).min(BURST);
    if missing == 0 {
        return plan;
    }
    let wait = back_off(count, now);
    if wait > SignedDuration::ZERO {
        plan.next = Some(plan.next.map_or(wait, |next| next.min(wait)));
        return plan;
    }
    plan.create = if is_indexed(spec) {
        let taken: BTreeSet<i32> = keep.iter().filter_map(|pod| index(pod)).collect();
        let free =
            |index: &i32| ![&taken, &count.done, &count.lost].into_iter().any(|set| set.contains(index));
        (0..spec.completions.unwrap_or(0)).filter(free).take(missing).map(Some).collect()
    } else {
        vec![None; missing]
    };
    plan
}

/// Whether a plan was cut to the size of a burst, so that another must follow.
pub(super) fn is_burst(plan: &Plan) -> bool {
    plan.create.len() >= BURST || plan.delete.len() >= BURST
}

/// How a Job stands, going by its pods.
fn verdict(job: &Job, count: &Count, now: Timestamp) -> Verdict {
    const LIMIT: Verdict =
        Verdict::Failed("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    let spec = spec(job);
    // What was decided stays decided while pods are on their way out.
    if let Some(target) = condition(job.status.as_ref(), "FailureTarget") {
        return match target.reason.as_deref() {
            Some("DeadlineExceeded") => DEADLINE,
            Some("MaxFailedIndexesExceeded") => TOO_MANY_INDEXES,
            Some("FailedIndexes") => LOST_INDEXES,
            _ => LIMIT,
        };
    }
    let limit = spec.backoff_limit.unwrap_or(6);
    let on_failure =
        spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) == Some("OnFailure");
    if count.failed > limit || (on_failure && count.restarts > 0 && count.restarts >= limit) {
        return LIMIT;
    }
    if let Some(seconds) = spec.active_deadline_seconds
        && spec.suspend != Some(true)
        && running_for(job, now) >= SignedDuration::from_secs(seconds)
    {
        return DEADLINE;
    }
    let lost = i32::try_from(count.lost.len()).unwrap_or(i32::MAX);
    if spec.max_failed_indexes.is_some_and(|most| lost > most) {
        return TOO_MANY_INDEXES;
    }
    if lost > 0 && lost.saturating_add(count.succeeded) >= spec.completions.unwrap_or(0) {
        return LOST_INDEXES;
    }
    let enough = spec.completions.map_or(count.succeeded > 0, |completions| count.succeeded >= completions);
    // A suspended Job without completions has nothing to do, but is not done.
    if enough && count.active.is_empty() { Verdict::Complete } else { Verdict::Open }
}

const DEADLINE: Verdict =
    Verdict::Failed("DeadlineExceeded", "Job was active longer than specified deadline");
const TOO_MANY_INDEXES: Verdict = Verdict::Failed(
    "MaxFailedIndexesExceeded",
    "Job has exceeded the specified maximal number of failed indexes",
);
const LOST_INDEXES: Verdict = Verdict::Failed("FailedIndexes", "Job has failed indexes");

/// The pods that count, and those that no longer do: with an index that is done, is not asked for
/// or is held by another pod.
fn divide(spec: &JobSpec, count: &Count) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    if !is_indexed(spec) {
        return (count.active.clone(), Vec::new());
    }
    let mut taken = BTreeSet::new();
    let end = spec.completions.unwrap_or(0);
    let mut pods = count.active.clone();
    // The one that has come furthest keeps the index.
    pods.sort_by(|a, b| deletion_order(b, a, |_| 0));
    pods.into_iter().partition(|pod| {
        index(pod).is_some_and(|index| index < end && !count.done.contains(&index) && taken.insert(index))
    })
}

/// What a Job reports after a plan was carried out.
pub(super) fn report(job: &Job, verdict: Verdict, count: &Count, now: Timestamp) -> JobStatus {
    let spec = spec(job);
    let mut status = job.status.clone().unwrap_or_default();
    let suspended = spec.suspend == Some(true);
    let mut conditions = status.conditions.take().unwrap_or_default();
    let resumed = suspended_before(&conditions) && !suspended;
    if !suspended && (status.start_time.is_none() || resumed) {
        status.start_time = Some(Time(now));
    }
    let active = length(&count.active);
    let ended = active == 0 && count.terminating == 0;
    match verdict {
        Verdict::Complete => {
            let (reason, message) = ("CompletionsReached", "Reached expected number of succeeded pods");
            set(&mut conditions, "SuccessCriteriaMet", "True", reason, message, now);
            if ended {
                set(&mut conditions, "Complete", "True", reason, message, now);
                status.completion_time = status.completion_time.or(Some(Time(now)));
            }
        }
        Verdict::Failed(reason, message) => {
            set(&mut conditions, "FailureTarget", "True", reason, message, now);
            if ended {
                set(&mut conditions, "Failed", "True", reason, message, now);
            }
        }
        Verdict::Open if suspended => {
            if !suspended_before(&conditions) {
                status.start_time = None;
            }
            set(&mut conditions, "Suspended", "True", "JobSuspended", "Job suspended", now);
        }
        Verdict::Open if resumed => {
            set(&mut conditions, "Suspended", "False", "JobResumed", "Job resumed", now);
        }
        Verdict::Open => {}
    }
    let counted = |number: i32| Some(number).filter(|number| *number != 0);
    let listed = |indexes: &BTreeSet<i32>| Some(indexes::write(indexes)).filter(|text| !text.is_empty());
    JobStatus {
        active: counted(active),
        ready: Some(count.ready),
        terminating: Some(count.terminating),
        succeeded: counted(count.succeeded),
        failed: counted(count.failed),
        completed_indexes: listed(&count.done),
        failed_indexes: listed(&count.lost).filter(|_| spec.backoff_limit_per_index.is_some()),
        uncounted_terminated_pods: Some(Default::default()),
        conditions: Some(conditions).filter(|conditions| !conditions.is_empty()),
        ..status
    }
}

/// When a Job ended, if it has.
pub(super) fn ended(job: &Job) -> Option<Timestamp> {
    let status = job.status.as_ref();
    let end = ["Complete", "Failed"].into_iter().find_map(|kind| condition(status, kind))?;
    Some(end.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0))
}

/// How long an ended Job stays; none where it stays for good.
pub(super) fn stays(job: &Job, ended: Timestamp, now: Timestamp) -> Option<SignedDuration> {
    let seconds = job.spec.as_ref()?.ttl_seconds_after_finished?;
    Some(SignedDuration::from_secs(seconds.into()) - now.duration_since(ended))
}

/// A pod made from the Job's template.
pub(super) fn pod(job: &Job, index: Option<i32>) -> Pod {
    let template = spec(job).template.clone();
    let mut meta = template.metadata.unwrap_or_default();
    let mut spec = template.spec.unwrap_or_default();
    let name = job.name_any();
    let mut prefix = format!("{name}-");
    if let Some(index) = index {
        prefix = format!("{name}-{index}-");
        let hostname = spec.hostname.get_or_insert_with(|| format!("{name}-{index}"));
        hostname.truncate(63);
        meta.labels.get_or_insert_default().insert(INDEX.into(), index.to_string());
        meta.annotations.get_or_insert_default().insert(INDEX.into(), index.to_string());
        let every = spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten());
        every.for_each(|container| tell_index(container.env.get_or_insert_default()));
    }
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(prefix),
            namespace: job.namespace(),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![controller_reference(job)]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

/// Lets a container know its index, unless it is told something by that name already.
fn tell_index(env: &mut Vec<EnvVar>) {
    const NAME: &str = "JOB_COMPLETION_INDEX";
    if env.iter().any(|variable| variable.name == NAME) {
        return;
    }
    let field = ObjectFieldSelector { api_version: None, field_path: format!("metadata.labels['{INDEX}']") };
    env.push(EnvVar {
        name: NAME.into(),
        value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
        ..EnvVar::default()
    });
}

fn spec(job: &Job) -> &JobSpec {
    static NONE: LazyLock<JobSpec> = LazyLock::new(JobSpec::default);
    job.spec.as_ref().unwrap_or(&NONE)
}

fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

fn length(pods: &[Arc<Pod>]) -> i32 {
    i32::try_from(pods.len()).unwrap_or(i32::MAX)
}

/// Which one of an Indexed Job a pod is.
fn index(pod: &Pod) -> Option<i32> {
    pod.annotations().get(INDEX)?.parse().ok().filter(|index| *index >= 0)
}

/// Since how long a Job is at work.
fn running_for(job: &Job, now: Timestamp) -> SignedDuration {
    let began = job.status.as_ref().and_then(|status| status.start_time.as_ref());
    began.map_or(SignedDuration::ZERO, |began| now.duration_since(began.0))
}

/// When a pod that ran to its end did so.
fn finished(pod: &Pod) -> Option<Timestamp> {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let ends = statuses.into_iter().flatten().filter_map(|status| {
        status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref().map(|time| time.0)
    });
    let ready = || pods::condition(pod, "Ready")?.last_transition_time.as_ref().map(|time| time.0);
    ends.max().or_else(ready).or_else(|| pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

/// How often the containers of a pod were started again, all together.
fn restarts(pod: &Pod) -> i32 {
    let Some(status) = pod.status.as_ref() else { return 0 };
    let all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    all.map(|status| status.restart_count).fold(0, i32::saturating_add)
}

/// How long to wait with the next pod after failures.
fn back_off(count: &Count, now: Timestamp) -> SignedDuration {
    let (failures, Some(last)) = count.row else { return SignedDuration::ZERO };
    if failures == 0 {
        return SignedDuration::ZERO;
    }
    let wait = BACK_OFF.checked_mul(1 << (failures - 1).min(10)).unwrap_or(LONGEST).min(LONGEST);
    wait - now.duration_since(last)
}

/// A condition that holds.
fn condition<'s>(status: Option<&'s JobStatus>, kind: &str) -> Option<&'s JobCondition> {
    let conditions = status?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind && condition.status == "True")
}

fn suspended_before(conditions: &[JobCondition]) -> bool {
    conditions.iter().any(|condition| condition.type_ == "Suspended" && condition.status == "True")
}

/// Sets a condition; one that says the same already keeps its times.
fn set(
    conditions: &mut Vec<JobCondition>,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    if conditions.iter().any(|known| known.type_ == kind && known.status == status) {
        return;
    }
    conditions.retain(|known| known.type_ != kind);
    conditions.push(JobCondition {
        type_: kind.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    });
}
