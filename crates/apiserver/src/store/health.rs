//! Whether writes can be made durable.

/// How a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Writes are made durable.
    Well,
    /// The database cannot be reached; reads work, writes are refused until it comes back.
    Unreachable {
        /// What was tried, and what came of it.
        why: String,
    },
    /// Another process has taken the database over. This one will never write again.
    Deposed {
        /// Who has it now, as far as is known.
        by: String,
    },
}
