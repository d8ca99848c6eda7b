//! What the served types look like, as OpenAPI documents.
//!
//! kubectl reads them before it sends anything: version 3 one document per group version, older
//! releases version 2, all in one, in gnostic's protobuf. Documents are made when they are first
//! asked for and kept with the catalog that they describe.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::types::{Catalog, Version};

mod gnostic;
mod operations;
mod schemas;
mod v2;
mod v3;

/// The media type of [`v2_protobuf`].
pub const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The name by which clients ask for [`V2_PROTOBUF`]. It is no valid media type, and some refuse
/// to read an answer that carries it.
pub const V2_PROTOBUF_ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// What types are for, in words, by the names of their definitions, such as
/// `io.k8s.api.apps.v1.DeploymentSpec`.
pub type Descriptions = BTreeMap<String, Description>;

/// What a type and its fields are for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// What the type is for; empty where that is not known.
    pub text: String,
    /// What fields are for, by their names.
    pub fields: BTreeMap<String, String>,
}

/// A document that is made when it is first asked for.
pub(crate) type Cached = OnceLock<Arc<Document>>;

/// A document and its hash.
#[derive(Debug)]
pub struct Document {
    /// The bytes.
    pub bytes: Bytes,
    /// Changes with what is described; fit for an ETag.
    pub hash: String,
}

/// The documents that describe a whole catalog.
#[derive(Default)]
pub(crate) struct Documents {
    v2_json: Cached,
    v2_protobuf: Cached,
}

/// The index at `/openapi/v3`: where the document of each group version is.
///
/// The addresses carry the document's hash, so clients may keep what they fetched.
pub fn index(catalog: &Catalog) -> Value {
    let mut paths = Map::new();
    for version in catalog.groups().iter().flat_map(|group| &group.versions) {
        let path = path_of(version);
        let url = format!("/openapi/v3/{path}?hash={}", version.hash());
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// The document of one group version by its path in the index, for example `api/v1` or
/// `apis/apps/v1`.
pub fn v3(catalog: &Catalog, path: &str, words: Option<&Descriptions>) -> Option<Arc<Document>> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let version = match parts[..] {
        ["api", version] => catalog.version("", version)?,
        ["apis", group, version] => catalog.version(group, version).filter(|_| !group.is_empty())?,
        _ => return None,
    };
    let document = version.document.get_or_init(|| {
        let mut document = v3::document(version);
        describe(&mut document["components"]["schemas"], words);
        let bytes = encode(&document);
        Arc::new(Document { bytes, hash: version.hash().to_owned() })
    });
    Some(document.clone())
}

/// The document of everything in version 2, as JSON.
pub fn v2_json(catalog: &Catalog, words: Option<&Descriptions>) -> Arc<Document> {
    let make = || {
        let bytes = encode(&described_v2(catalog, words));
        Arc::new(Document { bytes, hash: catalog.hash().to_owned() })
    };
    catalog.documents().v2_json.get_or_init(make).clone()
}

/// The document of everything in version 2, in gnostic's protobuf ([`V2_PROTOBUF`]).
pub fn v2_protobuf(catalog: &Catalog, words: Option<&Descriptions>) -> Arc<Document> {
    let make = || {
        let bytes = gnostic::encode(&described_v2(catalog, words)).into();
        Arc::new(Document { bytes, hash: catalog.hash().to_owned() })
    };
    catalog.documents().v2_protobuf.get_or_init(make).clone()
}

fn described_v2(catalog: &Catalog, words: Option<&Descriptions>) -> Value {
    let mut document = v2::document(catalog);
    describe(&mut document["definitions"], words);
    document
}

/// Says what types and fields are for, where that is known and not said already.
fn describe(definitions: &mut Value, words: Option<&Descriptions>) {
    let Some((definitions, words)) = definitions.as_object_mut().zip(words) else { return };
    for (name, definition) in definitions {
        let Some((definition, words)) = definition.as_object_mut().zip(words.get(name)) else { continue };
        if !words.text.is_empty() {
            definition.entry("description").or_insert_with(|| words.text.as_str().into());
        }
        let fields = definition.get_mut("properties").and_then(Value::as_object_mut);
        for (name, field) in fields.into_iter().flatten() {
            if let Some((field, text)) = field.as_object_mut().zip(words.fields.get(name)) {
                field.entry("description").or_insert_with(|| text.as_str().into());
            }
        }
    }
}

fn path_of(version: &Version) -> String {
    if version.group.is_empty() {
        format!("api/{}", version.name)
    } else {
        format!("apis/{}/{}", version.group, version.name)
    }
}

fn encode(document: &Value) -> Bytes {
    document.to_string().into()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
