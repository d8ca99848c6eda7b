//! x
mod plan;
