//! What a resource ignores of what is written to it.

use super::set::FieldSet;
use crate::types::{Origin, Resource, Subresource};

/// The fields that a write through this subresource (`""` for the object itself) never changes,
/// and of which the writer therefore owns nothing.
pub fn reset_fields(resource: &Resource, subresource: &str) -> FieldSet {
    let has_status = resource.subresources.contains(&Subresource::Status);
    let custom = matches!(resource.origin, Origin::Custom { .. });
    let paths: &[&str] = match (&*resource.plural, subresource) {
        ("certificatesigningrequests", "") => &["spec", "status"],
        ("certificatesigningrequests", "status") => &["spec", "status.conditions"],
        ("certificatesigningrequests", "approval") => &["spec", "status.certificate"],
        ("namespaces", "finalize") => &["status"],
        (_, "") if has_status => &["status"],
        (_, "status") if custom => &["metadata", "spec"],
        ("deployments", "status") => &["spec", "metadata.labels"],
        ("pods", "status") => &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"],
        (
            "apiservices"
            | "flowschemas"
            | "prioritylevelconfigurations"
            | "resourceclaims"
            | "servicecidrs"
            | "validatingadmissionpolicies"
            | "volumeattachments",
            "status",
        ) => &["metadata", "spec"],
        (_, "status") => &["spec"],
        _ => &[],
    };
    FieldSet::of_fields(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Catalog;

    #[test]
    fn status_is_ignored_on_the_object_and_the_rest_on_its_status() {
        let catalog = Catalog::builtin();
        let reset = |group: &str, version: &str, plural: &str, subresource: &str| {
            let resource = catalog.find(group, version, plural).unwrap();
            reset_fields(resource, subresource)
        };
        assert_eq!(reset("apps", "v1", "deployments", ""), FieldSet::of_fields(&["status"]));
        assert_eq!(
            reset("apps", "v1", "deployments", "status"),
            FieldSet::of_fields(&["spec", "metadata.labels"])
        );
        assert_eq!(reset("apps", "v1", "replicasets", "status"), FieldSet::of_fields(&["spec"]));
        assert_eq!(reset("", "v1", "configmaps", ""), FieldSet::default());
        assert_eq!(reset("", "v1", "namespaces", "finalize"), FieldSet::of_fields(&["status"]));
    }
}
