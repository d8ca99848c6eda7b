//! Services: what kube-proxy does, for one node.
//!
//! Every Service gets a listener on 127.0.0.1, and in the pod network one at its own address;
//! each connection is copied to one of its ready endpoints in turn.

mod directory;
mod forward;
mod names;
mod ports;
mod proxy;
mod table;

pub(crate) use directory::{Directory, View};
pub(crate) use names::serve as serve_names;
pub(crate) use proxy::Proxy;
