//! Writing down how far a run has come, and letting its pods go.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Patch;
use serde_json::json;
use steersman::{Context, Error, EventType, Key};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Live, RELEASES, Workflows, settle};
use crate::run::names;
use crate::types::{Observatory, ObservatoryStatus, TaskStatus};

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

    /// Begins to write the status, then to let go of the pods whose end is in it. That goes on in
    /// a task of its own: of a large workflow it takes long to put into bytes and to read again.
    pub(super) fn write(&self, live: &mut Live, cx: &Context) -> Writing {
        let report = live.run.report(cx.now());
        let ended = live.run.take_ended();
        live.written = Instant::now();
        self.metrics.status_writes.inc();
        let (recorded, object, form) = (ended.clone(), Arc::clone(live.run.workflow()), live.form);
        let cx = cx.fork();
        let mut task = JoinSet::new();
        task.spawn(async move {
            // A runtime runs what was spawned last first; pods that are to be created must not wait for this.
            tokio::task::yield_now().await;
            let began = Instant::now();
            let form = write_status(report.into_status(), form, &cx).await?;
            // Decoded here, the object is at hand for the next reconcile.
            drop(cx.cache::<Observatory>().get(cx.key()));
            let cost = began.elapsed();
            let pods = cx.cache::<Pod>();
            let pods: Vec<Arc<Pod>> = recorded.iter().filter_map(|key| pods.get(key)).collect();
            release(&pods, &cx).await?;
            settle::collect_at_once(&object, &pods, &cx).await?;
            Ok(Written { cost, form })
        });
        Writing { task, ended }
    }

    /// Takes in what came of a write.
    pub(super) fn written(
        &self,
        live: &mut Live,
        (result, ended): (Result<Written, Error>, Vec<Key>),
    ) -> Result<(), Error> {
        match result {
            Ok(Written { cost, form }) => {
                live.cost = cost;
                live.form = form;
                Ok(())
            }
            Err(error) => {
                live.run.write_again(ended);
                Err(error)
            }
        }
    }
}

/// A status that is being written. Dropping it ends that.
pub(super) struct Writing {
    task: JoinSet<Result<Written, Error>>,
    /// Pods whose end is in it.
    ended: Vec<Key>,
}

/// A status that has been written.
pub(super) struct Written {
    cost: Duration,
    form: Form,
}

/// How much of a status the server takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// All of it.
    #[default]
    Whole,
    /// Of each task what everyone needs; the rest only packed.
    Brief,
    /// Tasks only packed.
    Packed,
}

/// Waits for a write to end, if there is one. Gives what came of it, and the pods whose end was
/// in it.
pub(super) async fn finished(writing: &mut Option<Writing>) -> (Result<Written, Error>, Vec<Key>) {
    let result = match writing {
        Some(writing) => writing.task.join_next().await,
        None => std::future::pending().await,
    };
    let ended = writing.take().map(|writing| writing.ended).unwrap_or_default();
    let result = match result {
        Some(Ok(result)) => result,
        Some(Err(error)) => Err(Error::msg(format!("writing the status came to nothing: {error}"))),
        None => Err(Error::msg("writing the status came to nothing")),
    };
    (result, ended)
}

/// Writes a status; one that is too large for the server is cut down. Returns what it took.
pub(super) async fn write_status(
    status: ObservatoryStatus,
    first: Form,
    cx: &Context,
) -> Result<Form, Error> {
    for form in [Form::Whole, Form::Brief, Form::Packed].into_iter().filter(|form| *form >= first) {
        match cx.apply_status(&shaped(&status, form)).await {
            Ok(()) => return Ok(form),
            Err(error) if is_too_large(&error) && form < Form::Packed => {
                let note = format!(
                    "The status is too large for the API server and is cut down; \
                     `steer workflow get {}` still shows all of it: {error}",
                    cx.key().name()
                );
                cx.event(EventType::Warning, "StatusTooLarge", note);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Form::Packed)
}

/// A status in one of its forms.
fn shaped(status: &ObservatoryStatus, form: Form) -> Cow<'_, ObservatoryStatus> {
    if form == Form::Whole {
        return Cow::Borrowed(status);
    }
    let mut shaped = status.clone();
    shaped.pack();
    shaped.tasks = match form {
        Form::Packed => Vec::new(),
        _ => status.tasks.iter().map(brief).collect(),
    };
    Cow::Owned(shaped)
}

fn brief(task: &TaskStatus) -> TaskStatus {
    TaskStatus {
        name: task.name.clone(),
        phase: task.phase,
        start_time: task.start_time.clone(),
        completion_time: task.completion_time.clone(),
        ..TaskStatus::default()
    }
}

/// Whether a server, or the database behind it, said that an object is too large.
fn is_too_large(error: &Error) -> bool {
    let words = ["too large", "larger than max"];
    error.has_code(413)
        || error.status().is_some_and(|status| words.iter().any(|word| status.message.contains(word)))
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
        .buffer_unordered(RELEASES);
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
