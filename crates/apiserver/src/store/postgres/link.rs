//! The connection as it comes and goes. Moves only in [`Link::step`].

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::super::health::Health;
use super::place::{CONNECT, Place};
use super::session::{Backend, Identity, Session, TakeError, Taken};

/// The first wait between attempts to connect; doubled from one to the next.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// The longest wait between attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// How long an attempt may take from its first packet to the epoch.
const ATTEMPT: Duration = Duration::from_secs(40);

/// The way to the database.
#[derive(Debug)]
pub(super) struct Link {
    place: Place,
    identity: Identity,
    state: State,
    health: Arc<watch::Sender<Health>>,
}

#[derive(Debug)]
enum State {
    /// Connected, with the lock and this epoch.
    Up { session: Session, epoch: i64, revision: i64 },
    /// Not connected since `since`; trying again at `retry`.
    Waiting { since: Instant, retry: Instant, wait: Duration, last: Option<Backend>, why: String },
    /// Not connected since `since`; an attempt is under way.
    Trying {
        since: Instant,
        wait: Duration,
        last: Option<Backend>,
        why: String,
        attempt: JoinHandle<Result<Taken, TakeError>>,
    },
    /// Somebody else has the database.
    Deposed { by: String },
}

/// Why there is no session.
#[derive(Debug)]
pub(super) enum Down {
    Unreachable(String),
    Deposed(String),
}

/// What a step has led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Up,
    Down,
    Deposed,
}

impl Link {
    pub(super) fn new(
        place: Place,
        identity: Identity,
        taken: Taken,
        health: Arc<watch::Sender<Health>>,
    ) -> Link {
        let Taken { session, epoch, revision } = taken;
        Link { place, identity, state: State::Up { session, epoch, revision }, health }
    }

    /// Waits for the next change. Dropping the future loses nothing.
    pub(super) async fn step(&mut self) -> Step {
        match &mut self.state {
            State::Up { session, .. } => {
                // Ends with the connection; how it ended has been logged.
                let _ = (&mut session.connection).await;
                self.lose("the connection has ended".to_owned());
                Step::Down
            }
            State::Waiting { since, retry, wait, last, why } => {
                sleep_until(*retry).await;
                let (place, identity, backend) = (self.place.clone(), self.identity.clone(), last.clone());
                let attempt = tokio::spawn(async move {
                    let limit = Instant::now() + ATTEMPT.max(CONNECT);
                    match timeout_at(limit, Session::again(place, identity, backend)).await {
                        Ok(taken) => taken,
                        Err(_) => Err(TakeError::Unreachable("it does not answer".to_owned())),
                    }
                });
                let (since, wait, last, why) = (*since, *wait, last.take(), std::mem::take(why));
                self.state = State::Trying { since, wait, last, why, attempt };
                Step::Down
            }
            State::Trying { since, wait, last, attempt, why: _ } => {
                let taken = attempt.await.unwrap_or_else(|error| {
                    Err(TakeError::Unreachable(format!("the attempt failed: {error}")))
                });
                match taken {
                    Ok(Taken { session, epoch, revision }) => {
                        tracing::info!(place = %self.place, "connected to PostgreSQL again");
                        self.state = State::Up { session, epoch, revision };
                        self.health.send_replace(Health::Well);
                        Step::Up
                    }
                    Err(TakeError::Unreachable(why)) => {
                        let (since, wait, last) = (*since, *wait, last.take());
                        self.health.send_replace(Health::Unreachable { why: why.clone() });
                        let (retry, wait) = (Instant::now() + wait, (wait * 2).min(LONGEST_WAIT));
                        self.state = State::Waiting { since, retry, wait, last, why };
                        Step::Down
                    }
                    Err(TakeError::Deposed(by)) => {
                        self.depose(by);
                        Step::Deposed
                    }
                }
            }
            State::Deposed { .. } => std::future::pending().await,
        }
    }

    /// The session with its epoch and the revision that it found or wrote last. Waits for one until
    /// `patience` is over, counted from the moment at which the last was lost.
    pub(super) async fn session(&mut self, patience: Duration) -> Result<(&Session, i64, i64), Down> {
        loop {
            let until = match &self.state {
                State::Up { session, .. } if !session.connection.is_finished() => break,
                State::Up { .. } => Instant::now() + patience,
                State::Waiting { since, .. } | State::Trying { since, .. } => *since + patience,
                State::Deposed { by } => return Err(Down::Deposed(by.clone())),
            };
            if timeout_at(until, self.step()).await.is_err() {
                return Err(Down::Unreachable(self.why()));
            }
        }
        match &self.state {
            State::Up { session, epoch, revision } => Ok((session, *epoch, *revision)),
            _ => Err(Down::Unreachable(self.why())),
        }
    }

    /// Remembers what was committed.
    pub(super) fn committed(&mut self, now: i64) {
        if let State::Up { revision, .. } = &mut self.state {
            *revision = now;
        }
    }

    /// Gives the connection up.
    pub(super) fn lose(&mut self, why: String) {
        let State::Up { session, .. } = &self.state else { return };
        let last = Some(session.backend.clone());
        let now = Instant::now();
        tracing::warn!(place = %self.place, why, "lost PostgreSQL; connecting again");
        self.health.send_replace(Health::Unreachable { why: why.clone() });
        self.state = State::Waiting { since: now, retry: now, wait: FIRST_WAIT, last, why };
    }

    /// Gives the database up.
    pub(super) fn depose(&mut self, by: String) {
        tracing::error!(place = %self.place, by, "another process has taken the database over");
        self.health.send_replace(Health::Deposed { by: by.clone() });
        self.state = State::Deposed { by };
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    fn why(&self) -> String {
        match &self.state {
            State::Waiting { why, .. } | State::Trying { why, .. } => why.clone(),
            State::Up { .. } | State::Deposed { .. } => "the connection has ended".to_owned(),
        }
    }
}
