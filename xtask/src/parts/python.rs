//! Python with the Kubernetes client of its own, for the compatibility suite.

use std::path::PathBuf;
use std::process::Command;

use super::process::{is_executable, output};
use super::{Cache, Progress, Unavailable, venv};

/// The part's name.
pub(crate) const NAME: &str = "python";
/// What the suite imports, as PyPI calls it.
const PACKAGES: [&str; 2] = ["PyYAML", "kubernetes"];
/// The same, as Python does.
const IMPORTS: &str = "import yaml, kubernetes; print(kubernetes.__version__)";

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
    let path = interpreter(cache);
    if !is_executable(&path) {
        return Err(Unavailable::missing(NAME, format!("no {}", path.display())));
    }
    match output(Command::new(&path).args(["-c", IMPORTS])) {
        Ok(client) => Ok(Python { path, client: client.trim().to_owned() }),
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

fn interpreter(cache: &Cache) -> PathBuf {
    venv::programs(cache, NAME).join("python3")
}
