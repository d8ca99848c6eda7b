//! What the server knows of an object without parsing it, found by one walk over its bytes.

use std::borrow::Cow;

use super::scan::Cursor;

/// The part of an object's metadata that lists, watches, deletion and ownership need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    /// `metadata.uid`; empty where there is none.
    pub uid: Box<str>,
    /// `metadata.generation`; 0 where there is none.
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    pub creation_timestamp: Option<Box<str>>,
    /// `metadata.deletionTimestamp`: there while the object waits for its finalizers.
    pub deletion_timestamp: Option<Box<str>>,
    /// `metadata.labels`, sorted by name.
    pub labels: Box<[Label]>,
    /// `metadata.ownerReferences`.
    pub owners: Box<[Owner]>,
    /// `metadata.finalizers`.
    pub finalizers: Box<[Box<str>]>,
}

/// A label: its name and its value.
pub type Label = (Box<str>, Box<str>);

/// One owner of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// `apiVersion` of the owner.
    pub api_version: Box<str>,
    /// `kind` of the owner.
    pub kind: Box<str>,
    /// `name` of the owner.
    pub name: Box<str>,
    /// `uid` of the owner.
    pub uid: Box<str>,
    /// Whether it is the one that manages the object.
    pub controller: bool,
    /// Whether a foreground deletion of the owner waits for the object.
    pub block_owner_deletion: bool,
}

/// Why bytes cannot be an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The bytes are not JSON.
    #[error("object is not well-formed JSON at byte {position}")]
    Malformed {
        /// Where reading stopped.
        position: usize,
    },
    /// The bytes nest deeper than any object may.
    #[error("object nests deeper than 128 levels")]
    TooDeep,
    /// There is no `metadata` to hold a revision.
    #[error("object has no metadata")]
    NoMetadata,
}

impl Header {
    /// The value of a label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        let found = self.labels.binary_search_by(|(label, _)| (**label).cmp(name)).ok()?;
        Some(&self.labels[found].1)
    }

    /// The owner that manages the object, where there is one.
    #[must_use]
    pub fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.controller)
    }

    /// Whether the object is being deleted.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Reads the header out of an object's JSON.
    ///
    /// # Errors
    /// When the bytes are not a JSON object with `metadata`.
    pub fn of(bytes: &[u8]) -> Result<Header, HeaderError> {
        Header::scan(bytes).map(|(header, _)| header)
    }

    /// Reads the header, and where a revision is to be put.
    pub(crate) fn scan(bytes: &[u8]) -> Result<(Header, Layout), HeaderError> {
        let mut cursor = Cursor::new(bytes);
        let mut found = None;
        cursor.members(|name, cursor| {
            if name == "metadata" && cursor.peek() == Some(b'{') {
                found = Some(metadata(cursor)?);
                Ok(())
            } else {
                cursor.skip()
            }
        })?;
        match cursor.peek() {
            Some(_) => Err(HeaderError::Malformed { position: cursor.position() }),
            None => found.ok_or(HeaderError::NoMetadata),
        }
    }
}

/// Where in an object's bytes its revision is, or is to be put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// There is none yet: put it here, right behind the brace that opens `metadata`.
    Absent { at: usize, alone: Alone },
    /// There is one: replace the value between these two places.
    Present { from: usize, to: usize },
}

/// Whether the revision will be the only member of `metadata`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alone {
    Yes,
    No,
}

impl Layout {
    /// The bytes before and behind the revision.
    pub(crate) fn around_revision(self, bytes: &[u8]) -> (&[u8], &[u8]) {
        match self {
            Layout::Absent { at, .. } => bytes.split_at(at),
            Layout::Present { from, to } => (&bytes[..from], &bytes[to..]),
        }
    }

    /// What stands between the bytes before and the digits.
    pub(crate) fn before_value(self) -> &'static [u8] {
        match self {
            Layout::Absent { .. } => b"\"resourceVersion\":\"",
            Layout::Present { .. } => b"\"",
        }
    }

    /// What stands between the digits and the bytes behind.
    pub(crate) fn after_value(self) -> &'static [u8] {
        match self {
            Layout::Absent { alone: Alone::No, .. } => b"\",",
            Layout::Absent { alone: Alone::Yes, .. } | Layout::Present { .. } => b"\"",
        }
    }
}

fn metadata(cursor: &mut Cursor<'_>) -> Result<(Header, Layout), HeaderError> {
    let at = cursor.position() + 1;
    let mut header = Header::default();
    let mut present = None;
    let mut alone = Alone::Yes;
    cursor.members(|name, cursor| {
        alone = Alone::No;
        match name {
            "uid" => header.uid = cursor.string_or_skip()?.map(boxed).unwrap_or_default(),
            "generation" => header.generation = integer(cursor)?,
            "creationTimestamp" => header.creation_timestamp = cursor.string_or_skip()?.map(boxed),
            "deletionTimestamp" => header.deletion_timestamp = cursor.string_or_skip()?.map(boxed),
            "labels" => header.labels = labels(cursor)?,
            "ownerReferences" => header.owners = owners(cursor)?,
            "finalizers" => header.finalizers = finalizers(cursor)?,
            "resourceVersion" => {
                let from = cursor.position();
                cursor.skip()?;
                present = Some(Layout::Present { from, to: cursor.position() });
            }
            _ => cursor.skip()?,
        }
        Ok(())
    })?;
    Ok((header, present.unwrap_or(Layout::Absent { at, alone })))
}

fn boxed(text: Cow<'_, str>) -> Box<str> {
    text.into()
}

fn integer(cursor: &mut Cursor<'_>) -> Result<i64, HeaderError> {
    let text = cursor.scalar_or_skip()?.and_then(|raw| std::str::from_utf8(raw).ok());
    Ok(text.and_then(|text| text.parse().ok()).unwrap_or_default())
}

fn boolean(cursor: &mut Cursor<'_>) -> Result<bool, HeaderError> {
    Ok(cursor.scalar_or_skip()? == Some(b"true".as_slice()))
}

fn labels(cursor: &mut Cursor<'_>) -> Result<Box<[Label]>, HeaderError> {
    let mut labels: Vec<Label> = Vec::new();
    if cursor.peek() != Some(b'{') {
        cursor.skip()?;
        return Ok(Box::default());
    }
    cursor.members(|name, cursor| {
        if let Some(value) = cursor.string_or_skip()? {
            labels.push((name.into(), boxed(value)));
        }
        Ok(())
    })?;
    labels.sort();
    Ok(labels.into())
}

fn owners(cursor: &mut Cursor<'_>) -> Result<Box<[Owner]>, HeaderError> {
    let mut owners = Vec::new();
    if cursor.peek() != Some(b'[') {
        cursor.skip()?;
        return Ok(Box::default());
    }
    cursor.elements(|cursor| {
        if cursor.peek() == Some(b'{') {
            owners.push(owner(cursor)?);
            Ok(())
        } else {
            cursor.skip()
        }
    })?;
    Ok(owners.into())
}

fn owner(cursor: &mut Cursor<'_>) -> Result<Owner, HeaderError> {
    let mut owner = Owner::default();
    cursor.members(|name, cursor| {
        match name {
            "apiVersion" => owner.api_version = cursor.string_or_skip()?.map(boxed).unwrap_or_default(),
            "kind" => owner.kind = cursor.string_or_skip()?.map(boxed).unwrap_or_default(),
            "name" => owner.name = cursor.string_or_skip()?.map(boxed).unwrap_or_default(),
            "uid" => owner.uid = cursor.string_or_skip()?.map(boxed).unwrap_or_default(),
            "controller" => owner.controller = boolean(cursor)?,
            "blockOwnerDeletion" => owner.block_owner_deletion = boolean(cursor)?,
            _ => cursor.skip()?,
        }
        Ok(())
    })?;
    Ok(owner)
}

fn finalizers(cursor: &mut Cursor<'_>) -> Result<Box<[Box<str>]>, HeaderError> {
    let mut finalizers = Vec::new();
    if cursor.peek() != Some(b'[') {
        cursor.skip()?;
        return Ok(Box::default());
    }
    cursor.elements(|cursor| {
        finalizers.extend(cursor.string_or_skip()?.map(boxed));
        Ok(())
    })?;
    Ok(finalizers.into())
}

#[cfg(test)]
mod tests;
