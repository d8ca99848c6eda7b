//! A Python that Terraform providers can be written in, for drift that a test makes.

use std::path::PathBuf;
use std::process::Command;

use super::process::{is_executable, output};
use super::{Cache, Progress, Unavailable, venv};

/// The part's name.
pub(crate) const NAME: &str = "provider";
/// As PyPI calls it: a framework for providers.
const PACKAGES: [&str; 1] = ["tf==1.2.0"];
const IMPORTS: &str = "import importlib.metadata, tf.runner; print(importlib.metadata.version('tf'))";

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
    let python = venv::programs(cache, NAME).join("python3");
    if !is_executable(&python) {
        return Err(Unavailable::missing(NAME, format!("no {}", python.display())));
    }
    match output(Command::new(&python).args(["-c", IMPORTS])) {
        Ok(version) => Ok(ProviderPython { python, version: version.trim().to_owned() }),
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
