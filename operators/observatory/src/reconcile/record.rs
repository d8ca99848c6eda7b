//! Writing down how far a run has come, and letting its pods go.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Patch;
use serde_json::json;
use steersman::{Context, Error, EventType, Key};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Live, PARALLEL, Workflows};
use crate::run::names;
use crate::types::{ObservatoryStatus, TaskStatus};

/// The shortest time between two writes of a status that is not final.
const SHORTEST: Duration = Duration::from_millis(100);
/// The longest.
const LONGEST: Duration = Duration::from_secs(5);
/// How much longer than a write the time until the next one is: a status is as large as its
/// workflow, and writing it must not become the main work.
const SHARE: u32 = 20;

impl Workflows {
    /// How long to wait before the status is written; none if it is up to date.
    pub(super) fn until_write(&self, live: &Live) -> Option<Duration> {
        if !live.run.is_dirty() {
            return None;
        }
        if live.run.is_over() {
            return Some(Duration::ZERO);
        }
        let interval = (live.cost * SHARE).clamp(SHORTEST, LONGEST);
        Some(interval.saturating_sub(live.written.elapsed()))
    }

    /// Writes the status, then lets go of the pods whose end is in it. Meanwhile the run goes on:
    /// what ends is followed by what comes next.
    pub(super) async fn record(&self, live: &mut Live, bell: &Notify, cx: &Context) -> Result<(), Error> {
        let run = &mut live.run;
        let status = run.report(cx.now());
        let ended = run.take_ended();
        live.written = Instant::now();
        self.metrics.status_writes.inc();
        let pods = cx.cache::<Pod>();
        let recorded = ended.clone();
        let mut write = pin!(async move {
            let began = Instant::now();
            write_status(status, cx).await?;
            let cost = began.elapsed();
            let pods: Vec<Arc<Pod>> = recorded.iter().filter_map(|key| pods.get(key)).collect();
            release(&pods, cx).await?;
            Ok::<(Vec<Arc<Pod>>, Duration), Error>((pods, cost))
        });
        let mut trouble = None;
        let written = loop {
            tokio::select! {
                biased;
                written = &mut write => break written,
                () = bell.notified(), if trouble.is_none() => {
                    let mail = self.inbox.take(cx.key());
                    if let Err(error) = self.step(run, mail, cx).await {
                        trouble = Some(error);
                    }
                }
            }
        };
        match written {
            Ok((released, cost)) => {
                live.cost = cost;
                let workflow = Arc::clone(run.workflow());
                self.collect_at_once(&workflow, &released, cx).await?;
            }
            Err(error) => {
                run.write_again(ended);
                return Err(error);
            }
        }
        trouble.map_or(Ok(()), Err)
    }
}

/// Writes a status; one that is too large for the server is cut down to what everyone needs.
pub(super) async fn write_status(status: ObservatoryStatus, cx: &Context) -> Result<(), Error> {
    let error = match cx.apply_status(&status).await {
        Ok(()) => return Ok(()),
        Err(error) if is_too_large(&error) => error,
        Err(error) => return Err(error),
    };
    cx.event(
        EventType::Warning,
        "StatusTooLarge",
        format!("The status is too large for the API server and is written without details: {error}"),
    );
    let tasks = status.tasks.into_iter().map(|task| TaskStatus {
        name: task.name,
        phase: task.phase,
        start_time: task.start_time,
        completion_time: task.completion_time,
        attempt: task.attempt,
        first_attempt: task.first_attempt,
        ..TaskStatus::default()
    });
    cx.apply_status(&ObservatoryStatus { tasks: tasks.collect(), ..status }).await
}

fn is_too_large(error: &Error) -> bool {
    error.has_code(413) || error.status().is_some_and(|status| status.message.contains("too large"))
}

/// Takes the finalizer off pods.
pub(super) async fn release(pods: &[Arc<Pod>], cx: &Context) -> Result<(), Error> {
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [names::RECORDED]}});
    let patch = Patch::Strategic(patch);
    let held: Vec<Key> =
        pods.iter().filter(|pod| names::is_unrecorded(pod)).map(|pod| Key::of(&**pod)).collect();
    let mut results = futures::stream::iter(held)
        .map(|key| {
            let patch = &patch;
            async move { cx.patch::<Pod, _>(&key, patch).await }
        })
        .buffer_unordered(PARALLEL);
    let mut failure = None;
    while let Some(result) = results.next().await {
        match result {
            Ok(_) => {}
            Err(error) if error.has_code(404) => {}
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(()), |error| Err(error.context("letting go of a pod")))
}
