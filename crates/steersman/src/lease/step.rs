//! Judging a lease by one's own clock.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use tokio::time::Instant;

/// Remembers which state of the lease was seen, and since when.
pub(super) struct Observer {
    identity: String,
    seen: Option<(Seen, Instant)>,
}

/// What changes whenever a holder does something.
#[derive(PartialEq, Eq)]
struct Seen {
    holder: String,
    renewed: Option<i128>,
    transitions: i32,
}

/// What a look at the lease says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nobody holds it: take it with this epoch.
    Free { transitions: i32 },
    /// Someone does, and counts until then unless it changes.
    Held { until: Instant },
}

impl Observer {
    pub(super) fn new(identity: &str) -> Self {
        Self { identity: identity.to_owned(), seen: None }
    }

    /// Judges a state of the lease that was read at `now`.
    pub(super) fn look(&mut self, lease: Option<&LeaseSpec>, now: Instant) -> Verdict {
        let Some(lease) = lease else {
            return Verdict::Free { transitions: 0 };
        };
        let seen = Seen {
            holder: lease.holder_identity.clone().unwrap_or_default(),
            renewed: lease.renew_time.as_ref().map(|time| time.0.as_nanosecond()),
            transitions: lease.lease_transitions.unwrap_or(0),
        };
        // Every holder gets an epoch of its own, so that fences can tell them apart.
        let transitions = seen.transitions.saturating_add(1);
        // An earlier life of ours holds nothing any more.
        if seen.holder.is_empty() || seen.holder == self.identity {
            return Verdict::Free { transitions };
        }
        let since = match &self.seen {
            Some((known, since)) if *known == seen => *since,
            _ => now,
        };
        self.seen = Some((seen, since));
        let seconds = lease.lease_duration_seconds.unwrap_or(15).max(1);
        let until = since + Duration::from_secs(u64::try_from(seconds).unwrap_or(15));
        match now >= until {
            true => Verdict::Free { transitions },
            false => Verdict::Held { until },
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;

    fn lease(holder: &str, renewed: i64) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(Timestamp::from_second(renewed).expect("a time"))),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_lease_that_nobody_holds_is_free_at_once() {
        let now = Instant::now();
        let mut observer = Observer::new("b");
        assert_eq!(observer.look(None, now), Verdict::Free { transitions: 0 });
        assert_eq!(observer.look(Some(&lease("", 5)), now), Verdict::Free { transitions: 4 });
    }

    #[test]
    fn wall_clocks_do_not_count() {
        let now = Instant::now();
        let mut observer = Observer::new("b");
        // The holder's clock is years behind, or ahead.
        for renewed in [0, 9_999_999_999] {
            let verdict = observer.look(Some(&lease("a", renewed)), now);
            assert_eq!(verdict, Verdict::Held { until: now + 15 * SECOND });
        }
    }

    #[test]
    fn a_lease_is_free_after_its_duration_without_a_change() {
        let start = Instant::now();
        let mut observer = Observer::new("b");
        observer.look(Some(&lease("a", 1)), start);
        let renewed = start + 10 * SECOND;
        observer.look(Some(&lease("a", 2)), renewed);
        assert_eq!(
            observer.look(Some(&lease("a", 2)), start + 24 * SECOND),
            Verdict::Held { until: renewed + 15 * SECOND }
        );
        assert_eq!(
            observer.look(Some(&lease("a", 2)), start + 25 * SECOND),
            Verdict::Free { transitions: 4 }
        );
    }

    #[test]
    fn an_earlier_life_of_ours_is_replaced_with_a_new_epoch() {
        let mut observer = Observer::new("a");
        assert_eq!(observer.look(Some(&lease("a", 1)), Instant::now()), Verdict::Free { transitions: 4 });
    }
}
