//! The two kinds of the group `infra.steersman.io/v1`.

mod drift_interval;
mod name;
mod resource;
mod resource_type;
mod status;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};

pub use drift_interval::DriftInterval;
pub(crate) use name::is_label;
pub use name::{object_name, short_name, slug, type_object_name};
pub use resource::{Resource, ResourceSpec};
pub use resource_type::{ResourceType, ResourceTypeSpec, ResourceTypeStatus};
pub(crate) use status::PLUGIN_UNAVAILABLE;
pub use status::{Attempt, AttemptPhase, Operation, ResourceStatus, State, Trigger};

/// The label that carries the number by which the REST face knows an object.
pub const ID: &str = "infra.steersman.io/id";

/// The annotation whose change asks for a reconcile now.
pub const TRIGGER: &str = "infra.steersman.io/reconcile";

/// The annotation that says what becomes of the infrastructure when a Resource is deleted:
/// `destroy` (the default) or `orphan`.
pub const ON_DELETE: &str = "infra.steersman.io/on-delete";

/// The plugin of resources that name none.
pub(crate) const USUAL_PLUGIN: &str = "terraform";

/// The definitions that a cluster must know, as `kubectl apply` takes them.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![ResourceType::crd(), Resource::crd()]
}

/// An object with any fields.
fn free_form(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// An object with any fields that one writer owns as a whole.
fn free_form_atomic(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-map-type": "atomic"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifests_in_the_tree_are_up_to_date() {
        for crd in crds() {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/crd/bases");
            steersman_test::assert_manifest(folder, &crd);
        }
    }
}
