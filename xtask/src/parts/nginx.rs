//! nginx, for samples whose image is nginx: a node runs the host's.

use std::path::PathBuf;
use std::process::Command;

use super::process::{find_program, is_executable, output};
use super::{Cache, Progress, Unavailable, debian};

/// The part's name.
pub(crate) const NAME: &str = "nginx";
const PACKAGE: &str = "nginx-light";
/// Where Debian puts it, which is not in every user's `PATH`.
const SYSTEM: &str = "/usr/sbin/nginx";

/// An nginx that can be started.
#[derive(Clone, Debug)]
pub struct Nginx {
    /// The program.
    pub path: PathBuf,
    /// What it says its version is, such as `nginx/1.22.1`.
    pub version: String,
}

/// The nginx of this machine, or the one in the cache.
///
/// # Errors
/// [`Unavailable::Missing`] when there is none.
pub fn nginx() -> Result<Nginx, Unavailable> {
    find(&Cache::of_user())
}

pub(crate) fn find(cache: &Cache) -> Result<Nginx, Unavailable> {
    let unpacked = cache.of(NAME).join("usr/sbin/nginx");
    let candidates = find_program("nginx").into_iter().chain([SYSTEM.into(), unpacked]);
    let candidates = candidates.filter(|path| is_executable(path));
    let mut working = candidates.filter_map(|path| Some(Nginx { version: version(&path)?, path }));
    working
        .next()
        .ok_or_else(|| Unavailable::missing(NAME, format!("no working nginx in PATH, {SYSTEM} or the cache")))
}

pub(crate) fn install(cache: &Cache, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    if find(cache).is_ok() {
        return Ok(());
    }
    debian::unpack(PACKAGE, &cache.of(NAME), progress)
}

/// nginx writes its version to its standard error.
fn version(program: &PathBuf) -> Option<String> {
    output(Command::new("sh").args(["-c", "exec \"$0\" -v 2>&1"]).arg(program))
        .ok()
        .and_then(|printed| Some(printed.trim().rsplit_once(' ')?.1.to_owned()))
}
