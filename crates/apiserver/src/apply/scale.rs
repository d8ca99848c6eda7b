//! Owners of `spec.replicas` through `/scale`.
//!
//! A Scale is a view of another object. Its managedFields are those of the object, seen through
//! the one field that both share, and after a write go back the same way.

use serde_json::Value;

use super::{
    managed::{Managed, ManagedError, ManagerId, Operation, Owned},
    path::Element,
    set::FieldSet,
};

/// The version of a Scale.
const SCALE: &str = "autoscaling/v1";

/// The managedFields that a Scale shows, given those of its object and the path of the replicas
/// there (`.spec.replicas`).
///
/// # Errors
/// When the object's managedFields cannot be read.
pub fn to_scale(parent: Option<&Value>, replicas_path: &str) -> Result<Option<Value>, ManagedError> {
    let path = path_of(replicas_path);
    let mut scale = Managed::default();
    for (id, owned) in Managed::decode(parent)?.0 {
        if owned.set.contains(&path) {
            let id = match id.operation {
                Operation::Apply => id,
                Operation::Update => ManagerId { api_version: SCALE.to_owned(), ..id },
            };
            scale.0.insert(id, Owned { set: replicas(), api_version: SCALE.to_owned(), time: owned.time });
        }
    }
    Ok(scale.encode())
}

/// The managedFields of the object after its Scale was written: `parent` as they were, `scale` as
/// they are on the Scale now.
///
/// # Errors
/// When either cannot be read.
pub fn to_parent(
    parent: Option<&Value>,
    scale: Option<&Value>,
    replicas_path: &str,
    api_version: &str,
) -> Result<Option<Value>, ManagedError> {
    let path = path_of(replicas_path);
    let mut only_replicas = FieldSet::default();
    only_replicas.insert(&path);
    // An update manager is another on the Scale only by its version.
    let on_scale = |id: &ManagerId| match id.operation {
        Operation::Apply => id.clone(),
        Operation::Update => ManagerId { api_version: SCALE.to_owned(), ..id.clone() },
    };
    let mut scale = Managed::decode(scale)?;
    let mut result = Managed::default();
    for (id, mut owned) in Managed::decode(parent)?.0 {
        if owned.set.contains(&path) && scale.0.remove(&on_scale(&id)).is_none() {
            owned.set = owned.set.difference(&only_replicas);
        }
        if !owned.set.is_empty() {
            result.0.insert(id, owned);
        }
    }
    for (id, owned) in scale.0 {
        if owned.set.contains(&[Element::field("spec"), Element::field("replicas")]) {
            let id = match id.operation {
                Operation::Apply => id,
                Operation::Update => ManagerId { api_version: api_version.to_owned(), ..id },
            };
            let owned = Owned { set: only_replicas.clone(), api_version: api_version.to_owned(), time: None };
            result.0.insert(id, owned);
        }
    }
    Ok(result.encode())
}

fn replicas() -> FieldSet {
    FieldSet::of_fields(&["spec.replicas"])
}

fn path_of(json_path: &str) -> Vec<Element> {
    json_path.split('.').filter(|step| !step.is_empty()).map(Element::field).collect()
}
