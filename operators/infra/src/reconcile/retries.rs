//! Which resources wait for another attempt, so that drift checks can let them go first.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;
use steersman::Key;

/// Resources that failed, by when they are tried again.
#[derive(Debug, Default)]
pub(super) struct Retries {
    at: HashMap<Key, Timestamp>,
    order: BTreeSet<(Timestamp, Key)>,
}

impl Retries {
    /// A resource is tried again at this time.
    pub(super) fn expect(&mut self, key: &Key, at: Timestamp) {
        self.forget(key);
        self.at.insert(key.clone(), at);
        self.order.insert((at, key.clone()));
    }

    /// A resource is being tried, or no longer has to be.
    pub(super) fn forget(&mut self, key: &Key) {
        if let Some(at) = self.at.remove(key) {
            self.order.remove(&(at, key.clone()));
        }
    }

    /// Whether any should have been tried by now.
    pub(super) fn overdue(&self, now: Timestamp) -> bool {
        self.order.first().is_some_and(|(at, _)| *at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_counts_and_each_resource_waits_once() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let (one, two) = (Key::new("n", "one"), Key::new("n", "two"));
        let mut retries = Retries::default();
        assert!(!retries.overdue(at(1000)));
        retries.expect(&one, at(50));
        retries.expect(&two, at(100));
        assert!(!retries.overdue(at(49)) && retries.overdue(at(50)));
        retries.expect(&one, at(200));
        assert!(!retries.overdue(at(99)) && retries.overdue(at(100)));
        retries.forget(&two);
        retries.forget(&two);
        assert!(!retries.overdue(at(199)) && retries.overdue(at(200)));
    }
}
