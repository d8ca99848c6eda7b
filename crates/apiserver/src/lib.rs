//! The Kubernetes API in one process.
//!
//! A request meets the parts in this order:
//!
//! ```text
//!   http    route, negotiate, authenticate
//!   admit   default, prune, validate          (types: what is served; schema: what a type admits)
//!   patch   the five kinds of PATCH           (apply: server-side apply and managedFields)
//!   store   one writer, one revision per write, memory for reads, SQLite for durability
//!   watch   every write, encoded once, to everyone who asked
//! ```
//!
//! The crate knows nothing of the operator framework and depends on no Kubernetes client:
//! a resource type is a row of data ([`types`]), and custom resources take the same path as
//! built-in ones.

pub mod object;
pub mod schema;
pub mod store;
pub mod types;
pub mod watch;
