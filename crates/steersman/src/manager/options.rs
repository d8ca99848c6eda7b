//! What a manager needs to know, and what it may fail with.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::admin::SecureMetrics;
use crate::cache::{Scope, SyncError};
use crate::clock::{Clock, system_clock};
use crate::lease::LeaseOptions;
use crate::webhook::WebhookError;

/// What a manager needs to know.
#[derive(Clone)]
pub struct Options {
    /// The operator's name: its field manager, and its name in logs. `steersman`.
    pub name: String,
    /// The lease to hold before anything is reconciled. None: every process reconciles.
    pub lease: Option<LeaseOptions>,
    /// Where to serve `/metrics`. Nowhere by default; port 0 picks a free one.
    pub metrics: Option<SocketAddr>,
    /// Keeps `/metrics` from strangers. Open to whoever reaches it, over plain HTTP, by default.
    pub secure_metrics: Option<SecureMetrics>,
    /// Where to serve `/healthz` and `/readyz`. Nowhere by default.
    pub health: Option<SocketAddr>,
    /// Which namespaces to look at. All.
    pub scope: Scope,
    /// How long running reconciles may take to finish at shutdown. 30 seconds.
    pub grace: Duration,
    /// How long the first lists may take before the start counts as failed. Two minutes.
    pub sync_timeout: Duration,
    /// Wall time. That of the machine.
    pub clock: Clock,
    /// Makes delays repeatable in tests. Random by default.
    pub seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "steersman".to_owned(),
            lease: None,
            metrics: None,
            secure_metrics: None,
            health: None,
            scope: Scope::AllNamespaces,
            grace: Duration::from_secs(30),
            sync_timeout: Duration::from_secs(120),
            clock: system_clock(),
            seed: None,
        }
    }
}

impl Options {
    /// The defaults under an operator's name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("name", &self.name)
            .field("lease", &self.lease)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// Why a manager did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// Something was put together wrongly.
    #[error("{0}")]
    Invalid(String),
    /// An address for metrics or health is not to be had.
    #[error("cannot listen on {address}: {source}; choose another address, or port 0 for a free one")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// Metrics could not be served over TLS.
    #[error("metrics cannot be served: {0}")]
    Metrics(#[source] WebhookError),
    /// Webhooks could not be served.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// A kind could not be listed.
    #[error(transparent)]
    Sync(#[from] SyncError),
    /// Another process leads now; this one must end.
    #[error("leadership of lease {lease} was lost: {why}; the process must end and be started again")]
    LostLease {
        /// The lease.
        lease: String,
        /// What was seen.
        why: String,
    },
    /// A runnable failed.
    #[error("{name} failed: {message}")]
    Runnable {
        /// Its name.
        name: String,
        /// Its error.
        message: String,
    },
}

impl ManagerError {
    /// The exit code that a program should end with: 4 for a lost lease, 1 otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::LostLease { .. } => 4,
            _ => 1,
        }
    }
}

/// Where a manager answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Of `/metrics`.
    pub metrics: Option<SocketAddr>,
    /// Of `/healthz` and `/readyz`.
    pub health: Option<SocketAddr>,
    /// Of webhooks.
    pub webhooks: Option<SocketAddr>,
}
