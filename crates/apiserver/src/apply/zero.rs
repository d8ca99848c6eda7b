//! An object before anybody wrote to it.

use serde_json::{Map, Value, json};

use super::Writer;
use crate::schema::{Scalar, Schema, Shape, Zero};

/// The empty object of a type: for built-in types with the fields that are always written.
pub(super) fn object(schema: &Schema, writer: &Writer<'_>) -> Value {
    let mut object = match of(schema) {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    object.insert("apiVersion".to_owned(), json!(writer.api_version));
    object.insert("kind".to_owned(), json!(writer.kind));
    Value::Object(object)
}

fn of(schema: &Schema) -> Value {
    match &schema.shape {
        Shape::Struct(object) => object
            .fields
            .iter()
            .filter(|(_, field)| field.zero == Zero::Write)
            .map(|(name, field)| (name.to_string(), of(&field.schema)))
            .collect::<Map<String, Value>>()
            .into(),
        Shape::Scalar(Scalar::String | Scalar::Bytes | Scalar::Quantity) => json!(""),
        Shape::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Number | Scalar::IntOrString) => json!(0),
        Shape::Scalar(Scalar::Boolean) => json!(false),
        Shape::Scalar(Scalar::Time | Scalar::MicroTime)
        | Shape::Any
        | Shape::Map { .. }
        | Shape::List { .. } => Value::Null,
    }
}
