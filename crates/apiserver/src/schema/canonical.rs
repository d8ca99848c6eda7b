//! Built-in objects in the one way in which Kubernetes writes them.
//!
//! Kubernetes decodes built-in objects into Go values and encodes those, which leaves out some
//! zero values and writes others, and gives quantities and times one form. Objects that differ
//! only in this are equal there, and clients expect to find what Kubernetes would have written.

use serde_json::{Map, Value};

use super::{Scalar, Schema, Shape, Struct, Zero, quantity};

/// Brings a built-in object into the form in which Kubernetes writes it.
///
/// Fields that the schema does not know are left alone. Does nothing to custom resources, whose
/// fields have no opinion on zero values.
pub fn canonical(value: &mut Value, schema: &Schema) {
    match (&schema.shape, value) {
        (Shape::Struct(known), Value::Object(fields)) => canonical_struct(fields, known),
        (Shape::Map { values, .. }, Value::Object(fields)) => {
            fields.values_mut().for_each(|value| canonical_element(value, values));
        }
        (Shape::List { items, .. }, Value::Array(elements)) => {
            elements.iter_mut().for_each(|element| canonical_element(element, items));
        }
        (Shape::Scalar(scalar), value) => canonical_scalar(value, *scalar),
        _ => {}
    }
}

fn canonical_struct(fields: &mut Map<String, Value>, known: &Struct) {
    for (name, field) in &known.fields {
        if let Some(value) = fields.get_mut(&**name).filter(|value| !value.is_null()) {
            canonical(value, &field.schema);
            match field.zero {
                Zero::Omit if is_zero(value, &field.schema) => {
                    fields.remove(&**name);
                }
                // Objects are kept as protobuf there, which does not tell empty lists from absent ones.
                Zero::Null if is_empty(value) => *value = Value::Null,
                _ => {}
            }
            continue;
        }
        match field.zero {
            Zero::Write => {
                fields.insert((**name).to_owned(), zero(&field.schema));
            }
            Zero::Null => {
                fields.insert((**name).to_owned(), Value::Null);
            }
            // Nullable fields of custom resources may keep their null.
            Zero::Keep | Zero::Omit if !field.schema.nullable => {
                fields.remove(&**name);
            }
            Zero::Keep | Zero::Omit => {}
        }
    }
}

/// Elements cannot be absent: `null` is the zero of their type.
fn canonical_element(value: &mut Value, schema: &Schema) {
    if value.is_null() && !schema.nullable {
        *value = zero(schema);
    } else {
        canonical(value, schema);
    }
}

fn canonical_scalar(value: &mut Value, scalar: Scalar) {
    let rewritten = match (scalar, &*value) {
        (Scalar::Quantity, Value::String(text)) => quantity::canonical(text),
        (Scalar::Quantity, Value::Number(number)) => quantity::canonical(&number.to_string()),
        (Scalar::Time, Value::String(text)) => {
            text.parse::<jiff::Timestamp>().ok().map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
        }
        (Scalar::MicroTime, Value::String(text)) => text
            .parse::<jiff::Timestamp>()
            .ok()
            .map(|time| time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()),
        _ => None,
    };
    if let Some(text) = rewritten {
        *value = Value::String(text);
    }
}

fn zero(schema: &Schema) -> Value {
    match &schema.shape {
        Shape::Scalar(scalar) => match scalar {
            Scalar::String | Scalar::Bytes => "".into(),
            Scalar::Int32 | Scalar::Int64 | Scalar::Number | Scalar::IntOrString => 0.into(),
            Scalar::Boolean => false.into(),
            Scalar::Quantity => "0".into(),
            Scalar::Time | Scalar::MicroTime => Value::Null,
        },
        Shape::Struct(known) => {
            let mut fields = Map::new();
            canonical_struct(&mut fields, known);
            Value::Object(fields)
        }
        Shape::Any | Shape::Map { .. } | Shape::List { .. } => Value::Null,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(elements) => elements.is_empty(),
        _ => false,
    }
}

fn is_zero(value: &Value, schema: &Schema) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        Value::Object(fields) => fields.is_empty() || *value == zero(schema),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::definition;

    fn written(name: &str, object: &Value) -> Value {
        let mut object = object.clone();
        canonical(&mut object, &definition(name).expect("a built-in definition"));
        object
    }

    #[test]
    fn a_deployment_is_written_as_kubernetes_writes_it() {
        let given = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "labels": {}, "creationTimestamp": null},
            "spec": {
                "replicas": 0, "paused": false, "minReadySeconds": 0, "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"creationTimestamp": null}, "spec": {"containers": [
                    {"name": "c", "env": [], "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}},
                ]}},
            },
        });
        let expected = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
            "spec": {
                "replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "strategy": {},
                "template": {"metadata": {}, "spec": {"containers": [
                    {"name": "c", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}},
                ]}},
            },
            "status": {},
        });
        assert_eq!(written("io.k8s.api.apps.v1.Deployment", &given), expected);
        assert_eq!(
            written("io.k8s.api.apps.v1.Deployment", &expected),
            expected,
            "a second time changes nothing"
        );
    }

    #[test]
    fn times_have_one_form_and_absent_ones_are_null_where_go_writes_them() {
        let given =
            json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05.678+02:00"});
        let expected = json!({
            "type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-02T01:04:05Z",
        });
        assert_eq!(written("io.k8s.api.core.v1.PodCondition", &given), expected);
        let given = json!({"spec": {"renewTime": "2026-01-02T03:04:05Z"}});
        let expected = json!({"metadata": {}, "spec": {"renewTime": "2026-01-02T03:04:05.000000Z"}});
        assert_eq!(written("io.k8s.api.coordination.v1.Lease", &given), expected);
    }

    #[test]
    fn an_empty_list_that_is_always_written_is_null() {
        let given = json!({"metadata": {"name": "a"}, "rules": []});
        let expected = json!({"metadata": {"name": "a"}, "rules": null});
        assert_eq!(written("io.k8s.api.rbac.v1.Role", &given), expected);
    }

    #[test]
    fn null_in_a_map_of_text_is_empty_text() {
        let given = json!({"metadata": {"name": "a"}, "data": {"a": null, "b": "c"}, "binaryData": {}});
        let expected = json!({"metadata": {"name": "a"}, "data": {"a": "", "b": "c"}});
        assert_eq!(written("io.k8s.api.core.v1.ConfigMap", &given), expected);
    }
}
