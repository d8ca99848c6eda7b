//! Infrastructure as resources: typed by schemas, acted on by plugins, with a REST face.
//!
//! ```text
//!   curl ──▶ rest ──▶ ResourceType, Resource ◀── kubectl
//!                            │ watch
//!                            ▼
//!                        reconcile ── intent into the status ──▶ action ──▶ the world
//!                            └── how it ended ──▶ history
//! ```
//! The parts, in the order in which a request meets them:
//! - [`types`]: the kinds `ResourceType` and `Resource` of `infra.steersman.io/v1`;
//! - [`schema`]: OpenAPI v3 and JSON Schema for the parameters of resources;
//! - [`mod@rest`]: `/api/v1/resource-types` and `/api/v1/resources` over the same objects;
//! - [`reconcile`]: the controllers;
//! - [`action`]: the contract with plugins, and the plugins `http`, `github_actions`, `gitlab` and `terraform`;
//! - [`plugin`]: the same contract for plugins in processes of their own, in any language;
//! - [`input`]: other ways in: webhooks, polling, queues;
//! - [`history`]: every attempt ever made, for people;
//! - [`cli`]: the REST face from the command line.

pub mod action;
pub mod admission;
mod certificates;
pub mod cli;
mod environment;
pub mod history;
pub mod ids;
pub mod input;
mod metrics;
mod percent;
pub mod plugin;
pub mod reconcile;
mod redact;
pub mod rest;
mod rights;
pub mod schema;
mod settings;
pub mod types;

pub use environment::{Environment, EnvironmentError};
pub use history::{History, PostgresOptions};
pub use input::Inputs;
pub use metrics::Metrics;
pub use reconcile::{Options, controllers};
pub use rest::{RestOptions, rest};
pub use settings::OperatorController;
pub use types::{Resource, ResourceType, crds};

/// The operator's name: its field manager, and the first part of its lease's name.
pub const OPERATOR: &str = "infra";

/// The lease that one of several replicas of the operator holds.
pub const LEASE: &str = "infra.steersman.io";

/// The finalizer that keeps Resources until their infrastructure is gone.
pub const FINALIZER: &str = "infra.steersman.io/destroy";
