//! Python's WebSocket and gRPC: the clients and servers that others write their services with.

use std::path::PathBuf;
use std::process::Command;

use super::process::{is_executable, output};
use super::{Cache, Progress, Unavailable, venv};

/// The part's name.
pub(crate) const NAME: &str = "protocols";
/// As PyPI calls them.
const PACKAGES: [&str; 2] = ["websockets==15.0.1", "grpcio==1.76.0"];
/// The same, as Python does.
const IMPORTS: &str = "import websockets, grpc; print(websockets.__version__, grpc.__version__)";

/// A Python interpreter that speaks WebSocket and gRPC.
#[derive(Clone, Debug)]
pub struct Protocols {
    /// The interpreter.
    pub path: PathBuf,
    /// The versions of websockets and grpcio.
    pub versions: String,
}

/// The interpreter in the cache.
///
/// # Errors
/// [`Unavailable::Missing`] when it was never set up.
pub fn protocols() -> Result<Protocols, Unavailable> {
    find(&Cache::of_user())
}

pub(crate) fn find(cache: &Cache) -> Result<Protocols, Unavailable> {
    let path = venv::programs(cache, NAME).join("python3");
    if !is_executable(&path) {
        return Err(Unavailable::missing(NAME, format!("no {}", path.display())));
    }
    match output(Command::new(&path).args(["-c", IMPORTS])) {
        Ok(versions) => Ok(Protocols { path, versions: versions.trim().to_owned() }),
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
