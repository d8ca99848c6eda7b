//! The real parts that tests run against, started by the tests themselves.
//!
//! ```text
//! find (cache folder, PATH) ── missing ──▶ Unavailable ──▶ or_skip: counted, or a failure
//!      │                                   `cargo xtask parts install` gets it
//!      ▼
//! start on loopback, own data folder, free ports ──▶ handle ──▶ stopped on drop,
//!                                                              or when the test is killed
//! ```
//!
//! A test asks for what it needs and goes home when it cannot be had:
//!
//! ```no_run
//! use xtask::parts;
//!
//! let Some(kubernetes) = parts::or_skip(parts::kubernetes()) else { return };
//! // … talk to it with kubernetes.kubeconfig() …
//! # drop(kubernetes);
//! ```
//!
//! Looking for a part never installs anything; `cargo xtask parts install` does. With
//! `STEER_REQUIRE_PARTS=all` (or a list such as `kubernetes,postgres`) a missing part fails the
//! test instead of skipping it.

mod cache;
mod debian;
mod folder;
mod github_api;
mod go_clients;
mod helm;
mod kubectl;
mod kubernetes;
mod nginx;
mod part;
mod postgres;
mod process;
mod prometheus;
mod protocols;
mod provider;
mod python;
mod queues;
mod rabbitmq;
mod schemathesis;
mod unavailable;
mod venv;

pub use cache::Cache;
pub use folder::Folder;
pub use github_api::github_api;
pub use go_clients::go_clients;
pub use helm::{Helm, helm};
pub use kubectl::{Kubectl, kubectls};
pub use kubernetes::{Identity, Kubernetes, KubernetesOptions, kubernetes};
pub use nginx::{Nginx, nginx};
pub use part::{Part, Progress};
pub use postgres::{Postgres, postgres};
pub use process::{Process, ProcessError, free_port, wait_until};
pub use prometheus::{Prometheus, PrometheusOptions, prometheus, prometheus_program, prometheus_with};
pub use protocols::{Protocols, protocols};
pub use provider::{ProviderPython, provider_python};
pub use python::{Python, python};
pub use queues::{Queues, Sqs, queues};
pub use rabbitmq::{RabbitMq, rabbitmq};
pub use schemathesis::{Schemathesis, schemathesis};
pub use unavailable::{Unavailable, or_skip, skip};
