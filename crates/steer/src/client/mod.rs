//! What `kubectl` does, as far as it is needed where kubectl is not installed.

pub(crate) mod apply;
pub(crate) mod backup;
mod connect;
pub(crate) mod delete;
pub(crate) mod describe;
pub(crate) mod get;
pub(crate) mod logs;
mod manifest;
mod resolve;
pub(crate) mod scale;

pub(crate) use connect::{Connection, load_config};
