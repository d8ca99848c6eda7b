//! All objects of a storage at one revision.

use std::ops::Bound;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

use crate::object::{Key, Revision, Stored};
use crate::watch::Event;

/// Objects in the order of their keys, in a map whose copies share what they have in common.
pub(super) type Objects = RedBlackTreeMapSync<Key, Arc<Stored>>;

/// The objects of a storage, or of one namespace of it, at one revision. Taking one costs the same
/// whatever its size; it does not change when the store does.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The revision that it shows.
    pub revision: Revision,
    storage: Arc<str>,
    namespace: Option<Arc<str>>,
    objects: Objects,
}

impl Snapshot {
    pub(super) fn new(
        revision: Revision,
        storage: Arc<str>,
        namespace: Option<Arc<str>>,
        objects: Objects,
    ) -> Snapshot {
        Snapshot { revision, storage, namespace, objects }
    }

    /// The objects, by namespace and then by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Stored>> + '_ {
        let start = match &self.namespace {
            Some(namespace) => Bound::Included(self.key(Arc::clone(namespace), Arc::from(""))),
            None => Bound::Unbounded,
        };
        self.range(start)
    }

    /// The objects that come after this namespace and name: how a list continues. The object named
    /// need not be there.
    pub fn after(&self, namespace: &str, name: &str) -> impl Iterator<Item = &Arc<Stored>> + '_ {
        let behind = match &self.namespace {
            // A start outside the namespace must not reach into the others.
            Some(own) if namespace < &**own => self.key(Arc::clone(own), Arc::from("")),
            _ => self.key(Arc::from(namespace), Arc::from(name)),
        };
        self.range(Bound::Excluded(behind))
    }

    /// How many objects there are. Costs nothing for a whole storage, a walk for a namespace.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.namespace {
            Some(_) => self.iter().count(),
            None => self.objects.size(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    fn key(&self, namespace: Arc<str>, name: Arc<str>) -> Key {
        Key { storage: Arc::clone(&self.storage), namespace, name }
    }

    fn range(&self, start: Bound<Key>) -> impl Iterator<Item = &Arc<Stored>> + '_ {
        let namespace = self.namespace.as_deref();
        self.objects
            .range::<Key, _>((start, Bound::Unbounded))
            .map(|(_, object)| object)
            .take_while(move |object| namespace.is_none_or(|namespace| *object.key.namespace == *namespace))
    }
}

/// What is needed to show an older revision: the objects now and what has happened since.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) now: Snapshot,
    pub(super) revision: Revision,
    /// Newest first.
    pub(super) since: Vec<Arc<Event>>,
}

impl Past {
    /// Undoes what has happened since.
    pub(super) fn rebuild(self) -> Snapshot {
        let Past { now, revision, since } = self;
        let mut objects = now.objects;
        for event in since {
            match &event.previous {
                Some(previous) => objects.insert_mut(previous.key.clone(), Arc::clone(previous)),
                None => {
                    objects.remove_mut(&event.object.key);
                }
            }
        }
        Snapshot { revision, objects, ..now }
    }
}
