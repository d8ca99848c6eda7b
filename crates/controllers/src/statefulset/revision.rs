//! The templates that a StatefulSet has had, as ControllerRevisions.

use super::identity;
use crate::deployment::{same_template, template_hash};
use crate::owner::controller_reference;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::sync::Arc;

/// What is to be written so that the present template has a revision.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wanted {
    /// It has this one.
    Known(Arc<ControllerRevision>),
    /// It had this one before; it gets this number.
    Again(Arc<ControllerRevision>, i64),
    /// It is new.
    New(Box<ControllerRevision>),
}

/// The revision of the present template.
pub(super) fn wanted(
    set: &StatefulSet,
    known: &[Arc<ControllerRevision>],
    collisions: Option<i32>,
) -> Wanted {
    let template = set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let last = known.iter().map(|one| one.revision).max().unwrap_or(0);
    let equal = known.iter().filter(|one| held(one).is_some_and(|held| same_template(&held, &template)));
    match equal.max_by_key(|one| one.revision) {
        Some(same) if same.revision == last => Wanted::Known(Arc::clone(same)),
        Some(same) => Wanted::Again(Arc::clone(same), last + 1),
        None => Wanted::New(Box::new(new(set, &template, last + 1, collisions))),
    }
}

fn new(
    set: &StatefulSet,
    template: &PodTemplateSpec,
    revision: i64,
    collisions: Option<i32>,
) -> ControllerRevision {
    let hash = template_hash(template, collisions);
    let mut labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
    labels.insert("controller.kubernetes.io/hash".into(), hash.clone());
    // `kubectl rollout undo` applies this as a strategic merge patch.
    let mut held = serde_json::to_value(template).unwrap_or_default();
    if let Value::Object(fields) = &mut held {
        fields.insert("$patch".into(), "replace".into());
    }
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", set.name_any())),
            namespace: set.namespace(),
            labels: Some(labels),
            annotations: set.metadata.annotations.clone().filter(|all| !all.is_empty()),
            owner_references: Some(vec![controller_reference(set)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(json!({"spec": {"template": held}}))),
        revision,
    }
}

/// The template that a revision holds.
pub(super) fn held(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// The StatefulSet as it was at a revision; as it is, where that is not known.
pub(super) fn at(set: &StatefulSet, known: &[Arc<ControllerRevision>], name: &str) -> StatefulSet {
    let mut before = set.clone();
    let template = known.iter().find(|one| one.name_any() == name).and_then(|one| held(one));
    if let (Some(spec), Some(template)) = (before.spec.as_mut(), template) {
        spec.template = template;
    }
    before
}

/// Revisions that nobody uses and that are more than are to be kept, oldest first.
pub(super) fn surplus(
    set: &StatefulSet,
    known: &[Arc<ControllerRevision>],
    pods: &[Arc<Pod>],
    in_use: [&str; 2],
) -> Vec<Arc<ControllerRevision>> {
    let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
    let is_used = |one: &ControllerRevision| {
        let name = one.name_any();
        in_use.contains(&name.as_str()) || pods.iter().any(|pod| identity::revision(pod) == name)
    };
    let mut unused: Vec<_> = known.iter().filter(|one| !is_used(one)).cloned().collect();
    unused.sort_by_key(|one| one.revision);
    let keep = usize::try_from(limit).unwrap_or(0);
    let surplus = unused.len().saturating_sub(keep);
    unused.truncate(surplus);
    unused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(image: &str) -> StatefulSet {
        serde_json::from_value(json!({"metadata": {"name": "db", "uid": "u"}, "spec": {
            "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "revisionHistoryLimit": 1,
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": {
                "containers": [{"name": "c", "image": image}]}}}}))
        .expect("a StatefulSet")
    }

    fn made(set: &StatefulSet, known: &[Arc<ControllerRevision>]) -> Arc<ControllerRevision> {
        match wanted(set, known, None) {
            Wanted::New(new) => Arc::from(new),
            other => panic!("expected a new revision, got {other:?}"),
        }
    }

    #[test]
    fn each_template_has_one_revision_and_an_old_one_comes_back_with_a_new_number() {
        let one = made(&set("v1"), &[]);
        assert_eq!((one.revision, held(&one)), (1, set("v1").spec.map(|spec| spec.template)));
        assert_eq!(
            one.data.as_ref().and_then(|data| data.0.pointer("/spec/template/$patch")),
            Some(&json!("replace"))
        );
        let known = [one.clone()];
        assert_eq!(wanted(&set("v1"), &known, None), Wanted::Known(one.clone()));
        let two = made(&set("v2"), &known);
        assert_eq!(two.revision, 2);
        assert_ne!(two.name_any(), one.name_any());
        let known = [one.clone(), two];
        assert_eq!(wanted(&set("v1"), &known, None), Wanted::Again(one.clone(), 3));
        let before = at(&set("v2"), &known, &one.name_any());
        assert_eq!(before.spec, set("v1").spec);
    }

    #[test]
    fn old_revisions_go_when_they_are_too_many_and_unused() {
        let mut known = Vec::new();
        for image in ["v1", "v2", "v3", "v4"] {
            let new = made(&set(image), &known);
            known.push(new);
        }
        let name = |index: usize| known[index].name_any();
        let surplus = surplus(&set("v4"), &known, &[], [&name(3), &name(3)]);
        let names: Vec<_> = surplus.iter().map(|one| one.name_any()).collect();
        assert_eq!(names, [name(0), name(1)]);
    }
}
