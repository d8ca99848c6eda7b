//! Whether a built-in object has the types that its definition says.
//!
//! Kubernetes decodes built-in objects into Go values, so a wrong type is not a complaint about a
//! field but a body that cannot be read; the texts follow Go's decoder.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Number, Value};

use super::{Scalar, Schema, Shape, error::quote, quantity};

/// Checks the type of every field that the schema knows.
///
/// # Errors
/// The text of the first mismatch, for example `json: cannot unmarshal string into Go struct
/// field DeploymentSpec.spec.replicas of type int32`.
pub fn check_types(value: &Value, schema: &Schema) -> Result<(), String> {
    walk(value, schema, &Place { owner: "", path: String::new() })
}

/// Where a value is: the struct it is a field of, and the path of names from the root.
struct Place<'a> {
    owner: &'a str,
    path: String,
}

fn walk(value: &Value, schema: &Schema, place: &Place<'_>) -> Result<(), String> {
    if value.is_null() {
        return Ok(());
    }
    match (&schema.shape, value) {
        (Shape::Any, _) => Ok(()),
        (Shape::Scalar(scalar), _) => check_scalar(value, *scalar, place),
        (Shape::Struct(known), Value::Object(fields)) => {
            let owner = short_name(schema);
            for (name, value) in fields {
                if let Some(field) = known.fields.get(name.as_str()) {
                    let path =
                        if place.path.is_empty() { name.clone() } else { format!("{}.{name}", place.path) };
                    walk(value, &field.schema, &Place { owner, path })?;
                }
            }
            Ok(())
        }
        (Shape::Map { values, .. }, Value::Object(fields)) => {
            fields.values().try_for_each(|value| walk(value, values, place))
        }
        (Shape::List { items, .. }, Value::Array(elements)) => {
            elements.iter().try_for_each(|element| walk(element, items, place))
        }
        _ => Err(mismatch(value, &go_type(schema), place)),
    }
}

fn check_scalar(value: &Value, scalar: Scalar, place: &Place<'_>) -> Result<(), String> {
    let ok = match (scalar, value) {
        (Scalar::String, Value::String(_))
        | (Scalar::Boolean, Value::Bool(_))
        | (Scalar::Number, Value::Number(_)) => true,
        (Scalar::Bytes, Value::String(text)) => {
            if STANDARD.decode(text).is_err() {
                return Err(format!("illegal base64 data in {}", place.path));
            }
            true
        }
        (Scalar::Int32, Value::Number(number)) => {
            whole(number).is_some_and(|number| i32::try_from(number).is_ok())
        }
        (Scalar::Int64, Value::Number(number)) => whole(number).is_some(),
        (Scalar::IntOrString, Value::String(_)) => true,
        (Scalar::IntOrString, Value::Number(number)) => {
            whole(number).is_some_and(|number| i32::try_from(number).is_ok())
        }
        (Scalar::Quantity, Value::String(text)) => {
            quantity::canonical(text).ok_or_else(|| quantity::RULE.to_owned())?;
            true
        }
        (Scalar::Quantity, Value::Number(_)) => true,
        (Scalar::Time | Scalar::MicroTime, Value::String(text)) => {
            if text.parse::<jiff::Timestamp>().is_err() {
                let layout = if scalar == Scalar::Time {
                    "2006-01-02T15:04:05Z07:00"
                } else {
                    "2006-01-02T15:04:05.000000Z07:00"
                };
                let text = quote(text);
                return Err(format!(
                    "parsing time {text} as {}: cannot parse {text} as \"2006\"",
                    quote(layout)
                ));
            }
            true
        }
        _ => false,
    };
    if ok { Ok(()) } else { Err(mismatch(value, go_scalar(scalar), place)) }
}

fn whole(number: &Number) -> Option<i64> {
    number.as_i64()
}

fn mismatch(value: &Value, expected: &str, place: &Place<'_>) -> String {
    let found = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
        // A number of the wrong size is shown, a number where none belongs is not.
        Value::Number(number) if expected.starts_with("int") => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
    };
    if place.path.is_empty() {
        return format!("json: cannot unmarshal {found} into Go value of type {expected}");
    }
    let owner = if place.owner.is_empty() { String::new() } else { format!("{}.", place.owner) };
    format!("json: cannot unmarshal {found} into Go struct field {owner}{} of type {expected}", place.path)
}

fn go_scalar(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::String => "string",
        Scalar::Bytes => "[]uint8",
        Scalar::Int32 | Scalar::IntOrString => "int32",
        Scalar::Int64 => "int64",
        Scalar::Number => "float64",
        Scalar::Boolean => "bool",
        Scalar::Quantity => "resource.Quantity",
        Scalar::Time => "v1.Time",
        Scalar::MicroTime => "v1.MicroTime",
    }
}

fn go_type(schema: &Schema) -> String {
    match &schema.shape {
        Shape::Any => "interface {}".to_owned(),
        Shape::Scalar(scalar) => go_scalar(*scalar).to_owned(),
        Shape::List { items, .. } => format!("[]{}", go_type(items)),
        Shape::Map { values, .. } => format!("map[string]{}", go_type(values)),
        Shape::Struct(_) => {
            let mut parts = schema.name.as_deref().unwrap_or("object").rsplit('.');
            let name = parts.next().unwrap_or_default();
            parts.next().map_or_else(|| name.to_owned(), |version| format!("{version}.{name}"))
        }
    }
}

fn short_name(schema: &Schema) -> &str {
    schema.name.as_deref().and_then(|name| name.rsplit('.').next()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::definition;

    #[test]
    fn a_wrong_type_reads_as_gos_decoder_says_it() {
        let deployment = definition("io.k8s.api.apps.v1.Deployment").expect("a deployment");
        for (object, expected) in [
            (json!({"spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "a"}]}}}}), Ok(())),
            (json!({"spec": {"replicas": null, "unknown": 1}}), Ok(())),
            (
                json!({"spec": {"replicas": "3"}}),
                Err(
                    "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
                ),
            ),
            (
                json!({"spec": {"replicas": 1.5}}),
                Err(
                    "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
                ),
            ),
            (
                json!({"metadata": {"labels": {"a": 1}}}),
                Err(
                    "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
                ),
            ),
            (
                json!({"spec": {"template": {"spec": {"containers": {}}}}}),
                Err(
                    "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
                ),
            ),
            (
                json!({"spec": {"template": {"spec": {"containers": [{"ports": [{"containerPort": "80"}]}]}}}}),
                Err(
                    "json: cannot unmarshal string into Go struct field ContainerPort.spec.template.spec.containers.ports.containerPort of type int32",
                ),
            ),
            (json!([]), Err("json: cannot unmarshal array into Go value of type v1.Deployment")),
        ] {
            assert_eq!(check_types(&object, &deployment), expected.map_err(str::to_owned), "{object}");
        }
    }
}
