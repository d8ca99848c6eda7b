//! Who owns whom: controller references, and what may be claimed.
//!
//! A controller looks after the objects whose *controller reference* names it by uid. It adopts
//! objects that match its selector and have no controller, and releases those it controls that no
//! longer match. [`claim`] is that decision, without any I/O.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::{Selector, SelectorExt};
use kube::{Resource, ResourceExt};
use std::collections::BTreeMap;

/// The one owner reference of an object that says `controller: true`.
pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.as_ref()?.iter().find(|reference| reference.controller == Some(true))
}

/// The namespace of an object that nobody controls and that stays; an index of those that could be
/// adopted.
pub(crate) fn orphaned_in(meta: &ObjectMeta) -> Vec<String> {
    match controller_of(meta) {
        None if meta.deletion_timestamp.is_none() => meta.namespace.iter().cloned().collect(),
        _ => Vec::new(),
    }
}

/// A reference that makes `owner` the controller of an object and blocks the owner's foreground
/// deletion until that object is gone.
pub(crate) fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.name_any(),
        uid: owner.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// What a controller should do with an object it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Already ours, and it still matches.
    Ours,
    /// Nobody's, and it matches: take it.
    Adopt,
    /// Ours, but it matches no longer: let it go.
    Release,
    /// None of our business.
    Foreign,
}

/// Decides what a controller with this uid and selector does with an object.
///
/// A controller that is being deleted neither adopts nor releases, and an object that is being
/// deleted is neither adopted nor released: both would only race with the garbage collector.
pub(crate) fn claim(owner: &ObjectMeta, selector: &Selector, object: &ObjectMeta) -> Claim {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    let matches = selector.matches(object.labels.as_ref().unwrap_or(&NONE));
    let leaving = owner.deletion_timestamp.is_some() || object.deletion_timestamp.is_some();
    match controller_of(object) {
        Some(controller) if Some(&controller.uid) != owner.uid.as_ref() => Claim::Foreign,
        Some(_) if matches => Claim::Ours,
        Some(_) if leaving => Claim::Foreign,
        Some(_) => Claim::Release,
        None if matches && !leaving => Claim::Adopt,
        None => Claim::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn owner() -> ObjectMeta {
        ObjectMeta { uid: Some("owner".into()), ..ObjectMeta::default() }
    }

    fn object(label: &str, controller: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            labels: Some([("app".to_owned(), label.to_owned())].into()),
            owner_references: controller.map(|uid| {
                vec![OwnerReference { uid: uid.into(), controller: Some(true), ..OwnerReference::default() }]
            }),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn claims_follow_the_controller_reference_before_the_selector() {
        let selector: Selector = [("app", "web")].into_iter().collect();
        let cases = [
            (object("web", Some("owner")), Claim::Ours),
            (object("web", Some("other")), Claim::Foreign),
            (object("web", None), Claim::Adopt),
            (object("db", None), Claim::Foreign),
            (object("db", Some("owner")), Claim::Release),
            (object("db", Some("other")), Claim::Foreign),
        ];
        for (object, expected) in cases {
            assert_eq!(claim(&owner(), &selector, &object), expected, "{object:?}");
        }
    }

    #[test]
    fn nothing_is_adopted_or_released_while_either_side_is_being_deleted() {
        let selector: Selector = [("app", "web")].into_iter().collect();
        let deleted = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        let leaving_owner = ObjectMeta { deletion_timestamp: deleted.clone(), ..owner() };
        assert_eq!(claim(&leaving_owner, &selector, &object("web", None)), Claim::Foreign);
        assert_eq!(claim(&leaving_owner, &selector, &object("db", Some("owner"))), Claim::Foreign);
        let leaving = ObjectMeta { deletion_timestamp: deleted, ..object("web", None) };
        assert_eq!(claim(&owner(), &selector, &leaving), Claim::Foreign);
    }
}
