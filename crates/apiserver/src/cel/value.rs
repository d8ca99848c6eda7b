//! Values of expressions. Those out of an object are looked at where they are.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::net::IpAddr;
use std::rc::Rc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value as Json;

use super::network::{Cidr, Url};
use super::signature;
use super::types::unescape;
use crate::admit::quantity::Quantity;
use crate::schema::{Scalar, Schema, Shape, Unknown};

/// A value.
#[derive(Debug, Clone)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Cow<'a, str>),
    Bytes(Rc<[u8]>),
    Duration(SignedDuration),
    Timestamp(Timestamp),
    List(List<'a>),
    Map(Map<'a>),
    Optional(Option<Rc<Value<'a>>>),
    Type(&'static str),
    Url(Rc<Url>),
    Ip(IpAddr),
    Cidr(Cidr),
    Quantity(Quantity),
    Format(&'static str),
}

/// A list.
#[derive(Debug, Clone)]
pub(crate) enum List<'a> {
    Json(&'a [Json], Option<&'a Schema>),
    Made(Rc<Vec<Value<'a>>>),
}

/// A map, or an object with fields.
#[derive(Debug, Clone)]
pub(crate) enum Map<'a> {
    Json(&'a serde_json::Map<String, Json>, Option<&'a Schema>),
    Made(Rc<Vec<(Value<'a>, Value<'a>)>>),
}

impl<'a> Value<'a> {
    /// A value out of an object, of the type that its schema says.
    pub(crate) fn of(json: &'a Json, schema: Option<&'a Schema>) -> Value<'a> {
        let shape = schema.map(|schema| &schema.shape);
        match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => match (shape, number.as_i64()) {
                (Some(Shape::Scalar(Scalar::Number)), _) => {
                    Value::Double(number.as_f64().unwrap_or_default())
                }
                (_, Some(whole)) => Value::Int(whole),
                (Some(Shape::Scalar(Scalar::Int32 | Scalar::Int64)), None) => {
                    Value::Int(number.as_f64().unwrap_or_default() as i64)
                }
                (_, None) => Value::Double(number.as_f64().unwrap_or_default()),
            },
            Json::String(text) => Value::text(text, schema),
            Json::Array(elements) => {
                let items = match shape {
                    Some(Shape::List { items, .. }) => Some(&**items),
                    _ => None,
                };
                Value::List(List::Json(elements, items))
            }
            Json::Object(fields) => Value::Map(Map::Json(fields, schema)),
        }
    }

    fn text(text: &'a str, schema: Option<&'a Schema>) -> Value<'a> {
        let format = schema.and_then(|schema| schema.constraints.as_deref()?.format.as_deref());
        let known = match format {
            Some("byte") => STANDARD.decode(text).ok().map(|bytes| Value::Bytes(bytes.into())),
            Some("date-time") => text.parse().ok().map(Value::Timestamp),
            Some("date") => format!("{text}T00:00:00Z").parse().ok().map(Value::Timestamp),
            Some("duration") => super::time::duration(text).map(Value::Duration),
            _ => None,
        };
        known.unwrap_or(Value::String(Cow::Borrowed(text)))
    }

    pub(super) fn string(text: impl Into<String>) -> Value<'a> {
        Value::String(Cow::Owned(text.into()))
    }

    pub(super) fn list(elements: Vec<Value<'a>>) -> Value<'a> {
        Value::List(List::Made(Rc::new(elements)))
    }

    /// A value that may be there or not.
    pub(crate) fn optional(value: Option<Value<'a>>) -> Value<'a> {
        Value::Optional(value.map(Rc::new))
    }

    pub(super) fn some(value: Value<'a>) -> Value<'a> {
        Value::Optional(Some(Rc::new(value)))
    }

    /// The name of its type.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::String(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::List(_) => "list",
            Value::Map(_) => "map",
            Value::Optional(_) => "optional_type",
            Value::Type(_) => "type",
            Value::Url(_) => signature::URL,
            Value::Ip(_) => signature::IP,
            Value::Cidr(_) => signature::CIDR,
            Value::Quantity(_) => signature::QUANTITY,
            Value::Format(_) => signature::FORMAT,
        }
    }

    /// How much there is to go through.
    pub(super) fn size(&self) -> u64 {
        match self {
            Value::String(text) => text.len() as u64,
            Value::Bytes(bytes) => bytes.len() as u64,
            Value::List(list) => list.len() as u64,
            Value::Map(map) => map.len() as u64,
            _ => 1,
        }
    }

    /// The order of two values; none where they have none.
    pub(super) fn order(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Int(one), Value::Int(other)) => Some(one.cmp(other)),
            (Value::Uint(one), Value::Uint(other)) => Some(one.cmp(other)),
            (Value::Int(one), Value::Uint(other)) => Some(i128::from(*one).cmp(&i128::from(*other))),
            (Value::Uint(one), Value::Int(other)) => Some(i128::from(*one).cmp(&i128::from(*other))),
            (Value::Double(one), Value::Double(other)) => one.partial_cmp(other),
            (Value::Double(one), Value::Int(other)) => one.partial_cmp(&(*other as f64)),
            (Value::Int(one), Value::Double(other)) => (*one as f64).partial_cmp(other),
            (Value::Double(one), Value::Uint(other)) => one.partial_cmp(&(*other as f64)),
            (Value::Uint(one), Value::Double(other)) => (*one as f64).partial_cmp(other),
            (Value::String(one), Value::String(other)) => Some(one.cmp(other)),
            (Value::Bytes(one), Value::Bytes(other)) => Some(one.cmp(other)),
            (Value::Bool(one), Value::Bool(other)) => Some(one.cmp(other)),
            (Value::Duration(one), Value::Duration(other)) => Some(one.cmp(other)),
            (Value::Timestamp(one), Value::Timestamp(other)) => Some(one.cmp(other)),
            (Value::Quantity(one), Value::Quantity(other)) => Some(one.cmp(other)),
            _ => None,
        }
    }

    /// Whether two values are the same; values of different types are not, but for numbers.
    pub(super) fn equals(&self, other: &Value<'_>) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::List(one), Value::List(other)) => one.equals(other),
            (Value::Map(one), Value::Map(other)) => one.equals(other),
            (Value::Optional(one), Value::Optional(other)) => match (one, other) {
                (None, None) => true,
                (Some(one), Some(other)) => one.equals(other),
                _ => false,
            },
            (Value::Type(one), Value::Type(other)) => one == other,
            (Value::Ip(one), Value::Ip(other)) => one == other,
            (Value::Cidr(one), Value::Cidr(other)) => one == other,
            (Value::Url(one), Value::Url(other)) => one.text == other.text,
            (one, other) => one.order(other) == Some(Ordering::Equal),
        }
    }
}

impl<'a> List<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            List::Json(elements, _) => elements.len(),
            List::Made(elements) => elements.len(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            List::Json(elements, schema) => elements.get(index).map(|element| Value::of(element, *schema)),
            List::Made(elements) => elements.get(index).cloned(),
        }
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Value<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    pub(super) fn has(&self, wanted: &Value<'_>) -> bool {
        self.iter().any(|element| element.equals(wanted))
    }

    fn equals(&self, other: &List<'_>) -> bool {
        self.len() == other.len() && self.iter().zip(other.iter()).all(|(one, other)| one.equals(&other))
    }
}

impl<'a> Map<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Map::Json(fields, _) => fields.len(),
            Map::Made(entries) => entries.len(),
        }
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &Value<'_>) -> Option<Value<'a>> {
        match (self, key) {
            (Map::Json(fields, schema), Value::String(name)) => field(fields, *schema, name),
            (Map::Json(..), _) => None,
            (Map::Made(entries), key) => {
                entries.iter().find(|(own, _)| own.equals(key)).map(|(_, value)| value.clone())
            }
        }
    }

    /// The value of a field, by the name that it has in expressions.
    pub(super) fn select(&self, name: &str) -> Option<Value<'a>> {
        match self {
            Map::Json(fields, schema) => match schema.map(|schema| &schema.shape) {
                Some(Shape::Struct(_)) => field(fields, *schema, &unescape(name)),
                _ => field(fields, *schema, name),
            },
            Map::Made(_) => self.get(&Value::string(name)),
        }
    }

    pub(super) fn entries(&self) -> Vec<(Value<'a>, Value<'a>)> {
        match self {
            Map::Json(fields, schema) => fields
                .iter()
                .map(|(name, value)| {
                    (Value::String(Cow::Borrowed(name)), Value::of(value, field_schema(*schema, name)))
                })
                .collect(),
            Map::Made(entries) => entries.to_vec(),
        }
    }

    fn equals(&self, other: &Map<'_>) -> bool {
        self.len() == other.len()
            && self
                .entries()
                .iter()
                .all(|(key, value)| other.get(key).is_some_and(|other| other.equals(value)))
    }
}

fn field<'a>(
    fields: &'a serde_json::Map<String, Json>,
    schema: Option<&'a Schema>,
    name: &str,
) -> Option<Value<'a>> {
    fields.get(name).map(|value| Value::of(value, field_schema(schema, name)))
}

fn field_schema<'a>(schema: Option<&'a Schema>, name: &str) -> Option<&'a Schema> {
    match &schema?.shape {
        Shape::Struct(known) => match (known.fields.get(name), &known.unknown) {
            (Some(field), _) => Some(&field.schema),
            (None, Unknown::Typed(values)) => Some(values),
            _ => None,
        },
        Shape::Map { values, .. } => Some(values),
        _ => None,
    }
}
