//! Observatory: workflows of tasks that run as pods, as a Kubernetes resource.
//!
//! ```text
//!   types      what a user writes, what is reported
//!   dag        which task may start: checked once, decided step by step
//!   run        one workflow in memory: pods in, pods and status out; no I/O
//!   reconcile  the controller: news of pods, creations, status, clean-up
//!   schedule   runs at given times
//!   cli        what `steer workflow` does
//! ```
//!
//! [`controllers`] adds everything to a manager; [`crd`] is what a cluster must know first.

pub mod admission;
pub mod cli;
pub mod dag;
mod metrics;
mod reconcile;
mod rights;
pub mod run;
pub mod schedule;
pub mod types;

use steersman::Manager;

pub use self::metrics::Metrics;
pub use self::reconcile::Limits;
pub use self::types::{Observatory, ObservatorySpec, ObservatoryStatus, Phase, TaskSpec, crd};

/// The operator's name.
pub const OPERATOR: &str = "observatory";

/// The name of the Lease that the operator's leader holds.
pub const LEASE: &str = "observatory-operator.seventh-horizon.io";

/// Adds the controllers of Observatories to a manager.
#[must_use]
pub fn controllers(manager: Manager) -> Manager {
    limited_controllers(manager, Limits::default())
}

/// The same, with limits that hold over all workflows.
#[must_use]
pub fn limited_controllers(manager: Manager, limits: Limits) -> Manager {
    let metrics = Metrics::new(&manager.metrics());
    manager
        .controller(reconcile::controller(metrics, limits))
        .controller(schedule::controller())
        .needs(rights::beyond())
}
