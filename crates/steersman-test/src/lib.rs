//! A Kubernetes cluster inside a test.
//!
//! [`Cluster`] starts a real API server within the test's own process, in milliseconds and
//! without sockets. Controllers run against it as they would against any other. Under tokio's
//! paused clock hours pass in no time, and the same test always runs the same way.
//!
//! ```text
//!   test ──client──▶ API server (memory) ◀──client── faults ◀── your operator
//!                         ▲
//!                         └── fake pods: Running, Ready, exit codes
//! ```
//!
//! # Example
//! ```
//! # use std::sync::Arc;
//! # use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
//! # use steersman::{Context, Controller, Error, Outcome, Reconciler};
//! # struct Greeter;
//! # impl Reconciler for Greeter {
//! #     type Object = Namespace;
//! #     async fn reconcile(&self, namespace: Arc<Namespace>, cx: &Context) -> Result<Outcome, Error> {
//! #         let mut config = ConfigMap::default();
//! #         config.metadata.name = Some("greeting".into());
//! #         config.metadata.namespace = namespace.metadata.name.clone();
//! #         cx.apply(&config).await?;
//! #         Ok(Outcome::Done)
//! #     }
//! # }
//! use steersman_test::Cluster;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # tokio::time::pause();
//! let cluster = Cluster::start().await;
//! let operator = cluster.run(Controller::new("greeter", Greeter).owns::<ConfigMap>());
//! let greeting = cluster.wait_for_object::<ConfigMap>("default/greeting").await;
//! assert_eq!(greeting.metadata.owner_references.as_ref().map(Vec::len), Some(1));
//! operator.stop().await;
//! # }
//! ```

mod cluster;
mod conversion;
mod faults;
mod inventory;
mod manifest;
mod pods;
mod running;
mod storm;

pub use cluster::Cluster;
pub use conversion::check_conversion;
pub use faults::Faults;
pub use inventory::Inventory;
pub use manifest::assert_manifest;
pub use pods::Pods;
pub use running::Running;
pub use storm::Storm;
