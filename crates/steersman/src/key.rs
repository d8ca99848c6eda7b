//! The name of an object within its kind.

use std::fmt;
use std::sync::Arc;

use kube::Resource;

/// Names one object of a kind: a namespace, unless the kind has none, and a name.
///
/// A key is one shared string, so that queues, caches and logs can hold it at the price of a
/// reference count. It prints as `namespace/name` or `name`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    text: Arc<str>,
    /// Length of the namespace; zero when there is none.
    split: u32,
}

impl Key {
    /// The key of an object in a namespace; an empty namespace means none.
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() {
            return Self::cluster(name);
        }
        let mut text = String::with_capacity(namespace.len() + 1 + name.len());
        text.push_str(namespace);
        text.push('/');
        text.push_str(name);
        Self { text: text.into(), split: u32::try_from(namespace.len()).unwrap_or(u32::MAX) }
    }

    /// The key of an object whose kind has no namespaces.
    pub fn cluster(name: &str) -> Self {
        Self { text: name.into(), split: 0 }
    }

    /// The key of an object; a missing name counts as empty.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
    }

    /// The key of another name in the same namespace.
    #[must_use]
    pub fn sibling(&self, name: &str) -> Self {
        Self::new(self.namespace().unwrap_or_default(), name)
    }

    /// The namespace, if the object lives in one.
    pub fn namespace(&self) -> Option<&str> {
        (self.split > 0).then(|| &self.text[..self.split as usize])
    }

    /// The name within the namespace.
    pub fn name(&self) -> &str {
        match self.split {
            0 => &self.text,
            split => &self.text[split as usize + 1..],
        }
    }

    /// `namespace/name`, or only the name.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_takes_apart_into_what_it_was_made_of() {
        let key = Key::new("shop", "web");
        assert_eq!(key.namespace(), Some("shop"));
        assert_eq!(key.name(), "web");
        assert_eq!(key.to_string(), "shop/web");
        assert_eq!(key.sibling("db"), Key::new("shop", "db"));
    }

    #[test]
    fn a_key_without_namespace_is_only_a_name() {
        let key = Key::new("", "node-1");
        assert_eq!(key, Key::cluster("node-1"));
        assert_eq!(key.namespace(), None);
        assert_eq!(key.name(), "node-1");
    }
}
