//! Following the metadata of a kind that is known only at run time.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures::Stream;
use kube::core::ApiResource;

use super::follow::Source;
use super::header::Header;
use super::store::Change;

/// One step in the life of an object whose type is not known.
#[derive(Clone, Debug)]
pub enum MetadataEvent {
    /// The object is there, new or changed.
    Applied(Header),
    /// The object is gone; this is its last known state.
    Deleted(Header),
    /// Everything that was there at the beginning has been reported.
    Synced,
}

/// The events of one kind, as [`Cache::watch_metadata`](super::Cache::watch_metadata) and
/// [`Followed::events`](super::Followed::events) give them.
///
/// Several changes of one object that nobody has read yet come out as one, so what waits is
/// never more than the objects there are. Dropping the stream ends the watch, unless someone
/// else uses it.
pub struct MetadataStream {
    source: Arc<Source>,
    listener: u64,
    pending: Arc<Mutex<Pending>>,
}

#[derive(Default)]
struct Pending {
    order: VecDeque<Box<str>>,
    latest: HashMap<Box<str>, MetadataEvent>,
    synced: bool,
    waker: Option<Waker>,
}

impl MetadataStream {
    pub(super) fn new(source: Arc<Source>) -> Self {
        let pending: Arc<Mutex<Pending>> = Arc::default();
        let sink = Arc::clone(&pending);
        let listener = source.store.listen(Arc::new(move |change| {
            let mut pending = sink.lock().unwrap_or_else(PoisonError::into_inner);
            pending.push(change);
        }));
        Self { source, listener, pending }
    }

    /// The kind whose events these are.
    pub fn resource(&self) -> &ApiResource {
        &self.source.store.resource
    }
}

impl Pending {
    fn push(&mut self, change: &Change) {
        let event = match change {
            Change::Initial(entry) | Change::Applied { new: entry, .. } => {
                MetadataEvent::Applied(entry.header.clone())
            }
            Change::Deleted(entry) => MetadataEvent::Deleted(entry.header.clone()),
            Change::Synced => MetadataEvent::Synced,
        };
        match &event {
            MetadataEvent::Applied(header) | MetadataEvent::Deleted(header) => {
                let uid: Box<str> = header.uid().into();
                if self.latest.insert(uid.clone(), event).is_none() {
                    self.order.push_back(uid);
                }
            }
            MetadataEvent::Synced => self.synced = true,
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn pop(&mut self) -> Option<MetadataEvent> {
        while let Some(uid) = self.order.pop_front() {
            if let Some(event) = self.latest.remove(&uid) {
                return Some(event);
            }
        }
        std::mem::take(&mut self.synced).then_some(MetadataEvent::Synced)
    }
}

impl Stream for MetadataStream {
    type Item = MetadataEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<MetadataEvent>> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        match pending.pop() {
            Some(event) => Poll::Ready(Some(event)),
            None => {
                pending.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for MetadataStream {
    fn drop(&mut self) {
        self.source.store.unlisten(self.listener);
    }
}

impl std::fmt::Debug for MetadataStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MetadataStream of {}", self.resource().plural)
    }
}
