//! What `steer workflow` does, as functions: text in, text out, and a [`kube::Client`] where a
//! cluster is needed.

mod client;
mod explain;
mod graph;
mod lint;
mod logs;
mod show;
mod tree;

pub use self::client::{ClientError, RunOptions, get, is_over, list, read, retry, run, stop, wait, watch};
pub use self::explain::{ExplainError, explain};
pub use self::graph::{mermaid, svg, text};
pub use self::lint::{Finding, lint};
pub use self::logs::logs;
pub use self::show::{details, progress, table, timeline};
