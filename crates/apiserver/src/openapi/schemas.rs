//! The model of a type as OpenAPI writes it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{
    schema::{Constraints, Field, ListKind, Ref, Scalar, Schema, Shape, Unknown},
    types::{Catalog, Origin, Resource, Subresource, Version, definition},
};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const GVK: &str = "x-kubernetes-group-version-kind";

/// The version of OpenAPI that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Swagger 2.0: no `nullable`, no `oneOf`, `anyOf` and `not`.
    V2,
    /// OpenAPI 3.0.
    V3,
}

impl Dialect {
    /// A reference to a named definition.
    pub(super) fn reference(self, name: &str) -> Value {
        match self {
            Self::V2 => json!({"$ref": format!("#/definitions/{name}")}),
            Self::V3 => json!({"$ref": format!("#/components/schemas/{name}")}),
        }
    }
}

/// The definitions of a set of resources and of all that they refer to.
pub(super) struct Definitions {
    dialect: Dialect,
    written: BTreeMap<String, Value>,
}

impl Definitions {
    pub(super) fn of_catalog(catalog: &Catalog, dialect: Dialect) -> Map<String, Value> {
        let versions: Vec<&Version> =
            catalog.groups().iter().flat_map(|group| &group.versions).map(|version| &**version).collect();
        Self::of(&versions, dialect)
    }

    pub(super) fn of(versions: &[&Version], dialect: Dialect) -> Map<String, Value> {
        let mut definitions = Self { dialect, written: BTreeMap::new() };
        definitions.add_scalars();
        for name in ["DeleteOptions", "ListMeta", "Patch", "Status", "WatchEvent"] {
            if let Some(schema) = definition(&format!("{META}.{name}")) {
                definitions.add(&schema);
            }
        }
        definitions.mark(&format!("{META}.Status"), "", "v1", "Status");
        for version in versions {
            for name in ["DeleteOptions", "WatchEvent"] {
                definitions.mark(&format!("{META}.{name}"), &version.group, &version.name, name);
            }
            for resource in &version.resources {
                definitions.add_resource(resource);
            }
        }
        definitions.written.into_iter().collect()
    }

    fn add_resource(&mut self, resource: &Resource) {
        let Some(name) = resource.schema.name.as_deref() else { return };
        self.add(&resource.schema);
        self.mark(name, &resource.group, &resource.version, &resource.kind);
        if resource.allows("list") {
            self.add_list(resource, name);
        }
        for subresource in &resource.subresources {
            let (group, version, kind) = match subresource {
                Subresource::Status => continue,
                Subresource::Scale(_) => ("autoscaling", "v1", "Scale"),
                Subresource::Other { group, version, kind, .. } => (&**group, &**version, &**kind),
            };
            // Only bodies that are types of their own; the others are the resource itself or parameters.
            let package = match group {
                "" => "core",
                group => group.split('.').next().unwrap_or_default(),
            };
            let name = format!("io.k8s.api.{package}.{version}.{kind}");
            if let Some(schema) = definition(&name) {
                self.add(&schema);
                self.mark(&name, group, version, kind);
            }
        }
    }

    fn add_list(&mut self, resource: &Resource, name: &str) {
        let list = format!("{name}List");
        let metadata = format!("{META}.ListMeta");
        let value = json!({
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": self.dialect.reference(&metadata),
                "items": {"type": "array", "items": self.dialect.reference(name)},
            },
        });
        self.written.insert(list.clone(), value);
        self.mark(&list, &resource.group, &resource.version, &resource.list_kind);
    }

    /// Adds a named schema and all that it refers to.
    fn add(&mut self, schema: &Schema) {
        let Some(name) = schema.name.as_deref() else { return };
        if self.written.contains_key(name) {
            return;
        }
        // Stands in while the schema is written, which ends the recursion.
        self.written.insert(name.to_owned(), Value::Null);
        let custom = !name.starts_with("io.k8s.");
        let written = self.write(schema, custom);
        self.written.insert(name.to_owned(), written);
    }

    /// Notes the group, version and kind of a definition.
    fn mark(&mut self, name: &str, group: &str, version: &str, kind: &str) {
        let Some(definition) = self.written.get_mut(name).and_then(Value::as_object_mut) else { return };
        let mark = json!({"group": group, "version": version, "kind": kind});
        let marks = definition.entry(GVK).or_insert_with(|| json!([]));
        if let Some(marks) = marks.as_array_mut().filter(|marks| !marks.contains(&mark)) {
            marks.push(mark);
        }
    }

    /// Types that JSON shows as text or numbers have names of their own.
    fn add_scalars(&mut self) {
        let either = match self.dialect {
            Dialect::V2 => json!({"type": "string", "format": "int-or-string"}),
            Dialect::V3 => {
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
            }
        };
        let quantity = match self.dialect {
            Dialect::V2 => json!({"type": "string"}),
            Dialect::V3 => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        };
        let time = json!({"type": "string", "format": "date-time"});
        for (name, value) in [
            (scalar_name(Scalar::IntOrString), either),
            (scalar_name(Scalar::Quantity), quantity),
            (scalar_name(Scalar::Time), time.clone()),
            (scalar_name(Scalar::MicroTime), time),
        ] {
            self.written.extend(name.map(|name| (name.to_owned(), value)));
        }
    }

    fn write(&mut self, schema: &Schema, custom: bool) -> Value {
        let mut out = Map::new();
        if let Some(description) = &schema.description {
            out.insert("description".into(), (**description).into());
        }
        if let Some(default) = schema.default.as_ref().filter(|_| self.dialect == Dialect::V3) {
            out.insert("default".into(), default.clone());
        }
        if schema.nullable {
            // Version 2 cannot say that null is a value, so it says nothing of the type.
            if self.dialect == Dialect::V2 {
                return Value::Object(out);
            }
            out.insert("nullable".into(), true.into());
        }
        let untyped = schema.constraints.as_ref().is_some_and(|constraints| constraints.untyped);
        self.write_shape(schema, custom, &mut out);
        if untyped {
            out.remove("type");
            if custom {
                out.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
            }
        }
        if let Some(constraints) = &schema.constraints {
            self.write_constraints(constraints, &mut out);
        }
        Value::Object(out)
    }

    fn write_shape(&mut self, schema: &Schema, custom: bool, out: &mut Map<String, Value>) {
        match &schema.shape {
            Shape::Any => {}
            Shape::Scalar(scalar) => match (scalar, scalar_name(*scalar)) {
                (Scalar::IntOrString, _) if custom => {
                    out.insert("x-kubernetes-int-or-string".into(), true.into());
                }
                (_, Some(name)) => out.extend(object(self.dialect.reference(name))),
                (scalar, None) => out.extend(object(plain(*scalar))),
            },
            Shape::Map { values, atomic } => {
                out.insert("type".into(), "object".into());
                out.insert("additionalProperties".into(), self.write_nested(values, custom));
                if *atomic {
                    out.insert("x-kubernetes-map-type".into(), "atomic".into());
                }
            }
            Shape::List { items, kind } => {
                out.insert("type".into(), "array".into());
                out.insert("items".into(), self.write_nested(items, custom));
                match kind {
                    ListKind::Atomic if custom => {}
                    ListKind::Atomic => {
                        out.insert("x-kubernetes-list-type".into(), "atomic".into());
                    }
                    ListKind::Set => {
                        out.insert("x-kubernetes-list-type".into(), "set".into());
                    }
                    ListKind::Map(keys) => {
                        out.insert("x-kubernetes-list-type".into(), "map".into());
                        out.insert("x-kubernetes-list-map-keys".into(), json!(keys));
                    }
                }
            }
            Shape::Struct(known) => {
                out.insert("type".into(), "object".into());
                if known.atomic {
                    out.insert("x-kubernetes-map-type".into(), "atomic".into());
                }
                if known.embedded {
                    out.insert("x-kubernetes-embedded-resource".into(), true.into());
                }
                match &known.unknown {
                    Unknown::Prune => {}
                    Unknown::Keep => {
                        out.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
                        // Clients of version 2 would take what is not listed for a mistake.
                        if self.dialect == Dialect::V2 && schema.name.is_none() {
                            return;
                        }
                    }
                    Unknown::Typed(values) => {
                        out.insert("additionalProperties".into(), self.write_nested(values, custom));
                    }
                }
                let properties: Map<String, Value> = known
                    .fields
                    .iter()
                    .map(|(name, field)| (name.to_string(), self.write_field(field, custom)))
                    .collect();
                if !properties.is_empty() {
                    out.insert("properties".into(), properties.into());
                }
                let required: Vec<&str> = known
                    .fields
                    .iter()
                    .filter(|(_, field)| field.required)
                    .map(|(name, _)| &**name)
                    .chain(
                        schema
                            .constraints
                            .iter()
                            .flat_map(|constraints| &constraints.required)
                            .map(|name| &**name),
                    )
                    .collect();
                if !required.is_empty() {
                    out.insert("required".into(), json!(required));
                }
            }
        }
    }

    fn write_field(&mut self, field: &Field, custom: bool) -> Value {
        let mut value = self.write_nested(&field.schema, custom);
        let mut strategy = Vec::new();
        if field.patch.merge {
            strategy.push("merge");
        }
        if field.patch.retain_keys {
            strategy.push("retainKeys");
        }
        if strategy.is_empty() && field.patch.key.is_none() {
            return value;
        }
        // In version 3 nothing may stand beside a reference.
        if self.dialect == Dialect::V3 && value.get("$ref").is_some() {
            value = json!({"allOf": [value]});
        }
        if !strategy.is_empty() {
            value["x-kubernetes-patch-strategy"] = strategy.join(",").into();
        }
        if let Some(key) = &field.patch.key {
            value["x-kubernetes-patch-merge-key"] = (**key).into();
        }
        value
    }

    /// A reference where the schema has a name, else the schema itself.
    fn write_nested(&mut self, schema: &Ref, custom: bool) -> Value {
        match &schema.name {
            Some(name) => {
                self.add(schema);
                self.dialect.reference(name)
            }
            None => self.write(schema, custom),
        }
    }

    fn write_constraints(&mut self, constraints: &Constraints, out: &mut Map<String, Value>) {
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                out.insert(key.to_owned(), value);
            }
        };
        put("enum", constraints.allowed.clone().map(Value::from));
        put("format", constraints.format.clone().map(Value::from));
        put("pattern", constraints.pattern.as_ref().map(|(pattern, _)| pattern.as_str().into()));
        for (key, exclusive, bound) in [
            ("minimum", "exclusiveMinimum", &constraints.minimum),
            ("maximum", "exclusiveMaximum", &constraints.maximum),
        ] {
            put(key, bound.as_ref().map(|(number, _)| Value::Number(number.clone())));
            put(exclusive, bound.as_ref().filter(|(_, exclusive)| *exclusive).map(|_| true.into()));
        }
        put("multipleOf", constraints.multiple_of.clone().map(Value::Number));
        put("minLength", constraints.min_length.map(Value::from));
        put("maxLength", constraints.max_length.map(Value::from));
        put("minItems", constraints.min_items.map(Value::from));
        put("maxItems", constraints.max_items.map(Value::from));
        put("minProperties", constraints.min_properties.map(Value::from));
        put("maxProperties", constraints.max_properties.map(Value::from));
        put(
            "x-kubernetes-validations",
            (!constraints.rules.is_empty()).then(|| constraints.rules.clone().into()),
        );
        if self.dialect == Dialect::V3 {
            let mut junctions = Map::new();
            for (key, schemas) in [
                ("allOf", &constraints.all_of),
                ("anyOf", &constraints.any_of),
                ("oneOf", &constraints.one_of),
            ] {
                if !schemas.is_empty() {
                    let written: Vec<Value> =
                        schemas.iter().map(|schema| self.write_narrowing(schema)).collect();
                    junctions.insert(key.to_owned(), written.into());
                }
            }
            if let Some(not) = &constraints.not {
                junctions.insert("not".to_owned(), self.write_narrowing(not));
            }
            out.extend(junctions);
        }
    }

    /// A schema inside `allOf` and its kin, which says nothing of unknown fields.
    fn write_narrowing(&mut self, schema: &Ref) -> Value {
        let mut written = self.write(schema, false);
        if let Some(keys) = written.as_object_mut() {
            keys.remove("x-kubernetes-preserve-unknown-fields");
        }
        written
    }
}

/// The name of a resource's definition.
pub(super) fn name_of(resource: &Resource) -> String {
    match (&resource.schema.name, &resource.origin) {
        (Some(name), _) => name.to_string(),
        (None, Origin::BuiltIn | Origin::Custom { .. }) => format!("{META}.Status"),
    }
}

fn scalar_name(scalar: Scalar) -> Option<&'static str> {
    match scalar {
        Scalar::IntOrString => Some("io.k8s.apimachinery.pkg.util.intstr.IntOrString"),
        Scalar::Quantity => Some("io.k8s.apimachinery.pkg.api.resource.Quantity"),
        Scalar::Time => Some("io.k8s.apimachinery.pkg.apis.meta.v1.Time"),
        Scalar::MicroTime => Some("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"),
        _ => None,
    }
}

fn plain(scalar: Scalar) -> Value {
    match scalar {
        Scalar::Bytes => json!({"type": "string", "format": "byte"}),
        Scalar::Int32 => json!({"type": "integer", "format": "int32"}),
        Scalar::Int64 => json!({"type": "integer", "format": "int64"}),
        Scalar::Number => json!({"type": "number"}),
        Scalar::Boolean => json!({"type": "boolean"}),
        _ => json!({"type": "string"}),
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
