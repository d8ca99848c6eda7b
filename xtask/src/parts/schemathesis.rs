//! Schemathesis: holds an HTTP API against its own description, with made-up requests.

use std::path::PathBuf;

use super::venv::Environment;
use super::{Cache, Progress, Unavailable};

/// The part's name.
pub(crate) const NAME: &str = "schemathesis";
/// As PyPI calls it. Later ones may find more, and a test must not change by itself.
const ENVIRONMENT: Environment = Environment {
    part: NAME,
    packages: &["schemathesis==4.32.5"],
    program: "schemathesis",
    version: &["--version"],
};

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
    let (path, version) = ENVIRONMENT.find(cache)?;
    Ok(Schemathesis { path, version })
}

pub(crate) fn install(cache: &Cache, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    ENVIRONMENT.install(cache, progress)
}
