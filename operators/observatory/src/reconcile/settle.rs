//! What remains to be done for a workflow that has ended.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use steersman::{Context, Error, EventType, Outcome};

use super::inbox::Mail;
use super::{Slot, Workflows, archive, record};
use crate::run::observe::{Sight, Verdict, observe};
use crate::types::{Observatory, ObservatoryStatus, Phase, PodGcStrategy};

impl Workflows {
    /// Lets go of pods, deletes those that are not to be kept, and in the end the workflow.
    pub(super) async fn settle(
        &self,
        object: &Observatory,
        status: &ObservatoryStatus,
        mail: &Mail,
        settled: bool,
        cx: &Context,
    ) -> Result<Outcome, Error> {
        let now = cx.now();
        let uid = object.uid().unwrap_or_default();
        // All pods at first and when something is due; otherwise those of which something is heard.
        let pods = match settled && !mail.pods.is_empty() {
            true => mail.pods.iter().filter_map(|key| cx.cache::<Pod>().get(key)).collect(),
            false => cx.cache::<Pod>().owned_by(&uid),
        };
        let ended: Vec<Arc<Pod>> =
            pods.into_iter().filter(|pod| matches!(observe(pod), Sight::Ended(_))).collect();
        record::release(&ended, cx).await?;
        let mut next = None;
        for pod in ended.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            match collect_at(object, status.phase(), pod) {
                Some(at) if at <= now => {
                    archive::keep_log(object, pod, cx).await;
                    cx.delete(&**pod).await?;
                }
                Some(at) => next = Some(next.map_or(at, |next: Timestamp| next.min(at))),
                None => {}
            }
        }
        if let Some(at) = expires(object, status) {
            if at <= now {
                cx.event(EventType::Normal, "Expired", "The workflow's time to live is over");
                cx.delete(object).await?;
                return Ok(Outcome::Done);
            }
            next = Some(next.map_or(at, |next| next.min(at)));
        }
        self.put_slot(cx.key().clone(), Slot::Settled(uid));
        Ok(next.map_or(Outcome::Done, |at| {
            let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
            Outcome::RequeueAfter(wait.max(Duration::from_millis(1)), "something is due")
        }))
    }
}

/// Deletes pods that are not to be kept while the workflow still runs. Those that are to be kept
/// for a while are deleted when it has ended.
pub(super) async fn collect_at_once(
    object: &Observatory,
    pods: &[Arc<Pod>],
    cx: &Context,
) -> Result<(), Error> {
    let now = cx.now();
    for pod in pods {
        if collect_at(object, Phase::Running, pod).is_some_and(|at| at <= now) {
            archive::keep_log(object, pod, cx).await;
            cx.delete(&**pod).await?;
        }
    }
    Ok(())
}

/// When a pod that ended is to be deleted.
fn collect_at(object: &Observatory, phase: Phase, pod: &Pod) -> Option<Timestamp> {
    let gc = object.spec.pod_gc.as_ref()?;
    let Sight::Ended(end) = observe(pod) else { return None };
    let chosen = match gc.strategy {
        PodGcStrategy::Never => false,
        PodGcStrategy::OnSuccess => end.verdict == Verdict::Succeeded,
        PodGcStrategy::OnCompletion => true,
        PodGcStrategy::OnWorkflowSuccess => phase == Phase::Succeeded,
        PodGcStrategy::OnWorkflowCompletion => phase.is_over(),
    };
    let delay = gc.delay.as_ref().and_then(|delay| delay.get()).unwrap_or_default();
    let made = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let ended = end.ended.or(made).unwrap_or(Timestamp::UNIX_EPOCH);
    chosen.then(|| plus(ended, delay)).flatten()
}

/// When a workflow that ended is to be deleted.
fn expires(object: &Observatory, status: &ObservatoryStatus) -> Option<Timestamp> {
    let ttl = object.spec.ttl.as_ref()?;
    let own = match status.phase() {
        Phase::Succeeded => ttl.after_success.as_ref(),
        _ => ttl.after_failure.as_ref(),
    };
    let length = own.or(ttl.after_completion.as_ref())?.get()?;
    plus(status.completion_time.as_ref()?.0, length)
}

fn plus(at: Timestamp, length: Duration) -> Option<Timestamp> {
    at.saturating_add(SignedDuration::try_from(length).ok()?).ok()
}
