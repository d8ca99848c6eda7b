//! What processes use.

use std::fs;

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
