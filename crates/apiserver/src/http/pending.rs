//! Tables and OpenAPI documents in their simplest form.

use serde_json::{Value, json};

use crate::{openapi::Document, types::{Catalog, Resource}};

/// What a table holds of its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IncludeObject { None, Metadata, Object }

pub(crate) fn render(_: &Resource, objects: &[&Value], _: IncludeObject, _: jiff::Timestamp) -> Value {
    let rows: Vec<Value> = objects.iter().map(|object| json!({"cells": [object["metadata"]["name"]], "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]}})).collect();
    json!({"kind": "Table", "columnDefinitions": [{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}], "rows": rows})
}

pub(crate) fn v3_index(_: &Catalog) -> Value { json!({"paths": {}}) }
pub(crate) fn v3(_: &Catalog, _: &str) -> Option<Document> { None }
pub(crate) fn v2_json(_: &Catalog) -> Document { Document { bytes: "{}".into(), hash: "0".into() } }
pub(crate) fn v2_protobuf(_: &Catalog) -> Document { Document { bytes: "".into(), hash: "0".into() } }
