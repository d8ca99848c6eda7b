//! The Kubernetes API in one process.
//!
//! A request meets the parts in this order:
//!
//! ```text
//!   http    route, negotiate, authenticate    (auth: certificates, tokens)
//!   engine  what the verbs do, for every resource alike
//!   admit   default, prepare, validate        (types: what is served; schema: what a type admits)
//!   patch   the five kinds of PATCH           (apply: server-side apply and managedFields)
//!   store   one writer, one revision per write, memory for reads, SQLite or PostgreSQL to keep
//!   watch   every write, encoded once, to everyone who asked
//! ```
//!
//! The crate knows nothing of the operator framework and depends on no Kubernetes client:
//! a resource type is a row of data ([`types`]), and custom resources take the same path as
//! built-in ones ([`types::crd`]).
//!
//! ```
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use steersman_apiserver::{Options, Server, User, store::{Store, StoreOptions}};
//!
//! let server = Server::open(Store::memory(StoreOptions::default()), Options::default()).await?;
//! let service = server.service(User::admin()); // kube::Client::new(service, "default")
//! # drop(service);
//! # Ok(())
//! # }
//! ```

mod admit;
pub mod apply;
pub mod auth;
mod bootstrap;
mod cel;
mod conversion;
mod definitions;
mod engine;
mod http;
pub mod object;
pub mod openapi;
pub mod patch;
pub mod schema;
mod selector;
mod server;
pub mod status;
pub mod store;
pub mod table;
pub mod types;
pub mod watch;

pub use self::{
    http::{Body, InProcess, ServeError, ServingIdentity},
    server::{
        CidrError, Clock, KubeletClient, LoopbackEndpoints, OpenError, Options, Server, ServiceAccounts,
        ServiceCidr, User,
    },
};
