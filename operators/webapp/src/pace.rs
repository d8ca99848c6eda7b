//! How often a status is written.
//!
//! A rollout changes counts many times. People and programs wait for phases: those are written at once,
//! what happens in between at a bounded rate.

use crate::{Phase, WebApp, WebAppStatus};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use steersman::Key;
use steersman::conditions;
use tokio::time::Instant;

/// Between two statuses that differ only in counts.
const COUNTS: Duration = Duration::from_secs(5);
/// How long a new Deployment may take to be heard of before a status without it is written.
const FIRST: Duration = Duration::from_secs(2);

/// When a status is to be written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// At once.
    Now,
    /// After this time, unless something else happens.
    Later(Duration),
}

/// When statuses were written last.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<HashMap<Key, Instant>>);

impl Pace {
    /// When to write the next status of a WebApp; what is written now is noted.
    pub(crate) fn of(
        &self,
        key: &Key,
        webapp: &WebApp,
        next: &WebAppStatus,
        deployment: &Deployment,
        now: Timestamp,
    ) -> When {
        let mut written = self.lock();
        let seen = webapp.status.as_ref().filter(|status| !is_new(status));
        let wait = match seen {
            None => first(deployment, now),
            Some(before) if is_news(before, next) => Duration::ZERO,
            Some(before) if before == next => Duration::ZERO,
            Some(_) => {
                let since = written.get(key).map_or(COUNTS, |written| written.elapsed());
                COUNTS.saturating_sub(since)
            }
        };
        if !wait.is_zero() {
            return When::Later(wait);
        }
        written.insert(key.clone(), Instant::now());
        When::Now
    }

    /// Forgets a WebApp that goes.
    pub(crate) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A Deployment that was made just now will be heard of in a moment, and then there is more to say.
fn first(deployment: &Deployment, now: Timestamp) -> Duration {
    let seen = deployment.status.as_ref().is_some_and(|status| status.observed_generation.is_some());
    let made = deployment.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let age = Duration::try_from(now.duration_since(made)).unwrap_or_default();
    if seen { Duration::ZERO } else { FIRST.saturating_sub(age) }
}

/// Whether no status was written so far.
pub(crate) fn is_new(status: &WebAppStatus) -> bool {
    matches!(status.phase, None | Some(Phase::Created))
}

/// Whether somebody waits for what changed.
fn is_news(before: &WebAppStatus, next: &WebAppStatus) -> bool {
    let degraded = |status: &WebAppStatus| {
        conditions::find(&status.conditions, "Degraded").map(|condition| condition.status.clone())
    };
    before.phase != next.phase
        || before.observed_generation != next.observed_generation
        || degraded(before) != degraded(next)
        || next.phase == Some(Phase::Ready)
}
