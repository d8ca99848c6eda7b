//! What a type admits: the one model behind validation, pruning, defaulting, strategic merge,
//! server-side apply, OpenAPI and protobuf, for built-in types and custom resources alike.

use std::{
    collections::BTreeMap,
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use serde_json::Value;

pub use canonical::canonical;
pub use check::check_types;
pub use default::{default, drop_nulls};
pub use error::{FieldError, FieldErrorKind};
pub use prune::prune;
pub use rules::Rule;
pub use structural::{StructuralError, read_root};
pub use validate::{validate, validate_update};

pub(crate) use error::quote;
pub(crate) use quantity::{RULE as QUANTITY_RULE, canonical as canonical_quantity};

/// Whether text has a format; it has every format that is not known.
pub(crate) fn has_format(format: &str, text: &str) -> bool {
    formats::check(format, text).unwrap_or(true)
}

mod canonical;
mod check;
mod default;
mod error;
pub(crate) mod formats;
mod prune;
mod quantity;
pub(crate) mod rules;
mod structural;
mod validate;

/// A shared, possibly recursive, reference to a [`Schema`].
///
/// Dereferences to the schema. Recursive types are built by making the reference first and
/// filling it once all its parts exist, or by naming a function that makes it on first use.
#[derive(Clone, Default)]
pub struct Ref(Arc<Slot>);

#[derive(Default)]
struct Slot {
    schema: OnceLock<Schema>,
    load: Option<Loader>,
}

/// Makes a schema on first use, from a number.
#[derive(Clone, Copy)]
struct Loader {
    load: fn(usize) -> Schema,
    number: usize,
}

impl Ref {
    /// A reference that is filled later with [`Ref::fill`].
    pub fn unfilled() -> Self {
        Self::default()
    }

    /// Gives the reference its schema; the first call wins.
    pub fn fill(&self, schema: Schema) {
        let _ = self.0.schema.set(schema);
    }

    /// A reference whose schema `load` makes from `number` when it is first looked at.
    pub fn lazy(load: fn(usize) -> Schema, number: usize) -> Self {
        Self(Arc::new(Slot { schema: OnceLock::new(), load: Some(Loader { load, number }) }))
    }
}

impl From<Schema> for Ref {
    fn from(schema: Schema) -> Self {
        Self(Arc::new(Slot { schema: OnceLock::from(schema), load: None }))
    }
}

impl Deref for Ref {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        /// Stands in for a reference that nobody filled: admits everything.
        static ANY: Schema = Schema::any();
        match self.0.load {
            Some(Loader { load, number }) => self.0.schema.get_or_init(|| load(number)),
            None => self.0.schema.get().unwrap_or(&ANY),
        }
    }
}

impl fmt::Debug for Ref {
    /// Shallow, because schemas may be recursive.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ref(..)")
    }
}

/// One node of a type.
#[derive(Debug)]
pub struct Schema {
    /// The JSON it admits.
    pub shape: Shape,
    /// Whether `null` is a value (elsewhere `null` means absent).
    pub nullable: bool,
    /// The value an absent field takes.
    pub default: Option<Value>,
    /// The name under which OpenAPI publishes it, for example `io.k8s.api.core.v1.Container`.
    pub name: Option<Arc<str>>,
    /// Prose for `kubectl explain`.
    pub description: Option<Arc<str>>,
    /// What a custom resource's schema demands beyond the shape.
    pub constraints: Option<Box<Constraints>>,
}

impl Default for Schema {
    fn default() -> Self {
        Self::any()
    }
}

impl Schema {
    /// Admits everything, keeps everything.
    pub const fn any() -> Self {
        Self::of(Shape::Any)
    }

    /// A schema of this shape and nothing else.
    pub const fn of(shape: Shape) -> Self {
        Self { shape, nullable: false, default: None, name: None, description: None, constraints: None }
    }
}

/// The JSON a [`Schema`] admits.
#[derive(Debug)]
pub enum Shape {
    /// Anything; never pruned, merged as one value.
    Any,
    /// A value without parts.
    Scalar(Scalar),
    /// An object with known fields.
    Struct(Struct),
    /// An object with free keys and values of one type.
    Map {
        /// The type of every value.
        values: Ref,
        /// Whether server-side apply owns it as one value (`x-kubernetes-map-type: atomic`).
        atomic: bool,
    },
    /// An array.
    List {
        /// The type of every element.
        items: Ref,
        /// How elements are told apart.
        kind: ListKind,
    },
}

/// Values without parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// Text.
    String,
    /// Text in base64 (protobuf `bytes`).
    Bytes,
    /// Whole number of 32 bits.
    Int32,
    /// Whole number of 64 bits.
    Int64,
    /// Any number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A whole number or text (`x-kubernetes-int-or-string`).
    IntOrString,
    /// A resource quantity: text, or a number that is read as one.
    Quantity,
    /// RFC 3339 with seconds.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
}

/// An object with known fields.
#[derive(Debug, Default)]
pub struct Struct {
    /// By JSON name.
    pub fields: BTreeMap<Arc<str>, Field>,
    /// What happens to fields that are not listed.
    pub unknown: Unknown,
    /// Whether server-side apply owns it as one value.
    pub atomic: bool,
    /// Whether it holds a whole object with `apiVersion`, `kind` and `metadata`
    /// (`x-kubernetes-embedded-resource`).
    pub embedded: bool,
}

/// What happens to fields that a [`Struct`] does not list.
#[derive(Debug, Default)]
pub enum Unknown {
    /// They are dropped, or refused under strict validation.
    #[default]
    Prune,
    /// They are kept (`x-kubernetes-preserve-unknown-fields`).
    Keep,
    /// They are values of this type (`properties` and `additionalProperties` together).
    Typed(Ref),
}

/// A field of a [`Struct`].
#[derive(Debug, Default)]
pub struct Field {
    /// Its type.
    pub schema: Ref,
    /// Whether it must be there.
    pub required: bool,
    /// How a strategic merge patch treats it.
    pub patch: PatchStrategy,
    /// Its protobuf number; 0 where there is none. Where protobuf has a message around fields
    /// that JSON shows inline, that message's number stands above [`Field::INLINED_SHIFT`].
    pub number: u32,
    /// What becomes of its zero value (`""`, `0`, `false`, `[]`, `{}`).
    pub zero: Zero,
}

impl Field {
    /// How far the number of an inlined message is shifted in [`Field::number`].
    pub const INLINED_SHIFT: u32 = 16;
    /// Of a message that is inlined in an inlined one, the outer number stands above the inner.
    pub const NESTED_SHIFT: u32 = 8;
}

/// What becomes of a field whose value is the zero of its type (`""`, `0`, `false`, `[]`, `{}`).
///
/// Built-in types are stored as Kubernetes' own encoder would write them; custom resources are
/// stored as they came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Zero {
    /// Kept as it came, there or absent.
    #[default]
    Keep,
    /// Left out.
    Omit,
    /// Written even where it was absent.
    Write,
    /// Kept where it is there, written as `null` where it was absent.
    Null,
}

/// How a strategic merge patch treats a field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// Lists are merged, by `key` or, for scalars, as a set; otherwise replaced.
    pub merge: bool,
    /// The field that identifies an element of a merged list.
    pub key: Option<Arc<str>>,
    /// Keys of the live object that the patch does not name are cleared (unions such as volumes).
    pub retain_keys: bool,
}

/// How the elements of a list are told apart (`x-kubernetes-list-type`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ListKind {
    /// Owned and replaced as one value.
    #[default]
    Atomic,
    /// By value.
    Set,
    /// By these fields of each element.
    Map(Vec<Arc<str>>),
}

/// What a custom resource's schema demands beyond the shape.
#[derive(Debug, Default)]
pub struct Constraints {
    /// The schema names no `type`: its shape only tells how to look into a value that has it,
    /// values of other types are admitted too (inside `allOf`, `anyOf`, `oneOf` and `not`).
    pub untyped: bool,
    /// Fields that must be there without being listed among the properties.
    pub required: Vec<Arc<str>>,
    /// `enum`.
    pub allowed: Option<Vec<Value>>,
    /// `format`.
    pub format: Option<String>,
    /// `pattern`, as written and compiled.
    pub pattern: Option<(String, regex::Regex)>,
    /// `minimum` and whether it is exclusive.
    pub minimum: Option<(serde_json::Number, bool)>,
    /// `maximum` and whether it is exclusive.
    pub maximum: Option<(serde_json::Number, bool)>,
    /// `multipleOf`.
    pub multiple_of: Option<serde_json::Number>,
    /// `minLength`.
    pub min_length: Option<u64>,
    /// `maxLength`.
    pub max_length: Option<u64>,
    /// `minItems`.
    pub min_items: Option<u64>,
    /// `maxItems`.
    pub max_items: Option<u64>,
    /// `uniqueItems`.
    pub unique_items: bool,
    /// `minProperties`.
    pub min_properties: Option<u64>,
    /// `maxProperties`.
    pub max_properties: Option<u64>,
    /// `allOf`.
    pub all_of: Vec<Ref>,
    /// `anyOf`.
    pub any_of: Vec<Ref>,
    /// `oneOf`.
    pub one_of: Vec<Ref>,
    /// `not`.
    pub not: Option<Ref>,
    /// `x-kubernetes-validations`, kept as written.
    pub rules: Vec<Value>,
    /// The same, ready to be held against objects.
    pub compiled: Vec<Rule>,
}
