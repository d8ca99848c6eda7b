//! What the operator counts, under KubeElasti's names.
//!
//! Labels have few values: an error is `error` and not its text, and the series of an ElastiService go
//! with it.

use crate::types::Mode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use steersman::{Key, Metrics};

/// What the operator counts. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct ElastiMetrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    reconcile: Family<Outcome, Histogram, fn() -> Histogram>,
    // Counters would get `_total` behind their names, which KubeElasti's have not.
    finalized: Family<Outcome, Gauge>,
    updated: Family<Update, Gauge>,
    mode: Family<Named, Gauge>,
    watches: Gauge,
    watched: Family<Watch, Gauge>,
    handled: Family<Outcome, Gauge>,
    scaled: Family<Scale, Gauge>,
    /// What was ever counted of a service, so that it can be forgotten.
    seen: Mutex<BTreeSet<(Key, String, String)>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Named {
    crd_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    crd_name: String,
    error: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Update {
    crd_name: String,
    mode: &'static str,
    error: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Watch {
    crd_name: String,
    action: &'static str,
    error: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Scale {
    service_name: String,
    namespace: String,
    target: String,
    error: &'static str,
}

/// How something went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Went {
    Well,
    Wrong,
}

impl Went {
    pub(crate) fn of<T, E>(result: &Result<T, E>) -> Self {
        if result.is_ok() { Self::Well } else { Self::Wrong }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Well => "success",
            Self::Wrong => "error",
        }
    }
}

/// What happened to a watch on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watching {
    Started,
    Stopped,
}

const BOTH: [&str; 2] = ["success", "error"];

fn seconds() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            reconcile: Family::new_with_constructor(seconds as fn() -> Histogram),
            finalized: Family::default(),
            updated: Family::default(),
            mode: Family::default(),
            watches: Gauge::default(),
            watched: Family::default(),
            handled: Family::default(),
            scaled: Family::default(),
            seen: Mutex::default(),
        }
    }
}

impl ElastiMetrics {
    /// Lets them be seen among those of a manager.
    pub(crate) fn register(&self, metrics: &Metrics) {
        let mut registry = metrics.registry();
        let inner = &self.0;
        registry.register(
            "elasti_operator_reconcile",
            "Duration of reconciles in seconds",
            inner.reconcile.clone(),
        );
        let name = "elasti_operator_CRD_finalizer_counter";
        registry.register(name, "ElastiServices that were cleaned up after", inner.finalized.clone());
        let name = "elasti_operator_CRD_update_counter";
        registry.register(name, "Changes of mode", inner.updated.clone());
        registry.register(
            "elasti_operator_mode",
            "1 while requests go through the resolver",
            inner.mode.clone(),
        );
        registry.register("elasti_operator_informer_count", "Watches on targets", inner.watches.clone());
        let name = "elasti_operator_informer_counter";
        registry.register(name, "Watches that were started and stopped", inner.watched.clone());
        let name = "elasti_operator_informer_handler_counter";
        registry.register(name, "Changes of targets that were heard of", inner.handled.clone());
        registry.register("elasti_operator_scale_counter", "Scalings of targets", inner.scaled.clone());
    }

    pub(crate) fn reconciled(&self, key: &Key, took: Duration, went: Went) {
        self.0.reconcile.get_or_create(&outcome(key, went)).observe(took.as_secs_f64());
    }

    pub(crate) fn finalized(&self, key: &Key, went: Went) {
        self.0.finalized.get_or_create(&outcome(key, went)).inc();
    }

    pub(crate) fn is_in(&self, key: &Key, mode: Mode) {
        self.0.mode.get_or_create(&named(key)).set(i64::from(mode == Mode::Proxy));
    }

    pub(crate) fn switched(&self, key: &Key, mode: Mode, went: Went) {
        let labels = Update { crd_name: key.to_string(), mode: mode_name(mode), error: went.label() };
        self.0.updated.get_or_create(&labels).inc();
    }

    pub(crate) fn watching(&self, key: &Key, watching: Watching, all: usize) {
        let action = if watching == Watching::Started { "add" } else { "remove" };
        let labels = Watch { crd_name: key.to_string(), action, error: Went::Well.label() };
        self.0.watched.get_or_create(&labels).inc();
        self.0.watches.set(i64::try_from(all).unwrap_or(i64::MAX));
    }

    pub(crate) fn heard(&self, key: &Key) {
        self.0.handled.get_or_create(&outcome(key, Went::Well)).inc();
    }

    pub(crate) fn scaled(&self, key: &Key, service: &str, target: &str, went: Went) {
        let namespace = key.namespace().unwrap_or_default().to_owned();
        self.seen().insert((key.clone(), service.to_owned(), target.to_owned()));
        let labels = Scale {
            service_name: service.to_owned(),
            namespace,
            target: target.to_owned(),
            error: went.label(),
        };
        self.0.scaled.get_or_create(&labels).inc();
    }

    /// The ElastiService is gone, and with it what was counted of it but for the end.
    pub(crate) fn forget(&self, key: &Key) {
        let crd_name = key.to_string();
        self.0.mode.remove(&named(key));
        for error in BOTH {
            let labels = Outcome { crd_name: crd_name.clone(), error };
            self.0.reconcile.remove(&labels);
            self.0.finalized.remove(&labels);
            self.0.handled.remove(&labels);
            for mode in [Mode::Proxy, Mode::Serve].map(mode_name) {
                self.0.updated.remove(&Update { crd_name: crd_name.clone(), mode, error });
            }
            for action in ["add", "remove"] {
                self.0.watched.remove(&Watch { crd_name: crd_name.clone(), action, error });
            }
        }
        let mut seen = self.seen();
        seen.retain(|(one, service_name, target)| {
            if one == key {
                for error in BOTH {
                    self.0.scaled.remove(&Scale {
                        service_name: service_name.clone(),
                        namespace: key.namespace().unwrap_or_default().to_owned(),
                        target: target.clone(),
                        error,
                    });
                }
            }
            one != key
        });
    }

    fn seen(&self) -> MutexGuard<'_, BTreeSet<(Key, String, String)>> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn named(key: &Key) -> Named {
    Named { crd_name: key.to_string() }
}

fn outcome(key: &Key, went: Went) -> Outcome {
    Outcome { crd_name: key.to_string(), error: went.label() }
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Proxy => "proxy",
        Mode::Serve => "serve",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashboards_of_kubeelasti_find_their_series_and_a_deleted_service_leaves_none() {
        let (all, metrics, key) = (Metrics::new(), ElastiMetrics::default(), Key::new("shop", "web"));
        metrics.register(&all);
        metrics.reconciled(&key, Duration::from_millis(20), Went::Well);
        metrics.finalized(&key, Went::Well);
        metrics.is_in(&key, Mode::Proxy);
        metrics.switched(&key, Mode::Proxy, Went::Well);
        metrics.watching(&key, Watching::Started, 1);
        metrics.heard(&key);
        metrics.scaled(&key, "web", "web", Went::of(&Err::<(), ()>(())));
        let text = all.encode();
        for series in [
            "elasti_operator_reconcile_count{crd_name=\"shop/web\",error=\"success\"} 1",
            "elasti_operator_CRD_finalizer_counter{crd_name=\"shop/web\",error=\"success\"} 1",
            "elasti_operator_CRD_update_counter{crd_name=\"shop/web\",mode=\"proxy\",error=\"success\"} 1",
            "elasti_operator_mode{crd_name=\"shop/web\"} 1",
            "elasti_operator_informer_count 1",
            "elasti_operator_informer_counter{crd_name=\"shop/web\",action=\"add\",error=\"success\"} 1",
            "elasti_operator_informer_handler_counter{crd_name=\"shop/web\",error=\"success\"} 1",
            "elasti_operator_scale_counter{service_name=\"web\",namespace=\"shop\",target=\"web\",error=\"error\"} 1",
        ] {
            assert!(text.lines().any(|line| line.starts_with(series)), "{series} is missing in\n{text}");
        }
        metrics.forget(&key);
        assert!(!all.encode().contains("shop"), "{}", all.encode());
    }
}
