//! Scale to zero: `elasti.truefoundry.com/v1alpha1` ElastiService.
//!
//! ```text
//!                    ┌────────── Serve: no extra hop ──────────┐
//! client ─▶ Service ─┤                                         ├─▶ pods of the target
//!                    └─▶ resolver ─(holds, wakes, hands on)────┘
//!                         Proxy: asleep, waking, or about to sleep
//! ```
//! An ElastiService names a Service and what stands behind it. While its triggers say that nobody
//! needs it, the target is scaled to zero and the resolver stands in for its pods; the first
//! request is held, the target woken, and the request handed on the moment a pod is ready.
//!
//! Every reconcile looks at the world (replicas, ready endpoints, resolvers, triggers) and decides
//! in [`plan`] what should be; nothing depends on having seen an event. A change of mode always
//! makes the new way before it breaks the old one.
//!
//! The parts: [`types`] is the resource, [`names`] what its helpers are called, [`scale`] how
//! targets are read and scaled, [`trigger`] who decides that nobody needs a service, [`plan`] what
//! follows, [`reconcile`] carries it out, [`endpoint`] takes the wake-up calls of [`callers`],
//! [`feed`] tells a resolver what it needs to know, and [`cli`] is what `steer elasti` does.

pub mod admission;
pub mod callers;
pub mod cli;
mod desired;
pub mod dial;
pub mod endpoint;
pub mod feed;
mod metrics;
pub mod names;
pub mod options;
mod period;
pub mod plan;
mod ports;
mod probe;
mod prometheus;
pub mod reconcile;
pub mod resolver;
mod rights;
pub mod scale;
pub mod sentry;
mod status;
pub mod trigger;
pub mod types;
mod watches;
mod world;

pub use callers::Callers;
pub use dial::Dial;
pub use endpoint::EndpointOptions;
pub use feed::{resolver_rights, run_resolver};
pub use options::ElastiOptions;
pub use reconcile::{ElastiServices, controllers};
pub use resolver::ResolverOptions;
pub use types::{ElastiService, ElastiServiceSpec, ElastiServiceStatus, crd};

/// The operator's name: its field manager, and the first part of its lease's name.
pub const OPERATOR: &str = "elasti";

/// The lease that one of several replicas of the operator holds.
pub const LEASE: &str = "elasti.steersman.io";
