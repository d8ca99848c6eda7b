//! Where installed parts live: outside the tree, shared by every checkout and every test.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::unistd::Uid;

/// Open to every user, and writable for root.
const SYSTEM_FOLDER: &str = "/var/cache/steersman/parts";

/// The folder of installed parts.
///
/// `STEER_PARTS_DIR`, else `$XDG_CACHE_HOME/steersman/parts`, else `~/.cache/steersman/parts`.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    /// Whether the user chose the folder; then nothing is put elsewhere.
    chosen: bool,
}

impl Cache {
    /// The cache of the user who runs this.
    pub fn of_user() -> Self {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(folder) = set("STEER_PARTS_DIR") {
            return Self { folder, chosen: true };
        }
        let caches = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
        let folder = caches.unwrap_or_else(env::temp_dir).join("steersman/parts");
        Self { folder, chosen: false }
    }

    /// The folder of one part, there or not.
    pub fn of(&self, part: &str) -> PathBuf {
        self.folder.join(part)
    }

    /// The folder of a part that runs as another user when we are root: root's home folder is
    /// closed to it.
    pub fn of_everyone(&self, part: &str) -> PathBuf {
        if self.chosen || !Uid::effective().is_root() {
            return self.of(part);
        }
        Path::new(SYSTEM_FOLDER).join(part)
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Waits until no other process installs this part; hold the result while you do.
    ///
    /// # Errors
    /// When the cache cannot be written.
    pub fn lock(&self, part: &str) -> anyhow::Result<File> {
        let folder = &self.folder;
        fs::create_dir_all(folder)
            .with_context(|| format!("creating {}; STEER_PARTS_DIR names another", folder.display()))?;
        let path = folder.join(format!(".{part}.lock"));
        let lock = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
        lock.lock().with_context(|| format!("locking {}", path.display()))?;
        Ok(lock)
    }
}
