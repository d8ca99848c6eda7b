//! Which pods are on this node, and a worker for each.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::worker::work;
use crate::watch::Change;

/// The pods of this node as they were last heard of, for the kubelet's endpoints.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known(Arc<Mutex<BTreeMap<String, Arc<Pod>>>>);

impl Known {
    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Pod>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The one of that name.
    pub(crate) fn find(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        self.all().into_iter().find(|pod| {
            pod.metadata.namespace.as_deref() == Some(namespace) && pod.metadata.name.as_deref() == Some(name)
        })
    }

    fn set(&self, uid: &str, pod: Option<Arc<Pod>>) {
        let mut pods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match pod {
            Some(pod) => pods.insert(uid.to_string(), pod),
            None => pods.remove(uid),
        };
    }
}

/// Keeps a worker for every pod.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    known: Known,
    /// By uid; a worker that has ended stays until its pod is gone, so that it is not begun again.
    workers: HashMap<String, watch::Sender<Option<Arc<Pod>>>>,
    tasks: JoinSet<()>,
    shutdown: CancellationToken,
}

impl Keeper {
    /// One without pods.
    pub(crate) fn new(shared: Arc<Shared>, known: Known, shutdown: CancellationToken) -> Self {
        Keeper { shared, known, workers: HashMap::new(), tasks: JoinSet::new(), shutdown }
    }

    /// Follows the changes until the node ends, then waits for the workers.
    pub(crate) async fn run(mut self, mut changes: mpsc::Receiver<Change<Pod>>) {
        let shutdown = self.shutdown.clone();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                change = changes.recv() => match change {
                    Some(change) => self.change(change),
                    None => break,
                },
                Some(ended) = self.tasks.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a pod's worker failed");
                    }
                }
            }
        }
        while self.tasks.join_next().await.is_some() {}
    }

    fn change(&mut self, change: Change<Pod>) {
        match change {
            Change::Set(pod) => self.set(*pod),
            Change::Gone(pod) => {
                if let Some(uid) = pod.metadata.uid {
                    self.gone(&uid);
                }
            }
            Change::All(pods) => {
                let here: BTreeSet<String> = pods.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
                let lost: Vec<String> =
                    self.workers.keys().filter(|uid| !here.contains(*uid)).cloned().collect();
                for uid in lost {
                    self.gone(&uid);
                }
                self.clean(&here);
                for pod in pods {
                    self.set(pod);
                }
            }
        }
    }

    fn set(&mut self, pod: Pod) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        let pod = Arc::new(pod);
        self.known.set(&uid, Some(Arc::clone(&pod)));
        if let Some(worker) = self.workers.get(&uid) {
            worker.send_replace(Some(pod));
            return;
        }
        let (sender, receiver) = watch::channel(Some(pod));
        self.workers.insert(uid, sender);
        self.tasks.spawn(work(Arc::clone(&self.shared), receiver, self.shutdown.clone()));
    }

    fn gone(&mut self, uid: &str) {
        self.known.set(uid, None);
        if let Some(worker) = self.workers.remove(uid) {
            worker.send_replace(None);
        }
    }

    /// Removes folders of pods that went away while no node was looking.
    fn clean(&self, here: &BTreeSet<String>) {
        let Ok(folders) = std::fs::read_dir(self.shared.data_dir.join("pods")) else { return };
        for folder in folders.flatten() {
            let uid = folder.file_name().to_string_lossy().into_owned();
            if !here.contains(&uid) && !self.workers.contains_key(&uid) {
                let _ = std::fs::remove_dir_all(folder.path());
            }
        }
        let logs = std::fs::read_dir(self.shared.data_dir.join("logs"));
        for folder in logs.into_iter().flatten().flatten() {
            let name = folder.file_name().to_string_lossy().into_owned();
            let uid = name.rsplit('_').next().unwrap_or_default();
            if !here.contains(uid) && !self.workers.contains_key(uid) {
                let _ = std::fs::remove_dir_all(folder.path());
            }
        }
    }
}
