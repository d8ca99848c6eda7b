//! An operator for web applications: `example.com/v1` WebApp.
//!
//! ```text
//! WebApp nginx-app            kubectl apply, kubectl scale
//!   ├─ Deployment nginx-app ─▶ ReplicaSet ─▶ pods      as many as `replicas`, of `image`
//!   └─ Service nginx-app                               on `port`
//! ```
//! A user says what should run; the operator declares a Deployment and a Service of the WebApp's
//! name, repairs them when somebody changes or deletes them, looks again every 30 seconds, and
//! reports back: how many replicas are available, which phase the application is in and why.
//!
//! The parts, in the order in which a WebApp meets them: [`types`] is what a user writes, [`admission`]
//! what is checked before it is stored, [`reconcile`] what is done about it: `desired` is what is
//! declared, `phase` what is reported.

pub mod admission;
mod desired;
mod overlay;
mod pace;
mod phase;
pub mod reconcile;
pub mod types;

pub use admission::{Latest, Policy, webhooks};
pub use reconcile::{WebApps, controller};
pub use types::{Phase, WebApp, WebAppSpec, WebAppStatus, converter, crd, v1beta1};

/// The operator's name: its field manager, and the first part of its lease's name.
pub const OPERATOR: &str = "webapp";

/// The lease that one of several replicas of the operator holds.
pub const LEASE: &str = "webapp.steersman.io";
