//! An object at rest: its key, its revision, its final JSON bytes and a small header.
//!
//! Objects live as bytes because a tree of them costs ten times the memory; what the server
//! needs to know of an object without parsing it is in its [`Header`].

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

mod header;
mod scan;

pub(crate) use header::Layout;
pub use header::{Header, HeaderError, Label, Owner};

/// The number of a write: consecutive, never reused, and the `resourceVersion` of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision of the write that follows.
    #[must_use]
    pub fn next(self) -> Revision {
        Revision(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for Revision {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Revision)
    }
}

/// Which object: where it is stored, its namespace and its name. Ordered in this order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// `group/plural`, or `plural` for the core group.
    pub storage: Arc<str>,
    /// Namespace; empty for objects that live in none.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl Key {
    /// A key from its three parts.
    pub fn new(
        storage: impl Into<Arc<str>>,
        namespace: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
    ) -> Key {
        Key { storage: storage.into(), namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}/{}", self.storage, self.name)
        } else {
            write!(f, "{}/{}/{}", self.storage, self.namespace, self.name)
        }
    }
}

/// One version of an object, as it is kept and served.
#[derive(Debug)]
pub struct Stored {
    /// Which object.
    pub key: Key,
    /// The write that made this version.
    pub revision: Revision,
    /// The write that created the object.
    pub created: Revision,
    /// The object's final JSON, `metadata.resourceVersion` included.
    pub bytes: Bytes,
    /// What the server knows of it without parsing the bytes.
    pub header: Header,
    frame: Bytes,
}

impl Stored {
    /// The line of a watch by which this version became known, such as
    /// `{"type":"ADDED","object":{…}}` and a line break.
    ///
    /// It shares its memory with [`Stored::bytes`], so every watcher may send it as it is.
    #[must_use]
    pub fn frame(&self) -> &Bytes {
        &self.frame
    }

    /// A version whose bytes come in without a revision.
    pub(crate) fn splice(version: Version, header: Header, layout: Layout, bytes: &[u8]) -> Stored {
        let value = version.revision.0.to_string();
        let (head, tail) = layout.around_revision(bytes);
        let parts: [&[u8]; 5] = [head, layout.before_value(), value.as_bytes(), layout.after_value(), tail];
        Stored::assemble(version, header, &parts)
    }

    /// A version whose bytes are final, as they come back from disk.
    pub(crate) fn load(version: Version, bytes: &[u8]) -> Result<Stored, HeaderError> {
        let (header, _) = Header::scan(bytes)?;
        Ok(Stored::assemble(version, header, &[bytes]))
    }

    /// The same version of the object with other bytes, which come in without a revision.
    pub(crate) fn with_bytes(&self, bytes: &[u8]) -> Result<Stored, HeaderError> {
        let (header, layout) = Header::scan(bytes)?;
        let change = match self.frame.get(b"{\"type\":\"".len()) {
            Some(b'A') => Change::Added,
            Some(b'D') => Change::Deleted,
            _ => Change::Modified,
        };
        let version =
            Version { key: self.key.clone(), revision: self.revision, created: self.created, change };
        Ok(Stored::splice(version, header, layout, bytes))
    }

    fn assemble(version: Version, header: Header, parts: &[&[u8]]) -> Stored {
        let opening: &[u8] = match version.change {
            Change::Added => b"{\"type\":\"ADDED\",\"object\":",
            Change::Modified => b"{\"type\":\"MODIFIED\",\"object\":",
            Change::Deleted => b"{\"type\":\"DELETED\",\"object\":",
        };
        let closing = b"}\n";
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        let mut frame = Vec::with_capacity(opening.len() + length + closing.len());
        frame.extend_from_slice(opening);
        parts.iter().for_each(|part| frame.extend_from_slice(part));
        frame.extend_from_slice(closing);
        let frame = Bytes::from(frame);
        let bytes = frame.slice(opening.len()..opening.len() + length);
        Stored {
            key: version.key,
            revision: version.revision,
            created: version.created,
            bytes,
            header,
            frame,
        }
    }
}

/// What a write did to its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// It was created.
    Added,
    /// It was replaced.
    Modified,
    /// It was removed.
    Deleted,
}

/// Where a version stands in the order of writes.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) key: Key,
    pub(crate) revision: Revision,
    pub(crate) created: Revision,
    pub(crate) change: Change,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(change: Change) -> Version {
        Version {
            key: Key::new("pods", "default", "a"),
            revision: Revision(12),
            created: Revision(7),
            change,
        }
    }

    fn spliced(bytes: &str) -> String {
        let (header, layout) = Header::scan(bytes.as_bytes()).expect("well-formed");
        let stored = Stored::splice(version(Change::Modified), header, layout, bytes.as_bytes());
        String::from_utf8(stored.bytes.to_vec()).expect("UTF-8")
    }

    #[test]
    fn the_revision_is_spliced_into_metadata() {
        assert_eq!(
            spliced(r#"{"kind":"Pod","metadata":{"name":"a"},"spec":{}}"#),
            r#"{"kind":"Pod","metadata":{"resourceVersion":"12","name":"a"},"spec":{}}"#
        );
        assert_eq!(spliced(r#"{"metadata":{}}"#), r#"{"metadata":{"resourceVersion":"12"}}"#);
        assert_eq!(spliced(r#"{"metadata" : { } }"#), r#"{"metadata" : {"resourceVersion":"12" } }"#);
    }

    #[test]
    fn a_revision_already_there_is_replaced() {
        assert_eq!(
            spliced(r#"{"metadata":{"name":"a","resourceVersion":"1","uid":"u"}}"#),
            r#"{"metadata":{"name":"a","resourceVersion":"12","uid":"u"}}"#
        );
        assert_eq!(
            spliced(r#"{"metadata":{"resourceVersion":null}}"#),
            r#"{"metadata":{"resourceVersion":"12"}}"#
        );
    }

    #[test]
    fn the_frame_of_a_watch_shares_its_memory_with_the_object() {
        let stored = Stored::load(version(Change::Deleted), br#"{"metadata":{}}"#).expect("well-formed");
        assert_eq!(
            stored.frame().as_ref(),
            b"{\"type\":\"DELETED\",\"object\":{\"metadata\":{}}}\n".as_slice()
        );
        let offset = stored.bytes.as_ptr() as usize - stored.frame().as_ptr() as usize;
        assert_eq!(offset, b"{\"type\":\"DELETED\",\"object\":".len());
    }

    #[test]
    fn keys_are_ordered_by_namespace_and_then_by_name() {
        assert!(Key::new("pods", "a", "z") < Key::new("pods", "b", "a"));
        assert!(Key::new("pods", "a", "a") < Key::new("pods", "a", "b"));
        assert_eq!(Key::new("nodes", "", "one").to_string(), "nodes/one");
        assert_eq!(Key::new("pods", "a", "one").to_string(), "pods/a/one");
    }
}
