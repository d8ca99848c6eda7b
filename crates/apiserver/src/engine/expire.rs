//! Events are news: after an hour they go.

use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};

use super::Engine;
use crate::{
    object::Stored,
    store::{Operation, Write},
};

const EVENTS: &str = "events";
/// How long an event is kept after it was last written.
const KEPT: SignedDuration = SignedDuration::from_hours(1);
/// Old events are looked for when a new one comes, but not more often than this.
const EVERY: i64 = 60;
/// How many go at once, so that nobody waits long for it.
const AT_ONCE: usize = 500;

/// When old events were last looked for, in seconds.
#[derive(Debug, Default)]
pub(crate) struct LastSweep(AtomicI64);

impl Engine {
    /// Removes old events when it is time to. An idle server has no new events, and so does nothing.
    pub(super) async fn expire_events(&self) {
        let now = (self.options.clock)();
        let last = self.last_sweep.0.load(Ordering::Relaxed);
        let due = now.as_second() - last >= EVERY;
        let mine = due
            && self
                .last_sweep
                .0
                .compare_exchange(last, now.as_second(), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !mine {
            return;
        }
        for stored in self.store.list(EVENTS, None).iter().filter(|stored| is_old(stored, now)).take(AT_ONCE)
        {
            let operation = Operation::Delete { expected: stored.revision };
            let write =
                Write { key: stored.key.clone(), operation, bytes: stored.bytes.to_vec(), fence: None };
            // One that was written in between is not old any more; other failures show at the next write.
            let _ = self.store.write(write).await;
        }
    }
}

/// Whether nothing has happened to an event for long: it was not seen again, and is not new.
fn is_old(stored: &Stored, now: Timestamp) -> bool {
    let written = stored.header.creation_timestamp.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
    if written.is_none_or(|written| now.duration_since(written) < KEPT) {
        return false;
    }
    let event = super::view::tree(stored);
    let seen = [&event["lastTimestamp"], &event["series"]["lastObservedTime"]];
    seen.iter()
        .filter_map(|time| time.as_str()?.parse::<Timestamp>().ok())
        .all(|time| now.duration_since(time) >= KEPT)
}
