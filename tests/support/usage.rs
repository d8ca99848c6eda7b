//! What processes use.

use std::{fs, time::Duration};

/// Resident memory.
pub fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or_default()
}

/// Processor time so far.
pub fn cpu_seconds(pids: &[u32]) -> f64 {
    let ticks = |pid: &u32| -> f64 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        [11, 12].iter().filter_map(|i| fields.get(*i)?.parse::<f64>().ok()).sum()
    };
    pids.iter().map(ticks).sum::<f64>() / 100.0
}

/// Processor time of all threads that still run, exact to far below a tick.
pub fn busy(pids: &[u32]) -> Duration {
    let threads = |pid: &u32| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanos = |thread: fs::DirEntry| -> Option<u64> {
        fs::read_to_string(thread.path().join("schedstat")).ok()?.split(' ').next()?.parse().ok()
    };
    Duration::from_nanos(pids.iter().flat_map(threads).filter_map(nanos).sum())
}

/// The most resident memory there ever was.
pub fn peak_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or_default()
}
