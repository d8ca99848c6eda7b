//! Jobs: run pods until enough of them have succeeded.
//!
//! Indexed Jobs, back-off limits (also per index), deadlines, suspending and the time to live of
//! ended Jobs are honoured; `podFailurePolicy` and `successPolicy` are not yet. Pods are counted
//! while they are there, and what was counted stays so: a pod that somebody deletes between its
//! success and the next look at it may be run once more.

mod indexes;
mod plan;
#[cfg(test)]
mod plan_tests;

use crate::fleet;
use crate::status::report;
use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use plan::Verdict;
use std::sync::Arc;
use std::time::Duration;
use steersman::{Context, Controller, Error, EventType, Outcome, Reconciler};

/// The name of this controller where a Job says by whom it is managed.
const NAME: &str = "kubernetes.io/job-controller";

/// Brings Jobs to their end.
#[derive(Debug)]
pub(crate) struct Jobs;

/// The controller that runs Jobs.
pub(crate) fn controller() -> Controller<Jobs> {
    Controller::new("job-controller", Jobs).owns::<Pod>().concurrency(8)
}

impl Reconciler for Jobs {
    type Object = Job;

    async fn reconcile(&self, job: Arc<Job>, cx: &Context) -> Result<Outcome, Error> {
        let managed_by = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
        if managed_by.is_some_and(|name| name != NAME) {
            return Ok(Outcome::Done);
        }
        if let Some(ended) = plan::ended(&job) {
            return match plan::stays(&job, ended, cx.now()) {
                None => Ok(Outcome::Done),
                Some(left) if left > SignedDuration::ZERO => {
                    Ok(after(left, "the time to live of an ended Job"))
                }
                Some(_) => cx.delete(&*job).await.map(|()| Outcome::Done),
            };
        }
        let pods = || cx.cache::<Pod>().owned_by(&job.uid().unwrap_or_default());
        let next = plan::plan(&job, &plan::count(&job, pods()), cx.now());
        let more = plan::is_burst(&next);
        let deleted = fleet::delete(&next.delete, cx).await;
        let pods_to_be: Vec<Pod> = next.create.iter().map(|index| plan::pod(&job, *index)).collect();
        let created = fleet::create(&pods_to_be.iter().collect::<Vec<_>>(), cx).await;
        // Looked up again: what was just created or deleted is to be reported.
        let count = plan::count(&job, pods());
        let status = plan::report(&job, next.verdict, &count, cx.now());
        tell(&job, next.verdict, &status, cx);
        report(&status, cx).await?;
        deleted.and(created)?;
        Ok(match next.next {
            _ if more => Outcome::Requeue("more pods than one burst"),
            Some(left) => after(left, "a Job's deadline or back-off"),
            None => Outcome::Done,
        })
    }
}

/// Comes again once that much time has passed.
fn after(left: SignedDuration, why: &'static str) -> Outcome {
    Outcome::RequeueAfter(Duration::try_from(left).unwrap_or_default() + Duration::from_millis(1), why)
}

/// Tells of the end, once.
fn tell(job: &Job, verdict: Verdict, status: &k8s_openapi::api::batch::v1::JobStatus, cx: &Context) {
    let over = Job { status: Some(status.clone()), ..job.clone() };
    if plan::ended(&over).is_none() {
        return;
    }
    match verdict {
        Verdict::Complete => cx.event(EventType::Normal, "Completed", "Job completed"),
        Verdict::Failed(reason, message) => cx.event(EventType::Warning, reason, message),
        Verdict::Open => {}
    }
}
