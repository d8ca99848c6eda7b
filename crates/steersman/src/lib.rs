//! Write Kubernetes operators.
//!
//! An operator is a [`Reconciler`]: a function that makes the world look as one object says.
//! A [`Controller`] calls it whenever something that concerns the object may have changed, and
//! a [`Manager`] runs controllers together: one cache, one election, one place for metrics.
//!
//! ```text
//!   API server ──▶ cache ──▶ queue ──▶ Reconciler ──▶ Context::apply ──▶ API server
//!                  bytes,    one entry   reads the      server-side,
//!                  indexes   per key     cache          only if it changes something
//! ```
//!
//! The parts, in the order in which a change meets them:
//! - [`cache`]: what is on the server, kept as bytes, decoded when read;
//! - [`Predicate`] and [`Reason`]: which changes matter, and what they were;
//! - [`queue`]: keys that wait, with priorities, fairness and back-off;
//! - [`Reconciler`] and [`Context`]: the operator's own code and what it has at hand;
//! - [`conditions`] and events: telling people how it goes;
//! - [`webhook`]: judging and completing objects before they are stored;
//! - [`convert`]: the same object in all versions of its kind;
//! - [`Manager`] with [`LeaseOptions`] and [`Metrics`]: running it all; its [`Rights`]: what it must be allowed to.
//!
//! It works with any [`kube::Client`]: of a cluster, or of an API server in the same process.

#![cfg_attr(test, allow(clippy::duplicate_mod, reason = "the explorer compiles the queue again"))]

mod accept;
mod admin;
mod apply;
pub mod cache;
mod checks;
mod clock;
pub mod conditions;
mod context;
mod controller;
pub mod convert;
mod dependents;
mod error;
mod events;
mod jitter;
mod key;
mod lease;
mod manager;
mod metrics;
mod object;
mod predicate;
pub mod queue;
mod reason;
mod recent;
mod reconciler;
mod request;
mod rights;
mod sync;
pub mod webhook;

#[cfg(test)]
#[path = "queue/interleavings.rs"]
mod queue_interleavings;
#[cfg(test)]
#[path = "queue/tests.rs"]
mod queue_tests;

pub use accept::accept;
pub use admin::SecureMetrics;
pub use cache::{
    Cache, Followed, Form, Header, Headers, KindReport, MetadataEvent, MetadataStream, Scope, Selection, View,
};
pub use clock::{Clock, system_clock, virtual_clock};
pub use context::Context;
pub use controller::Controller;
pub use dependents::{Dependents, Progress};
pub use error::Error;
pub use events::{EventType, Recorder, Subject};
pub use key::Key;
pub use lease::{Fenced, LeaseOptions};
pub use manager::{Endpoints, Manager, ManagerError, Options};
pub use metrics::Metrics;
pub use object::Object;
pub use predicate::Predicate;
pub use reason::{Reason, Reasons};
pub use recent::{Recent, Reconciled};
pub use reconciler::{Finalized, Outcome, Reconciler};
pub use rights::{Place, Rights, Rule};
pub use tokio_util::sync::CancellationToken;
