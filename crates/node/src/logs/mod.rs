//! Containers' output: files in the format of the container runtime interface, and readers.

mod line;
mod read;
mod write;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

pub(crate) use read::{LogQuery, send, tail};
pub(crate) use write::record;

/// Where logs are, and which of them still grow.
#[derive(Debug, Clone)]
pub(crate) struct Logs {
    folder: PathBuf,
    /// Readers that follow wait here; an entry is gone when its container is.
    growing: Arc<Mutex<HashMap<PathBuf, watch::Receiver<u64>>>>,
}

impl Logs {
    /// Below the data folder.
    pub(crate) fn new(data_dir: &Path) -> Self {
        Logs { folder: data_dir.join("logs"), growing: Arc::default() }
    }

    /// The folder of a pod's logs.
    pub(crate) fn pod(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.folder.join(format!("{namespace}_{name}_{uid}"))
    }

    /// The log of a container's run.
    pub(crate) fn file(&self, pod: &Path, container: &str, run: i32) -> PathBuf {
        pod.join(container).join(format!("{run}.log"))
    }

    /// Says that a log grows until the returned sender is dropped.
    pub(crate) fn grow(&self, file: &Path) -> watch::Sender<u64> {
        let (sender, receiver) = watch::channel(0);
        let mut growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        growing.retain(|_, receiver| receiver.has_changed().is_ok());
        growing.insert(file.to_path_buf(), receiver);
        sender
    }

    /// To wait for more of a log; `None` when it is complete.
    pub(crate) fn growing(&self, file: &Path) -> Option<watch::Receiver<u64>> {
        let growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        growing.get(file).filter(|receiver| receiver.has_changed().is_ok()).cloned()
    }

    /// Removes the logs of runs before the last two.
    pub(crate) fn prune(&self, pod: &Path, container: &str, run: i32) {
        for old in (0..run - 1).rev().take(3) {
            let file = self.file(pod, container, old);
            let _ = std::fs::remove_file(rotated(&file));
            let _ = std::fs::remove_file(&file);
        }
    }
}

/// Where the earlier part of a log goes when it grows too long.
fn rotated(file: &Path) -> PathBuf {
    file.with_extension("log.1")
}
