//! Why a key is in the queue.

use std::borrow::Cow;
use std::fmt;

use crate::key::Key;

/// One cause for a reconcile.
///
/// Reconcilers decide by the state they find, never by the cause: causes are merged, and one
/// may be lost with the process. They are for logs, metrics and people.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The object was there when the controller started.
    Started,
    /// The object was created.
    Created,
    /// The object changed.
    Changed,
    /// The object is gone.
    Deleted,
    /// An object that this one owns came, changed or went.
    Owned {
        /// Kind of the owned object.
        kind: Cow<'static, str>,
        /// Its key.
        key: Key,
    },
    /// Another watched object came, changed or went.
    Watched {
        /// Kind of the watched object.
        kind: Cow<'static, str>,
        /// Its key.
        key: Key,
    },
    /// The last reconcile failed.
    Retry,
    /// The last reconcile asked for it.
    Requested(&'static str),
    /// The regular re-check of everything.
    Resync,
    /// Someone asked for it from outside.
    Manual,
}

impl Reason {
    /// The reason without its details: the value of a metric's label.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Deleted => "deleted",
            Self::Owned { .. } => "owned",
            Self::Watched { .. } => "watched",
            Self::Retry => "retry",
            Self::Requested(_) => "requested",
            Self::Resync => "resync",
            Self::Manual => "manual",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owned { kind, key } | Self::Watched { kind, key } => {
                write!(f, "{} {kind} {key}", self.name())
            }
            Self::Requested(why) => write!(f, "requested: {why}"),
            other => f.write_str(other.name()),
        }
    }
}

/// The merged causes of one queue entry, at most eight of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons {
    // Nearly every entry has one cause: no allocation for it.
    first: Option<Reason>,
    more: Vec<Reason>,
    left_out: u32,
}

impl Reasons {
    /// How many causes one entry remembers; later ones are only counted.
    pub const LIMIT: usize = 8;

    /// Adds a cause, once.
    pub fn add(&mut self, reason: Reason) {
        match &self.first {
            None => self.first = Some(reason),
            Some(first) if *first == reason => {}
            Some(_) if self.more.contains(&reason) => {}
            Some(_) if self.more.len() + 1 < Self::LIMIT => self.more.push(reason),
            Some(_) => self.left_out += 1,
        }
    }

    /// Takes over the causes of another entry.
    pub fn merge(&mut self, other: Reasons) {
        self.left_out += other.left_out;
        for reason in other.first.into_iter().chain(other.more) {
            self.add(reason);
        }
    }

    /// The causes, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = &Reason> {
        self.first.iter().chain(&self.more)
    }

    /// How many further causes were not kept.
    pub fn left_out(&self) -> u32 {
        self.left_out
    }
}

impl From<Reason> for Reasons {
    fn from(reason: Reason) -> Self {
        Self { first: Some(reason), more: Vec::new(), left_out: 0 }
    }
}

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, reason) in self.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{reason}")?;
        }
        if self.left_out > 0 {
            write!(f, " and {} more", self.left_out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_kept_once_and_their_number_is_bounded() {
        let mut reasons = Reasons::default();
        for _ in 0..3 {
            reasons.add(Reason::Changed);
        }
        assert_eq!(reasons.iter().count(), 1);
        for index in 0..20 {
            reasons.add(Reason::Owned { kind: "Pod".into(), key: Key::new("shop", &format!("web-{index}")) });
        }
        assert_eq!(reasons.iter().count(), Reasons::LIMIT);
        assert_eq!(reasons.left_out(), 13);
        assert!(reasons.to_string().starts_with("changed, owned Pod shop/web-0"));
        assert!(reasons.to_string().ends_with("and 13 more"));
    }
}
