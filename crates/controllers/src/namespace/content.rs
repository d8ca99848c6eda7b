//! Deletion of namespaces: everything in one goes before it does.
//!
//! Pods first, so that nothing runs any more while the things it needs disappear; then all other
//! kinds the server has, custom ones included; then the namespace is finalized.

use crate::kinds::{Kind, Kinds};
use crate::status::report;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition, NamespaceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use steersman::{Context, Controller, Error, Key, Outcome, Reconciler};

/// The finalizer in `spec.finalizers` that stands for this controller.
const FINALIZER: &str = "kubernetes";
/// Kinds that are emptied at the same time.
const CONCURRENCY: usize = 8;
/// First and longest wait for content that takes its time.
const WAIT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Empties namespaces that are being deleted.
#[derive(Debug, Default)]
pub(crate) struct NamespaceContent {
    /// How often a namespace was found not empty yet.
    attempts: Mutex<HashMap<Key, u32>>,
}

/// The controller that deletes namespaces.
pub(crate) fn controller() -> Controller<NamespaceContent> {
    Controller::new("namespace-controller", NamespaceContent::default()).concurrency(8)
}

impl Reconciler for NamespaceContent {
    type Object = Namespace;

    async fn reconcile(&self, namespace: Arc<Namespace>, cx: &Context) -> Result<Outcome, Error> {
        let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.clone()).unwrap_or_default();
        if namespace.metadata.deletion_timestamp.is_none() || !finalizers.iter().any(|name| name == FINALIZER)
        {
            return Ok(Outcome::Done);
        }
        let kinds = Kinds::discover(cx.client()).await?;
        let name = namespace.name_any();
        let mut left = Remaining::default();
        let in_namespaces = kinds.iter().filter(|kind| kind.namespaced).cloned();
        let (pods, others): (Vec<_>, Vec<_>) =
            in_namespaces.partition(|kind| kind.group.is_empty() && kind.kind == "Pod");
        for stage in [pods, others] {
            let emptied = stage.into_iter().map(|kind| empty(cx.client().clone(), kind, name.clone()));
            let emptied: Vec<Result<Remaining, Error>> =
                futures::stream::iter(emptied).buffer_unordered(CONCURRENCY).collect().await;
            for remaining in emptied {
                left.add(remaining?);
            }
            if !left.is_empty() {
                report(&status(&namespace, &left, cx), cx).await?;
                return Ok(Outcome::RequeueAfter(self.wait(cx.key()), "content remains"));
            }
        }
        self.attempts().remove(cx.key());
        finalize(&namespace, &finalizers, cx).await?;
        Ok(Outcome::Done)
    }

    async fn gone(&self, key: &Key, _: &Context) -> Result<(), Error> {
        self.attempts().remove(key);
        Ok(())
    }
}

impl NamespaceContent {
    fn wait(&self, key: &Key) -> Duration {
        let mut attempts = self.attempts();
        let count = attempts.entry(key.clone()).or_default();
        let (first, longest) = WAIT;
        let wait = (first * 2_u32.pow((*count).min(10))).min(longest);
        *count += 1;
        wait
    }

    fn attempts(&self) -> MutexGuard<'_, HashMap<Key, u32>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is still in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Remaining {
    by_kind: BTreeMap<String, usize>,
    by_finalizer: BTreeMap<String, usize>,
}

impl Remaining {
    fn is_empty(&self) -> bool {
        self.by_kind.is_empty()
    }

    fn add(&mut self, other: Self) {
        self.by_kind.extend(other.by_kind);
        for (finalizer, count) in other.by_finalizer {
            *self.by_finalizer.entry(finalizer).or_default() += count;
        }
    }
}

/// Deletes all objects of a kind in a namespace; returns what is still there afterwards.
async fn empty(client: Client, kind: Arc<Kind>, namespace: String) -> Result<Remaining, Error> {
    let api = kind.api(&client, Some(&namespace));
    let list = ListParams::default();
    let found = match api.list_metadata(&list).await {
        Ok(found) => found,
        // The kind went away since discovery, and its objects with it.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => return Ok(Remaining::default()),
        Err(error) => return Err(Error::from(error).context(format!("listing {}", kind.display()))),
    };
    if found.items.is_empty() {
        return Ok(Remaining::default());
    }
    if found.items.iter().any(|object| object.metadata.deletion_timestamp.is_none()) {
        match api.delete_collection(&DeleteParams::background(), &list).await {
            Err(kube::Error::Api(status)) if status.code == 405 => {
                for object in &found.items {
                    let deleted = api.delete(&object.name_any(), &DeleteParams::background()).await;
                    match deleted {
                        Err(kube::Error::Api(status)) if status.code == 404 => {}
                        other => drop(other?),
                    }
                }
            }
            other => drop(other.map_err(|error| {
                Error::from(error).context(format!("deleting {} in {namespace}", kind.display()))
            })?),
        }
    }
    let left = api.list_metadata(&list).await?;
    let mut remaining = Remaining::default();
    if !left.items.is_empty() {
        remaining.by_kind.insert(kind.display(), left.items.len());
    }
    for finalizer in left.items.iter().flat_map(|object| object.finalizers()) {
        *remaining.by_finalizer.entry(finalizer.clone()).or_default() += 1;
    }
    Ok(remaining)
}

/// Gives up our finalizer; the server removes the namespace with the last one.
async fn finalize(namespace: &Namespace, finalizers: &[String], cx: &Context) -> Result<(), Error> {
    let mut finalized = namespace.clone();
    let others: Vec<String> = finalizers.iter().filter(|name| *name != FINALIZER).cloned().collect();
    finalized.spec.get_or_insert_default().finalizers = Some(others);
    finalized.metadata.managed_fields = None;
    // The uid alone says which namespace is meant; others may have written to it meanwhile.
    finalized.metadata.resource_version = None;
    let api: Api<Namespace> = Api::all(cx.client().clone());
    match api.replace_subresource("finalize", &namespace.name_any(), &PostParams::default(), &finalized).await
    {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// What a namespace says of itself while it cannot go.
fn status(namespace: &Namespace, left: &Remaining, cx: &Context) -> NamespaceStatus {
    let before = namespace.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let now = jiff::Timestamp::from_second(cx.now().as_second()).unwrap_or_else(|_| cx.now());
    NamespaceStatus { phase: Some("Terminating".into()), conditions: Some(conditions(&before, left, now)) }
}

fn conditions(
    before: &[NamespaceCondition],
    left: &Remaining,
    now: jiff::Timestamp,
) -> Vec<NamespaceCondition> {
    let kinds: Vec<String> =
        left.by_kind.iter().map(|(kind, count)| format!("{kind} has {count} resource instances")).collect();
    let finalizers: Vec<String> = left
        .by_finalizer
        .iter()
        .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
        .collect();
    let remaining = (!kinds.is_empty())
        .then(|| ("SomeResourcesRemain", format!("Some resources are remaining: {}", kinds.join(", "))));
    let held = (!finalizers.is_empty()).then(|| {
        let message =
            format!("Some content in the namespace has finalizers remaining: {}", finalizers.join(", "));
        ("SomeFinalizersRemain", message)
    });
    let fine = |reason, message: &str| (reason, message.to_owned());
    let content = "All content successfully deleted, may be waiting on finalization";
    let all = [
        (
            "NamespaceDeletionDiscoveryFailure",
            None,
            fine("ResourcesDiscovered", "All resources successfully discovered"),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            None,
            fine("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        ("NamespaceDeletionContentFailure", None, fine("ContentDeleted", content)),
        ("NamespaceContentRemaining", remaining, fine("ContentRemoved", "All content successfully removed")),
        (
            "NamespaceFinalizersRemaining",
            held,
            fine("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
        ),
    ];
    all.into_iter()
        .map(|(kind, bad, good)| {
            let status = if bad.is_some() { "True" } else { "False" };
            let (reason, message) = bad.unwrap_or(good);
            let known = before.iter().find(|known| known.type_ == kind && known.status == status);
            NamespaceCondition {
                type_: kind.into(),
                status: status.into(),
                reason: Some(reason.into()),
                message: Some(message),
                last_transition_time: known
                    .and_then(|known| known.last_transition_time.clone())
                    .or(Some(Time(now))),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_names_what_remains_and_what_holds_it() {
        let mut left = Remaining::default();
        left.add(Remaining {
            by_kind: [("configmaps.".to_owned(), 2)].into(),
            by_finalizer: [("a.io/x".to_owned(), 1)].into(),
        });
        left.add(Remaining {
            by_kind: [("widgets.example.com".to_owned(), 1)].into(),
            by_finalizer: [("a.io/x".to_owned(), 1)].into(),
        });
        let conditions = conditions(&[], &left, jiff::Timestamp::UNIX_EPOCH);
        let shown: Vec<_> = conditions
            .iter()
            .filter(|condition| condition.status == "True")
            .map(|condition| condition.message.clone().unwrap_or_default())
            .collect();
        assert_eq!(
            shown,
            [
                "Some resources are remaining: configmaps. has 2 resource instances, \
             widgets.example.com has 1 resource instances",
                "Some content in the namespace has finalizers remaining: a.io/x in 2 resource instances",
            ]
        );
        assert_eq!(conditions.len(), 5);
    }

    #[test]
    fn a_condition_keeps_its_time_while_its_status_stays() {
        let first = conditions(&[], &Remaining::default(), jiff::Timestamp::UNIX_EPOCH);
        let later = jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(9);
        assert_eq!(conditions(&first, &Remaining::default(), later), first);
    }
}
