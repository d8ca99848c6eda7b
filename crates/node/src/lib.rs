//! What the kubelet and kube-proxy do, without root and without a container engine.
//!
//! A [`Node`] registers itself with any Kubernetes API server, runs the pods that are bound to it
//! as processes of this machine, keeps their status, serves their logs and forwards the traffic
//! of Services.
//!
//! ```text
//!  API server ──watch──► pod workers ──► runtime ──► pod-init ──► containers
//!      ▲  ▲                 │   │           │
//!      │  └──status─────────┘   └─ probes ──┴── network (sockets of the pods' namespace)
//!      └─logs─ kubelet endpoints                    ▲
//!  Services, EndpointSlices ──watch──► proxy ───────┘
//! ```
//!
//! In the order in which data meets them:
//! - [`NodeOptions`]: what a node can be told;
//! - `pod`: one worker per pod; its decisions are pure functions;
//! - `image`: which program an image stands for;
//! - `runtime`: pods in namespaces, as plain processes, or fake;
//! - [`sandbox_init`]: what runs in the processes that the runtime starts;
//! - `logs`, `kubelet`: log files and the endpoints that serve them;
//! - `service`: the proxy; `egress`: the API server's way to Services;
//! - [`programs`]: what containers of our own image run.

mod egress;
mod image;
mod init;
mod kubelet;
mod logs;
mod nginx;
mod node;
mod options;
mod pod;
pub mod programs;
mod register;
mod runtime;
mod service;
mod watch;

pub use image::Mapping;
pub use init::sandbox_init;
pub use node::{Node, NodeError};
pub use options::{Annotate, Clock, HostService, NodeOptions, Publish, RuntimeChoice, ServicePublishing};
pub use runtime::{Exit, Network, RuntimeError, RuntimeKind};

/// The annotation that names the address on which a Service is reachable from the host.
pub const ADDRESS_ANNOTATION: &str = "steersman.io/address";
