//! The chores of developing this project, as a library so that tests can use them too.
//!
//! | module | what it is for |
//! |---|---|
//! | [`parts`] | finds, installs and starts the real programs that tests run against: a Kubernetes control plane, PostgreSQL, every kubectl |
//! | [`generate`] | writes the files that are derived from others, and checks that they are up to date |
//! | `chart` | one of those: the Helm chart |
//! | [`types`] | one of those: the table of Kubernetes' built-in types |
//!
//! The command line is in `main.rs`: `cargo xtask --help`.

mod chart;
pub mod generate;
pub mod parts;
pub mod types;
