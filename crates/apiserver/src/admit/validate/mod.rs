//! Rules of built-in kinds.

use serde_json::Value;

use crate::{schema::FieldError, server::Options, types::Resource};

/// What is wrong with an object of a built-in kind.
pub(crate) fn validate(resource: &Resource, object: &Value, live: Option<&Value>, subresource: &str, options: &Options) -> Vec<FieldError> {
    let _ = (resource, object, live, subresource, options);
    Vec::new()
}
