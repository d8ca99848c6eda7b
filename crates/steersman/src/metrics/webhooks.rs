//! The figures of webhooks, under controller-runtime's names.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::{Counters, Gauges, Histograms, Labels};

/// Those of all webhooks.
pub(super) struct Families {
    requests: Counters,
    panics: Counter,
    conversion_panics: Counter,
    seconds: Histograms,
    in_flight: Gauges,
    certificates: CertificateMetrics,
}

/// The figures of certificates that are read from files.
#[derive(Clone, Default)]
pub(crate) struct CertificateMetrics {
    pub(crate) reads: Counter,
    pub(crate) errors: Counter,
}

impl Default for Families {
    fn default() -> Self {
        fn histogram() -> Histogram {
            Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
        }
        Self {
            requests: Family::default(),
            panics: Counter::default(),
            conversion_panics: Counter::default(),
            seconds: Histograms::new_with_constructor(histogram as fn() -> Histogram),
            in_flight: Family::default(),
            certificates: CertificateMetrics::default(),
        }
    }
}

impl Families {
    /// Counters lose their `_total` here because the encoder appends it.
    pub(super) fn register(&self, registry: &mut Registry) {
        let requests = "controller_runtime_webhook_requests";
        registry.register(requests, "Calls of webhooks by HTTP status", self.requests.clone());
        registry.register("controller_runtime_webhook_panics", "Webhooks that panicked", self.panics.clone());
        let panics = "controller_runtime_conversion_webhook_panics";
        registry.register(panics, "Converters that panicked", self.conversion_panics.clone());
        let seconds = "controller_runtime_webhook_latency_seconds";
        registry.register(seconds, "Duration of webhooks", self.seconds.clone());
        let in_flight = "controller_runtime_webhook_requests_in_flight";
        registry.register(in_flight, "Webhooks that run now", self.in_flight.clone());
        let CertificateMetrics { reads, errors } = self.certificates();
        registry.register("certwatcher_read_certificate", "Certificates read from files", reads);
        registry.register(
            "certwatcher_read_certificate_errors",
            "Those that could not be read or used",
            errors,
        );
    }

    pub(super) fn certificates(&self) -> CertificateMetrics {
        self.certificates.clone()
    }

    /// Those of one webhook.
    pub(super) fn of(&self, path: &str, converts: bool) -> WebhookMetrics {
        let labels: Labels = vec![("webhook", path.to_owned())];
        // A counter that begins at one instead of zero hides its first increase.
        for code in [200, 500] {
            drop(self.requests.get_or_create(&coded(path, code)));
        }
        WebhookMetrics {
            path: path.to_owned(),
            requests: self.requests.clone(),
            panics: if converts { &self.conversion_panics } else { &self.panics }.clone(),
            seconds: self.seconds.get_or_create_owned(&labels),
            in_flight: self.in_flight.get_or_create_owned(&labels),
        }
    }
}

/// The figures of one webhook.
#[derive(Clone)]
pub(crate) struct WebhookMetrics {
    path: String,
    requests: Counters,
    panics: Counter,
    seconds: Histogram,
    in_flight: Gauge,
}

fn coded(path: &str, code: u16) -> Labels {
    vec![("webhook", path.to_owned()), ("code", code.to_string())]
}

/// A call that runs.
pub(crate) struct InFlight<'a> {
    metrics: &'a WebhookMetrics,
    began: Instant,
}

impl WebhookMetrics {
    pub(crate) fn begin(&self) -> InFlight<'_> {
        self.in_flight.inc();
        InFlight { metrics: self, began: Instant::now() }
    }

    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }
}

impl InFlight<'_> {
    /// Counts the call under its HTTP status.
    pub(crate) fn end(self, code: u16) {
        self.metrics.requests.get_or_create(&coded(&self.metrics.path, code)).inc();
        self.metrics.seconds.observe(self.began.elapsed().as_secs_f64());
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
    }
}
