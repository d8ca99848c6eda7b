//! Owners that named their fields in another version of the kind.

use std::{collections::BTreeMap, fmt};

use serde_json::Value;

use super::{
    compare::{Comparison, compare},
    owners::Write,
};
use crate::schema::{Ref, Schema};

/// An object is needed in another version first; ask again once it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an object in another version is needed first")]
pub struct Untranslated;

/// The other versions of an object's kind.
pub trait Versions: fmt::Debug + Sync {
    /// The object in this version; nothing where nobody knows the version.
    ///
    /// # Errors
    /// When the answer is not there yet.
    fn translate(&self, object: &Value, to: &str) -> Result<Option<Value>, Untranslated>;

    /// The type of this version; nothing where it is that of the request.
    fn schema(&self, api_version: &str) -> Option<Ref>;
}

/// For kinds whose versions are all the same.
#[derive(Debug, Clone, Copy)]
pub struct OneVersion;

impl Versions for OneVersion {
    fn translate(&self, object: &Value, _: &str) -> Result<Option<Value>, Untranslated> {
        Ok(Some(object.clone()))
    }

    fn schema(&self, _: &str) -> Option<Ref> {
        None
    }
}

/// What a write changes, in every version in which somebody owns something.
pub(super) struct Comparisons<'a> {
    write: &'a Write<'a>,
    old: &'a Value,
    new: &'a Value,
    known: BTreeMap<String, Option<Comparison>>,
}

impl<'a> Comparisons<'a> {
    pub(super) fn new(write: &'a Write<'a>, old: &'a Value, new: &'a Value) -> Self {
        Self { write, old, new, known: BTreeMap::new() }
    }

    /// What changes in this version; nothing where nobody knows the version.
    pub(super) fn at(&mut self, version: &str) -> Result<Option<&Comparison>, Untranslated> {
        if !self.known.contains_key(version) {
            let comparison = self.compare(version)?;
            self.known.insert(version.to_owned(), comparison);
        }
        Ok(self.known.get(version).and_then(Option::as_ref))
    }

    fn compare(&self, version: &str) -> Result<Option<Comparison>, Untranslated> {
        let write = self.write;
        let (Some(old), Some(new)) = (write.view(self.old, version)?, write.view(self.new, version)?) else {
            return Ok(None);
        };
        let schema = write.schema_at(version);
        let comparison = compare(&old, &new, schema.get(write.schema));
        Ok(Some(comparison.without_subtrees(write.reset)))
    }
}

/// The type of a version.
pub(super) struct SchemaAt(pub(super) Option<Ref>);

impl SchemaAt {
    /// Itself, or that of the request.
    pub(super) fn get<'s>(&'s self, of_the_request: &'s Schema) -> &'s Schema {
        self.0.as_deref().unwrap_or(of_the_request)
    }
}
