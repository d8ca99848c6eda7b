//! Metrics under the names that dashboards of controller-runtime expect, and plain names for
//! the same figures.
//!
//! There is no global registry: every manager has its own.

mod collect;
mod requests;
mod webhooks;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use self::collect::{CacheCollector, ProcessCollector, QueueCollector, WatchCollector};
pub(crate) use self::requests::Request;
pub(crate) use self::webhooks::{CertificateMetrics, WebhookMetrics};
use crate::cache::{KindStore, WatchHealth};
use crate::queue::Queue;
use crate::reason::Reasons;

pub(crate) type Labels = Vec<(&'static str, String)>;
/// Queues by the names of their controllers.
pub(crate) type Queues = Arc<Mutex<Vec<(String, Arc<Queue>)>>>;
/// Stores that may end at any time.
pub(crate) type Stores = Arc<Mutex<Vec<Weak<KindStore>>>>;
/// Watches by kind, that may end at any time.
pub(crate) type Watches = Arc<Mutex<Vec<(String, Weak<WatchHealth>)>>>;
type Counters = Family<Labels, Counter>;
type Gauges = Family<Labels, Gauge>;
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

const RECONCILE_SECONDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

/// All metrics of one manager.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Mutex<Registry>,
    reconciles: Counters,
    errors: Counters,
    terminal_errors: Counters,
    panics: Counters,
    timeouts: Counters,
    seconds: Histograms,
    max_concurrent: Gauges,
    active: Gauges,
    adds: Counters,
    retries: Counters,
    waited: Histograms,
    worked: Histograms,
    requests: requests::Families,
    leading: Gauges,
    slow_path: Counters,
    writes: Counters,
    reasons: Counters,
    restarts: Counters,
    quarantined: Counters,
    webhooks: webhooks::Families,
    kinds: Stores,
    queues: Queues,
    watches: Watches,
}

impl Metrics {
    /// An empty set of metrics.
    pub fn new() -> Self {
        fn reconcile_histogram() -> Histogram {
            Histogram::new(RECONCILE_SECONDS)
        }
        fn queue_histogram() -> Histogram {
            Histogram::new((0..12).map(|power| 1e-8 * 10f64.powi(power)))
        }
        let reconcile_seconds = Histograms::new_with_constructor(reconcile_histogram as fn() -> Histogram);
        let waited = Histograms::new_with_constructor(queue_histogram as fn() -> Histogram);
        let worked = Histograms::new_with_constructor(queue_histogram as fn() -> Histogram);
        let inner = Inner {
            registry: Mutex::default(),
            reconciles: Family::default(),
            errors: Family::default(),
            terminal_errors: Family::default(),
            panics: Family::default(),
            timeouts: Family::default(),
            seconds: reconcile_seconds,
            max_concurrent: Family::default(),
            active: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            waited,
            worked,
            requests: requests::Families::default(),
            leading: Family::default(),
            slow_path: Family::default(),
            writes: Family::default(),
            reasons: Family::default(),
            restarts: Family::default(),
            quarantined: Family::default(),
            webhooks: webhooks::Families::default(),
            kinds: Arc::default(),
            queues: Arc::default(),
            watches: Arc::default(),
        };
        inner.register();
        Self(Arc::new(inner))
    }

    /// Lets a caller add metrics of its own. The library that encodes them appends `_total`
    /// to the names of counters.
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        lock(&self.0.registry)
    }

    /// The text of a scrape, in the OpenMetrics format.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        if let Err(error) = encode(&mut text, &lock(&self.0.registry)) {
            tracing::error!(%error, "metrics cannot be written");
        }
        text
    }

    pub(crate) fn controller(&self, controller: &str) -> ControllerMetrics {
        let labels: Labels = vec![("controller", controller.to_owned())];
        let result = |result: &str| {
            let labels = vec![("controller", controller.to_owned()), ("result", result.to_owned())];
            self.0.reconciles.get_or_create_owned(&labels)
        };
        ControllerMetrics {
            controller: controller.to_owned(),
            success: result("success"),
            error: result("error"),
            requeue: result("requeue"),
            requeue_after: result("requeue_after"),
            errors: self.0.errors.get_or_create_owned(&labels),
            terminal_errors: self.0.terminal_errors.get_or_create_owned(&labels),
            panics: self.0.panics.get_or_create_owned(&labels),
            timeouts: self.0.timeouts.get_or_create_owned(&labels),
            seconds: self.0.seconds.get_or_create_owned(&labels),
            max_concurrent: self.0.max_concurrent.get_or_create_owned(&labels),
            active: self.0.active.get_or_create_owned(&labels),
            writes: self.0.writes.clone(),
            reasons: self.0.reasons.clone(),
        }
    }

    pub(crate) fn queue(&self, name: &str) -> QueueMetrics {
        let labels: Labels = vec![("name", name.to_owned()), ("controller", name.to_owned())];
        QueueMetrics {
            adds: self.0.adds.get_or_create_owned(&labels),
            retries: self.0.retries.get_or_create_owned(&labels),
            waited: self.0.waited.get_or_create_owned(&labels),
            worked: self.0.worked.get_or_create_owned(&labels),
        }
    }

    pub(crate) fn add_queue(&self, name: &str, queue: Arc<Queue>) {
        lock(&self.0.queues).push((name.to_owned(), queue));
    }

    /// The queues of all controllers, by name.
    pub(crate) fn queues(&self) -> Vec<(String, Arc<Queue>)> {
        lock(&self.0.queues).clone()
    }

    pub(crate) fn add_kind(&self, store: &Arc<KindStore>) {
        let mut kinds = lock(&self.0.kinds);
        kinds.retain(|store| store.strong_count() > 0);
        kinds.push(Arc::downgrade(store));
    }

    pub(crate) fn watch(&self, kind: &str, health: &Arc<WatchHealth>) -> WatchMetrics {
        let labels: Labels = vec![("kind", kind.to_owned())];
        let mut watches = lock(&self.0.watches);
        watches.retain(|(_, watch)| watch.strong_count() > 0);
        watches.push((kind.to_owned(), Arc::downgrade(health)));
        let metrics = WatchMetrics {
            kind: kind.to_owned(),
            restarts: self.0.restarts.clone(),
            quarantined: self.0.quarantined.get_or_create_owned(&labels),
        };
        // A counter that begins at one instead of zero hides its first increase.
        for reason in ["error", "expired", "silent"] {
            drop(metrics.restarts.get_or_create(&metrics.labels(reason)));
        }
        metrics
    }

    pub(crate) fn requested(&self, request: &Request<'_>) {
        self.0.requests.add(request);
    }

    pub(crate) fn webhook(&self, path: &str) -> WebhookMetrics {
        self.0.webhooks.of(path, false)
    }

    pub(crate) fn converter(&self, path: &str) -> WebhookMetrics {
        self.0.webhooks.of(path, true)
    }

    pub(crate) fn certificates(&self) -> CertificateMetrics {
        self.0.webhooks.certificates()
    }

    pub(crate) fn election(&self, lease: &str) -> (Gauge, Counter) {
        let labels: Labels = vec![("name", lease.to_owned())];
        (self.0.leading.get_or_create_owned(&labels), self.0.slow_path.get_or_create_owned(&labels))
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

impl Inner {
    /// Counters lose their `_total` here because the encoder appends it.
    fn register(&self) {
        let mut registry = lock(&self.registry);
        let counters = [
            ("controller_runtime_reconcile", "Reconciles by result", &self.reconciles),
            ("reconcile", "Reconciles by result", &self.reconciles),
            ("controller_runtime_reconcile_errors", "Reconciles that failed", &self.errors),
            ("reconcile_errors", "Reconciles that failed", &self.errors),
            (
                "controller_runtime_terminal_reconcile_errors",
                "Reconciles that failed for good",
                &self.terminal_errors,
            ),
            ("controller_runtime_reconcile_panics", "Reconciles that panicked", &self.panics),
            ("controller_runtime_reconcile_timeouts", "Reconciles that took too long", &self.timeouts),
            ("workqueue_adds", "Keys put into the queue", &self.adds),
            ("workqueue_retries", "Keys put into the queue with a delay", &self.retries),
            ("leader_election_slowpath", "Renewals that had to read the lease first", &self.slow_path),
            ("controller_reconcile_writes", "Writes of reconcilers; noop were not sent", &self.writes),
            ("controller_reconcile_reason", "Causes of reconciles", &self.reasons),
            ("controller_watch_restarts", "Watches that had to start again", &self.restarts),
            ("controller_cache_quarantined", "Objects that could not be read", &self.quarantined),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        let histograms = [
            ("controller_runtime_reconcile_time_seconds", "Duration of reconciles", &self.seconds),
            ("reconcile_duration_seconds", "Duration of reconciles", &self.seconds),
            ("workqueue_queue_duration_seconds", "Time that keys waited in the queue", &self.waited),
            ("workqueue_work_duration_seconds", "Time that keys were worked on", &self.worked),
        ];
        for (name, help, histogram) in histograms {
            registry.register(name, help, histogram.clone());
        }
        let gauges = [
            (
                "controller_runtime_max_concurrent_reconciles",
                "Reconciles that may run at once",
                &self.max_concurrent,
            ),
            ("controller_runtime_active_workers", "Reconciles that run now", &self.active),
            ("leader_election_master_status", "1 while holding the lease", &self.leading),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
        self.requests.register(&mut registry);
        self.webhooks.register(&mut registry);
        registry.register_collector(Box::new(QueueCollector(Arc::clone(&self.queues))));
        registry.register_collector(Box::new(CacheCollector(Arc::clone(&self.kinds))));
        registry.register_collector(Box::new(WatchCollector(Arc::clone(&self.watches))));
        registry.register_collector(Box::new(ProcessCollector));
    }
}

/// The figures of one controller.
#[derive(Clone)]
pub(crate) struct ControllerMetrics {
    controller: String,
    pub(crate) success: Counter,
    pub(crate) error: Counter,
    pub(crate) requeue: Counter,
    pub(crate) requeue_after: Counter,
    pub(crate) errors: Counter,
    pub(crate) terminal_errors: Counter,
    pub(crate) panics: Counter,
    pub(crate) timeouts: Counter,
    pub(crate) seconds: Histogram,
    pub(crate) max_concurrent: Gauge,
    pub(crate) active: Gauge,
    writes: Counters,
    reasons: Counters,
}

impl ControllerMetrics {
    pub(crate) fn wrote(&self, kind: &str, verb: &str) {
        self.write(kind, verb, "false");
    }

    pub(crate) fn skipped(&self, kind: &str) {
        self.write(kind, "apply", "true");
    }

    pub(crate) fn reasons(&self, reasons: &Reasons) {
        for reason in reasons.iter() {
            let labels = vec![("controller", self.controller.clone()), ("reason", reason.name().to_owned())];
            self.reasons.get_or_create(&labels).inc();
        }
    }

    fn write(&self, kind: &str, verb: &str, noop: &str) {
        let labels = vec![
            ("controller", self.controller.clone()),
            ("kind", kind.to_owned()),
            ("verb", verb.to_owned()),
            ("noop", noop.to_owned()),
        ];
        self.writes.get_or_create(&labels).inc();
    }
}

/// The figures of one queue; what can be read off the queue itself is read at a scrape.
#[derive(Clone)]
pub(crate) struct QueueMetrics {
    pub(crate) adds: Counter,
    pub(crate) retries: Counter,
    pub(crate) waited: Histogram,
    pub(crate) worked: Histogram,
}

/// The figures of one watch.
#[derive(Clone)]
pub(crate) struct WatchMetrics {
    kind: String,
    restarts: Counters,
    quarantined: Counter,
}

impl WatchMetrics {
    pub(crate) fn quarantined(&self) {
        self.quarantined.inc();
    }

    pub(crate) fn restarted(&self, reason: &str) {
        self.restarts.get_or_create(&self.labels(reason)).inc();
    }

    fn labels(&self, reason: &str) -> Labels {
        vec![("kind", self.kind.clone()), ("reason", reason.to_owned())]
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
