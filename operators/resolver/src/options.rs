//! What the resolver can be told.

use crate::wake::Wake;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

/// What the resolver can be told. All but [`Options::wake`] has a default.
#[derive(Clone)]
pub struct Options {
    /// How sleeping services are woken.
    pub wake: Arc<dyn Wake>,
    /// Requests that may wait for one service. 1,024; more get 503.
    pub pending_per_service: usize,
    /// Requests that may wait for all services together. 50,000; more get 503.
    pub pending: usize,
    /// Requests that one pod is given at a time. 500; more wait for one of them to end.
    pub per_backend: usize,
    /// How long a request may wait for a pod before it gets 504. Ten minutes.
    pub hold: Duration,
    /// How often a service that was woken without a pod coming up is woken again. Ten seconds.
    pub wake_again: Duration,
    /// How long one attempt to connect to a pod may take. Two seconds.
    pub connect: Duration,
    /// What a client that found the queue full is told to wait. One second.
    pub retry_after: Duration,
    /// A header that names the service in place of `Host`, for meshes that rewrite the latter.
    /// None: whoever can reach the resolver could choose its service with it.
    pub host_header: Option<String>,
    /// The domain of the cluster. `cluster.local`.
    pub cluster_domain: String,
    /// How long requests are still accepted after the shutdown began, so that whoever sends them
    /// learns of it first. Five seconds.
    pub shutdown_delay: Duration,
    /// How long held and running requests may take to end after that. Thirty seconds.
    pub drain: Duration,
    /// How long a client may take to send the head of a request. Thirty seconds.
    pub head: Duration,
    /// Threads that serve connections, each with connections to pods of its own. One for each core
    /// that the process may use.
    pub threads: NonZeroUsize,
}

impl Options {
    /// The defaults, with a way to wake services.
    pub fn new(wake: Arc<dyn Wake>) -> Self {
        Self {
            wake,
            pending_per_service: 1024,
            pending: 50_000,
            per_backend: 500,
            hold: Duration::from_secs(600),
            wake_again: Duration::from_secs(10),
            connect: Duration::from_secs(2),
            retry_after: Duration::from_secs(1),
            host_header: None,
            cluster_domain: "cluster.local".to_owned(),
            shutdown_delay: Duration::from_secs(5),
            drain: Duration::from_secs(30),
            head: Duration::from_secs(30),
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("pending_per_service", &self.pending_per_service)
            .field("pending", &self.pending)
            .field("per_backend", &self.per_backend)
            .field("hold", &self.hold)
            .finish_non_exhaustive()
    }
}
