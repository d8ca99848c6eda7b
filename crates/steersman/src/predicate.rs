//! Which changes are worth a reconcile.

use std::fmt;
use std::sync::Arc;

use crate::cache::Header;

type Test = dyn Fn(&Header, &Header) -> bool + Send + Sync;

/// Decides by the headers of an object before and after a change whether the change matters.
///
/// A predicate is never asked about objects that come or go, nor about one that begins to be
/// deleted: those always matter, so that no predicate can lose a deletion.
#[derive(Clone)]
pub struct Predicate(Arc<Test>);

impl Predicate {
    /// A change of what the user asked for; writes to the status do not count.
    pub fn generation_changed() -> Self {
        // Kinds without generations (a ConfigMap) have only their version.
        Self::new(|old, new| match (old.generation, new.generation) {
            (None, None) => old.resource_version() != new.resource_version(),
            (old, new) => old != new,
        })
    }

    /// A change of the labels.
    pub fn labels_changed() -> Self {
        Self::new(|old, new| old.labels() != new.labels())
    }

    /// A change of the annotations.
    pub fn annotations_changed() -> Self {
        Self::new(|old, new| old.annotations() != new.annotations())
    }

    /// A rule of one's own, given the headers before and after the change.
    pub fn new(test: impl Fn(&Header, &Header) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(test))
    }

    /// Changes that either of the two finds worth it.
    #[must_use]
    pub fn or(self, other: Predicate) -> Self {
        Self::new(move |old, new| self.accepts(old, new) || other.accepts(old, new))
    }

    /// Changes that both find worth it.
    #[must_use]
    pub fn and(self, other: Predicate) -> Self {
        Self::new(move |old, new| self.accepts(old, new) && other.accepts(old, new))
    }

    /// Whether the change from `old` to `new` matters.
    pub fn accepts(&self, old: &Header, new: &Header) -> bool {
        old.uid() != new.uid() || old.deleting != new.deleting || (self.0)(old, new)
    }
}

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate")
    }
}
