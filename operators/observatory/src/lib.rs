//! Observatory: workflows of tasks that run as pods, as a Kubernetes resource.
pub mod dag;
pub mod schedule;
pub mod types;

pub use self::types::{Observatory, ObservatorySpec, ObservatoryStatus, Phase, TaskSpec, crd};
