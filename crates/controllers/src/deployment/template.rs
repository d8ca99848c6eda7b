//! Pod templates: which ReplicaSet belongs to a template, how a new one is named and built, and
//! the annotations by which a rollout's history is told.

use super::budget::Budget;
use crate::owner::controller_reference;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::ResourceExt;
use serde_json::Value;
use std::collections::BTreeMap;

/// The label that tells the pods of one template from those of another.
pub(super) const HASH_LABEL: &str = "pod-template-hash";
/// The number of a revision, on the Deployment and on each of its ReplicaSets.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// The earlier numbers of a ReplicaSet that was rolled back to.
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The size of the Deployment when the ReplicaSet was last scaled.
pub(super) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// That size with surge.
pub(super) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// What `kubectl apply` remembers is about the Deployment, never about its ReplicaSets.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// A leftover of an API version long gone; never copied.
const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
/// Longest revision history kept, in characters: about a hundred revisions.
const HISTORY_LIMIT: usize = 2_000;

/// Annotations of a Deployment that are not copied to its ReplicaSets.
const NOT_COPIED: [&str; 6] =
    [LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, ROLLBACK_TO];

/// Whether two templates ask for the same pods, whatever their hash label says.
pub(crate) fn same_template(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    canonical(a) == canonical(b)
}

/// A template without its hash label, and without the empty lists and maps that mean the same as
/// their absence.
fn canonical(template: &PodTemplateSpec) -> Value {
    let mut value = serde_json::to_value(template).unwrap_or_default();
    if let Some(labels) = value.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HASH_LABEL);
    }
    drop_empty(&mut value);
    value
}

fn drop_empty(value: &mut Value) {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(fields) => fields.retain(|_, field| {
            drop_empty(field);
            !is_empty(field)
        }),
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

/// The hash of a template: the same template always gives the same ReplicaSet name, which makes
/// its creation idempotent. `collisions` is mixed in so that a clash of names can be got out of.
pub(crate) fn template_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    // No vowels and no characters that are easily confused, as in every generated name.
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let text = canonical(template).to_string();
    let salt = collisions.map(i32::to_le_bytes).unwrap_or_default();
    let salt = if collisions.is_some() { &salt[..] } else { &[] };
    let hash = text
        .bytes()
        .chain(salt.iter().copied())
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.to_string().bytes().map(|digit| char::from(LETTERS[usize::from(digit) % LETTERS.len()])).collect()
}

/// The revision written on an object; none or nonsense is zero.
pub(super) fn revision(meta: &ObjectMeta) -> i64 {
    let text = meta.annotations.as_ref().and_then(|annotations| annotations.get(REVISION));
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// A non-negative number in an annotation.
pub(super) fn counted(meta: &ObjectMeta, key: &str) -> Option<i32> {
    let text = meta.annotations.as_ref()?.get(key)?;
    text.parse().ok().filter(|number| *number >= 0)
}

/// The ReplicaSet that a template needs and that is not there yet, without replicas.
pub(super) fn new_replica_set(deployment: &Deployment, revision: i64) -> ReplicaSet {
    let spec = deployment.spec.clone().unwrap_or_default();
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
    let hash = template_hash(&spec.template, collisions);
    let mut template = spec.template;
    let meta = template.metadata.get_or_insert_default();
    let labels = meta.labels.get_or_insert_default();
    labels.insert(HASH_LABEL.into(), hash.clone());
    let labels = labels.clone();
    let mut selector: LabelSelector = spec.selector;
    selector.match_labels.get_or_insert_default().insert(HASH_LABEL.into(), hash.clone());
    let mut replica_set = ReplicaSet {
        metadata: ObjectMeta {
            name: Some(replica_set_name(&deployment.name_any(), &hash)),
            namespace: deployment.namespace(),
            labels: Some(labels),
            owner_references: Some(vec![controller_reference(deployment)]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(0),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        }),
        status: None,
    };
    let annotations = annotated(deployment, &replica_set.metadata, revision);
    let annotations = with_sizes(annotations, Budget::of(deployment));
    replica_set.metadata.annotations = Some(annotations);
    replica_set
}

/// The name of the ReplicaSet of a template, cut so that it stays a valid name.
fn replica_set_name(deployment: &str, hash: &str) -> String {
    const LONGEST: usize = 253;
    let room = LONGEST - hash.len() - 1;
    let mut cut = deployment.len().min(room);
    while !deployment.is_char_boundary(cut) {
        cut -= 1;
    }
    format!("{}-{hash}", deployment[..cut].trim_end_matches(['-', '.']))
}

/// The annotations the Deployment's current ReplicaSet should carry: the Deployment's own (a
/// change cause, say), and its place in the history. A ReplicaSet that is rolled back to gets a
/// new revision and remembers the old one.
pub(super) fn annotated(
    deployment: &Deployment,
    current: &ObjectMeta,
    revision: i64,
) -> BTreeMap<String, String> {
    let mut annotations = current.annotations.clone().unwrap_or_default();
    for (key, value) in deployment.annotations() {
        if !NOT_COPIED.contains(&key.as_str()) {
            annotations.insert(key.clone(), value.clone());
        }
    }
    let before = annotations.get(REVISION).cloned();
    let number = before.as_deref().map_or(Ok(0), str::parse::<i64>);
    if number.is_ok_and(|number| number < revision) {
        annotations.insert(REVISION.into(), revision.to_string());
        if let Some(before) = before {
            let history = annotations.get(REVISION_HISTORY).map_or("", String::as_str);
            let history = remembered(history, &before);
            annotations.insert(REVISION_HISTORY.into(), history);
        }
    }
    annotations
}

/// A history with one more revision, the oldest forgotten when it grows too long.
fn remembered(history: &str, revision: &str) -> String {
    let mut revisions: Vec<&str> = history.split(',').filter(|revision| !revision.is_empty()).collect();
    revisions.push(revision);
    let length = |revisions: &[&str]| revisions.iter().map(|revision| revision.len() + 1).sum::<usize>();
    while length(&revisions) > HISTORY_LIMIT && revisions.len() > 1 {
        revisions.remove(0);
    }
    revisions.join(",")
}

/// Annotations with the sizes that tell a scaling of the Deployment from a rollout.
pub(super) fn with_sizes(
    mut annotations: BTreeMap<String, String>,
    budget: Budget,
) -> BTreeMap<String, String> {
    annotations.insert(DESIRED_REPLICAS.into(), budget.desired.to_string());
    annotations.insert(MAX_REPLICAS.into(), budget.ceiling().to_string());
    annotations
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn template(value: Value) -> PodTemplateSpec {
        serde_json::from_value(value).expect("a template")
    }

    fn deployment() -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "n", "uid": "d",
                "annotations": {"kubernetes.io/change-cause": "new image", LAST_APPLIED: "{}", REVISION: "7"}},
            "spec": {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": {
                "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}
        }))
        .expect("a deployment")
    }

    #[test]
    fn templates_are_equal_up_to_the_hash_label_and_empty_fields() {
        let a = template(json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": []}}));
        let b = template(json!({"metadata": {"labels": {"app": "x", HASH_LABEL: "1"}, "annotations": {}},
            "spec": {"containers": [], "securityContext": {}}}));
        let c = template(json!({"metadata": {"labels": {"app": "y"}}, "spec": {"containers": []}}));
        assert!(same_template(&a, &b));
        assert!(!same_template(&a, &c));
        assert_eq!(template_hash(&a, None), template_hash(&b, None));
        assert_ne!(template_hash(&a, None), template_hash(&c, None));
        assert_ne!(template_hash(&a, None), template_hash(&a, Some(0)));
        assert_ne!(template_hash(&a, Some(0)), template_hash(&a, Some(1)));
    }

    #[test]
    fn a_new_replica_set_is_named_labelled_and_annotated_after_its_template() {
        let deployment = deployment();
        let new = new_replica_set(&deployment, 3);
        let hash = new.labels()[HASH_LABEL].clone();
        assert_eq!(new.name_any(), format!("web-{hash}"));
        let spec = new.spec.as_ref().expect("a spec");
        assert_eq!(spec.replicas, Some(0));
        assert_eq!(spec.selector.match_labels.as_ref().expect("labels")[HASH_LABEL], hash);
        let labels =
            spec.template.as_ref().and_then(|t| t.metadata.as_ref()?.labels.as_ref()).expect("labels");
        assert_eq!(labels[HASH_LABEL], hash);
        let annotations = new.annotations();
        assert_eq!(annotations[REVISION], "3");
        assert_eq!(annotations[DESIRED_REPLICAS], "4");
        assert_eq!(annotations[MAX_REPLICAS], "5");
        assert_eq!(annotations["kubernetes.io/change-cause"], "new image");
        assert!(!annotations.contains_key(LAST_APPLIED));
        assert_eq!(new.owner_references()[0].uid, "d");
    }

    #[test]
    fn rolling_back_gives_a_new_revision_and_remembers_the_old_one() {
        let mut meta = ObjectMeta::default();
        meta.annotations = Some(annotated(&deployment(), &meta, 1));
        assert_eq!(revision(&meta), 1);
        meta.annotations = Some(annotated(&deployment(), &meta, 3));
        meta.annotations = Some(annotated(&deployment(), &meta, 5));
        assert_eq!(revision(&meta), 5);
        let history = meta.annotations.as_ref().map(|annotations| annotations[REVISION_HISTORY].clone());
        assert_eq!(history.as_deref(), Some("1,3"));
        let again = annotated(&deployment(), &meta, 4);
        assert_eq!(again[REVISION], "5", "a revision never goes back");
    }

    #[test]
    fn a_long_history_forgets_its_beginning() {
        let long = (0..700).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let history = remembered(&long, "700");
        assert!(history.len() <= HISTORY_LIMIT);
        assert!(history.ends_with(",699,700"));
    }

    #[test]
    fn long_names_are_cut_to_fit() {
        let name = replica_set_name(&"x".repeat(253), "abcdef");
        assert_eq!(name.len(), 253);
        assert!(name.ends_with("x-abcdef"));
    }
}
