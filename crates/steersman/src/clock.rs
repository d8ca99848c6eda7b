//! Wall time, handed in from outside.

use std::sync::Arc;

use jiff::Timestamp;

/// Tells the wall time that goes into timestamps of objects.
///
/// Durations are never measured with it: those use [`tokio::time::Instant`], which a test can
/// pause and advance.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The clock of the machine.
pub fn system_clock() -> Clock {
    Arc::new(Timestamp::now)
}

/// A wall clock that starts at `start` and moves with tokio's clock, so that a paused test
/// sees timestamps and timers agree.
pub fn virtual_clock(start: Timestamp) -> Clock {
    let origin = tokio::time::Instant::now();
    Arc::new(move || {
        let passed = tokio::time::Instant::now().saturating_duration_since(origin);
        start.saturating_add(passed).unwrap_or(Timestamp::MAX)
    })
}
