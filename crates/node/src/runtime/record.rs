//! A note on disk of the processes that were started, so that a restarted node can end what a
//! killed one left behind.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::init::{Identity, sweep};

/// The variable that marks every process of a pod.
pub(crate) const MARKER: &str = "STEERSMAN_POD_UID";

/// Which processes belong to which pod.
#[derive(Debug)]
pub(super) struct Records {
    file: PathBuf,
    pods: Mutex<BTreeMap<String, Vec<Identity>>>,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    /// Process numbers and start times mean nothing after a reboot.
    boot: String,
    pods: BTreeMap<String, Vec<Identity>>,
}

impl Records {
    /// Reads what an earlier node wrote and ends those processes that are still the same.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let file = folder.join("processes.json");
        let saved = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(Saved { boot, pods }) = saved
            && boot == boot_id()
        {
            for (uid, identities) in &pods {
                let ended = sweep(identities, &format!("{MARKER}={uid}"));
                if ended > 0 {
                    tracing::info!(uid, ended, "ended processes of an earlier run");
                }
            }
        }
        let records = Records { file, pods: Mutex::default() };
        records.save(&BTreeMap::new())?;
        Ok(records)
    }

    /// Notes a process.
    pub(super) fn add(&self, uid: &str, pid: i32) {
        let Some(identity) = Identity::of(pid) else { return };
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        pods.entry(uid.to_string()).or_default().push(identity);
        if let Err(error) = self.save(&pods) {
            tracing::warn!(%error, file = %self.file.display(), "cannot note processes");
        }
    }

    /// The pod's processes are gone.
    pub(super) fn forget(&self, uid: &str) {
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        if pods.remove(uid).is_some()
            && let Err(error) = self.save(&pods)
        {
            tracing::warn!(%error, file = %self.file.display(), "cannot note processes");
        }
    }

    fn save(&self, pods: &BTreeMap<String, Vec<Identity>>) -> io::Result<()> {
        let saved = Saved { boot: boot_id(), pods: pods.clone() };
        let fresh = self.file.with_extension("new");
        std::fs::write(&fresh, serde_json::to_vec(&saved)?)?;
        std::fs::rename(fresh, &self.file)
    }
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_process_is_ended_by_the_next_run() {
        let folder = tempfile::tempdir().expect("folder");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = i32::try_from(child.id()).expect("small");
        Records::open(folder.path()).expect("opened").add("a", pid);
        Records::open(folder.path()).expect("opened again");
        let status = child.wait().expect("ended");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    }

    #[test]
    fn a_forgotten_process_is_left_alone() {
        let folder = tempfile::tempdir().expect("folder");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = i32::try_from(child.id()).expect("small");
        let records = Records::open(folder.path()).expect("opened");
        records.add("a", pid);
        records.forget("a");
        Records::open(folder.path()).expect("opened again");
        assert_eq!(child.try_wait().expect("asked"), None);
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
}
