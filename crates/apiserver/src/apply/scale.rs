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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, operation: &str, api_version: &str, subresource: &str, fields: &Value) -> Value {
        let mut entry = json!({
            "manager": manager, "operation": operation, "apiVersion": api_version,
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        });
        if !subresource.is_empty() {
            entry["subresource"] = json!(subresource);
        }
        entry
    }

    #[test]
    fn a_scale_shows_only_who_owns_the_replicas() {
        let size = json!({"f:spec": {"f:size": {}, "f:text": {}}});
        let parent = json!([
            entry("a", "Apply", "example.com/v1", "", &size),
            entry("b", "Apply", "example.com/v1", "", &json!({"f:spec": {"f:text": {}}})),
            entry("u", "Update", "example.com/v1", "", &size),
        ]);
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        let shown = to_scale(Some(&parent), ".spec.size").unwrap().unwrap();
        assert_eq!(
            shown,
            json!([entry("a", "Apply", SCALE, "", &replicas), entry("u", "Update", SCALE, "", &replicas)])
        );
        assert_eq!(to_scale(None, ".spec.size").unwrap(), None);
    }

    #[test]
    fn whoever_scales_takes_the_replicas_from_their_owner() {
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        let parent = json!([
            entry("a", "Apply", "apps/v1", "", &json!({"f:spec": {"f:replicas": {}, "f:paused": {}}})),
            entry("only", "Apply", "apps/v1", "", &replicas),
        ]);
        let scale = json!([entry("hpa", "Update", SCALE, "scale", &replicas)]);
        let after = to_parent(Some(&parent), Some(&scale), ".spec.replicas", "apps/v1").unwrap().unwrap();
        assert_eq!(
            after,
            json!([
                entry("a", "Apply", "apps/v1", "", &json!({"f:spec": {"f:paused": {}}})),
                entry("hpa", "Update", "apps/v1", "scale", &replicas),
            ])
        );
    }

    #[test]
    fn a_scale_that_changes_nothing_changes_no_owner() {
        let fields = json!({"f:spec": {"f:replicas": {}, "f:paused": {}}});
        let parent = json!([
            entry("a", "Apply", "apps/v1", "", &fields),
            entry("u", "Update", "apps/v1", "", &fields)
        ]);
        let scale = to_scale(Some(&parent), ".spec.replicas").unwrap();
        let after = to_parent(Some(&parent), scale.as_ref(), ".spec.replicas", "apps/v1").unwrap();
        assert_eq!(after, Some(parent));
    }
}
