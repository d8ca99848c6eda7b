//! OpenAPI 3.0: one document per group version.

use serde_json::{Map, Value, json};

use super::{
    operations::{self, Operation, PathItem},
    schemas::{Definitions, Dialect},
};
use crate::types::{Resource, Version};

/// The document of one group version.
pub(super) fn document(version: &Version) -> Value {
    let mut paths = Map::new();
    for resource in &version.resources {
        for item in operations::paths(resource) {
            paths.insert(item.path.clone(), path_item(resource, &item));
        }
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "components": {
            "schemas": Definitions::of(&[version], Dialect::V3),
            "securitySchemes": {"BearerToken": {
                "description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey",
            }},
        },
    })
}

fn path_item(resource: &Resource, item: &PathItem) -> Value {
    let mut value = Map::new();
    let parameters: Vec<Value> = item
        .parameters
        .iter()
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}}))
        .chain([json!({"name": "pretty", "in": "query", "schema": {"type": "string", "uniqueItems": true}})])
        .collect();
    value.insert("parameters".into(), parameters.into());
    for operation in &item.operations {
        value.insert(operation.method.into(), write(resource, operation));
    }
    value.into()
}

fn write(resource: &Resource, operation: &Operation) -> Value {
    let content = |types: &[&str], name: &str| -> Value {
        types
            .iter()
            .map(|media| ((*media).to_owned(), json!({"schema": Dialect::V3.reference(name)})))
            .collect()
    };
    let answers = ["application/json", "application/yaml"];
    let (group, version, kind) = &operation.kind;
    let parameters: Vec<Value> = operation
        .query
        .iter()
        .map(|(name, kind)| json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}}))
        .collect();
    let ok = json!({"description": "OK", "content": content(&answers, &operation.answer)});
    let mut value = json!({
        "operationId": operation.id,
        "description": operation.description,
        "tags": [tag(resource)],
        "parameters": parameters,
        "responses": {"200": ok, "401": {"description": "Unauthorized"}},
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
    });
    if let Some(body) = &operation.body {
        let types = match operation.method {
            "patch" => operations::patch_types(resource),
            _ => vec!["*/*"],
        };
        value["requestBody"] =
            json!({"content": content(&types, body), "required": operation.method != "delete"});
    }
    value
}

/// The tag of a group version, for example `apps_v1`.
pub(super) fn tag(resource: &Resource) -> String {
    let group =
        if resource.group.is_empty() { "core" } else { resource.group.split('.').next().unwrap_or_default() };
    format!("{group}_{}", resource.version)
}
