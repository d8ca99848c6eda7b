//! Whether a failed attempt is followed by another.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::observe::{Failure, is_node_fault};
use crate::types::{AttemptStatus, Retry, RetryPolicy};

/// How often an attempt is repeated whose container never started, unless the task says so.
const INFRA_LIMIT: i32 = 3;
/// The first wait after a fault of the node; doubles.
const INFRA_WAIT: Duration = Duration::from_secs(1);

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The task has failed.
    Fail,
    /// Another attempt after this wait.
    Again(Duration),
}

/// What is known of a task when one of its attempts has failed.
#[derive(Clone, Copy, Debug)]
pub struct Past<'a> {
    /// The attempts before the one that failed, of this run of the workflow.
    pub earlier: &'a [AttemptStatus],
    /// When the first of them was made.
    pub first: Option<Timestamp>,
    /// What the one that failed failed of.
    pub failure: Failure,
    /// When its container started, if it did.
    pub started: Option<Timestamp>,
    /// From 0 to 1: how much of the jitter is added to the wait.
    pub spread: f64,
}

/// Decides.
pub fn decide(retry: Option<&Retry>, past: Past<'_>, now: Timestamp) -> Next {
    let nothing = Retry::default();
    let retry = retry.unwrap_or(&nothing);
    let spared = past.earlier.iter().filter(|attempt| is_spared(attempt)).count();
    let spared = i32::try_from(spared).unwrap_or(i32::MAX);
    // What never started cannot have done half of its work: running it again is always right.
    if past.failure == Failure::Infrastructure
        && past.started.is_none()
        && spared < retry.infra_limit.unwrap_or(INFRA_LIMIT)
    {
        return Next::Again(INFRA_WAIT.saturating_mul(1 << spared.clamp(0, 6)));
    }
    let counted = i32::try_from(past.earlier.len()).unwrap_or(i32::MAX) - spared;
    if counted >= retry.limit.unwrap_or(0) || !covers(retry.policy.unwrap_or_default(), past.failure) {
        return Next::Fail;
    }
    let wait = wait(retry, counted, past.spread);
    let backoff = retry.backoff.as_ref();
    let most = backoff.and_then(|backoff| backoff.max_duration.as_ref()?.get());
    if let (Some(most), Some(first)) = (most, past.first) {
        let next =
            now.duration_since(first).saturating_add(SignedDuration::try_from(wait).unwrap_or_default());
        if next > SignedDuration::try_from(most).unwrap_or(SignedDuration::MAX) {
            return Next::Fail;
        }
    }
    Next::Again(wait)
}

/// The wait after so many counted attempts.
fn wait(retry: &Retry, counted: i32, spread: f64) -> Duration {
    let Some(backoff) = &retry.backoff else {
        return Duration::ZERO;
    };
    let first = backoff.duration.as_ref().and_then(|text| text.get()).unwrap_or_default();
    let factor = backoff.factor.unwrap_or(2.0).max(1.0);
    let cap = backoff.cap.as_ref().and_then(|text| text.get()).unwrap_or(Duration::MAX);
    let seconds = first.as_secs_f64() * factor.powi(counted);
    let even = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX).min(cap);
    let jitter = backoff.jitter.unwrap_or(0.0).clamp(0.0, 1.0) * spread;
    Duration::try_from_secs_f64(even.as_secs_f64() * (1.0 + jitter)).unwrap_or(even)
}

fn covers(policy: RetryPolicy, failure: Failure) -> bool {
    match policy {
        RetryPolicy::Always => true,
        RetryPolicy::OnFailure => matches!(failure, Failure::Exit | Failure::Timeout),
        RetryPolicy::OnError => matches!(failure, Failure::Error | Failure::Infrastructure),
        RetryPolicy::OnTransientError => failure == Failure::Infrastructure,
    }
}

/// Whether an attempt was repeated without counting.
fn is_spared(attempt: &AttemptStatus) -> bool {
    attempt.start_time.is_none() && attempt.reason.as_deref().is_some_and(is_node_fault)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Backoff;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn earlier(reasons: &[&str]) -> Vec<AttemptStatus> {
        reasons
            .iter()
            .map(|reason| AttemptStatus { reason: Some((*reason).to_owned()), ..AttemptStatus::default() })
            .collect()
    }

    fn past(earlier: &[AttemptStatus], failure: Failure, started: Option<Timestamp>) -> Past<'_> {
        Past { earlier, first: Some(NOW), failure, started, spread: 1.0 }
    }

    fn decided(retry: &Retry, before: &[&str], failure: Failure) -> Next {
        let earlier = earlier(before);
        decide(Some(retry), past(&earlier, failure, None), NOW)
    }

    #[test]
    fn without_a_limit_there_is_one_attempt() {
        assert_eq!(decided(&Retry::default(), &[], Failure::Exit), Next::Fail);
    }

    #[test]
    fn the_limit_counts_attempts_after_the_first() {
        let retry = Retry { limit: Some(2), ..Retry::default() };
        assert_eq!(decided(&retry, &[], Failure::Exit), Next::Again(Duration::ZERO));
        assert_eq!(decided(&retry, &["ExitCode"], Failure::Exit), Next::Again(Duration::ZERO));
        assert_eq!(decided(&retry, &["ExitCode", "ExitCode"], Failure::Exit), Next::Fail);
    }

    #[test]
    fn faults_of_the_node_before_the_start_do_not_count() {
        let none = Retry::default();
        assert_eq!(decided(&none, &[], Failure::Infrastructure), Next::Again(Duration::from_secs(1)));
        assert_eq!(
            decided(&none, &["Evicted", "Evicted"], Failure::Infrastructure),
            Next::Again(Duration::from_secs(4))
        );
        assert_eq!(decided(&none, &["Evicted"; 3], Failure::Infrastructure), Next::Fail);
        let once = Retry { limit: Some(1), ..Retry::default() };
        assert_eq!(decided(&once, &["Evicted"], Failure::Exit), Next::Again(Duration::ZERO));
    }

    #[test]
    fn a_fault_of_the_node_after_the_start_needs_a_policy() {
        let past = past(&[], Failure::Infrastructure, Some(NOW));
        let retry = |policy| Retry { limit: Some(1), policy: Some(policy), ..Retry::default() };
        assert_eq!(decide(Some(&retry(RetryPolicy::OnFailure)), past, NOW), Next::Fail);
        assert_eq!(
            decide(Some(&retry(RetryPolicy::OnTransientError)), past, NOW),
            Next::Again(Duration::ZERO)
        );
    }

    #[test]
    fn waits_grow_up_to_the_cap_and_end_with_the_whole_time() {
        let backoff = Backoff {
            duration: Some("10s".into()),
            factor: Some(3.0),
            cap: Some("60s".into()),
            max_duration: Some("2m".into()),
            jitter: None,
        };
        let retry = Retry { limit: Some(9), backoff: Some(backoff), ..Retry::default() };
        for (before, seconds) in [(0, 10), (1, 30), (2, 60)] {
            let before = vec!["ExitCode"; before];
            assert_eq!(decided(&retry, &before, Failure::Exit), Next::Again(Duration::from_secs(seconds)));
        }
        let earlier = earlier(&["ExitCode"; 2]);
        let late = NOW.saturating_add(SignedDuration::from_secs(90)).expect("in range");
        let past = past(&earlier, Failure::Exit, Some(NOW));
        assert_eq!(decide(Some(&retry), past, late), Next::Fail);
    }

    #[test]
    fn jitter_makes_a_wait_longer_by_its_share_and_never_shorter() {
        let wait = |jitter, spread| {
            let backoff =
                Backoff { duration: Some("10s".into()), jitter: Some(jitter), ..Backoff::default() };
            let retry = Retry { limit: Some(1), backoff: Some(backoff), ..Retry::default() };
            decide(Some(&retry), Past { spread, ..past(&[], Failure::Exit, None) }, NOW)
        };
        assert_eq!(wait(0.5, 0.0), Next::Again(Duration::from_secs(10)));
        assert_eq!(wait(0.5, 1.0), Next::Again(Duration::from_secs(15)));
        assert_eq!(wait(0.5, 0.5), Next::Again(Duration::from_millis(12_500)));
    }

    #[test]
    fn policies_tell_failures_from_errors() {
        let retry = |policy| Retry { limit: Some(1), policy: Some(policy), ..Retry::default() };
        for (policy, failure, again) in [
            (RetryPolicy::OnFailure, Failure::Exit, true),
            (RetryPolicy::OnFailure, Failure::Timeout, true),
            (RetryPolicy::OnFailure, Failure::Error, false),
            (RetryPolicy::OnError, Failure::Error, true),
            (RetryPolicy::OnError, Failure::Exit, false),
            (RetryPolicy::Always, Failure::Error, true),
        ] {
            let next = decided(&retry(policy), &[], failure);
            assert_eq!(next != Next::Fail, again, "{policy:?} {failure:?}");
        }
    }
}
