//! What an object must be before it is stored: decoded, defaulted, prepared, checked.

pub(crate) mod addresses;
pub(crate) mod decode;
pub(crate) mod defaults;
pub(crate) mod limit_range;
pub(crate) mod metadata;
pub(crate) mod names;
pub(crate) mod prepare;
pub(crate) mod quantity;
pub(crate) mod service_account;
pub(crate) mod strategy;
pub(crate) mod validate;
pub(crate) mod webhook;

use serde_json::Value;

pub(crate) use decode::Body;

use crate::{
    engine::{Call, meta::Meta},
    schema,
    server::Options,
    status::Failure,
    types::Origin,
};

/// Refuses an object that breaks rules: those of metadata, of its schema, of its kind.
pub(crate) fn check(
    call: &Call<'_>,
    object: &Value,
    live: Option<&Value>,
    subresource: &str,
    options: &Options,
) -> Result<(), Failure> {
    let resource = call.resource;
    let mut errors = metadata::validate(resource, strategy::strategy(resource), object);
    if let Some(live) = live {
        errors.extend(metadata::validate_update(object, live));
    }
    match resource.origin {
        Origin::Custom { .. } => {
            errors.extend(match live {
                None => schema::validate(object, &resource.schema),
                Some(live) => schema::validate_update(object, live, &resource.schema),
            });
            let broken = schema::rules::check(object, live, &resource.schema, &errors);
            errors.extend(broken);
        }
        Origin::BuiltIn => errors.extend(validate::validate(resource, object, live, subresource, options)),
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Failure::invalid(&resource.group, &resource.kind, object.name(), &errors))
}
