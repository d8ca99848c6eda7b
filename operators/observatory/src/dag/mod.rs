//! Tasks and their order, without pods and without time.
//!
//! ```text
//!   TaskSpec[] ──check──▶ Graph (frozen: who depends on whom, how long the way to the end is)
//!                           │
//!                           ▼
//!   what ended ──────▶ Engine (what may start now) ──▶ start_next()
//! ```

mod check;
mod engine;
#[cfg(test)]
mod engine_tests;
mod graph;

pub use self::check::{Place, Problem, check};
pub use self::engine::{Engine, Gate, State};
pub use self::graph::Graph;
