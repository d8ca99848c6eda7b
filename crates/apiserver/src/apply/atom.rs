//! A type as merging sees it: a scalar, a list whose elements have names, or a map.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};

use super::path::{Element, Ordered};
use crate::schema::{Field, ListKind, Scalar, Schema, Shape, Unknown};

/// How a value of some type is merged.
pub(super) enum Atom<'a> {
    /// As one value. `None` admits every scalar.
    Scalar(Option<Scalar>),
    /// As one value or element by element.
    List(ListAtom<'a>),
    /// As one value or field by field.
    Map(MapAtom<'a>),
}

/// How a list is merged.
#[derive(Clone, Copy)]
pub(super) struct ListAtom<'a> {
    pub(super) items: &'a Schema,
    pub(super) kind: &'a ListKind,
}

/// How an object is merged.
#[derive(Clone, Copy)]
pub(super) struct MapAtom<'a> {
    /// Whether fields that the schema does not list are kept, here and in everything below.
    pub(super) keeps_unknown: bool,
    fields: Option<&'a BTreeMap<Arc<str>, Field>>,
    others: Option<&'a Schema>,
    pub(super) atomic: bool,
}

/// The type of values that no schema describes: objects field by field, lists as one value.
static DEDUCED: Schema = Schema::any();
static ATOMIC: ListKind = ListKind::Atomic;
static DEDUCED_MAP: MapAtom<'static> =
    MapAtom { keeps_unknown: false, fields: None, others: Some(&DEDUCED), atomic: false };
static DEDUCED_LIST: ListAtom<'static> = ListAtom { items: &DEDUCED, kind: &ATOMIC };

impl<'a> Atom<'a> {
    /// How a value of this type is merged; where the type admits several kinds of JSON, the
    /// value decides, and without a value it is a map.
    pub(super) fn of(schema: &'a Schema, value: Option<&Value>) -> Self {
        match &schema.shape {
            // Schemas without a type admit everything here; validation refuses the rest later.
            Shape::Any | Shape::Scalar(Scalar::IntOrString | Scalar::Quantity) => match value {
                Some(Value::Array(_)) => Self::List(DEDUCED_LIST),
                Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => Self::Scalar(None),
                Some(Value::Object(_) | Value::Null) | None => Self::Map(DEDUCED_MAP),
            },
            // Text in some format may be written as another scalar, which validation then judges.
            Shape::Scalar(Scalar::String) if has_format(schema) => Self::Scalar(None),
            Shape::Scalar(scalar) => Self::Scalar(Some(*scalar)),
            Shape::List { items, kind } => Self::List(ListAtom { items, kind }),
            Shape::Map { values, atomic } => Self::Map(MapAtom {
                keeps_unknown: false,
                fields: None,
                others: Some(values),
                atomic: *atomic,
            }),
            Shape::Struct(object) => Self::Map(MapAtom {
                keeps_unknown: matches!(object.unknown, Unknown::Keep),
                fields: Some(&object.fields),
                others: match &object.unknown {
                    Unknown::Keep => Some(&DEDUCED),
                    Unknown::Typed(values) => Some(values),
                    Unknown::Prune if object.fields.is_empty() => Some(&DEDUCED),
                    Unknown::Prune => None,
                },
                atomic: object.atomic,
            }),
        }
    }

    /// Whether both are the same kind of JSON.
    pub(super) fn same_kind(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl<'a> MapAtom<'a> {
    /// The type of a field; `None` where the schema does not know the field.
    pub(super) fn field(&self, name: &str) -> Option<&'a Schema> {
        self.named(name).or(self.others)
    }

    /// The type of a field that the schema lists by name.
    pub(super) fn named(&self, name: &str) -> Option<&'a Schema> {
        self.fields.and_then(|fields| fields.get(name)).map(|field| &*field.schema)
    }

    /// Whether nothing at all is known about its fields.
    pub(super) fn is_deduced(&self) -> bool {
        self.fields.is_none_or(BTreeMap::is_empty)
            && self.others.is_some_and(|others| matches!(others.shape, Shape::Any))
    }
}

impl<'a> ListAtom<'a> {
    pub(super) fn is_atomic(&self) -> bool {
        matches!(self.kind, ListKind::Atomic)
    }

    /// What names this element among the others.
    pub(super) fn element(&self, child: &Value) -> Result<Element, String> {
        match self.kind {
            ListKind::Atomic => Err("invalid indexing of non-associative list".to_owned()),
            ListKind::Set => match child {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".to_owned())
                }
                scalar => Ok(Element::Value(Ordered(scalar.clone()))),
            },
            ListKind::Map(keys) => match child {
                Value::Null => Err("associative list with keys may not have a null element".to_owned()),
                Value::Object(object) => self.keyed(keys, object),
                _ => Err("associative list with keys may not have non-map elements".to_owned()),
            },
        }
    }

    /// An absent key takes its default; a key without one is left out.
    fn keyed(&self, keys: &[Arc<str>], object: &Map<String, Value>) -> Result<Element, String> {
        let found: Vec<_> = keys
            .iter()
            .filter_map(|key| {
                let value = object.get(&**key).cloned().or_else(|| self.key_default(key))?;
                Some((key.clone(), value))
            })
            .collect();
        if found.is_empty() {
            let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                keys.join(" ")
            ));
        }
        Ok(Element::keyed(found))
    }

    /// A built-in type gives its required scalars their zero value.
    fn key_default(&self, key: &str) -> Option<Value> {
        let Shape::Struct(object) = &self.items.shape else { return None };
        let field = object.fields.get(key)?;
        if let Some(default) = &field.schema.default {
            return Some(default.clone());
        }
        if !field.required || self.items.name.is_none() {
            return None;
        }
        match field.schema.shape {
            Shape::Scalar(Scalar::String) => Some(Value::from("")),
            Shape::Scalar(Scalar::Int32 | Scalar::Int64) => Some(Value::from(0)),
            _ => None,
        }
    }
}

fn has_format(schema: &Schema) -> bool {
    let format = schema.constraints.as_ref().and_then(|constraints| constraints.format.as_deref());
    format.is_some_and(|format| format != "byte")
}

/// The list in this value; `null` and everything else is none.
pub(super) fn list(value: Option<&Value>) -> Option<&Vec<Value>> {
    value.and_then(Value::as_array)
}

/// The object in this value; `null` and everything else is none.
pub(super) fn map(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

/// The keys of both, each once.
pub(super) fn keys<'v>(
    left: Option<&'v Map<String, Value>>,
    right: Option<&'v Map<String, Value>>,
) -> impl Iterator<Item = &'v String> {
    let ours = left.into_iter().flat_map(Map::keys);
    let theirs = right.into_iter().flat_map(Map::keys);
    ours.chain(theirs.filter(move |key| left.is_none_or(|left| !left.contains_key(*key))))
}
