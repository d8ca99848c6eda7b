//! The built-in types, read from the table that `cargo xtask generate` makes.
//!
//! Resources are read at once; definitions, most of which no request ever touches, when they are
//! first looked at.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, OnceLock},
};

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{Origin, Resource, ScalePaths, Scope, Storage, Subresource, fields};
use crate::{
    schema::{Field, ListKind, PatchStrategy, Ref, Scalar, Schema, Shape, Struct, Unknown, Zero},
    table,
};

/// The definition of the metadata that every object has.
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The built-in resources, in the order in which discovery lists them.
pub(super) fn resources() -> &'static [Arc<Resource>] {
    static RESOURCES: OnceLock<Vec<Arc<Resource>>> = OnceLock::new();
    RESOURCES.get_or_init(|| table().resources.iter().map(|line| Arc::new(line.resource())).collect())
}

/// A built-in definition by its OpenAPI name, for example `io.k8s.api.core.v1.PodSpec`.
pub fn definition(name: &str) -> Option<Ref> {
    let table = table();
    table.numbers.get(name).map(|number| table.definitions[*number].reference.clone())
}

/// The type of a built-in kind, of objects and of the bodies of subresources alike.
pub fn schema_of_kind(api_version: &str, kind: &str) -> Option<Ref> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    if kind == "DeleteOptions" {
        return definition("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
    }
    let line =
        table().resources.iter().find(|line| (line.group, line.version, line.kind) == (group, version, kind));
    match line {
        Some(line) => definition(line.definition),
        None => {
            let package = if group.is_empty() { "core" } else { group.split('.').next()? };
            definition(&format!("io.k8s.api.{package}.{version}.{kind}"))
        }
    }
}

/// The type of `metadata`.
pub fn object_meta() -> Ref {
    definition(OBJECT_META).unwrap_or_default()
}

/// The table as it is in the file.
#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    resources: Vec<ResourceLine<'a>>,
    #[serde(borrow)]
    definitions: BTreeMap<&'a str, &'a RawValue>,
}

struct Table {
    resources: Vec<ResourceLine<'static>>,
    definitions: Vec<Definition>,
    numbers: HashMap<&'static str, usize>,
}

struct Definition {
    name: &'static str,
    text: &'static RawValue,
    reference: Ref,
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let document: Document<'static> = match serde_json::from_str(include_str!("builtin.json")) {
            Ok(document) => document,
            // The file is part of the program; a test reads it, so this cannot happen in one that passed.
            Err(error) => {
                unreachable!("the table of built-in types is not what this program expects: {error}")
            }
        };
        let definitions: Vec<Definition> = document
            .definitions
            .into_iter()
            .enumerate()
            .map(|(number, (name, text))| Definition { name, text, reference: Ref::lazy(load, number) })
            .collect();
        let numbers =
            definitions.iter().enumerate().map(|(number, definition)| (definition.name, number)).collect();
        Table { resources: document.resources, definitions, numbers }
    })
}

/// Makes the schema of one definition.
fn load(number: usize) -> Schema {
    let definition = &table().definitions[number];
    let facts: DefinitionFacts<'static> = match serde_json::from_str(definition.text.get()) {
        Ok(facts) => facts,
        Err(error) => unreachable!("the built-in definition {} cannot be read: {error}", definition.name),
    };
    let fields = facts.fields.into_iter().map(|(name, field)| (name.into(), field.field())).collect();
    let shape =
        Shape::Struct(Struct { fields, unknown: Unknown::Prune, atomic: facts.atomic, embedded: false });
    Schema { name: Some(definition.name.into()), ..Schema::of(shape) }
}

/// A resource as the table writes it.
#[derive(Deserialize)]
struct ResourceLine<'a> {
    group: &'a str,
    version: &'a str,
    name: &'a str,
    singular: &'a str,
    kind: &'a str,
    namespaced: bool,
    #[serde(default, borrow)]
    short: Vec<&'a str>,
    #[serde(default, borrow)]
    categories: Vec<&'a str>,
    verbs: &'a str,
    #[serde(default, rename = "type")]
    definition: &'a str,
    #[serde(default, borrow)]
    subresources: BTreeMap<&'a str, SubresourceLine<'a>>,
}

#[derive(Deserialize)]
struct SubresourceLine<'a> {
    #[serde(rename = "apiVersion")]
    api_version: &'a str,
    kind: &'a str,
    verbs: &'a str,
}

impl ResourceLine<'_> {
    fn resource(&self) -> Resource {
        let storage_group = if self.group == "events.k8s.io" { "" } else { self.group };
        let name = if storage_group.is_empty() {
            self.name.to_owned()
        } else {
            format!("{storage_group}/{}", self.name)
        };
        // Resources served in two versions are kept in the one that loses nothing.
        let api_version = match (self.group, self.name) {
            ("events.k8s.io", _) => "v1".to_owned(),
            ("autoscaling", "horizontalpodautoscalers") => "autoscaling/v2".to_owned(),
            _ => super::api_version(self.group, self.version),
        };
        Resource {
            group: self.group.into(),
            version: self.version.into(),
            plural: self.name.into(),
            singular: self.singular.into(),
            kind: self.kind.into(),
            list_kind: format!("{}List", self.kind).into(),
            short_names: shared(&self.short),
            categories: shared(&self.categories),
            scope: if self.namespaced { Scope::Namespaced } else { Scope::Cluster },
            verbs: words(self.verbs),
            schema: definition(self.definition).unwrap_or_default(),
            columns: table::builtin_columns(storage_group, self.name),
            selectable: fields::selectable(self.group, self.name).iter().map(|name| (*name).into()).collect(),
            subresources: self.subresources.iter().map(|(name, line)| line.subresource(name)).collect(),
            storage: Storage { name: name.into(), api_version: api_version.into() },
            origin: Origin::BuiltIn,
            versions: None,
        }
    }
}

impl SubresourceLine<'_> {
    fn subresource(&self, name: &str) -> Subresource {
        match name {
            "status" => Subresource::Status,
            "scale" => Subresource::Scale(ScalePaths {
                spec_replicas: ".spec.replicas".into(),
                status_replicas: ".status.replicas".into(),
                label_selector: Some(".spec.selector".into()),
            }),
            _ => {
                let (group, version) = self.api_version.rsplit_once('/').unwrap_or(("", self.api_version));
                Subresource::Other {
                    name: name.into(),
                    group: group.into(),
                    version: version.into(),
                    kind: self.kind.into(),
                    verbs: words(self.verbs),
                }
            }
        }
    }
}

/// A definition as the table writes it.
#[derive(Deserialize)]
struct DefinitionFacts<'a> {
    #[serde(default)]
    atomic: bool,
    #[serde(borrow)]
    fields: BTreeMap<&'a str, FieldFacts<'a>>,
}

/// A field as the table writes it.
#[derive(Deserialize)]
struct FieldFacts<'a> {
    /// Protobuf number.
    #[serde(default)]
    n: u32,
    /// Number of the inlined message that it is in.
    #[serde(default, rename = "in")]
    inside: u32,
    #[serde(rename = "type")]
    of: &'a str,
    #[serde(default)]
    required: bool,
    #[serde(default)]
    zero: Zeros,
    #[serde(default, borrow)]
    keys: Option<Vec<&'a str>>,
    #[serde(default)]
    set: bool,
    #[serde(default)]
    atomic: bool,
    #[serde(default)]
    patch: &'a str,
    #[serde(default, borrow, rename = "mergeKey")]
    merge_key: Option<&'a str>,
    #[serde(default)]
    default: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
enum Zeros {
    #[default]
    Keep,
    Omit,
    Write,
    Null,
}

impl FieldFacts<'_> {
    fn field(self) -> Field {
        let kind = match (&self.keys, self.set) {
            (Some(keys), _) => ListKind::Map(shared(keys)),
            (None, true) => ListKind::Set,
            (None, false) => ListKind::Atomic,
        };
        let schema = match parse_type(self.of, kind, self.atomic) {
            // A default belongs to the field, so the schema is the field's own.
            Parsed::Own(shape) => Schema { default: self.default, ..Schema::of(shape) }.into(),
            Parsed::Shared(reference) => reference,
        };
        Field {
            schema,
            required: self.required,
            patch: PatchStrategy {
                merge: self.patch.split(',').any(|word| word == "merge"),
                key: self.merge_key.map(Into::into),
                retain_keys: self.patch.split(',').any(|word| word == "retainKeys"),
            },
            number: (self.inside << Field::INLINED_SHIFT) | self.n,
            zero: match self.zero {
                Zeros::Keep => Zero::Keep,
                Zeros::Omit => Zero::Omit,
                Zeros::Write => Zero::Write,
                Zeros::Null => Zero::Null,
            },
        }
    }
}

enum Parsed {
    Own(Shape),
    Shared(Ref),
}

/// Reads `string`, `[T]`, `{T}` or the name of a definition; `kind` and `atomic` are of the
/// outermost list or map.
fn parse_type(text: &str, kind: ListKind, atomic: bool) -> Parsed {
    if let Some(items) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return Parsed::Own(Shape::List { items: reference(items), kind });
    }
    if let Some(values) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        return Parsed::Own(Shape::Map { values: reference(values), atomic });
    }
    let scalar = match text {
        "string" => Scalar::String,
        "bytes" => Scalar::Bytes,
        "int32" => Scalar::Int32,
        "int64" => Scalar::Int64,
        "number" => Scalar::Number,
        "boolean" => Scalar::Boolean,
        "intOrString" => Scalar::IntOrString,
        "quantity" => Scalar::Quantity,
        "time" => Scalar::Time,
        "microTime" => Scalar::MicroTime,
        "any" => return Parsed::Own(Shape::Any),
        name => return Parsed::Shared(definition(name).unwrap_or_default()),
    };
    Parsed::Own(Shape::Scalar(scalar))
}

fn reference(text: &str) -> Ref {
    match parse_type(text, ListKind::Atomic, false) {
        Parsed::Own(shape) => Schema::of(shape).into(),
        Parsed::Shared(reference) => reference,
    }
}

fn words(text: &str) -> Vec<Arc<str>> {
    text.split(' ').map(Into::into).collect()
}

fn shared(texts: &[&str]) -> Vec<Arc<str>> {
    texts.iter().map(|text| (*text).into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_of_the_table_can_be_read_and_refers_to_known_ones() {
        fn walk(schema: &Schema) {
            match &schema.shape {
                Shape::List { items, .. } => walk_unnamed(items),
                Shape::Map { values, .. } => walk_unnamed(values),
                _ => {}
            }
        }
        fn walk_unnamed(reference: &Ref) {
            // Named ones are visited on their own, which also ends the recursion.
            if reference.name.is_none() {
                walk(reference);
            }
        }
        for number in 0..table().definitions.len() {
            let schema = load(number);
            let Shape::Struct(fields) = &schema.shape else { panic!("{:?} is no struct", schema.name) };
            let mut numbers: Vec<_> = fields.fields.values().map(|field| field.number).collect();
            numbers.retain(|number| *number != 0);
            numbers.sort_unstable();
            let doubled = numbers.windows(2).find(|pair| pair[0] == pair[1]);
            assert!(doubled.is_none(), "{:?} has two fields of one number: {doubled:?}", schema.name);
            for field in fields.fields.values() {
                walk_unnamed(&field.schema);
            }
        }
        for line in &table().resources {
            assert!(
                line.definition.is_empty() || definition(line.definition).is_some(),
                "{}",
                line.definition
            );
        }
    }

    #[test]
    fn the_table_knows_keys_merge_keys_defaults_and_numbers() {
        let container = definition("io.k8s.api.core.v1.Container").expect("a container");
        let Shape::Struct(container) = &container.shape else { panic!("no struct") };
        let ports = &container.fields["ports"];
        assert_eq!(ports.patch.key.as_deref(), Some("containerPort"));
        assert!(ports.patch.merge);
        let Shape::List { items, kind: ListKind::Map(keys) } = &ports.schema.shape else {
            panic!("no map list")
        };
        assert_eq!(keys.iter().map(|key| &**key).collect::<Vec<_>>(), ["containerPort", "protocol"]);
        let Shape::Struct(port) = &items.shape else { panic!("no struct") };
        assert_eq!(port.fields["protocol"].schema.default, Some("TCP".into()));
        assert_eq!(port.fields["protocol"].number, 4);
        let volume = definition("io.k8s.api.core.v1.Volume").expect("a volume");
        let Shape::Struct(volume) = &volume.shape else { panic!("no struct") };
        assert_eq!(volume.fields["emptyDir"].number, (2 << Field::INLINED_SHIFT) | 2);
    }

    #[test]
    fn a_recursive_definition_refers_to_itself() {
        let props = definition("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
        let props = props.expect("the schema of schemas");
        let Shape::Struct(fields) = &props.shape else { panic!("no struct") };
        assert_eq!(fields.fields["not"].schema.name, props.name);
    }
}
