//! The REST face over real sockets on loopback.

#[path = "../support/mod.rs"]
mod support;

mod access;
mod commands;
mod described;
mod github;
mod lists;
mod plugin;
mod refusals;
mod types;
