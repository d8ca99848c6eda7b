//! What becomes of an object, judged by what its owners turned out to be.

use super::graph::{FOREGROUND, ORPHAN};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PropagationPolicy;

/// What an owner reference turned out to point at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// An owner that is there, and stays.
    Solid,
    /// Nothing: no such object, or another one under that name.
    Dangling,
    /// An owner in foreground deletion, which waits for this object to go.
    Waiting,
}

/// What is done to an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Nothing.
    Keep,
    /// It keeps its solid owners and loses the other references.
    KeepReferences(Vec<OwnerReference>),
    /// It goes.
    Delete(Policy),
}

/// How the dependents of a deleted object are dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// After it.
    Background,
    /// Before it.
    Foreground,
    /// Not at all.
    Orphan,
}

impl From<Policy> for PropagationPolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Background => Self::Background,
            Policy::Foreground => Self::Foreground,
            Policy::Orphan => Self::Orphan,
        }
    }
}

/// Judges an object by the standing of each of its owner references.
pub(super) fn judge(live: &ObjectMeta, standings: &[Standing], has_dependents: HasDependents) -> Verdict {
    let references = live.owner_references.as_deref().unwrap_or_default();
    if references.is_empty() || live.deletion_timestamp.is_some() {
        return Verdict::Keep;
    }
    let solid: Vec<OwnerReference> = references
        .iter()
        .zip(standings)
        .filter(|(_, standing)| **standing == Standing::Solid)
        .map(|(reference, _)| reference.clone())
        .collect();
    if solid.len() == references.len() {
        return Verdict::Keep;
    }
    if !solid.is_empty() {
        return Verdict::KeepReferences(solid);
    }
    let has = |finalizer: &str| live.finalizers.iter().flatten().any(|name| name == finalizer);
    if standings.contains(&Standing::Waiting) && has_dependents == HasDependents::Yes {
        return Verdict::Delete(Policy::Foreground);
    }
    Verdict::Delete(match () {
        () if has(ORPHAN) => Policy::Orphan,
        () if has(FOREGROUND) => Policy::Foreground,
        () => Policy::Background,
    })
}

/// Whether an object has dependents of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HasDependents {
    /// At least one.
    Yes,
    /// None.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(count: usize) -> ObjectMeta {
        let reference =
            |number: usize| OwnerReference { uid: number.to_string(), ..OwnerReference::default() };
        ObjectMeta { owner_references: Some((0..count).map(reference).collect()), ..ObjectMeta::default() }
    }

    #[test]
    fn one_solid_owner_keeps_an_object_and_the_others_are_dropped() {
        use Standing::{Dangling, Solid, Waiting};
        let kept = |meta: &ObjectMeta, standings: &[Standing]| match judge(meta, standings, HasDependents::No)
        {
            Verdict::KeepReferences(references) => references.into_iter().map(|r| r.uid).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(judge(&owned(2), &[Solid, Solid], HasDependents::No), Verdict::Keep);
        assert_eq!(kept(&owned(3), &[Dangling, Solid, Waiting]), ["1"]);
    }

    #[test]
    fn without_an_owner_left_an_object_goes_the_way_its_finalizers_say() {
        let delete = |finalizer: Option<&str>, standing, dependents| {
            let meta = ObjectMeta { finalizers: finalizer.map(|name| vec![name.to_owned()]), ..owned(1) };
            judge(&meta, &[standing], dependents)
        };
        let cases = [
            (None, Standing::Dangling, HasDependents::Yes, Policy::Background),
            (Some(ORPHAN), Standing::Dangling, HasDependents::Yes, Policy::Orphan),
            (Some(FOREGROUND), Standing::Dangling, HasDependents::No, Policy::Foreground),
            (None, Standing::Waiting, HasDependents::Yes, Policy::Foreground),
            (None, Standing::Waiting, HasDependents::No, Policy::Background),
        ];
        for (finalizer, standing, dependents, policy) in cases {
            assert_eq!(delete(finalizer, standing, dependents), Verdict::Delete(policy), "{finalizer:?}");
        }
    }

    #[test]
    fn an_object_without_owners_is_nobodys_garbage() {
        assert_eq!(judge(&owned(0), &[], HasDependents::No), Verdict::Keep);
    }
}
