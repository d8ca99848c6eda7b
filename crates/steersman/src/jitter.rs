//! Randomness that a test can hold.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Spreads delays, so that what failed together does not come back together.
#[derive(Clone, Debug)]
pub(crate) struct Jitter(Arc<Mutex<SmallRng>>);

impl Jitter {
    /// The same seed gives the same delays.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(SmallRng::seed_from_u64(seed))))
    }

    /// Another sequence in every process.
    pub(crate) fn random() -> Self {
        Self::seeded(rand::random())
    }

    /// `first` doubled with every further failure up to `longest`, then 10 % more or less.
    pub(crate) fn back_off(&self, first: Duration, longest: Duration, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let delay = first.saturating_mul(1 << doublings).min(longest);
        self.spread(delay, 0.1)
    }

    /// Any number, to tell things apart.
    pub(crate) fn number(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).random()
    }

    /// The delay, up to `share` of it more or less.
    pub(crate) fn spread(&self, delay: Duration, share: f64) -> Duration {
        let mut rng = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        delay.mul_f64(rng.random_range(1.0 - share..=1.0 + share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let jitter = Jitter::seeded(7);
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(300));
        for (failures, expected) in [(1, 1.0), (2, 2.0), (3, 4.0), (9, 256.0), (10, 300.0), (99, 300.0)] {
            let delay = jitter.back_off(first, longest, failures).as_secs_f64();
            assert!((delay / expected - 1.0).abs() <= 0.1, "{failures}: {delay}");
        }
    }
}
