//! The data plane of ElastiService: holds requests to a sleeping service, has it woken, and hands
//! them on the moment a pod is ready.
//!
//! ```text
//! client ──▶ serve ──▶ host ──▶ Directory ──▶ Target ──▶ pool ──▶ pod
//!            accept    whose     known         queue,     connections
//!            drain     request   services      capacity
//!                                                └──▶ Wake ──▶ operator
//! ```
//! A held request is a parsed head and nothing more: its body stays in the client's socket (or
//! behind the HTTP/2 window) until a pod takes it, so that memory does not depend on what clients
//! send. Bodies are streamed both ways, frame by frame; nothing here looks into them.
//!
//! The parts, in the order in which a request meets them: [`serve()`] accepts and drains, on one
//! port for all or on `ports` of their own, `workers` do it on a thread per core; `sniff` tells HTTP from other protocols, which `tunnel`
//! carries; `host` says whose a request is, [`Directory`] knows the services, [`Target`] queues and
//! paces, [`Probe`]s are answered without a pod, [`Wake`] asks the operator for pods, `rise` measures
//! that, `forward` carries one request over, `send` knows when it may be sent again, `pool` keeps
//! connections to pods, and `internal` answers questions about all of it.
//!
//! Who fills the directory is not decided here: the operator's crate does it from a watch on
//! EndpointSlices; tests do it by hand.

mod body;
mod directory;
mod forward;
mod headers;
mod host;
mod internal;
mod line;
mod metrics;
mod options;
mod outgoing;
mod pool;
mod ports;
mod probe;
mod rise;
mod send;
mod serve;
mod sniff;
mod target;
mod timer;
mod tunnel;
mod wake;
mod workers;

pub use directory::Directory;
pub use options::Options;
pub use probe::{Pattern, Probe};
pub use serve::serve;
pub use target::{Backend, Mode, Route, ServiceKey, ServicePort, Target};
pub use wake::{HttpWake, Wake, WakeError, Waking};
