//! The action plugins by themselves, against stand-ins that are as strict as the servers they stand for.

#[path = "../support/mod.rs"]
mod support;

mod github;
mod github_api;
mod gitlab;
mod http;
mod sockets;
mod tasks;
