//! A Python that Terraform providers can be written in, for drift that a test makes.

use std::path::PathBuf;

use super::venv::Environment;
use super::{Cache, Progress, Unavailable};

/// The part's name.
pub(crate) const NAME: &str = "provider";
/// As PyPI calls it: a framework for providers.
const ENVIRONMENT: Environment = Environment {
    part: NAME,
    packages: &["tf==1.2.0"],
    program: "python3",
    version: &["-c", "import importlib.metadata, tf.runner; print(importlib.metadata.version('tf'))"],
};

/// A Python with a framework for Terraform providers.
#[derive(Clone, Debug)]
pub struct ProviderPython {
    /// The interpreter.
    pub python: PathBuf,
    /// The version of the framework.
    pub version: String,
}

/// The interpreter in the cache.
///
/// # Errors
/// [`Unavailable::Missing`] when it was never set up.
pub fn provider_python() -> Result<ProviderPython, Unavailable> {
    find(&Cache::of_user())
}

pub(crate) fn find(cache: &Cache) -> Result<ProviderPython, Unavailable> {
    let (python, version) = ENVIRONMENT.find(cache)?;
    Ok(ProviderPython { python, version })
}

pub(crate) fn install(cache: &Cache, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    ENVIRONMENT.install(cache, progress)
}
