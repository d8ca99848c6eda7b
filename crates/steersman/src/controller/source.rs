//! Where keys come from: changes of cached kinds, mapped to keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::core::ApiResource;

use crate::cache::{Cache, Change, Entry, KindStore};
use crate::key::Key;
use crate::object::Object;
use crate::predicate::Predicate;
use crate::queue::{Priority, Queue};
use crate::reason::Reason;

/// A kind that a controller declared.
pub(super) struct Source {
    pub(super) resource: ApiResource,
    pub(super) role: Role,
    declare: Box<dyn Fn(&Cache) + Send + Sync>,
    listen: Option<Box<Listen>>,
}

/// What the kind is to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Primary,
    Owned,
    Watched,
    Read,
}

type Listen = dyn Fn(&Change, &Cache, &Queue) + Send + Sync;

/// Ends the flow of keys when dropped.
pub(super) struct Subscription {
    store: Arc<KindStore>,
    id: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.store.unlisten(self.id);
    }
}

impl Source {
    pub(super) fn primary<K: Object>(predicate: Option<Predicate>) -> Self {
        let listen = move |change: &Change, _: &Cache, queue: &Queue| match change {
            Change::Initial(entry) => {
                queue.add(key(entry), Priority::Resync, Reason::Started);
            }
            Change::Applied { old: None, new } => {
                queue.add(key(new), Priority::Interactive, Reason::Created);
            }
            Change::Applied { old: Some(old), new } => {
                if !matters(predicate.as_ref(), old, new) {
                    return;
                }
                // Another wish deserves its own attempts.
                if old.header.generation != new.header.generation {
                    queue.reset_failures(new.header.key());
                }
                queue.add(key(new), Priority::Interactive, Reason::Changed);
            }
            Change::Deleted(old) => {
                queue.add(key(old), Priority::Interactive, Reason::Deleted);
            }
            Change::Synced => {}
        };
        Self::listening::<K>(Role::Primary, listen)
    }

    pub(super) fn owned<O: Object, K: Object>(predicate: Option<Predicate>) -> Self {
        let listen = move |change: &Change, _: &Cache, queue: &Queue| {
            let (old, new) = match change {
                // Their owners are there as well.
                Change::Initial(_) | Change::Synced => return,
                Change::Applied { old, new } => (old.as_ref(), Some(new)),
                Change::Deleted(old) => (Some(old), None),
            };
            if let (Some(old), Some(new)) = (old, new)
                && !matters(predicate.as_ref(), old, new)
            {
                return;
            }
            let mut owners = BTreeSet::new();
            for entry in old.into_iter().chain(new) {
                owners.extend(owners_of::<O>(entry));
            }
            for owner in owners {
                let reason = Reason::Owned {
                    kind: kind_name::<K>(),
                    key: new.or(old).map_or_else(|| owner.clone(), |entry| key(entry)),
                };
                queue.add(owner, Priority::Interactive, reason);
            }
        };
        Self::listening::<K>(Role::Owned, listen)
    }

    pub(super) fn watched<K: Object>(
        predicate: Option<Predicate>,
        map: impl Fn(&K, &Cache) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        let listen = move |change: &Change, cache: &Cache, queue: &Queue| {
            let (old, new, priority) = match change {
                Change::Initial(entry) => (None, Some(entry), Priority::Resync),
                Change::Applied { old, new } => (old.as_ref(), Some(new), Priority::Interactive),
                Change::Deleted(old) => (Some(old), None, Priority::Interactive),
                Change::Synced => return,
            };
            if let (Some(old), Some(new)) = (old, new)
                && !matters(predicate.as_ref(), old, new)
            {
                return;
            }
            let mut keys = BTreeSet::new();
            for object in old.into_iter().chain(new).filter_map(|entry| entry.typed::<K>()) {
                keys.extend(map(&object, cache));
            }
            let Some(seen) = new.or(old) else { return };
            for mapped in keys {
                let reason = Reason::Watched { kind: kind_name::<K>(), key: key(seen) };
                queue.add(mapped, priority, reason);
            }
        };
        Self::listening::<K>(Role::Watched, listen)
    }

    pub(super) fn read<K: Object>() -> Self {
        Self {
            resource: K::api_resource(),
            role: Role::Read,
            declare: Box::new(|cache| cache.declare::<K>()),
            listen: None,
        }
    }

    pub(super) fn indexed<K: Object>(
        name: &'static str,
        values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        let values = Arc::new(values);
        Self {
            resource: K::api_resource(),
            role: Role::Read,
            declare: Box::new(move |cache| {
                let values = Arc::clone(&values);
                cache.declare::<K>();
                cache.index::<K>(name, move |object| values(object));
            }),
            listen: None,
        }
    }

    fn listening<K: Object>(
        role: Role,
        listen: impl Fn(&Change, &Cache, &Queue) + Send + Sync + 'static,
    ) -> Self {
        Self {
            resource: K::api_resource(),
            role,
            declare: Box::new(|cache| cache.declare::<K>()),
            listen: Some(Box::new(listen)),
        }
    }

    pub(super) fn declare(&self, cache: &Cache) {
        (self.declare)(cache);
    }

    /// Lets keys flow into the queue.
    pub(super) fn subscribe(self, cache: &Cache, queue: &Arc<Queue>) -> Option<Subscription> {
        let listen = self.listen?;
        let store = cache.store(&self.resource)?;
        let (cache, queue) = (cache.clone(), Arc::clone(queue));
        let id = store.listen(Arc::new(move |change| listen(change, &cache, &queue)));
        Some(Subscription { store, id })
    }
}

fn key(entry: &Entry) -> Key {
    entry.header.key().clone()
}

fn kind_name<K: Object>() -> std::borrow::Cow<'static, str> {
    K::kind(&())
}

fn matters(predicate: Option<&Predicate>, old: &Entry, new: &Entry) -> bool {
    predicate.is_none_or(|predicate| predicate.accepts(&old.header, &new.header))
}

/// The owners of kind `O` that control an object. Versions are not compared: an object keeps
/// the one in which it was written.
fn owners_of<O: Object>(entry: &Entry) -> Vec<Key> {
    let namespace = match O::is_namespaced() {
        true => entry.header.key().namespace().unwrap_or_default(),
        false => "",
    };
    let group = O::group(&());
    let owners = entry.header.owners();
    owners
        .iter()
        .filter(|owner| owner.controller == Some(true) && owner.kind == O::kind(&()))
        .filter(|owner| {
            let owner_group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
            owner_group == group
        })
        .map(|owner| Key::new(namespace, &owner.name))
        .collect()
}
