//! What the served types look like, as OpenAPI documents.
//!
//! kubectl reads them before it sends anything: version 3 one document per group version, older
//! releases version 2, all in one, in gnostic's protobuf. Documents are made when they are first
//! asked for and kept with the catalog that they describe.

use std::sync::{Arc, OnceLock};

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
pub fn v3(catalog: &Catalog, path: &str) -> Option<Arc<Document>> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let version = match parts[..] {
        ["api", version] => catalog.version("", version)?,
        ["apis", group, version] => catalog.version(group, version).filter(|_| !group.is_empty())?,
        _ => return None,
    };
    let document = version.document.get_or_init(|| {
        let bytes = encode(&v3::document(version));
        Arc::new(Document { bytes, hash: version.hash().to_owned() })
    });
    Some(document.clone())
}

/// The document of everything in version 2, as JSON.
pub fn v2_json(catalog: &Catalog) -> Arc<Document> {
    let make =
        || Arc::new(Document { bytes: encode(&v2::document(catalog)), hash: catalog.hash().to_owned() });
    catalog.documents().v2_json.get_or_init(make).clone()
}

/// The document of everything in version 2, in gnostic's protobuf ([`V2_PROTOBUF`]).
pub fn v2_protobuf(catalog: &Catalog) -> Arc<Document> {
    let make = || {
        let bytes = gnostic::encode(&v2::document(catalog)).into();
        Arc::new(Document { bytes, hash: catalog.hash().to_owned() })
    };
    catalog.documents().v2_protobuf.get_or_init(make).clone()
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
