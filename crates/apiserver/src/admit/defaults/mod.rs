//! Values that fields take when nobody gives them.

use serde_json::Value;

use crate::{schema, types::{Origin, Resource}};

/// Gives absent fields their values.
pub(crate) fn apply(resource: &Resource, object: &mut Value) {
    match resource.origin {
        Origin::Custom { .. } => schema::default(object, &resource.schema),
        Origin::BuiltIn => super::decode::canonical(object, resource),
    }
}
