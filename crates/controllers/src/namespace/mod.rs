//! Namespaces: what comes with one, and what goes with it.

pub(crate) mod content;
pub(crate) mod furnish;
