//! Running a command beside a container: probes and hooks ask the pod's worker for it.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::probe::{Finding, Kind};

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    /// The beginning of what it said.
    pub(crate) output: String,
}

/// What probes and hooks say to the worker of their pod.
#[derive(Debug)]
pub(crate) enum Request {
    /// Run a command beside the container.
    Exec {
        position: usize,
        argv: Vec<String>,
        timeout: Duration,
        answer: oneshot::Sender<Result<Outcome, String>>,
    },
    /// A probe found something out about that run of the container.
    Probe { position: usize, run: u64, kind: Kind, finding: Finding },
    /// A hook of that run is done.
    Hook { position: usize, run: u64, hook: Hook, result: Result<(), String> },
}

/// The two moments at which a container can do something of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    PostStart,
    PreStop,
}

/// Runs commands beside one container.
#[derive(Debug, Clone)]
pub(crate) struct Exec {
    pub(crate) position: usize,
    pub(crate) worker: mpsc::Sender<Request>,
}

impl Exec {
    /// Runs a command to its end.
    pub(crate) async fn run(&self, argv: Vec<String>, timeout: Duration) -> Result<Outcome, String> {
        let gone = || "the pod is ending".to_string();
        let (answer, answered) = oneshot::channel();
        let request = Request::Exec { position: self.position, argv, timeout, answer };
        self.worker.send(request).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}
