//! Data folders of running parts.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::ProcessError;

/// How the names of these folders begin.
const PREFIX: &str = "steersman-part-";
/// Locked by the process that uses the folder; free when it is gone, however it went.
const LOCK: &str = ".lock";

/// A temporary folder, removed when dropped. What a killed process left behind is removed by
/// the next one that asks for a folder.
pub struct Folder {
    folder: tempfile::TempDir,
    _lock: File,
}

impl Folder {
    /// A new, empty folder that other users may pass through, so that a part can run as one.
    ///
    /// # Errors
    /// When the folder for temporary files cannot be written.
    pub fn new() -> Result<Self, ProcessError> {
        Self::under(&std::env::temp_dir())
    }

    fn under(parent: &Path) -> Result<Self, ProcessError> {
        sweep(parent);
        let failed = || ProcessError::setup(format!("creating a folder in {}", parent.display()));
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent).map_err(failed())?;
        // The lock takes its name only once it is held: a sweeper never sees it free.
        let unnamed = folder.path().join(".lock.new");
        let lock = File::create(&unnamed).map_err(failed())?;
        lock.lock().map_err(failed())?;
        fs::rename(&unnamed, folder.path().join(LOCK)).map_err(failed())?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).map_err(failed())?;
        Ok(Self { folder, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A new folder inside.
    pub(crate) fn make(&self, name: &str) -> Result<PathBuf, ProcessError> {
        let path = self.path().join(name);
        fs::create_dir_all(&path).map_err(ProcessError::setup(format!("creating {}", path.display())))?;
        Ok(path)
    }

    /// Writes a file inside that only we may read.
    pub(crate) fn write(&self, name: &str, contents: &str) -> Result<PathBuf, ProcessError> {
        let path = self.path().join(name);
        fs::write(&path, contents)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)))
            .map_err(ProcessError::setup(format!("writing {}", path.display())))?;
        Ok(path)
    }
}

/// Removes folders whose process is gone. A folder without a lock file is being made.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        if lock.try_lock().is_ok() {
            // Another sweeper may be faster, and another user's folder is not ours to remove.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_whose_process_is_gone_is_swept_and_one_in_use_is_not() {
        let parent = tempfile::tempdir().expect("a folder");
        let used = Folder::under(parent.path()).expect("made");
        let left = parent.path().join("steersman-part-left");
        fs::create_dir(&left).expect("made");
        File::create(left.join(LOCK)).expect("made");
        let other = parent.path().join("else");
        fs::create_dir(&other).expect("made");

        let _new = Folder::under(parent.path()).expect("made");

        assert!(used.path().exists());
        assert!(!left.exists());
        assert!(other.exists());
    }
}
