//! A type with every kind of list and map, for the tests of this module.

use std::sync::Arc;

use serde_json::json;

use super::{FieldSet, Writer};
use crate::schema::{Constraints, Field, ListKind, Ref, Scalar, Schema, Shape, Struct, Unknown};

/// The type of `example.com/v1` Thing.
pub(super) fn schema() -> Schema {
    object(vec![
        ("apiVersion", text()),
        ("kind", text()),
        ("metadata", metadata()),
        (
            "spec",
            object(vec![
                ("number", number()),
                ("text", text()),
                ("flag", scalar(Scalar::Boolean)),
                ("time", formatted("date-time")),
                ("either", scalar(Scalar::IntOrString)),
                (
                    "nested",
                    object(vec![("a", number()), ("b", number()), ("deep", object(vec![("c", text())]))]),
                ),
                ("atomicNested", atomic(object(vec![("a", number()), ("b", number())]))),
                ("map", map_of(text())),
                ("atomicMap", atomic(map_of(text()))),
                ("mapOfObjects", map_of(object(vec![("a", number()), ("b", number())]))),
                ("list", list(text(), ListKind::Atomic)),
                ("set", list(text(), ListKind::Set)),
                ("numbers", list(number(), ListKind::Set)),
                (
                    "items",
                    list(
                        object(vec![
                            ("name", text()),
                            ("value", text()),
                            ("other", text()),
                            ("tags", list(text(), ListKind::Set)),
                            (
                                "parts",
                                list(object(vec![("id", number()), ("size", number())]), keyed(&["id"])),
                            ),
                        ]),
                        keyed(&["name"]),
                    ),
                ),
                (
                    "ports",
                    list(
                        object(vec![
                            ("port", number()),
                            ("protocol", defaulted(text(), "TCP")),
                            ("name", text()),
                        ]),
                        keyed(&["port", "protocol"]),
                    ),
                ),
                ("free", Schema::any()),
                ("open", keep_unknown(object(vec![("known", text()), ("sub", object(vec![("x", text())]))]))),
            ]),
        ),
        ("status", object(vec![("phase", text()), ("count", number())])),
    ])
}

/// A writer of `example.com/v1` Thing.
pub(super) fn writer<'a>(manager: &'a str, seconds: i64, reset: &'a FieldSet) -> Writer<'a> {
    Writer {
        manager,
        api_version: "example.com/v1",
        kind: "Thing",
        subresource: "",
        time: jiff::Timestamp::from_second(1_800_000_000 + seconds).unwrap_or_default(),
        reset,
        versions: &super::OneVersion,
    }
}

fn metadata() -> Schema {
    object(vec![
        ("name", text()),
        ("namespace", text()),
        ("uid", text()),
        ("resourceVersion", text()),
        ("generation", number()),
        ("creationTimestamp", scalar(Scalar::Time)),
        ("labels", map_of(text())),
        ("annotations", map_of(text())),
        ("finalizers", list(text(), ListKind::Set)),
        ("managedFields", list(Schema::any(), ListKind::Atomic)),
    ])
}

fn text() -> Schema {
    scalar(Scalar::String)
}

fn number() -> Schema {
    scalar(Scalar::Int64)
}

fn scalar(scalar: Scalar) -> Schema {
    Schema::of(Shape::Scalar(scalar))
}

fn keyed(keys: &[&str]) -> ListKind {
    ListKind::Map(keys.iter().map(|key| Arc::from(*key)).collect())
}

fn defaulted(schema: Schema, default: &str) -> Schema {
    Schema { default: Some(json!(default)), ..schema }
}

fn formatted(format: &str) -> Schema {
    let constraints = Constraints { format: Some(format.to_owned()), ..Constraints::default() };
    Schema { constraints: Some(Box::new(constraints)), ..text() }
}

fn list(items: Schema, kind: ListKind) -> Schema {
    Schema::of(Shape::List { items: items.into(), kind })
}

fn map_of(values: Schema) -> Schema {
    Schema::of(Shape::Map { values: values.into(), atomic: false })
}

fn object(fields: Vec<(&str, Schema)>) -> Schema {
    let fields = fields
        .into_iter()
        .map(|(name, schema)| (Arc::from(name), Field { schema: Ref::from(schema), ..Field::default() }))
        .collect();
    Schema::of(Shape::Struct(Struct { fields, ..Struct::default() }))
}

fn atomic(mut schema: Schema) -> Schema {
    match &mut schema.shape {
        Shape::Struct(object) => object.atomic = true,
        Shape::Map { atomic, .. } => *atomic = true,
        _ => {}
    }
    schema
}

fn keep_unknown(mut schema: Schema) -> Schema {
    if let Shape::Struct(object) = &mut schema.shape {
        object.unknown = Unknown::Keep;
    }
    schema
}
