//! Tables: what `kubectl get` shows.
//!
//! The server, not the client, decides which columns a kind has. Custom resources name them in
//! their definition, as paths; for built-in kinds they are listed here.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::types::{Column, Origin, Path, Resource};

pub use age::human_duration;

mod age;
mod builtin;
mod cluster;
mod column;
mod network;
mod pods;
mod storage;
mod workloads;

/// What a row carries besides its cells (`includeObject`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// The object's metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Reads the query parameter of this name; `None` for a value that is not known.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(Self::Metadata),
            "None" => Some(Self::None),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// A Table of the objects; the caller gives it the metadata of the list.
///
/// # Example
/// ```
/// use serde_json::json;
/// use steersman_apiserver::{table, types::Catalog};
///
/// let catalog = Catalog::builtin();
/// let namespaces = catalog.find("", "v1", "namespaces").unwrap();
/// let object = json!({
///     "metadata": {"name": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
///     "status": {"phase": "Active"},
/// });
/// let now = "2026-01-01T00:01:00Z".parse().unwrap();
/// let table = table::render(namespaces, &[&object], table::IncludeObject::None, now);
/// assert_eq!(table["rows"][0]["cells"], json!(["default", "Active", "60s"]));
/// ```
pub fn render(resource: &Resource, objects: &[&Value], include: IncludeObject, now: Timestamp) -> Value {
    let rows: Vec<Value> = match columns_of(resource) {
        Columns::BuiltIn(columns) => objects
            .iter()
            .map(|object| {
                let cells = columns.iter().map(|column| column.cell.of(object, now)).collect();
                row(object, cells, include, pods::conditions(resource, object))
            })
            .collect(),
        Columns::Custom(paths) => objects
            .iter()
            .map(|object| {
                let name = object.pointer("/metadata/name").cloned().unwrap_or_default();
                let more = paths.iter().map(|(column, path)| custom_cell(column, path.as_ref(), object, now));
                row(object, std::iter::once(name).chain(more).collect(), include, None)
            })
            .collect(),
    };
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": headings(resource),
        "rows": rows,
    })
}

/// The columns of a built-in resource, as data.
pub(crate) fn builtin_columns(group: &str, plural: &str) -> Vec<Column> {
    builtin::columns(group, plural)
        .iter()
        .map(|column| Column {
            name: column.name.into(),
            kind: column.kind.into(),
            format: if column.name == "Name" { "name" } else { "" }.into(),
            description: column.description().into(),
            priority: column.priority,
            path: "".into(),
        })
        .collect()
}

enum Columns<'a> {
    BuiltIn(&'static [column::BuiltIn]),
    Custom(Vec<(&'a Column, Option<Path>)>),
}

fn columns_of(resource: &Resource) -> Columns<'_> {
    if resource.origin == Origin::BuiltIn {
        let group = if &*resource.group == "events.k8s.io" { "" } else { &*resource.group };
        return Columns::BuiltIn(builtin::columns(group, &resource.plural));
    }
    Columns::Custom(resource.columns.iter().map(|column| (column, Path::parse(&column.path).ok())).collect())
}

fn headings(resource: &Resource) -> Vec<Value> {
    let heading = |column: &Column| {
        let description = if column.description.is_empty() && !column.path.is_empty() {
            format!("Custom resource definition column (in JSONPath format): {}", column.path)
        } else {
            column.description.to_string()
        };
        json!({
            "name": &*column.name,
            "type": &*column.kind,
            "format": &*column.format,
            "description": description,
            "priority": column.priority,
        })
    };
    let mut headings = Vec::new();
    if resource.origin != Origin::BuiltIn {
        headings.push(json!({
            "name": "Name", "type": "string", "format": "name", "description": column::NAME, "priority": 0,
        }));
    }
    headings.extend(resource.columns.iter().map(heading));
    headings
}

fn row(object: &Value, cells: Vec<Value>, include: IncludeObject, conditions: Option<Value>) -> Value {
    let mut row = Map::new();
    row.insert("cells".into(), cells.into());
    if let Some(conditions) = conditions {
        row.insert("conditions".into(), conditions);
    }
    let shown = match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Object => object.clone(),
        IncludeObject::Metadata => partial_object(object),
    };
    row.insert("object".into(), shown);
    Value::Object(row)
}

/// An object of which only the metadata is shown.
pub fn partial_object(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

/// A cell of a custom resource; missing values and those of another type stay empty.
fn custom_cell(column: &Column, path: Option<&Path>, object: &Value, now: Timestamp) -> Value {
    let Some(value) = path.and_then(|path| path.get(object)) else { return Value::Null };
    match (&*column.kind, value) {
        (_, Value::Null) => Value::Null,
        ("integer", Value::Number(number)) => number
            .as_i64()
            .or_else(|| number.as_f64().filter(|float| float.is_finite()).map(|float| float as i64))
            .map_or(Value::Null, Value::from),
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(time) => human_duration(time, now).into(),
            Err(_) => "<invalid>".into(),
        },
        ("string", Value::String(_)) => value.clone(),
        ("string", other) => other.to_string().into(),
        _ => Value::Null,
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
