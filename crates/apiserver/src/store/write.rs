//! A write as it is asked for, and what can be wrong with it.

use std::sync::Arc;

use serde::Deserialize;

use crate::object::{Header, HeaderError, Key, Layout, Revision, Stored};

/// Where leases are stored, for [`Fence`].
pub(super) const LEASES: &str = "coordination.k8s.io/leases";

/// What to do with an object, on which condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Make it; it must not be there.
    Create,
    /// Replace it; it must be at this revision.
    Update {
        /// The revision the writer has seen.
        expected: Revision,
    },
    /// Remove it; it must be at this revision.
    Delete {
        /// The revision the writer has seen.
        expected: Revision,
    },
}

/// One write.
#[derive(Debug, Clone)]
pub struct Write {
    /// Which object.
    pub key: Key,
    /// What to do.
    pub operation: Operation,
    /// The object's JSON without `metadata.resourceVersion`; for a deletion the last state to publish.
    pub bytes: Vec<u8>,
    /// Refuse the write unless this lease is still held in this term.
    pub fence: Option<Fence>,
}

/// A term of a lease in which a write is allowed. A leader that was deposed without noticing has an
/// old one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// Namespace of the lease.
    pub namespace: Arc<str>,
    /// Name of the lease.
    pub lease: Arc<str>,
    /// `spec.leaseTransitions` of the term.
    pub transitions: u64,
}

impl Fence {
    pub(super) fn key(&self) -> Key {
        Key::new(LEASES, Arc::clone(&self.namespace), Arc::clone(&self.lease))
    }

    /// The term that a stored lease is in; a lease that never changed hands is in term 0.
    pub(super) fn term(lease: &Stored) -> Option<u64> {
        #[derive(Deserialize)]
        struct Lease {
            #[serde(default)]
            spec: Spec,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase")]
        struct Spec {
            #[serde(default)]
            lease_transitions: Option<u64>,
        }
        let lease: Lease = serde_json::from_slice(&lease.bytes).ok()?;
        Some(lease.spec.lease_transitions.unwrap_or_default())
    }
}

/// Why a write did not happen. Nothing has changed then.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// The object to create is already there.
    #[error("the object already exists")]
    Exists,
    /// The object to update or delete is not there.
    #[error("the object does not exist")]
    NotFound,
    /// The object has been written since the writer read it.
    #[error("the object has been modified: it is at revision {} now", current.revision)]
    Conflict {
        /// The object as it is now.
        current: Arc<Stored>,
    },
    /// The writer's lease has changed hands.
    #[error("lease {}/{} is no longer in term {}", fence.namespace, fence.lease, fence.transitions)]
    Fenced {
        /// The term the writer believed in.
        fence: Fence,
        /// The term the lease is in; none when there is no such lease.
        current: Option<u64>,
    },
    /// The bytes are not an object.
    #[error("cannot store the object: {0}")]
    Malformed(#[from] HeaderError),
    /// The disk, or the limit set for the file, is full.
    #[error(
        "no space left for the write: free some disk space or raise the store's file limit, then try again"
    )]
    Full,
    /// The disk or the database failed in another way.
    #[error("cannot make the write durable: {0}")]
    Storage(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// The database cannot be reached. Of a write that was under way nobody knows whether it
    /// happened; readers and watchers will see it if it did.
    #[error("the database cannot be reached: {why}; writes go on when it is back")]
    Unreachable {
        /// What was tried, and what came of it.
        why: String,
    },
    /// Another process has taken the database over.
    #[error("the database has been taken over by {by}: this server writes no more, stop it")]
    Deposed {
        /// Who has it now, as far as is known.
        by: String,
    },
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

/// A write with its bytes scanned, which is done by the caller so that the writer need not.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) key: Key,
    pub(super) operation: Operation,
    pub(super) bytes: Vec<u8>,
    pub(super) fence: Option<Fence>,
    pub(super) header: Header,
    pub(super) layout: Layout,
}

impl Prepared {
    pub(super) fn new(write: Write) -> Result<Prepared, WriteError> {
        let Write { key, operation, bytes, fence } = write;
        let (header, layout) = Header::scan(&bytes)?;
        Ok(Prepared { key, operation, bytes, fence, header, layout })
    }
}
