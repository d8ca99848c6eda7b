//! How long the parts of a cold start take.

use std::time::Duration;
use tokio::time::Instant;

/// A service on its way from the first held request to the first answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rise {
    /// The first request was held.
    began: Instant,
    /// The wake-up call was acknowledged.
    notified: Option<Instant>,
    /// A pod exists and has an address.
    scheduled: Option<Instant>,
    /// A pod is ready.
    ready: Option<Instant>,
}

impl Rise {
    pub(crate) fn begin() -> Self {
        Self { began: Instant::now(), notified: None, scheduled: None, ready: None }
    }

    pub(crate) fn notified(&mut self) {
        self.notified.get_or_insert_with(Instant::now);
    }

    pub(crate) fn scheduled(&mut self) {
        self.scheduled.get_or_insert_with(Instant::now);
    }

    pub(crate) fn ready(&mut self) {
        self.scheduled();
        self.ready.get_or_insert_with(Instant::now);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.is_some()
    }

    /// The parts, now that the first answer is there. A pod that came before the wake-up call was
    /// acknowledged took no time to be scheduled.
    pub(crate) fn parts(&self) -> [(&'static str, Duration); 5] {
        let now = Instant::now();
        let ready = self.ready.unwrap_or(now);
        let scheduled = self.scheduled.unwrap_or(ready);
        let notified = self.notified.unwrap_or(scheduled);
        [
            ("notify", notified.saturating_duration_since(self.began)),
            ("schedule", scheduled.saturating_duration_since(notified)),
            ("ready", ready.saturating_duration_since(scheduled)),
            ("first_byte", now.saturating_duration_since(ready)),
            ("total", now.saturating_duration_since(self.began)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_parts_follow_each_other_and_make_the_whole() {
        let mut rise = Rise::begin();
        let wait = |millis| tokio::time::sleep(Duration::from_millis(millis));
        wait(10).await;
        rise.notified();
        wait(20).await;
        rise.scheduled();
        wait(30).await;
        rise.ready();
        wait(40).await;
        // Said again, which changes nothing.
        rise.notified();
        rise.scheduled();
        let parts = rise.parts().map(|(name, took)| (name, took.as_millis()));
        assert_eq!(
            parts,
            [("notify", 10), ("schedule", 20), ("ready", 30), ("first_byte", 40), ("total", 100)]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_came_by_itself_needed_no_call() {
        let mut rise = Rise::begin();
        tokio::time::sleep(Duration::from_millis(10)).await;
        rise.ready();
        rise.notified();
        let parts = rise.parts().map(|(_, took)| took.as_millis());
        assert_eq!(parts, [10, 0, 0, 0, 10]);
    }
}
