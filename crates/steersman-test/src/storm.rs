//! Faults that happen by chance, the same ones for the same seed.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// How often which fault happens, as a share of all requests or events from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Storm {
    /// The same seed gives the same faults for the same requests.
    pub seed: u64,
    /// Requests that fail with 500 before the server sees them. 5 %.
    pub fail: f64,
    /// Requests that are refused with 429 and told to come back in a second. 5 %.
    pub too_many: f64,
    /// Writes that meet a conflict. 5 %.
    pub conflict: f64,
    /// Writes that take effect and whose answers are lost. 5 %.
    pub lose_answer: f64,
    /// Watches that are told that their version is too old. 20 %.
    pub expire: f64,
    /// Events after which the watch ends. 5 %.
    pub cut: f64,
    /// Events that come twice. 10 %.
    pub duplicate: f64,
    /// Requests and events that take longer. 10 %.
    pub slow: f64,
    /// How much longer at most. Two seconds.
    pub delay: Duration,
}

impl Storm {
    /// The usual weather under a seed.
    pub fn seeded(seed: u64) -> Self {
        Self {
            seed,
            fail: 0.05,
            too_many: 0.05,
            conflict: 0.05,
            lose_answer: 0.05,
            expire: 0.2,
            cut: 0.05,
            duplicate: 0.1,
            slow: 0.1,
            delay: Duration::from_secs(2),
        }
    }
}

/// A storm under way.
#[derive(Debug)]
pub(crate) struct Dice {
    pub(crate) storm: Storm,
    rng: SmallRng,
}

impl Dice {
    pub(crate) fn new(storm: Storm) -> Self {
        Self { storm, rng: SmallRng::seed_from_u64(storm.seed) }
    }

    /// Whether something that happens this often happens now.
    pub(crate) fn falls(&mut self, share: f64) -> bool {
        self.rng.random_bool(share.clamp(0.0, 1.0))
    }

    /// How long this request or event is held up.
    pub(crate) fn delay(&mut self) -> Duration {
        match self.falls(self.storm.slow) {
            true => self.storm.delay.mul_f64(self.rng.random_range(0.0..=1.0)),
            false => Duration::ZERO,
        }
    }
}
