//! Figures about workflows, under the names that the first version announced.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use steersman::Metrics as Registry;

use crate::types::Phase;

/// Figures about workflows.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub(crate) reconciles: Counter,
    pub(crate) errors: Counter,
    pub(crate) reconcile_seconds: Histogram,
    pub(crate) workflow_seconds: Family<Ended, Histogram, fn() -> Histogram>,
    pub(crate) step_seconds: Family<Ended, Histogram, fn() -> Histogram>,
    pub(crate) retries: Counter,
    pub(crate) timeouts: Counter,
    pub(crate) active: Gauge,
    pub(crate) hop_seconds: Histogram,
    pub(crate) status_writes: Counter,
    pub(crate) pods_created: Counter,
}

/// How something ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Ended {
    phase: PhaseLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum PhaseLabel {
    Succeeded,
    Failed,
}

impl Ended {
    pub(crate) fn new(phase: Phase) -> Self {
        Self { phase: if phase == Phase::Succeeded { PhaseLabel::Succeeded } else { PhaseLabel::Failed } }
    }
}

/// Bounds for the time between tasks, in seconds; what is promised, 3 and 10 milliseconds, is among them.
const HOPS: [f64; 18] = [
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.007, 0.010, 0.015, 0.020, 0.030, 0.050, 0.1,
    0.3, 1.0, 10.0,
];

impl Metrics {
    /// Adds the figures to those of a manager.
    pub fn new(registry: &Registry) -> Self {
        fn long() -> Histogram {
            Histogram::new(exponential_buckets(0.1, 3.0, 13))
        }
        let metrics = Self {
            reconciles: Counter::default(),
            errors: Counter::default(),
            reconcile_seconds: Histogram::new(exponential_buckets(0.0001, 3.0, 13)),
            workflow_seconds: Family::new_with_constructor(long as fn() -> Histogram),
            step_seconds: Family::new_with_constructor(long as fn() -> Histogram),
            retries: Counter::default(),
            timeouts: Counter::default(),
            active: Gauge::default(),
            hop_seconds: Histogram::new(HOPS),
            status_writes: Counter::default(),
            pods_created: Counter::default(),
        };
        let mut registry = registry.registry();
        let all = registry.sub_registry_with_prefix("observatory");
        let m = metrics.clone();
        all.register("reconcile", "Reconciles of workflows", m.reconciles);
        all.register("reconcile_errors", "Reconciles of workflows that failed", m.errors);
        all.register(
            "reconcile_duration_seconds",
            "How long reconciles of workflows take",
            m.reconcile_seconds,
        );
        all.register("workflow_duration_seconds", "How long workflows take", m.workflow_seconds);
        all.register("workflow_step_duration_seconds", "How long attempts of tasks take", m.step_seconds);
        all.register("workflow_retries", "Attempts after the first", m.retries);
        all.register("job_timeout", "Attempts that took too long", m.timeouts);
        all.register("active_workflows", "Workflows that run", m.active);
        all.register(
            "dependency_resolution_duration_seconds",
            "From the news of a pod to the creation of those that waited for it",
            m.hop_seconds,
        );
        all.register("status_writes", "Writes to the status of workflows", m.status_writes);
        all.register("pods_created", "Pods created for tasks", m.pods_created);
        drop(registry);
        metrics
    }
}
