//! Figures about attempts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use steersman::Metrics as Registry;

/// Figures about attempts, by plugin.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub(crate) attempts: Family<Ended, Counter>,
    pub(crate) seconds: Family<Plugin, Histogram, fn() -> Histogram>,
    pub(crate) drift_checks: Family<Plugin, Counter>,
    pub(crate) drift_found: Family<Plugin, Counter>,
    pub(crate) history_waiting: Gauge,
}

/// Which plugin.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Plugin {
    plugin: String,
}

/// Which plugin, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Ended {
    plugin: String,
    result: &'static str,
}

impl Plugin {
    pub(crate) fn new(plugin: &str) -> Self {
        Self { plugin: plugin.to_owned() }
    }
}

impl Ended {
    pub(crate) fn new(plugin: &str, result: &'static str) -> Self {
        Self { plugin: plugin.to_owned(), result }
    }
}

impl Metrics {
    /// Adds the figures to those of a manager.
    pub fn new(registry: &Registry) -> Self {
        fn long() -> Histogram {
            Histogram::new(exponential_buckets(0.01, 4.0, 12))
        }
        let metrics = Self {
            attempts: Family::default(),
            seconds: Family::new_with_constructor(long as fn() -> Histogram),
            drift_checks: Family::default(),
            drift_found: Family::default(),
            history_waiting: Gauge::default(),
        };
        let mut registry = registry.registry();
        let all = registry.sub_registry_with_prefix("infra");
        let m = metrics.clone();
        all.register("reconciliations", "Attempts that ended, by plugin and result", m.attempts);
        all.register("reconciliation_duration_seconds", "How long attempts take", m.seconds);
        all.register("drift_checks", "Checks of ready resources for drift", m.drift_checks);
        all.register("drift_detected", "Checks that found drift", m.drift_found);
        all.register("history_waiting", "Attempts that the history could not take yet", m.history_waiting);
        drop(registry);
        metrics
    }
}
