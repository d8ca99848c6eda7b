//! CustomResourceDefinitions: how a definition becomes a served type.
//!
//! A definition is defaulted and validated like any object, then its names are accepted and it is
//! established ([`status_for`]); from then on [`resources_of`] tells what it serves.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use serde_json::{Value, json};
use thiserror::Error;

pub use validate::{validate_definition, validate_definition_update};

use super::{
    Column, ConversionStrategy, ConversionWebhook, Origin, Resource, ScalePaths, Scope, Storage, Subresource,
    Versions,
};
use crate::schema::{Ref, StructuralError, read_root};

mod structural;
mod validate;

/// The verbs of a custom resource.
const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// Why a definition cannot be served.
#[derive(Debug, Error)]
pub enum DefinitionError {
    /// A field that every definition has is missing.
    #[error("the definition has no {field}; apply it again with that field set")]
    Missing {
        /// Path of the field.
        field: &'static str,
    },
    /// The schema of a version cannot be read.
    #[error("the schema of version {version} cannot be used")]
    Schema {
        /// Name of the version.
        version: String,
        /// What is wrong with it.
        #[source]
        source: StructuralError,
    },
}

/// Fills in what a definition may leave out: names derived from the kind, and no conversion.
pub fn default_definition(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        if text(names.get("singular")).is_empty() && !kind.is_empty() {
            names.insert("singular".into(), kind.to_lowercase().into());
        }
        if text(names.get("listKind")).is_empty() && !kind.is_empty() {
            names.insert("listKind".into(), format!("{kind}List").into());
        }
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".into(), json!({"strategy": "None"}));
    }
    let service = spec
        .get_mut("conversion")
        .and_then(|conversion| conversion.pointer_mut("/webhook/clientConfig/service"));
    if let Some(service) = service.and_then(Value::as_object_mut) {
        service.entry("port").or_insert(443.into());
    }
}

/// Adds the storage version to `status.storedVersions`, as every write of a definition does.
pub fn record_storage_version(definition: &mut Value) {
    let Some(storage) = storage_version(definition).map(Value::from) else { return };
    let Some(object) = definition.as_object_mut() else { return };
    let status = object.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else { return };
    let stored = status.entry("storedVersions").or_insert_with(|| json!([]));
    if !stored.is_array() {
        *stored = json!([]);
    }
    if let Some(stored) = stored.as_array_mut().filter(|stored| !stored.contains(&storage)) {
        stored.push(storage);
    }
}

/// The status that a definition should have, given all definitions of its group.
///
/// Names that another definition holds are not accepted; a definition whose names are accepted is
/// established. Times change only where a condition does.
pub fn status_for(definition: &Value, others: &[Value], now: Timestamp) -> Value {
    let mut with_storage = definition.clone();
    record_storage_version(&mut with_storage);
    let mut status = with_storage["status"].clone();
    let own_name = definition["metadata"]["name"].as_str();
    let group = &definition["spec"]["group"];
    let (mut resources, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for other in others.iter().filter(|other| &other["spec"]["group"] == group) {
        if other["metadata"]["name"].as_str() == own_name {
            continue;
        }
        let names = &other["status"]["acceptedNames"];
        resources.extend([text(names.get("plural")), text(names.get("singular"))]);
        resources.extend(strings(&names["shortNames"]));
        kinds.extend([text(names.get("kind")), text(names.get("listKind"))]);
    }
    let wanted = &definition["spec"]["names"];
    let mut accepted = status["acceptedNames"].clone();
    if !accepted.is_object() {
        accepted = json!({"plural": "", "kind": ""});
    }
    let mut conflict: Option<(&str, String)> = None;
    for (key, reason, taken) in [
        ("plural", "PluralConflict", &resources),
        ("singular", "SingularConflict", &resources),
        ("shortNames", "ShortNamesConflict", &resources),
        ("kind", "KindConflict", &kinds),
        ("listKind", "ListKindConflict", &kinds),
    ] {
        let names: Vec<&str> = match &wanted[key] {
            Value::Array(_) => strings(&wanted[key]).collect(),
            Value::String(name) => vec![name],
            _ => continue,
        };
        let taken: Vec<String> = names
            .iter()
            .filter(|name| accepted[key] != **name && taken.contains(**name))
            .map(|name| format!("{name:?} is already in use"))
            .collect();
        if taken.is_empty() {
            accepted[key] = wanted[key].clone();
        } else {
            conflict = Some((reason, taken.join(", ")));
        }
    }
    if wanted["categories"].is_array() {
        accepted["categories"] = wanted["categories"].clone();
    }
    status["acceptedNames"] = accepted;
    let established_before = is_established(definition);
    let (names, established) = match conflict {
        Some((reason, message)) => (
            ("False", reason, message),
            if established_before {
                None
            } else {
                Some(("False", "NotAccepted", "not all names are accepted"))
            },
        ),
        None => (
            ("True", "NoConflicts", "no conflicts found".to_owned()),
            Some(("True", "InitialNamesAccepted", "the initial names have been accepted")),
        ),
    };
    set_condition(&mut status, "NamesAccepted", names.0, names.1, &names.2, now);
    if let Some((value, reason, message)) = established.filter(|_| !established_before) {
        set_condition(&mut status, "Established", value, reason, message, now);
    }
    status
}

/// Whether the definition's resources are served.
pub fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .into_iter()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

/// The name of the version in which objects are kept.
pub fn storage_version(definition: &Value) -> Option<String> {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let mut storage = versions.filter(|version| version["storage"] == true);
    storage.next()?["name"].as_str().map(ToOwned::to_owned)
}

/// What a definition serves: one resource per served version.
///
/// # Errors
/// When a field that validation requires is missing, or a schema cannot be read.
pub fn resources_of(definition: &Value) -> Result<Vec<Resource>, DefinitionError> {
    let spec = &definition["spec"];
    let group: Arc<str> = required(spec, "group", "spec.group")?;
    // What is served are the names that were accepted; before that, those asked for.
    let accepted = &definition["status"]["acceptedNames"];
    let names = if text(accepted.get("plural")).is_empty() { &spec["names"] } else { accepted };
    let plural: Arc<str> = required(names, "plural", "spec.names.plural")?;
    let kind: Arc<str> = required(names, "kind", "spec.names.kind")?;
    let or = |key: &str, fallback: String| match text(names.get(key)) {
        "" => Arc::from(fallback),
        name => Arc::from(name),
    };
    let storage = storage_version(definition).ok_or(DefinitionError::Missing { field: "storage version" })?;
    let versions = Arc::new(versions_of(definition, &group, &kind)?);
    let mut resources = Vec::new();
    for version in
        spec["versions"].as_array().into_iter().flatten().filter(|version| version["served"] == true)
    {
        let name: Arc<str> = required(version, "name", "spec.versions[].name")?;
        resources.push(Resource {
            group: group.clone(),
            version: name.clone(),
            plural: plural.clone(),
            singular: or("singular", kind.to_lowercase()),
            kind: kind.clone(),
            list_kind: or("listKind", format!("{kind}List")),
            short_names: strings(&names["shortNames"]).map(Into::into).collect(),
            categories: strings(&names["categories"]).map(Into::into).collect(),
            scope: if spec["scope"] == "Cluster" { Scope::Cluster } else { Scope::Namespaced },
            verbs: VERBS.iter().map(|verb| Arc::from(*verb)).collect(),
            schema: versions.schemas.get(&*format!("{group}/{name}")).cloned().unwrap_or_default(),
            columns: columns_of(version),
            selectable: selectable_of(version),
            subresources: subresources_of(version),
            storage: Storage {
                name: format!("{group}/{plural}").into(),
                api_version: format!("{group}/{storage}").into(),
            },
            origin: Origin::Custom {
                definition: text(definition["metadata"].get("name")).into(),
                uid: text(definition["metadata"].get("uid")).into(),
            },
            versions: Some(Arc::clone(&versions)),
        });
    }
    Ok(resources)
}

fn versions_of(definition: &Value, group: &str, kind: &str) -> Result<Versions, DefinitionError> {
    let spec = &definition["spec"];
    let mut schemas = BTreeMap::new();
    for version in spec["versions"].as_array().into_iter().flatten() {
        let name = text(version.get("name"));
        schemas.insert(format!("{group}/{name}").into(), schema_of(version, group, kind)?);
    }
    let conversion = &spec["conversion"];
    let strategy = match text(conversion.get("strategy")) {
        "Webhook" => ConversionStrategy::Webhook(ConversionWebhook {
            client_config: conversion["webhook"]["clientConfig"].clone(),
            review_versions: strings(&conversion["webhook"]["conversionReviewVersions"])
                .map(ToOwned::to_owned)
                .collect(),
        }),
        _ => ConversionStrategy::None,
    };
    let generation = definition["metadata"]["generation"].as_i64().unwrap_or_default();
    Ok(Versions { generation, schemas, strategy })
}

fn schema_of(version: &Value, group: &str, kind: &str) -> Result<Ref, DefinitionError> {
    let json = &version["schema"]["openAPIV3Schema"];
    let name = text(version.get("name"));
    let mut schema = if json.is_null() {
        read_root(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}))
    } else {
        read_root(json)
    }
    .map_err(|source| DefinitionError::Schema { version: name.to_owned(), source })?;
    let reversed: Vec<&str> = group.rsplit('.').collect();
    schema.name = Some(format!("{}.{name}.{kind}", reversed.join(".")).into());
    Ok(schema.into())
}

fn columns_of(version: &Value) -> Vec<Column> {
    let column = |column: &Value| Column {
        name: text(column.get("name")).into(),
        kind: text(column.get("type")).into(),
        format: text(column.get("format")).into(),
        description: text(column.get("description")).into(),
        priority: column["priority"]
            .as_i64()
            .and_then(|priority| i32::try_from(priority).ok())
            .unwrap_or_default(),
        path: text(column.get("jsonPath")).into(),
    };
    let columns: Vec<Column> =
        version["additionalPrinterColumns"].as_array().into_iter().flatten().map(column).collect();
    if columns.is_empty() {
        return vec![Column {
            name: "Age".into(),
            kind: "date".into(),
            format: "".into(),
            description:
                "CreationTimestamp is a timestamp representing the server time when this object was created."
                    .into(),
            priority: 0,
            path: ".metadata.creationTimestamp".into(),
        }];
    }
    columns
}

fn selectable_of(version: &Value) -> Vec<Arc<str>> {
    let fields = version["selectableFields"].as_array().into_iter().flatten();
    fields.map(|field| text(field.get("jsonPath")).trim_start_matches('.').into()).collect()
}

fn subresources_of(version: &Value) -> Vec<Subresource> {
    let mut subresources = Vec::new();
    if version["subresources"]["status"].is_object() {
        subresources.push(Subresource::Status);
    }
    let scale = &version["subresources"]["scale"];
    if scale.is_object() {
        subresources.push(Subresource::Scale(ScalePaths {
            spec_replicas: text(scale.get("specReplicasPath")).into(),
            status_replicas: text(scale.get("statusReplicasPath")).into(),
            label_selector: Some(text(scale.get("labelSelectorPath")))
                .filter(|path| !path.is_empty())
                .map(Into::into),
        }));
    }
    subresources
}

fn set_condition(status: &mut Value, kind: &str, value: &str, reason: &str, message: &str, now: Timestamp) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    let at = conditions.iter().position(|condition| condition["type"] == kind);
    let unchanged = at.map(|at| &conditions[at]).filter(|old| old["status"] == value);
    let time = unchanged.map_or_else(
        || now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into(),
        |old| old["lastTransitionTime"].clone(),
    );
    let condition = json!({"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": time});
    match at {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
}

fn required(value: &Value, key: &str, field: &'static str) -> Result<Arc<str>, DefinitionError> {
    match text(value.get(key)) {
        "" => Err(DefinitionError::Missing { field }),
        text => Ok(text.into()),
    }
}

fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

fn strings(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}
