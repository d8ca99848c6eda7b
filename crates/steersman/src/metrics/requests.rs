//! The figures of requests to the API server, under client-go's names.

use std::time::Duration;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{Counters, Histograms, Labels};

/// Those of all requests.
pub(super) struct Families {
    total: Counters,
    retries: Counters,
    seconds: Histograms,
    limited: Histograms,
    sent: Histograms,
    received: Histograms,
}

/// One request that was answered, or failed.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) host: &'a str,
    /// The HTTP status, or `<error>`.
    pub(crate) code: &'a str,
    /// How long it took until the answer began.
    pub(crate) took: Duration,
    /// Bytes of the request, if they are known.
    pub(crate) sent: Option<u64>,
    /// Bytes of the answer, if they are known; those of a stream are not.
    pub(crate) received: Option<u64>,
}

impl Default for Families {
    fn default() -> Self {
        fn seconds() -> Histogram {
            Histogram::new([0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 45.0, 60.0])
        }
        fn bytes() -> Histogram {
            Histogram::new([
                64.0,
                256.0,
                512.0,
                1024.0,
                4096.0,
                16384.0,
                65536.0,
                262_144.0,
                1_048_576.0,
                4_194_304.0,
                16_777_216.0,
            ])
        }
        let seconds_family = || Histograms::new_with_constructor(seconds as fn() -> Histogram);
        let bytes_family = || Histograms::new_with_constructor(bytes as fn() -> Histogram);
        Self {
            total: Family::default(),
            retries: Family::default(),
            seconds: seconds_family(),
            limited: seconds_family(),
            sent: bytes_family(),
            received: bytes_family(),
        }
    }
}

impl Families {
    /// Counters lose their `_total` here because the encoder appends it.
    pub(super) fn register(&self, registry: &mut Registry) {
        let counters = [
            ("rest_client_requests", "Requests to the API server", &self.total),
            ("rest_client_request_retries", "Requests that the client sent again", &self.retries),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        let histograms = [
            ("rest_client_request_duration_seconds", "Time until answers began", &self.seconds),
            (
                "rest_client_rate_limiter_duration_seconds",
                "Time that requests were held back, which they are not here",
                &self.limited,
            ),
            ("rest_client_request_size_bytes", "Bytes of requests", &self.sent),
            ("rest_client_response_size_bytes", "Bytes of answers, but for streams", &self.received),
        ];
        for (name, help, histogram) in histograms {
            registry.register(name, help, histogram.clone());
        }
    }

    pub(super) fn add(&self, request: &Request<'_>) {
        let total: Labels = vec![
            ("code", request.code.to_owned()),
            ("method", request.method.to_owned()),
            ("host", request.host.to_owned()),
        ];
        self.total.get_or_create(&total).inc();
        let labels: Labels = vec![("verb", request.method.to_owned()), ("host", request.host.to_owned())];
        self.seconds.get_or_create(&labels).observe(request.took.as_secs_f64());
        self.limited.get_or_create(&labels).observe(0.0);
        for (bytes, family) in [(request.sent, &self.sent), (request.received, &self.received)] {
            if let Some(bytes) = bytes {
                family.get_or_create(&labels).observe(bytes as f64);
            }
        }
    }
}
