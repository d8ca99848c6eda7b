//! Counting, under the names that KubeElasti's dashboards know, with labels that stay few.

use crate::directory::Directory;
use crate::rise::Rise;
use hyper::{Method, StatusCode};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The upper bounds of request durations, in seconds.
const BOUNDS: [f64; 6] = [0.1, 0.5, 1.0, 2.0, 5.0, 10.0];
/// The upper bounds of the parts of a cold start, in seconds.
const COLD: [f64; 6] = [0.01, 0.05, 0.25, 1.0, 5.0, 30.0];

/// What is counted for one service.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    held: AtomicI64,
    running: AtomicI64,
    total: AtomicU64,
    switches: AtomicU64,
    last: Mutex<Option<Instant>>,
    requests: Mutex<BTreeMap<(&'static str, u16), Histogram>>,
}

/// What is counted for all services together.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) hosts_found: AtomicU64,
    pub(crate) hosts_unknown: AtomicU64,
    pub(crate) woken: AtomicU64,
    pub(crate) wake_failed: AtomicU64,
    cold: Mutex<BTreeMap<&'static str, Histogram>>,
}

#[derive(Clone, Debug, Default)]
struct Histogram {
    buckets: [u64; 6],
    count: u64,
    sum: f64,
}

/// How busy a service is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Activity {
    pub(crate) held: i64,
    pub(crate) running: i64,
    pub(crate) total: u64,
    pub(crate) idle: Option<Duration>,
}

impl Stats {
    pub(crate) fn held(&self, change: i64) {
        self.held.fetch_add(change, Ordering::Relaxed);
    }

    pub(crate) fn began(&self, now: Instant) {
        self.running.fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(1, Ordering::Relaxed);
        *lock(&self.last) = Some(now);
    }

    pub(crate) fn ended(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        *lock(&self.last) = Some(Instant::now());
    }

    pub(crate) fn switched(&self) {
        self.switches.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn answered(&self, method: &Method, status: StatusCode, took: Duration) {
        let mut requests = lock(&self.requests);
        requests.entry((verb(method), status.as_u16())).or_default().observe(took, &BOUNDS);
    }

    pub(crate) fn activity(&self) -> Activity {
        let last = *lock(&self.last);
        Activity {
            held: self.held.load(Ordering::Relaxed),
            running: self.running.load(Ordering::Relaxed),
            total: self.total.load(Ordering::Relaxed),
            idle: last.map(|last| last.elapsed()),
        }
    }
}

impl Metrics {
    /// Counts a cold start in its parts.
    pub(crate) fn rose(&self, rise: &Rise) {
        let mut cold = lock(&self.cold);
        for (part, took) in rise.parts() {
            cold.entry(part).or_default().observe(took, &COLD);
        }
    }

    /// Everything in the text format of Prometheus.
    pub(crate) fn encode(&self, directory: &Directory) -> String {
        let mut text = String::new();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        head(&mut text, "elasti_resolver_host_extraction_count", "counter", "Hosts that named a service.");
        line(&mut text, "elasti_resolver_host_extraction_count{error=\"\"}", get(&self.hosts_found));
        line(
            &mut text,
            "elasti_resolver_host_extraction_count{error=\"unknown service\"}",
            get(&self.hosts_unknown),
        );
        head(&mut text, "elasti_resolver_operator_rpc_count", "counter", "Wake-up calls to the operator.");
        line(&mut text, "elasti_resolver_operator_rpc_count{error=\"\"}", get(&self.woken));
        line(&mut text, "elasti_resolver_operator_rpc_count{error=\"failed\"}", get(&self.wake_failed));
        let targets = directory.all();
        let labels = |target: &crate::Target| {
            format!("source=\"{}\",namespace=\"{}\"", target.key().name, target.key().namespace)
        };
        head(&mut text, "elasti_resolver_queued_count", "gauge", "Requests that wait for a pod.");
        for target in &targets {
            let held = target.stats.activity().held;
            let _ = writeln!(text, "elasti_resolver_queued_count{{{}}} {held}", labels(target));
        }
        let switches = "elasti_resolver_traffic_switch_count";
        head(&mut text, switches, "counter", "Changes between Proxy and Serve mode.");
        for target in &targets {
            let count = target.stats.switches.load(Ordering::Relaxed);
            let _ = writeln!(text, "{switches}{{{}}} {count}", labels(target));
        }
        let incoming = "elasti_resolver_incoming_requests";
        head(&mut text, incoming, "histogram", "Seconds from a request's head to that of its answer.");
        for target in &targets {
            for ((method, status), histogram) in &*lock(&target.stats.requests) {
                let labels = format!("{},method=\"{method}\",status=\"{status}\"", labels(target));
                histogram.encode(&mut text, incoming, &labels, &BOUNDS);
            }
        }
        let cold = "elasti_resolver_cold_start_seconds";
        head(&mut text, cold, "histogram", "Seconds that the parts of a cold start took.");
        for (part, histogram) in &*lock(&self.cold) {
            histogram.encode(&mut text, cold, &format!("part=\"{part}\""), &COLD);
        }
        text
    }
}

impl Histogram {
    fn observe(&mut self, took: Duration, bounds: &[f64; 6]) {
        let seconds = took.as_secs_f64();
        self.count += 1;
        self.sum += seconds;
        if let Some(bucket) = bounds.iter().position(|bound| seconds <= *bound) {
            self.buckets[bucket] += 1;
        }
    }

    fn encode(&self, text: &mut String, name: &str, labels: &str, bounds: &[f64; 6]) {
        let mut below = 0;
        for (bucket, bound) in self.buckets.iter().zip(bounds) {
            below += bucket;
            let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}");
        }
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(text, "{name}_sum{{{labels}}} {}", self.sum);
        let _ = writeln!(text, "{name}_count{{{labels}}} {}", self.count);
    }
}

/// A method as a label: clients can invent others.
fn verb(method: &Method) -> &'static str {
    const KNOWN: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"];
    KNOWN.into_iter().find(|known| method.as_str() == *known).unwrap_or("other")
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(text: &mut String, series: &str, value: u64) {
    let _ = writeln!(text, "{series} {value}");
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invented_methods_share_one_label() {
        assert_eq!(verb(&Method::GET), "GET");
        assert_eq!(verb(&Method::from_bytes(b"FROB17").expect("a method")), "other");
    }

    #[test]
    fn a_histogram_is_cumulative() {
        let mut histogram = Histogram::default();
        for seconds in [0.05, 0.3, 0.4, 20.0] {
            histogram.observe(Duration::from_secs_f64(seconds), &BOUNDS);
        }
        let mut text = String::new();
        histogram.encode(&mut text, "x", "a=\"b\"", &BOUNDS);
        assert!(text.contains("x_bucket{a=\"b\",le=\"0.5\"} 3\n"), "{text}");
        assert!(text.contains("x_bucket{a=\"b\",le=\"+Inf\"} 4\n"), "{text}");
        assert!(text.contains("x_count{a=\"b\"} 4\n"), "{text}");
    }
}
