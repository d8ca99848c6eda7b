//! The scheduler: gives every pod a node.
//!
//! Decisions are made one at a time: what a pod takes is in the ledger before the next one is
//! looked at, so that two pods never share room that is there only once. Bindings then go out side
//! by side. A pod that fits nowhere says so
//! in its `PodScheduled` condition and in an event, and is looked at again when a node changes or
//! a pod frees its room.

mod fit;

use crate::pods::{condition, is_terminal, node_name};
use crate::status::report;
use fit::{Decision, Ledger, decide};
use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use steersman::cache::Cache;
use steersman::{Context, Controller, Error, EventType, Key, Outcome, Reconciler};

/// The name by which pods ask for this scheduler; the default of every pod.
const NAME: &str = "default-scheduler";
/// The index of pods that wait for a node.
const WAITING: &str = "scheduler-waiting";

/// Binds pods to nodes.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Filled from the cache at the first pod, then pod by pod.
    ledger: Option<Ledger>,
    /// Pods we bound and that the cache does not show as bound yet, with their uid.
    assumed: HashMap<Key, String>,
}

/// The controller that runs the scheduler.
pub(crate) fn controller() -> Controller<Scheduler> {
    let waiting = |cache: &Cache| {
        let pods = cache.view::<Pod>().by_index(WAITING, "yes");
        pods.iter().map(|pod| Key::of(&**pod)).collect()
    };
    Controller::new(NAME, Scheduler::default())
        .index::<Pod>(WAITING, |pod| if waits(pod) { vec!["yes".into()] } else { vec![] })
        .watches::<Node>(move |_, cache| waiting(cache))
        .watches::<Pod>(move |pod, cache| {
            let frees = is_terminal(pod) || pod.metadata.deletion_timestamp.is_some();
            if frees && node_name(pod).is_some() { waiting(cache) } else { vec![] }
        })
        .concurrency(16)
}

/// Whether a pod waits for us to give it a node.
fn waits(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let ours = spec.and_then(|spec| spec.scheduler_name.as_deref()).is_none_or(|name| name == NAME);
    let gated = spec.and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|gates| !gates.is_empty());
    ours && !gated
        && node_name(pod).is_none()
        && !is_terminal(pod)
        && pod.metadata.deletion_timestamp.is_none()
}

impl Reconciler for Scheduler {
    type Object = Pod;

    async fn reconcile(&self, pod: Arc<Pod>, cx: &Context) -> Result<Outcome, Error> {
        match self.decide(&pod, cx) {
            None => Ok(Outcome::Done),
            Some(Decision::Bind(node)) => {
                let bound = bind(&pod, &node, cx).await;
                if !matches!(bound, Ok(Bound::Yes)) {
                    self.take_back(cx.key());
                }
                bound.map(|_| Outcome::Done)
            }
            Some(Decision::Wait(reason)) => postpone(&pod, &reason, cx).await,
        }
    }

    async fn gone(&self, key: &Key, _: &Context) -> Result<(), Error> {
        self.take_back(key);
        Ok(())
    }
}

impl Scheduler {
    /// Decides where a pod goes and takes its room there at once, so that bindings can be under
    /// way side by side. None when there is nothing to decide.
    fn decide(&self, pod: &Pod, cx: &Context) -> Option<Decision> {
        let mut state = self.state();
        let uid = pod.uid().unwrap_or_default();
        if node_name(pod).is_none() && state.assumed.get(cx.key()) == Some(&uid) {
            return None;
        }
        state.assumed.remove(cx.key());
        let State { ledger, assumed } = &mut *state;
        let ledger = ledger.get_or_insert_with(|| {
            let mut ledger = Ledger::default();
            cx.cache::<Pod>().list().iter().for_each(|pod| ledger.record(&Key::of(&**pod), pod));
            ledger
        });
        ledger.record(cx.key(), pod);
        if !waits(pod) {
            return None;
        }
        let decision = decide(pod, &cx.cache::<Node>().list(), ledger);
        if let Decision::Bind(node) = &decision {
            ledger.assign(cx.key(), pod, node);
            assumed.insert(cx.key().clone(), uid);
        }
        Some(decision)
    }

    /// Gives the room back of a pod that was not bound after all.
    fn take_back(&self, key: &Key) {
        let mut state = self.state();
        state.assumed.remove(key);
        if let Some(ledger) = state.ledger.as_mut() {
            ledger.forget(key);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of a binding.
enum Bound {
    Yes,
    /// The pod is gone, or somebody else bound it: the watch will tell.
    Otherwise,
}

async fn bind(pod: &Pod, node: &str, cx: &Context) -> Result<Bound, Error> {
    let namespace = pod.namespace().unwrap_or_default();
    let binding = Binding {
        metadata: ObjectMeta {
            name: Some(pod.name_any()),
            namespace: Some(namespace.clone()),
            uid: pod.uid(),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Node".into()),
            name: Some(node.into()),
            ..ObjectReference::default()
        },
    };
    let pods: Api<Pod> = Api::namespaced(cx.client().clone(), &namespace);
    let bound: Result<Value, kube::Error> =
        pods.create_subresource("binding", &pod.name_any(), &PostParams::default(), &binding).await;
    match bound {
        Ok(_) => {
            let note = format!("Successfully assigned {} to {node}", cx.key());
            cx.event(EventType::Normal, "Scheduled", note);
            Ok(Bound::Yes)
        }
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(Bound::Otherwise),
        Err(error) => Err(Error::from(error).context(format!("binding pod {} to {node}", cx.key()))),
    }
}

/// Says why a pod waits.
async fn postpone(pod: &Pod, reason: &str, cx: &Context) -> Result<Outcome, Error> {
    let before = condition(pod, "PodScheduled");
    let known =
        before.is_some_and(|before| before.status == "False" && before.message.as_deref() == Some(reason));
    if known {
        return Ok(Outcome::Done);
    }
    let since = before.filter(|before| before.status == "False");
    let since =
        since.and_then(|before| before.last_transition_time.as_ref()).map_or_else(|| cx.now(), |t| t.0);
    let second = since.round(jiff::Unit::Second).unwrap_or(since);
    let status = json!({"conditions": [{
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": reason,
        "lastProbeTime": null,
        "lastTransitionTime": second,
    }]});
    report(&status, cx).await?;
    cx.event(EventType::Warning, "FailedScheduling", reason);
    Ok(Outcome::Done)
}
