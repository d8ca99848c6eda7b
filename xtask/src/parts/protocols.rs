//! Python's WebSocket and gRPC: the clients and servers that others write their services with.

use std::path::PathBuf;

use super::venv::Environment;
use super::{Cache, Progress, Unavailable};

/// The part's name.
pub(crate) const NAME: &str = "protocols";
/// As PyPI calls them.
const ENVIRONMENT: Environment = Environment {
    part: NAME,
    packages: &["websockets==15.0.1", "grpcio==1.76.0"],
    program: "python3",
    version: &["-c", "import websockets, grpc; print(websockets.__version__, grpc.__version__)"],
};

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
    let (path, versions) = ENVIRONMENT.find(cache)?;
    Ok(Protocols { path, versions })
}

pub(crate) fn install(cache: &Cache, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    ENVIRONMENT.install(cache, progress)
}
