//! Our program that uses client-go and controller-runtime as operators do, built with Go.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::anyhow;

use super::process::{find_program, output};
use super::{Cache, Progress, Unavailable};

/// The part's name.
pub(crate) const NAME: &str = "go-clients";

/// The program, built anew from its source where that has changed.
///
/// # Errors
/// [`Unavailable::Missing`] without Go, or when its modules were never downloaded.
pub fn go_clients() -> Result<PathBuf, Unavailable> {
    find(&Cache::of_user())
}

pub(crate) fn find(cache: &Cache) -> Result<PathBuf, Unavailable> {
    let lock = cache.lock(NAME).map_err(|error| Unavailable::missing(NAME, error.to_string()))?;
    let built = build(cache, |go| go.env("GOPROXY", "off"));
    drop(lock);
    built.map_err(|why| Unavailable::missing(NAME, why))
}

/// Called with the lock held.
pub(crate) fn install(cache: &Cache, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    progress("building a program with client-go and controller-runtime");
    build(cache, |go| go).map(drop).map_err(|why| anyhow!(why))
}

fn build(cache: &Cache, set: impl Fn(&mut Command) -> &mut Command) -> Result<PathBuf, String> {
    let go = find_program("go").ok_or("there is no `go` in PATH")?;
    let program = cache.of(NAME).join("clients");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/go_clients");
    let mut command = Command::new(go);
    output(set(command.args(["build", "-o"]).arg(&program).arg(".").current_dir(source)))?;
    Ok(program)
}
