//! What is done between winning the lease and giving it up.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Callback, ManagerError, Task};
use crate::controller::{Environment, Runs};
use crate::error::Error;
use crate::lease::Election;

/// What is done while leading.
pub(super) struct Work {
    pub(super) environment: Environment,
    pub(super) controllers: Vec<Box<dyn Runs>>,
    /// Those that run whether we lead or not, and what they get.
    pub(super) always: Option<(Environment, Vec<Box<dyn Runs>>)>,
    pub(super) runnables: Vec<(String, Task)>,
    pub(super) started_leading: Vec<Callback>,
    pub(super) stopped_leading: Vec<Callback>,
    pub(super) grace: Duration,
}

impl Work {
    /// Works until shutdown: at once on what needs no lease, on the rest while holding it.
    pub(super) async fn run(
        mut self,
        election: Option<&Election>,
        shutdown: &CancellationToken,
    ) -> Result<(), ManagerError> {
        let grace = self.grace;
        let Some((environment, controllers)) = self.always.take() else {
            return self.lead(election, shutdown).await;
        };
        let Environment { stop, abort, .. } = environment.clone();
        let mut tasks = JoinSet::new();
        for controller in controllers {
            tasks.spawn(controller.run(environment.clone()));
        }
        drop(environment);
        let result = self.lead(election, shutdown).await;
        stop.cancel();
        let drained = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, drained).await.is_err() {
            tracing::warn!(?grace, "reconciles did not end in time and are cut off");
        }
        abort.cancel();
        while tasks.join_next().await.is_some() {}
        result
    }

    /// Waits for the lease, works while holding it, and hands it back.
    async fn lead(
        mut self,
        election: Option<&Election>,
        shutdown: &CancellationToken,
    ) -> Result<(), ManagerError> {
        let mut lease = None;
        if let Some(election) = election {
            lease = tokio::select! {
                biased;
                () = shutdown.cancelled() => None,
                lease = election.acquire() => Some(lease),
            };
            if lease.is_none() {
                // The last attempt may have won without our learning of it.
                election.release().await;
                return Ok(());
            }
        }
        self.started_leading.iter_mut().for_each(|call| call());
        let mut held = std::pin::pin!(async {
            match (election, lease) {
                (Some(election), Some(lease)) => {
                    let why = election.hold(lease).await;
                    election.lost();
                    let lease = election.name();
                    ManagerError::LostLease { lease, why }
                }
                _ => std::future::pending().await,
            }
        });

        let Environment { stop, abort, .. } = self.environment.clone();
        let mut controllers = JoinSet::new();
        for controller in self.controllers {
            controllers.spawn(controller.run(self.environment.clone()));
        }
        let mut runnables = JoinSet::new();
        for (name, run) in self.runnables {
            let task = run(stop.child_token());
            runnables.spawn(async move { (name, task.await) });
        }
        drop(self.environment);

        let mut result = tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(()),
            lost = &mut held => Err(lost),
            failure = first_failure(&mut runnables) => Err(failure),
        };
        stop.cancel();
        // A deposed leader has no time: what it still does may collide with the next one.
        let lost = matches!(result, Err(ManagerError::LostLease { .. }));
        if !lost {
            // The lease is renewed until the last reconcile has ended.
            let drained = async {
                while controllers.join_next().await.is_some() {}
                while runnables.join_next().await.is_some() {}
            };
            tokio::select! {
                () = drained => {}
                lost = &mut held => result = Err(lost),
                () = tokio::time::sleep(self.grace) => {
                    tracing::warn!(grace = ?self.grace, "reconciles did not end in time and are cut off");
                }
            }
        }
        abort.cancel();
        while controllers.join_next().await.is_some() {}
        runnables.shutdown().await;
        if let Some(election) = election {
            match result {
                Err(ManagerError::LostLease { .. }) => {}
                _ => election.release().await,
            }
        }
        self.stopped_leading.iter_mut().for_each(|call| call());
        result
    }
}

/// Waits for a runnable to fail; those that end well are nobody's concern.
async fn first_failure(runnables: &mut JoinSet<(String, Result<(), Error>)>) -> ManagerError {
    loop {
        match runnables.join_next().await {
            Some(Ok((name, Err(error)))) => {
                let message = error.to_string();
                return ManagerError::Runnable { name, message };
            }
            Some(Ok((name, Ok(())))) => tracing::debug!(name, "runnable ended"),
            Some(Err(error)) => {
                return ManagerError::Runnable { name: "a runnable".to_owned(), message: error.to_string() };
            }
            None => std::future::pending().await,
        }
    }
}
