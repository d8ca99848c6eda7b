//! An object before anybody wrote to it.

use serde_json::{Value, json};

use super::Writer;
use crate::schema::{Schema, canonical};

/// The empty object of a type: for built-in types with the fields that are always written.
pub(super) fn object(schema: &Schema, writer: &Writer<'_>) -> Value {
    let mut object = json!({"apiVersion": writer.api_version, "kind": writer.kind});
    canonical(&mut object, schema);
    object
}
