//! Python with the Kubernetes client of its own, for the compatibility suite.

use std::path::PathBuf;

use super::venv::Environment;
use super::{Cache, Progress, Unavailable};

/// The part's name.
pub(crate) const NAME: &str = "python";
/// What the suite imports, as PyPI calls it.
const ENVIRONMENT: Environment = Environment {
    part: NAME,
    packages: &["PyYAML", "kubernetes"],
    program: "python3",
    version: &["-c", "import yaml, kubernetes; print(kubernetes.__version__)"],
};

/// A Python interpreter that has PyYAML and the Kubernetes client.
#[derive(Clone, Debug)]
pub struct Python {
    /// The interpreter.
    pub path: PathBuf,
    /// The version of the Kubernetes client.
    pub client: String,
}

/// The interpreter in the cache.
///
/// # Errors
/// [`Unavailable::Missing`] when it was never set up.
pub fn python() -> Result<Python, Unavailable> {
    find(&Cache::of_user())
}

pub(crate) fn find(cache: &Cache) -> Result<Python, Unavailable> {
    let (path, client) = ENVIRONMENT.find(cache)?;
    Ok(Python { path, client })
}

pub(crate) fn install(cache: &Cache, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    ENVIRONMENT.install(cache, progress)
}
