//! Where keys come from: changes of cached kinds, mapped to keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::core::ApiResource;

use crate::cache::{Cache, Change, Entry, Form, Header, KindStore};
use crate::key::Key;
use crate::object::Object;
use crate::predicate::Predicate;
use crate::queue::{Priority, Queue};
use crate::reason::Reason;

/// A kind that a controller declared.
pub(super) struct Source {
    pub(super) resource: ApiResource,
    pub(super) role: Role,
    /// Whether whole objects are cached, or their metadata.
    pub(super) form: Form,
    declare: Declare,
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

type Declare = Box<dyn Fn(&Cache) + Send + Sync>;

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
        Self::listening::<K>(Role::Primary, Form::Whole, listen)
    }

    pub(super) fn owned<O: Object, K: Object>(form: Form, predicate: Option<Predicate>) -> Self {
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
        Self::listening::<K>(Role::Owned, form, listen)
    }

    pub(super) fn watched<K: Object>(
        predicate: Option<Predicate>,
        map: impl Fn(&K, &Cache) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        let find = move |entry: &Entry, cache: &Cache| {
            entry.typed::<K>().map_or_else(Vec::new, |object| map(&object, cache))
        };
        Self::mapped::<K>(Form::Whole, predicate, find)
    }

    pub(super) fn watched_metadata<K: Object>(
        map: impl Fn(&Header, &Cache) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        Self::mapped::<K>(Form::Metadata, None, move |entry, cache| map(&entry.header, cache))
    }

    fn mapped<K: Object>(
        form: Form,
        predicate: Option<Predicate>,
        find: impl Fn(&Entry, &Cache) -> Vec<Key> + Send + Sync + 'static,
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
            for entry in old.into_iter().chain(new) {
                keys.extend(find(entry, cache));
            }
            let Some(seen) = new.or(old) else { return };
            for mapped in keys {
                let reason = Reason::Watched { kind: kind_name::<K>(), key: key(seen) };
                queue.add(mapped, priority, reason);
            }
        };
        Self::listening::<K>(Role::Watched, form, listen)
    }

    pub(super) fn read<K: Object>(form: Form) -> Self {
        Self {
            resource: K::api_resource(),
            role: Role::Read,
            form,
            declare: declaration::<K>(form),
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
            form: Form::Whole,
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
        form: Form,
        listen: impl Fn(&Change, &Cache, &Queue) + Send + Sync + 'static,
    ) -> Self {
        Self {
            resource: K::api_resource(),
            role,
            form,
            declare: declaration::<K>(form),
            listen: Some(Box::new(listen)),
        }
    }

    pub(super) fn declare(&self, cache: &Cache) {
        (self.declare)(cache);
    }

    /// Lets keys flow into the queue.
    pub(super) fn subscribe(self, cache: &Cache, queue: &Arc<Queue>) -> Option<Subscription> {
        let listen = self.listen?;
        let store = match self.form {
            Form::Whole => cache.store(&self.resource)?,
            Form::Metadata => cache.metadata_store(&self.resource)?,
        };
        let (cache, queue) = (cache.clone(), Arc::clone(queue));
        let id = store.listen(Arc::new(move |change| listen(change, &cache, &queue)));
        Some(Subscription { store, id })
    }
}

fn declaration<K: Object>(form: Form) -> Declare {
    match form {
        Form::Whole => Box::new(|cache| cache.declare::<K>()),
        Form::Metadata => Box::new(|cache| cache.declare_metadata::<K>()),
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
