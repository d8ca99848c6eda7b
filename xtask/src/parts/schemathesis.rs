//! Schemathesis: holds an HTTP API against its own description, with made-up requests.

use std::path::PathBuf;
use std::process::Command;

use super::process::{is_executable, output};
use super::{Cache, Progress, Unavailable, venv};

/// The part's name.
pub(crate) const NAME: &str = "schemathesis";
/// As PyPI calls it. Later ones may find more, and a test must not change by itself.
const PACKAGES: [&str; 1] = ["schemathesis==4.32.5"];

/// The program.
#[derive(Clone, Debug)]
pub struct Schemathesis {
    /// Where it is.
    pub path: PathBuf,
    /// What it says its version is.
    pub version: String,
}

/// Schemathesis in the cache.
///
/// # Errors
/// [`Unavailable::Missing`] when it was never installed.
pub fn schemathesis() -> Result<Schemathesis, Unavailable> {
    find(&Cache::of_user())
}

pub(crate) fn find(cache: &Cache) -> Result<Schemathesis, Unavailable> {
    let path = venv::programs(cache, NAME).join("schemathesis");
    if !is_executable(&path) {
        return Err(Unavailable::missing(NAME, format!("no {}", path.display())));
    }
    match output(Command::new(&path).arg("--version")) {
        Ok(version) => Ok(Schemathesis { path, version: version.trim().to_owned() }),
        Err(why) => Err(Unavailable::missing(NAME, why)),
    }
}

pub(crate) fn install(cache: &Cache, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    if find(cache).is_ok() {
        return Ok(());
    }
    venv::install(cache, NAME, &PACKAGES, progress)?;
    find(cache)?;
    Ok(())
}
