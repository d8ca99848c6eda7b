//! The types of expressions, as far as they are known before there is a value.

use std::fmt;
use std::rc::Rc;

use crate::schema::{Scalar, Schema, Shape, Unknown};

/// The most bytes that a request has, and so the most that any value in it can have.
const REQUEST: u64 = 3 << 20;

/// A type, with the most elements, characters or bytes that its values can have.
#[derive(Debug, Clone)]
pub(crate) enum Type<'s> {
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String(u64),
    Bytes(u64),
    Duration,
    Timestamp,
    List(Rc<Type<'s>>, u64),
    Map(Rc<Type<'s>>, Rc<Type<'s>>, u64),
    /// An object with known fields.
    Object(&'s Schema, Level),
    Optional(Rc<Type<'s>>),
    /// The type of types.
    Meta,
    /// A type of one of the libraries.
    Library(&'static str),
}

/// Which fields of an object can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// A whole object: of its metadata only the names.
    Whole,
    /// The metadata of a whole object.
    Metadata,
    /// Any other.
    Inner,
}

impl<'s> Type<'s> {
    /// The type of values that a schema admits; none where nothing is known of them.
    pub(crate) fn of(schema: &'s Schema, level: Level) -> Option<Type<'s>> {
        let constraints = schema.constraints.as_deref();
        if constraints.is_some_and(|constraints| constraints.untyped) {
            return None;
        }
        let length = constraints.and_then(|constraints| constraints.max_length);
        Some(match &schema.shape {
            Shape::Any => return None,
            Shape::Scalar(scalar) => match scalar {
                Scalar::Boolean => Type::Bool,
                Scalar::Int32 | Scalar::Int64 => Type::Int,
                Scalar::Number => Type::Double,
                Scalar::IntOrString | Scalar::Quantity => Type::Dyn,
                Scalar::Bytes => Type::Bytes(length.unwrap_or(REQUEST - 2)),
                Scalar::Time | Scalar::MicroTime => Type::Timestamp,
                Scalar::String => match constraints.and_then(|constraints| constraints.format.as_deref()) {
                    Some("byte") => Type::Bytes(length.unwrap_or(REQUEST - 2)),
                    Some("date" | "date-time") => Type::Timestamp,
                    Some("duration") => Type::Duration,
                    _ => {
                        let listed = constraints.and_then(|constraints| constraints.allowed.as_ref());
                        let listed = listed.map(|values| {
                            values.iter().filter_map(|v| v.as_str()).map(str::len).max().unwrap_or(0) as u64
                        });
                        // A character may take four bytes.
                        Type::String(length.map(|length| length * 4).or(listed).unwrap_or(REQUEST - 2))
                    }
                },
            },
            Shape::List { items, .. } => {
                let element = Type::of(items, Level::Inner)?;
                let most = constraints.and_then(|constraints| constraints.max_items);
                let most = most.unwrap_or_else(|| (REQUEST - 2) / (smallest(items) + 1));
                Type::List(Rc::new(element), most)
            }
            Shape::Map { values, .. } => Type::Map(
                Rc::new(Type::String(REQUEST - 2)),
                Rc::new(Type::of(values, Level::Inner)?),
                constraints
                    .and_then(|constraints| constraints.max_properties)
                    .unwrap_or_else(|| (REQUEST - 2) / (smallest(values) + 6)),
            ),
            Shape::Struct(fields) => match &fields.unknown {
                Unknown::Typed(_) => return None,
                _ if fields.embedded => Type::Object(schema, Level::Whole),
                _ => Type::Object(schema, level),
            },
        })
    }

    /// The type of an object's field.
    pub(super) fn field(&self, name: &str) -> Option<Type<'s>> {
        let Type::Object(schema, level) = self else { return None };
        let Shape::Struct(fields) = &schema.shape else { return None };
        let name = unescape(name);
        let name = name.as_ref();
        if *level == Level::Metadata && !matches!(name, "name" | "generateName") {
            return None;
        }
        let field = &fields.fields.get(name)?.schema;
        match (level, name) {
            (Level::Whole, "metadata") => Type::of(field, Level::Metadata),
            _ => Type::of(field, Level::Inner),
        }
    }

    /// How much there is to go through in a value, at most.
    pub(super) fn size(&self) -> u64 {
        match self {
            Type::String(most) | Type::Bytes(most) | Type::List(_, most) | Type::Map(_, _, most) => *most,
            Type::Dyn => REQUEST - 2,
            _ => 1,
        }
    }

    /// Whether values of the one type can be where those of the other are expected.
    pub(super) fn fits(&self, other: &Type<'_>) -> bool {
        match (self, other) {
            (Type::Dyn, _) | (_, Type::Dyn) => true,
            (Type::List(one, _), Type::List(other, _)) => one.fits(other),
            (Type::Map(key, value, _), Type::Map(other_key, other_value, _)) => {
                key.fits(other_key) && value.fits(other_value)
            }
            (Type::Optional(one), Type::Optional(other)) => one.fits(other),
            (Type::Object(one, _), Type::Object(other, _)) => std::ptr::eq(*one, *other),
            (Type::Library(one), Type::Library(other)) => one == other,
            // Values that may be null are compared with null.
            (Type::Null, other) | (other, Type::Null) => {
                matches!(
                    other,
                    Type::Null
                        | Type::Object(..)
                        | Type::Optional(_)
                        | Type::Duration
                        | Type::Timestamp
                        | Type::Library(_)
                )
            }
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        }
    }

    /// What values of either type have in common.
    pub(super) fn join(self, other: Type<'s>) -> Type<'s> {
        match (self, other) {
            (Type::String(one), Type::String(other)) => Type::String(one.max(other)),
            (Type::Bytes(one), Type::Bytes(other)) => Type::Bytes(one.max(other)),
            (Type::List(element, one), Type::List(other_element, other)) => {
                let element = Rc::new((*element).clone().join((*other_element).clone()));
                Type::List(element, one.max(other))
            }
            (Type::Map(key, value, one), Type::Map(_, other_value, other)) => {
                let value = Rc::new((*value).clone().join((*other_value).clone()));
                Type::Map(key, value, one.max(other))
            }
            (one, other) if one.fits(&other) && !matches!(one, Type::Dyn) => one,
            _ => Type::Dyn,
        }
    }
}

/// The fewest bytes of JSON that a value takes.
fn smallest(schema: &Schema) -> u64 {
    match &schema.shape {
        Shape::Any => 1,
        Shape::Scalar(Scalar::Boolean) => 4,
        Shape::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Number | Scalar::IntOrString) => 1,
        Shape::Scalar(_) | Shape::List { .. } | Shape::Map { .. } => 2,
        Shape::Struct(fields) => {
            let required = fields.fields.iter().filter(|(_, field)| {
                field.required && field.schema.default.is_none() && !std::ptr::eq(&*field.schema, schema)
            });
            2 + required.map(|(name, field)| name.len() as u64 + 4 + smallest(&field.schema)).sum::<u64>()
        }
    }
}

/// The property that a name in an expression means: what cannot be written there is escaped.
pub(super) fn unescape(name: &str) -> std::borrow::Cow<'_, str> {
    if !name.contains("__") {
        return name.into();
    }
    if let Some(word) = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"))
        && (super::lex::is_reserved(word) || matches!(word, "true" | "false" | "null" | "in"))
    {
        return word.to_owned().into();
    }
    name.replace("__underscores__", "\0")
        .replace("__dot__", ".")
        .replace("__dash__", "-")
        .replace("__slash__", "/")
        .replace('\0', "__")
        .into()
}

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Dyn => f.write_str("dyn"),
            Type::Null => f.write_str("null"),
            Type::Bool => f.write_str("bool"),
            Type::Int => f.write_str("int"),
            Type::Uint => f.write_str("uint"),
            Type::Double => f.write_str("double"),
            Type::String(_) => f.write_str("string"),
            Type::Bytes(_) => f.write_str("bytes"),
            Type::Duration => f.write_str("google.protobuf.Duration"),
            Type::Timestamp => f.write_str("google.protobuf.Timestamp"),
            Type::List(element, _) => write!(f, "list({element})"),
            Type::Map(key, value, _) => write!(f, "map({key}, {value})"),
            Type::Object(..) => f.write_str("object"),
            Type::Optional(value) => write!(f, "optional_type({value})"),
            Type::Meta => f.write_str("type"),
            Type::Library(name) => f.write_str(name),
        }
    }
}
