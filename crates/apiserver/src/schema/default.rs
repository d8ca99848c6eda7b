//! Absent fields and `null`.

use serde_json::Value;

use super::{Ref, Schema, Shape, Struct, Unknown};

/// Gives absent fields their default.
///
/// A `null` that the schema does not allow counts as absent: it takes the default, or goes.
pub fn default(value: &mut Value, schema: &Schema) {
    drop_nulls(value, schema);
    fill(value, schema);
}

/// Drops the fields that are `null` where the schema neither allows it nor has a default.
pub fn drop_nulls(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let Some(schema) = schema_of(schema, name) else { return true };
            if value.is_null() && is_absent(schema) && schema.default.is_none() {
                return false;
            }
            drop_nulls(value, schema);
            true
        }),
        Value::Array(elements) => {
            if let Shape::List { items, .. } = &schema.shape {
                elements.iter_mut().for_each(|element| drop_nulls(element, items));
            }
        }
        _ => {}
    }
}

fn fill(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(fields) => {
            if let Shape::Struct(Struct { fields: known, .. }) = &schema.shape {
                for (name, field) in known {
                    let Some(default) = &field.schema.default else { continue };
                    let absent = match fields.get(&**name) {
                        None => true,
                        Some(value) => value.is_null() && is_absent(&field.schema),
                    };
                    if absent {
                        fields.insert((**name).to_owned(), default.clone());
                    }
                }
            }
            for (name, value) in fields {
                if let Some(schema) = schema_of(schema, name) {
                    fill_null(value, schema);
                    fill(value, schema);
                }
            }
        }
        Value::Array(elements) => {
            if let Shape::List { items, .. } = &schema.shape {
                for element in elements {
                    fill_null(element, items);
                    fill(element, items);
                }
            }
        }
        _ => {}
    }
}

fn fill_null(value: &mut Value, schema: &Schema) {
    if let Some(default) = schema.default.as_ref().filter(|_| value.is_null() && is_absent(schema)) {
        *value = default.clone();
    }
}

/// Whether `null` means absent for this schema.
fn is_absent(schema: &Schema) -> bool {
    !schema.nullable
}

fn schema_of<'a>(schema: &'a Schema, name: &str) -> Option<&'a Ref> {
    match &schema.shape {
        Shape::Struct(known) => match (known.fields.get(name), &known.unknown) {
            (Some(field), _) => Some(&field.schema),
            (None, Unknown::Typed(values)) => Some(values),
            _ => None,
        },
        Shape::Map { values, .. } => Some(values),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::schema::{prune, structural::read_root};

    fn schema() -> Schema {
        read_root(&json!({"type": "object", "properties": {"spec": {
            "type": "object", "default": {"replicas": 1},
            "properties": {
                "replicas": {"type": "integer", "default": 3},
                "text": {"type": "string"},
                "maybe": {"type": "string", "nullable": true, "default": "d"},
                "list": {"type": "array", "items": {"type": "object", "properties": {
                    "mode": {"type": "string", "default": "auto"},
                }}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {
                    "x": {"type": "integer", "default": 7},
                }}},
            },
        }}}))
        .expect("a schema")
    }

    #[test]
    fn absent_fields_take_their_default_at_every_depth() {
        for (given, expected) in [
            (json!({}), json!({"spec": {"replicas": 1, "maybe": "d"}})),
            (json!({"spec": {}}), json!({"spec": {"replicas": 3, "maybe": "d"}})),
            (json!({"spec": {"replicas": 0}}), json!({"spec": {"replicas": 0, "maybe": "d"}})),
            (
                json!({"spec": {"replicas": null, "text": null, "maybe": null}}),
                json!({"spec": {"replicas": 3, "maybe": null}}),
            ),
            (
                json!({"spec": {"replicas": 1, "maybe": "m", "list": [{}, {"mode": "x"}], "map": {"a": {}}}}),
                json!({"spec": {"replicas": 1, "maybe": "m", "list": [{"mode": "auto"}, {"mode": "x"}],
                    "map": {"a": {"x": 7}}}}),
            ),
        ] {
            let mut object = given.clone();
            default(&mut object, &schema());
            assert_eq!(object, expected, "{given}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-z]{0,3}".prop_map(Value::from),
        ];
        let name = prop_oneof![
            Just("spec"),
            Just("replicas"),
            Just("text"),
            Just("maybe"),
            Just("list"),
            Just("mode"),
            Just("map"),
            Just("odd"),
        ];
        leaf.prop_recursive(5, 40, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((name.clone(), inner), 0..5)
                    .prop_map(|pairs| pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn pruning_and_defaulting_twice_is_the_same_as_once(object in any_json()) {
            let schema = schema();
            let mut once = object;
            prune(&mut once, &schema);
            default(&mut once, &schema);
            let mut twice = once.clone();
            prop_assert_eq!(prune(&mut twice, &schema), Vec::<String>::new());
            default(&mut twice, &schema);
            prop_assert_eq!(once, twice);
        }
    }
}
