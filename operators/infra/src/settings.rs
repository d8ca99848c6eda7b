//! How the operator runs.

use std::time::Duration;

/// The pace of reconciliation.
///
/// # Example
/// ```
/// use std::time::Duration;
/// use steersman_infra::OperatorController;
///
/// let controller = OperatorController::new(Duration::from_secs(60), 5);
/// assert_eq!(controller, OperatorController::default());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperatorController {
    /// How often everything is looked at although nothing was heard of. 60 seconds. Changes and
    /// retries do not wait for it.
    pub reconcile_interval: Duration,
    /// How many resources are reconciled at the same time. 5. One that only waits for something
    /// elsewhere does not count.
    pub max_concurrent_reconciles: usize,
    /// How often ready resources are checked for drift. 5 minutes.
    pub drift_interval: Duration,
    /// The delay after a first failure; it doubles with every further one. One minute.
    pub back_off_first: Duration,
    /// The longest delay after failures, and the one after those that no retry mends. 1024 minutes.
    pub back_off_longest: Duration,
}

impl OperatorController {
    /// The defaults with another interval and parallelism.
    pub fn new(reconcile_interval: Duration, max_concurrent_reconciles: usize) -> Self {
        Self { reconcile_interval, max_concurrent_reconciles, ..Self::default() }
    }

    /// How long to wait after this many failures in a row, about a tenth more or less by `uid`,
    /// so that what failed together does not come back together.
    pub(crate) fn delay(&self, failures: u32, uid: &str) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let delay = self.back_off_first.saturating_mul(1 << doublings).min(self.back_off_longest);
        let noise = uid
            .bytes()
            .fold(failures.wrapping_mul(31), |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let spread = f64::from(noise % 1000) / 1000.0 * 0.2 - 0.1;
        delay.mul_f64(1.0 + spread)
    }
}

impl Default for OperatorController {
    fn default() -> Self {
        Self {
            reconcile_interval: Duration::from_secs(60),
            max_concurrent_reconciles: 5,
            drift_interval: Duration::from_secs(300),
            back_off_first: Duration::from_secs(60),
            back_off_longest: Duration::from_secs(1024 * 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_1_2_4_to_1024_minutes_give_or_take_a_tenth() {
        let settings = OperatorController::default();
        for (failures, minutes) in
            [(1, 1.0), (2, 2.0), (3, 4.0), (10, 512.0), (11, 1024.0), (12, 1024.0), (5000, 1024.0)]
        {
            for uid in ["a", "b", "0f3c"] {
                let delay = settings.delay(failures, uid).as_secs_f64() / 60.0;
                assert!((delay / minutes - 1.0).abs() <= 0.101, "{failures}: {delay} instead of {minutes}");
            }
        }
        assert_ne!(settings.delay(3, "one-uid"), settings.delay(3, "another"));
    }
}
