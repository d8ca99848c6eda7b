//! What this process has used.

use std::fs;

/// Seconds of CPU that the threads of this name have used so far; those of ended ones do not count.
pub(crate) fn cpu_of_threads(name: &str) -> f64 {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return 0.0 };
    let named = threads
        .flatten()
        .map(|thread| thread.path())
        .filter(|path| fs::read_to_string(path.join("comm")).is_ok_and(|found| found.trim_end() == name));
    named.map(|path| nanoseconds(&fs::read_to_string(path.join("schedstat")).unwrap_or_default()) / 1e9).sum()
}

/// The first figure is the time on a CPU.
fn nanoseconds(text: &str) -> f64 {
    text.split_whitespace().next().and_then(|figure| figure.parse().ok()).unwrap_or(0.0)
}

/// Resident memory in MiB.
pub(crate) fn resident_mib() -> f64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}
