//! How much a store keeps and takes.

/// How a store behaves. The defaults suit a control plane on one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreOptions {
    /// How much of the past is kept for watches and old snapshots.
    pub history: HistoryOptions,
    /// How many writes may wait for the writer before callers wait to hand theirs over.
    /// Default 1024: four batches.
    pub queue: usize,
    /// The most bytes the database file may take; writes beyond it fail as on a full disk.
    /// Default none: the disk is the limit.
    pub file_limit: Option<u64>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions { history: HistoryOptions::default(), queue: 1024, file_limit: None }
    }
}

/// How much of the past is kept. Each storage has a history of its own, so that one that is
/// written all the time, such as leases, does not push out what others need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryOptions {
    /// The most events per storage. Default 16,384: minutes of a busy cluster, and more than a slow
    /// watcher can fall behind in a burst.
    pub events: usize,
    /// The most bytes of superseded versions per storage. Default 32 MiB.
    pub bytes: usize,
    /// The most bytes of superseded versions in all; the largest history gives way. Default 96 MiB.
    pub total_bytes: usize,
}

impl Default for HistoryOptions {
    fn default() -> Self {
        HistoryOptions { events: 16_384, bytes: 32 << 20, total_bytes: 96 << 20 }
    }
}
