//! Stored objects as a resource shows them.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{
    api_version, convert,
    meta::{Meta, encode, prefix},
};
use crate::{definitions::Served, http::MetaVersion, object::Stored, schema, types::Resource};

/// How the bytes of a resource's stored objects become those that it shows.
#[derive(Debug, Clone)]
pub(crate) struct Lens {
    shown: String,
    /// Objects older than this write lack defaults or fields that the type has gained or lost since.
    reshape_before: Option<u64>,
}

impl Lens {
    /// The lens of a resource.
    pub(crate) fn new(served: &Served, resource: &Resource) -> Self {
        Self {
            shown: prefix(&resource.kind, &api_version(resource)),
            // What a webhook converts has its shape already when it comes here.
            reshape_before: served
                .reshape_before(resource)
                .filter(|_| resource.conversion_webhook().is_none()),
        }
    }

    /// Whether the stored bytes are what is shown.
    pub(crate) fn is_clear(&self, stored: &Stored) -> bool {
        stored.bytes.starts_with(self.shown.as_bytes()) && !self.reshapes(stored)
    }

    fn reshapes(&self, stored: &Stored) -> bool {
        self.reshape_before.is_some_and(|revision| stored.revision.0 < revision)
    }

    /// The bytes of an object.
    pub(crate) fn bytes(&self, resource: &Resource, stored: &Stored) -> Bytes {
        if self.is_clear(stored) {
            return stored.bytes.clone();
        }
        let value = self.value(resource, stored);
        let mut bytes = encode(&value);
        splice_revision(&mut bytes, value.resource_version());
        bytes.into()
    }

    /// Appends the bytes of an object as an element of a list, where built-in types leave out kind and version.
    pub(crate) fn item(&self, resource: &Resource, stored: &Stored, out: &mut Vec<u8>) {
        let bytes = self.bytes(resource, stored);
        match bytes.strip_prefix(self.shown.as_bytes()) {
            Some(rest) if resource.origin == crate::types::Origin::BuiltIn => {
                out.push(b'{');
                out.extend_from_slice(rest);
            }
            _ => out.extend_from_slice(&bytes),
        }
    }

    /// The tree of an object.
    pub(crate) fn value(&self, resource: &Resource, stored: &Stored) -> Value {
        let mut value = tree(stored);
        if self.reshapes(stored) {
            let own = value["apiVersion"].as_str().unwrap_or_default();
            let schemas = resource.versions.as_ref().map(|versions| &versions.schemas);
            let schema = schemas.and_then(|schemas| schemas.get(own)).unwrap_or(&resource.schema);
            schema::prune(&mut value, schema);
            schema::default(&mut value, schema);
        }
        convert::from_storage(resource, value)
    }
}

/// The stored bytes as a tree.
pub(crate) fn tree(stored: &Stored) -> Value {
    // The writer has scanned every object, so bytes that do not parse cannot be stored.
    serde_json::from_slice(&stored.bytes).unwrap_or_default()
}

/// The tree of an object as a resource shows it.
pub(crate) fn value(served: &Served, resource: &Resource, stored: &Stored) -> Value {
    Lens::new(served, resource).value(resource, stored)
}

/// Puts `resourceVersion` back into bytes made by [`encode`].
fn splice_revision(bytes: &mut Vec<u8>, revision: &str) {
    const METADATA: &[u8] = b"\"metadata\":{";
    if revision.is_empty() {
        return;
    }
    if let Some(position) = bytes.windows(METADATA.len()).position(|window| window == METADATA) {
        let at = position + METADATA.len();
        let comma = if bytes.get(at) == Some(&b'}') { "" } else { "," };
        let text = format!("\"resourceVersion\":\"{revision}\"{comma}");
        bytes.splice(at..at, text.into_bytes());
    }
}

/// `PartialObjectMetadata`.
pub(crate) fn metadata_only(object: &Value, version: MetaVersion) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or(Value::Object(Map::new()));
    json!({"kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": metadata})
}
