//! Structural schemas: `openAPIV3Schema` of a custom resource definition, read into the model.

use std::sync::Arc;

use regex::Regex;
use serde_json::{Number, Value};
use thiserror::Error;

use super::{Constraints, Field, ListKind, Ref, Rule, Scalar, Schema, Shape, Struct, Unknown};
use crate::types::object_meta;

/// Why a schema cannot be read.
#[derive(Debug, Error)]
pub enum StructuralError {
    /// A pattern is no regular expression.
    #[error("{path}.pattern is not a regular expression that can be used here: {source}")]
    Pattern {
        /// Where in the schema.
        path: String,
        /// What the expression lacks.
        #[source]
        source: Box<regex::Error>,
    },
    /// Something that must be an object is none.
    #[error("{path} must be an object with the keys of a JSON schema, found {found}")]
    NotASchema {
        /// Where in the schema.
        path: String,
        /// What was found.
        found: Value,
    },
}

/// Reads the schema of a whole object: `apiVersion`, `kind` and `metadata` are always known.
///
/// # Errors
/// When it is no schema; what a definition's validation lets through can be read.
pub fn read_root(json: &Value) -> Result<Schema, StructuralError> {
    let mut schema = read(json, "openAPIV3Schema")?;
    if matches!(schema.shape, Shape::Any) {
        schema.shape = Shape::Struct(Struct { unknown: Unknown::Keep, ..Struct::default() });
    }
    if let Shape::Struct(fields) = &mut schema.shape {
        add_type_and_metadata(fields);
    }
    Ok(schema)
}

/// Reads one node.
fn read(json: &Value, path: &str) -> Result<Schema, StructuralError> {
    let Some(keys) = json.as_object() else {
        return Err(StructuralError::NotASchema { path: path.to_owned(), found: json.clone() });
    };
    let kind = keys.get("type").and_then(Value::as_str).unwrap_or_default();
    let is = |key: &str| keys.get(key) == Some(&Value::Bool(true));
    let mut constraints = read_constraints(json, path)?;
    let shape = if is("x-kubernetes-int-or-string") {
        Shape::Scalar(Scalar::IntOrString)
    } else {
        match kind {
            "object" => read_object(json, path, &mut constraints)?,
            "array" => read_list(json, path)?,
            "string" => Shape::Scalar(Scalar::String),
            "integer" if json["format"] == "int32" => Shape::Scalar(Scalar::Int32),
            "integer" => Shape::Scalar(Scalar::Int64),
            "number" => Shape::Scalar(Scalar::Number),
            "boolean" => Shape::Scalar(Scalar::Boolean),
            // Without a type the other keys still say how to look into objects and arrays.
            _ => {
                constraints.untyped = true;
                if ["properties", "additionalProperties", "required"]
                    .iter()
                    .any(|key| keys.contains_key(*key))
                {
                    read_object(json, path, &mut constraints)?
                } else if keys.contains_key("items") {
                    read_list(json, path)?
                } else {
                    Shape::Any
                }
            }
        }
    };
    Ok(Schema {
        shape,
        nullable: is("nullable"),
        default: keys.get("default").filter(|value| !value.is_null()).cloned(),
        name: None,
        description: keys.get("description").and_then(Value::as_str).map(Into::into),
        constraints: (!constraints.is_empty()).then(|| Box::new(constraints)),
    })
}

fn read_object(json: &Value, path: &str, constraints: &mut Constraints) -> Result<Shape, StructuralError> {
    let required: Vec<&str> =
        json["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let keep = json["x-kubernetes-preserve-unknown-fields"] == true;
    let atomic = json["x-kubernetes-map-type"] == "atomic";
    let embedded = json["x-kubernetes-embedded-resource"] == true;
    let additional = match &json["additionalProperties"] {
        Value::Object(_) => {
            Some(read(&json["additionalProperties"], &format!("{path}.additionalProperties"))?.into())
        }
        Value::Bool(true) => Some(Ref::from(Schema::any())),
        _ => None,
    };
    let mut fields = Struct { atomic, embedded, ..Struct::default() };
    for (name, property) in json["properties"].as_object().into_iter().flatten() {
        let schema = read(property, &format!("{path}.properties[{name}]"))?;
        let field =
            Field { schema: schema.into(), required: required.contains(&name.as_str()), ..Field::default() };
        fields.fields.insert(name.as_str().into(), field);
    }
    constraints.required = required
        .iter()
        .filter(|name| !fields.fields.contains_key(**name))
        .map(|name| Arc::from(*name))
        .collect();
    fields.unknown = match additional {
        Some(values) if fields.fields.is_empty() && !embedded => return Ok(Shape::Map { values, atomic }),
        Some(values) => Unknown::Typed(values),
        // What is not described inside allOf and the like is described elsewhere.
        None if keep || constraints.untyped => Unknown::Keep,
        None => Unknown::Prune,
    };
    if embedded {
        add_type_and_metadata(&mut fields);
    }
    Ok(Shape::Struct(fields))
}

fn read_list(json: &Value, path: &str) -> Result<Shape, StructuralError> {
    let items = match &json["items"] {
        Value::Object(_) => read(&json["items"], &format!("{path}.items"))?.into(),
        _ => Schema::any().into(),
    };
    let kind = match json["x-kubernetes-list-type"].as_str() {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys = json["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
            ListKind::Map(keys.filter_map(Value::as_str).map(Into::into).collect())
        }
        _ => ListKind::Atomic,
    };
    Ok(Shape::List { items, kind })
}

/// Gives a whole object its `apiVersion`, `kind` and `metadata`; what a definition demands of the
/// name stays.
fn add_type_and_metadata(fields: &mut Struct) {
    for name in ["apiVersion", "kind"] {
        fields.fields.entry(name.into()).or_insert_with(|| Field {
            schema: Schema::of(Shape::Scalar(Scalar::String)).into(),
            ..Field::default()
        });
    }
    let own = fields.fields.remove("metadata");
    let required = own.as_ref().is_some_and(|field| field.required);
    let schema = own.map_or_else(object_meta, |field| constrained_metadata(&field.schema));
    fields.fields.insert("metadata".into(), Field { schema, required, ..Field::default() });
}

/// ObjectMeta, with the fields that the definition constrains taken from it.
fn constrained_metadata(own: &Schema) -> Ref {
    let meta = object_meta();
    let (Shape::Struct(own_fields), Shape::Struct(meta_fields)) = (&own.shape, &meta.shape) else {
        return meta;
    };
    if own_fields.fields.is_empty() && own.constraints.is_none() {
        return meta;
    }
    let mut merged = Struct::default();
    for (name, field) in &meta_fields.fields {
        let schema = own_fields.fields.get(name).unwrap_or(field).schema.clone();
        let required = own_fields.fields.get(name).is_some_and(|field| field.required);
        let field =
            Field { schema, required, patch: field.patch.clone(), number: field.number, zero: field.zero };
        merged.fields.insert(name.clone(), field);
    }
    Schema { name: meta.name.clone(), ..Schema::of(Shape::Struct(merged)) }.into()
}

fn read_constraints(json: &Value, path: &str) -> Result<Constraints, StructuralError> {
    let count = |key: &str| json[key].as_u64();
    let number = |key: &str| match &json[key] {
        Value::Number(number) => Some(number.clone()),
        _ => None,
    };
    let bound = |key: &str, exclusive: &str| -> Option<(Number, bool)> {
        number(key).map(|number| (number, json[exclusive] == true))
    };
    let list = |key: &str| -> Result<Vec<Ref>, StructuralError> {
        let schemas = json[key].as_array().into_iter().flatten().enumerate();
        schemas.map(|(at, schema)| Ok(read(schema, &format!("{path}.{key}[{at}]"))?.into())).collect()
    };
    let pattern = match json["pattern"].as_str() {
        Some(pattern) if !pattern.is_empty() => {
            let compiled = Regex::new(pattern).map_err(|source| StructuralError::Pattern {
                path: path.to_owned(),
                source: Box::new(source),
            })?;
            Some((pattern.to_owned(), compiled))
        }
        _ => None,
    };
    Ok(Constraints {
        untyped: false,
        required: Vec::new(),
        allowed: json["enum"].as_array().cloned(),
        format: json["format"].as_str().filter(|format| !format.is_empty()).map(ToOwned::to_owned),
        pattern,
        minimum: bound("minimum", "exclusiveMinimum"),
        maximum: bound("maximum", "exclusiveMaximum"),
        multiple_of: number("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        unique_items: json["uniqueItems"] == true,
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        all_of: list("allOf")?,
        any_of: list("anyOf")?,
        one_of: list("oneOf")?,
        not: match &json["not"] {
            Value::Null => None,
            schema => Some(read(schema, &format!("{path}.not"))?.into()),
        },
        rules: json["x-kubernetes-validations"].as_array().cloned().unwrap_or_default(),
        compiled: json["x-kubernetes-validations"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Rule::read)
            .collect(),
    })
}

impl Constraints {
    /// Whether it demands nothing.
    fn is_empty(&self) -> bool {
        let counts = [
            self.min_length,
            self.max_length,
            self.min_items,
            self.max_items,
            self.min_properties,
            self.max_properties,
        ];
        !self.untyped
            && !self.unique_items
            && self.required.is_empty()
            && self.allowed.is_none()
            && self.format.is_none()
            && self.pattern.is_none()
            && self.minimum.is_none()
            && self.maximum.is_none()
            && self.multiple_of.is_none()
            && counts.iter().all(Option::is_none)
            && self.all_of.is_empty()
            && self.any_of.is_empty()
            && self.one_of.is_empty()
            && self.not.is_none()
            && self.rules.is_empty()
    }
}
