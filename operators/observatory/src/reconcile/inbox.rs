//! Which pods changed, per workflow.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use steersman::Key;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::types::GROUP;

/// Collects news of pods until their workflow is reconciled, so that a reconcile looks at the
/// pods that changed and at no others.
#[derive(Clone, Debug, Default)]
pub(super) struct Inbox(Arc<Mutex<HashMap<Key, Letters>>>);

#[derive(Debug)]
struct Letters {
    pods: Vec<Key>,
    /// When the oldest news came.
    since: Instant,
    bell: Arc<Notify>,
}

/// What came for one workflow.
#[derive(Debug, Default)]
pub(super) struct Mail {
    pub(super) pods: Vec<Key>,
    pub(super) since: Option<Instant>,
}

impl Inbox {
    /// Takes in a change of a pod. Returns the workflow that it belongs to.
    pub(super) fn put(&self, pod: &Pod) -> Vec<Key> {
        let Some(workflow) = workflow_of(pod) else {
            return Vec::new();
        };
        let mut boxes = self.lock();
        let mail = boxes.entry(workflow.clone()).or_insert_with(Letters::new);
        if mail.pods.is_empty() {
            mail.since = Instant::now();
        }
        let pod = Key::of(pod);
        if mail.pods.last() != Some(&pod) {
            mail.pods.push(pod);
        }
        mail.bell.notify_one();
        vec![workflow]
    }

    /// Has a workflow looked at although no news came for it.
    pub(super) fn ring(&self, workflow: &Key) {
        if let Some(mail) = self.lock().get(workflow) {
            mail.bell.notify_one();
        }
    }

    /// Empties the box of a workflow.
    pub(super) fn take(&self, workflow: &Key) -> Mail {
        let mut boxes = self.lock();
        let Some(mail) = boxes.get_mut(workflow) else {
            return Mail::default();
        };
        let mut pods = std::mem::take(&mut mail.pods);
        let since = (!pods.is_empty()).then_some(mail.since);
        pods.sort_unstable();
        pods.dedup();
        Mail { pods, since }
    }

    /// Rings when something comes for a workflow.
    pub(super) fn bell(&self, workflow: &Key) -> Arc<Notify> {
        let mut boxes = self.lock();
        Arc::clone(&boxes.entry(workflow.clone()).or_insert_with(Letters::new).bell)
    }

    /// Forgets a workflow.
    pub(super) fn forget(&self, workflow: &Key) {
        self.lock().remove(workflow);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Letters>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Letters {
    fn new() -> Self {
        Self { pods: Vec::new(), since: Instant::now(), bell: Arc::default() }
    }
}

/// The workflow that controls a pod.
pub(super) fn workflow_of(pod: &Pod) -> Option<Key> {
    let owners = pod.metadata.owner_references.iter().flatten();
    let mut ours = owners.filter(|owner| {
        owner.controller == Some(true)
            && owner.kind == "Observatory"
            && owner.api_version.split_once('/').is_some_and(|(group, _)| group == GROUP)
    });
    let owner = ours.next()?;
    Some(Key::new(pod.metadata.namespace.as_deref().unwrap_or_default(), &owner.name))
}

/// The same, as an index finds it.
pub(super) fn index(pod: &Pod) -> Vec<String> {
    workflow_of(pod).map(|key| key.to_string()).into_iter().collect()
}
