//! Figures that are read off the thing itself when someone asks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Weak;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{Labels, Queues, Stores, Watches, lock};
use crate::queue::Priority;

fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels, f64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        let metric = family.encode_family(&labels)?;
        ConstGauge::new(value).encode(metric)?;
    }
    Ok(())
}

fn queue_labels(name: &str) -> Labels {
    vec![("name", name.to_owned()), ("controller", name.to_owned())]
}

pub(super) struct QueueCollector(pub(super) Queues);

impl Collector for QueueCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let queues = lock(&self.0).clone();
        let depth = queues.iter().flat_map(|(name, queue)| {
            let depth = queue.depth();
            Priority::ALL.map(|priority| {
                let mut labels = queue_labels(name);
                labels.push(("priority", priority.number().to_string()));
                (labels, depth[priority as usize] as f64)
            })
        });
        gauges(&mut encoder, "workqueue_depth", "Keys that are ready", depth)?;
        let running: Vec<_> =
            queues.iter().map(|(name, queue)| (queue_labels(name), queue.running())).collect();
        gauges(
            &mut encoder,
            "workqueue_unfinished_work_seconds",
            "Sum of the times that keys have been worked on so far",
            running.iter().map(|(labels, (sum, _))| (labels.clone(), sum.as_secs_f64())),
        )?;
        gauges(
            &mut encoder,
            "workqueue_longest_running_processor_seconds",
            "How long the longest running reconcile has been running",
            running.iter().map(|(labels, (_, longest))| (labels.clone(), longest.as_secs_f64())),
        )
    }
}

pub(super) struct CacheCollector(pub(super) Stores);

impl Collector for CacheCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // A kind may be watched several times, with other selectors.
        let mut sizes: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for store in lock(&self.0).iter().filter_map(Weak::upgrade) {
            let (objects, bytes) = store.size();
            let sum = sizes.entry(store.resource.kind.clone()).or_default();
            *sum = (sum.0 + objects, sum.1 + bytes);
        }
        let sizes: Vec<_> = sizes.into_iter().map(|(kind, size)| (vec![("kind", kind)], size)).collect();
        gauges(
            &mut encoder,
            "controller_cache_objects",
            "Objects in the cache",
            sizes.iter().map(|(labels, (objects, _))| (labels.clone(), *objects as f64)),
        )?;
        gauges(
            &mut encoder,
            "controller_cache_bytes",
            "Bytes of the objects in the cache",
            sizes.iter().map(|(labels, (_, bytes))| (labels.clone(), *bytes as f64)),
        )
    }
}

pub(super) struct WatchCollector(pub(super) Watches);

impl Collector for WatchCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // The watch that has been silent the longest tells of its kind.
        let mut ages: BTreeMap<String, f64> = BTreeMap::new();
        for (kind, watch) in lock(&self.0).iter().filter_map(|(kind, watch)| Some((kind, watch.upgrade()?))) {
            let age = ages.entry(kind.clone()).or_default();
            *age = age.max(watch.age().as_secs_f64());
        }
        gauges(
            &mut encoder,
            "controller_watch_last_event_age_seconds",
            "Time since the server last said something on a watch",
            ages.into_iter().map(|(kind, age)| (vec![("kind", kind)], age)),
        )
    }
}

/// Memory, processor time and open files, where `/proc` tells them.
#[derive(Debug)]
pub(super) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The name of the program is in parentheses and may hold spaces.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let field = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
        if let (Some(user), Some(system)) = (field(11), field(12)) {
            let metric = encoder.encode_descriptor(
                "process_cpu_seconds",
                "Processor time of this process",
                None,
                MetricType::Counter,
            )?;
            // Linux counts in hundredths of a second towards programs, on every machine.
            ConstCounter::new((user + system) / 100.0).encode(metric)?;
        }
        let plain = [
            ("process_virtual_memory_bytes", "Address space of this process", field(20)),
            ("process_start_time_seconds", "When this process started, since 1970", start_time(field(19))),
            ("process_max_fds", "How many files this process may open", open_files_limit()),
        ];
        for (name, help, value) in plain {
            if let Some(value) = value {
                let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
                ConstGauge::new(value).encode(metric)?;
            }
        }
        if let Some(pages) = field(21) {
            let metric = encoder.encode_descriptor(
                "process_resident_memory_bytes",
                "Memory of this process",
                None,
                MetricType::Gauge,
            )?;
            ConstGauge::new(pages * 4096.0).encode(metric)?;
        }
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            let metric = encoder.encode_descriptor(
                "process_open_fds",
                "Open files of this process",
                None,
                MetricType::Gauge,
            )?;
            ConstGauge::new(files.count() as f64).encode(metric)?;
        }
        Ok(())
    }
}

/// Seconds since 1970 of a time in hundredths of a second since the machine started.
fn start_time(ticks: Option<f64>) -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let booted: f64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(booted + ticks? / 100.0)
}

fn open_files_limit() -> Option<f64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    files.split_whitespace().next()?.parse().ok()
}

macro_rules! named {
    ($($collector:ident),*) => {$(
        impl fmt::Debug for $collector {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($collector))
            }
        }
    )*};
}
named!(QueueCollector, CacheCollector, WatchCollector);
