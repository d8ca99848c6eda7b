use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;

/// What controller-runtime and client-go expose, name by name, with its type and labels. What
/// the names of counters end with is part of them.
const KNOWN: &[(&str, &str, &[&str])] = &[
    ("controller_runtime_reconcile_total", "counter", &["controller", "result"]),
    ("controller_runtime_reconcile_errors_total", "counter", &["controller"]),
    ("controller_runtime_terminal_reconcile_errors_total", "counter", &["controller"]),
    ("controller_runtime_reconcile_panics_total", "counter", &["controller"]),
    ("controller_runtime_reconcile_timeouts_total", "counter", &["controller"]),
    ("controller_runtime_reconcile_time_seconds", "histogram", &["controller"]),
    ("controller_runtime_max_concurrent_reconciles", "gauge", &["controller"]),
    ("controller_runtime_active_workers", "gauge", &["controller"]),
    ("workqueue_depth", "gauge", &["name", "controller", "priority"]),
    ("workqueue_adds_total", "counter", &["name", "controller"]),
    ("workqueue_queue_duration_seconds", "histogram", &["name", "controller"]),
    ("workqueue_work_duration_seconds", "histogram", &["name", "controller"]),
    ("workqueue_unfinished_work_seconds", "gauge", &["name", "controller"]),
    ("workqueue_longest_running_processor_seconds", "gauge", &["name", "controller"]),
    ("workqueue_retries_total", "counter", &["name", "controller"]),
    ("rest_client_requests_total", "counter", &["code", "method", "host"]),
    ("rest_client_request_duration_seconds", "histogram", &["verb", "host"]),
    ("rest_client_rate_limiter_duration_seconds", "histogram", &["verb", "host"]),
    ("rest_client_request_size_bytes", "histogram", &["verb", "host"]),
    ("rest_client_response_size_bytes", "histogram", &["verb", "host"]),
    ("leader_election_master_status", "gauge", &["name"]),
    ("leader_election_slowpath_total", "counter", &["name"]),
    ("controller_runtime_webhook_latency_seconds", "histogram", &["webhook"]),
    ("controller_runtime_webhook_requests_total", "counter", &["webhook", "code"]),
    ("controller_runtime_webhook_requests_in_flight", "gauge", &["webhook"]),
    ("controller_runtime_webhook_panics_total", "counter", &[]),
    ("controller_runtime_conversion_webhook_panics_total", "counter", &[]),
    ("certwatcher_read_certificate_total", "counter", &[]),
    ("certwatcher_read_certificate_errors_total", "counter", &[]),
    ("process_cpu_seconds_total", "counter", &[]),
    ("process_resident_memory_bytes", "gauge", &[]),
    ("process_virtual_memory_bytes", "gauge", &[]),
    ("process_start_time_seconds", "gauge", &[]),
    ("process_open_fds", "gauge", &[]),
    ("process_max_fds", "gauge", &[]),
    // The same figures under plain names.
    ("reconcile_total", "counter", &["controller", "result"]),
    ("reconcile_errors_total", "counter", &["controller"]),
    ("reconcile_duration_seconds", "histogram", &["controller"]),
    // What only we tell.
    ("controller_reconcile_writes_total", "counter", &["controller", "kind", "verb", "noop"]),
    ("controller_reconcile_reason_total", "counter", &["controller", "reason"]),
    ("controller_cache_objects", "gauge", &["kind"]),
    ("controller_cache_bytes", "gauge", &["kind"]),
    ("controller_watch_last_event_age_seconds", "gauge", &["kind"]),
    ("controller_watch_restarts_total", "counter", &["kind", "reason"]),
    ("controller_cache_quarantined_total", "counter", &["kind"]),
];

/// Metrics in which everything has happened once.
fn eventful() -> Metrics {
    let metrics = Metrics::new();
    let controller = metrics.controller("webapp");
    controller.success.inc();
    controller.seconds.observe(0.2);
    controller.wrote("Deployment", "apply");
    controller.reasons(&Reasons::from(crate::Reason::Changed));
    let queue = metrics.queue("webapp");
    queue.adds.inc();
    queue.waited.observe(0.1);
    queue.worked.observe(0.1);
    let queue = Queue::new(crate::queue::BackOff::default(), crate::jitter::Jitter::seeded(1), queue);
    metrics.add_queue("webapp", Arc::new(queue));
    metrics.requested(&Request {
        method: "GET",
        host: "",
        code: "200",
        took: Duration::from_millis(3),
        sent: Some(0),
        received: Some(100),
    });
    metrics.election("webapp.steersman.io");
    metrics.webhook("/mutate").begin().end(200);
    metrics
}

#[tokio::test]
async fn every_name_type_and_label_is_that_of_controller_runtime() {
    let metrics = eventful();
    let resource = <k8s_openapi::api::core::v1::Pod as crate::Object>::api_resource();
    let store = Arc::new(KindStore::new(resource, crate::Selection::all()));
    let health = Arc::new(WatchHealth::default());
    metrics.add_kind(&store);
    metrics.watch("Pod", &health).restarted("expired");
    let text = metrics.encode();
    let types: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    for (name, kind, labels) in KNOWN {
        let family = match *kind {
            "counter" => name.strip_suffix("_total").expect("a counter"),
            _ => name,
        };
        assert_eq!(types.get(family), Some(kind), "the type of {name}");
        let sample = match *kind {
            "histogram" => format!("{name}_count"),
            _ => (*name).to_owned(),
        };
        let line = text
            .lines()
            .find(|line| line.strip_prefix(&sample).is_some_and(|rest| rest.starts_with([' ', '{'])));
        let line = line.unwrap_or_else(|| panic!("{name} is missing in\n{text}"));
        let found: BTreeSet<&str> = line
            .split_once('{')
            .and_then(|(_, rest)| rest.split_once('}'))
            .map_or_else(Vec::new, |(inside, _)| inside.split(',').collect())
            .into_iter()
            .filter_map(|pair| Some(pair.split_once('=')?.0))
            .collect();
        assert_eq!(found, labels.iter().copied().collect(), "the labels of {name}");
    }
}

/// The series that kubebuilder's dashboards ask for.
#[test]
fn existing_dashboards_find_their_series() {
    let text = eventful().encode();
    for series in [
        "controller_runtime_active_workers{controller=\"webapp\"} 0",
        "controller_runtime_reconcile_total{controller=\"webapp\",result=\"success\"} 1",
        "controller_runtime_reconcile_total{controller=\"webapp\",result=\"error\"} 0",
        "controller_runtime_reconcile_total{controller=\"webapp\",result=\"requeue\"} 0",
        "controller_runtime_reconcile_total{controller=\"webapp\",result=\"requeue_after\"} 0",
        "controller_runtime_reconcile_errors_total{controller=\"webapp\"} 0",
        "controller_runtime_reconcile_time_seconds_bucket{le=\"0.25\",controller=\"webapp\"} 1",
        "workqueue_adds_total{name=\"webapp\",controller=\"webapp\"} 1",
        "workqueue_depth{name=\"webapp\",controller=\"webapp\",priority=\"0\"} 0",
        "workqueue_queue_duration_seconds_bucket{le=\"1.0\",name=\"webapp\",controller=\"webapp\"} 1",
        "workqueue_work_duration_seconds_bucket{",
        "workqueue_retries_total{",
        "workqueue_unfinished_work_seconds{",
        "workqueue_longest_running_processor_seconds{",
        "rest_client_requests_total{code=\"200\",method=\"GET\",host=\"\"} 1",
        "process_resident_memory_bytes ",
        "process_cpu_seconds_total ",
        "reconcile_total{controller=\"webapp\",result=\"success\"} 1",
        "reconcile_errors_total{controller=\"webapp\"} 0",
        "reconcile_duration_seconds_count{controller=\"webapp\"} 1",
    ] {
        assert!(text.lines().any(|line| line.starts_with(series)), "{series} is missing in\n{text}");
    }
}
