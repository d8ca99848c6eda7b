//! Swagger 2.0: one document for everything.

use serde_json::{Map, Value, json};

use super::{
    operations::{self, Operation, PathItem},
    schemas::{Definitions, Dialect},
    v3::tag,
};
use crate::types::{Catalog, Resource};

/// The document of a catalog.
pub(super) fn document(catalog: &Catalog) -> Value {
    let mut paths = Map::new();
    for resource in catalog.resources() {
        for item in operations::paths(resource) {
            paths.insert(item.path.clone(), path_item(resource, &item));
        }
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "definitions": Definitions::of_catalog(catalog, Dialect::V2),
    })
}

fn path_item(resource: &Resource, item: &PathItem) -> Value {
    let mut value = Map::new();
    let parameters: Vec<Value> = item
        .parameters
        .iter()
        .map(|name| json!({"name": name, "in": "path", "required": true, "type": "string", "uniqueItems": true}))
        .chain([json!({"name": "pretty", "in": "query", "type": "string", "uniqueItems": true})])
        .collect();
    value.insert("parameters".into(), parameters.into());
    for operation in &item.operations {
        value.insert(operation.method.into(), write(resource, operation));
    }
    value.into()
}

fn write(resource: &Resource, operation: &Operation) -> Value {
    let (group, version, kind) = &operation.kind;
    let mut parameters: Vec<Value> = Vec::new();
    if let Some(body) = &operation.body {
        parameters.push(json!({
            "name": "body", "in": "body", "required": operation.method != "delete", "schema": Dialect::V2.reference(body),
        }));
    }
    parameters.extend(
        operation
            .query
            .iter()
            .map(|(name, kind)| json!({"name": name, "in": "query", "type": kind, "uniqueItems": true})),
    );
    let consumes = match operation.method {
        "patch" => operations::patch_types(resource),
        _ => vec!["*/*"],
    };
    json!({
        "operationId": operation.id,
        "description": operation.description,
        "tags": [tag(resource)],
        "schemes": ["https"],
        "consumes": consumes,
        "produces": ["application/json", "application/yaml"],
        "parameters": parameters,
        "responses": {
            "200": {"description": "OK", "schema": Dialect::V2.reference(&operation.answer)},
            "401": {"description": "Unauthorized"},
        },
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
    })
}
