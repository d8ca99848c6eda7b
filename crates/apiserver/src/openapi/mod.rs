//! What the served types look like, as OpenAPI documents.

use std::sync::{Arc, OnceLock};

/// A document that is made when it is first asked for.
pub(crate) type Cached = OnceLock<Arc<Document>>;

/// A document and its hash.
pub struct Document {
    /// The bytes.
    pub bytes: bytes::Bytes,
    /// Changes with the bytes; fit for an ETag.
    pub hash: String,
}

/// The documents that describe a whole catalog.
#[derive(Default)]
pub struct Documents {}
