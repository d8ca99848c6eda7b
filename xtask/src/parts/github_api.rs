//! GitHub's own description of its API, to hold requests against.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

use super::process::{find_program, output};
use super::{Cache, Progress, Unavailable};

/// The part's name.
pub(crate) const NAME: &str = "github-api";
/// As npm calls it. A later one may describe more, and a test must not change by itself.
const PACKAGE: &str = "@octokit/openapi@23.0.2";
/// Where the description is in the package.
const FILE: &str = "package/generated/api.github.com.json";

/// The description of GitHub's REST API in the cache.
///
/// # Errors
/// [`Unavailable::Missing`] when it was never installed.
pub fn github_api() -> Result<PathBuf, Unavailable> {
    find(&Cache::of_user())
}

pub(crate) fn find(cache: &Cache) -> Result<PathBuf, Unavailable> {
    let path = cache.of(NAME).join(FILE);
    match path.is_file() {
        true => Ok(path),
        false => Err(Unavailable::missing(NAME, format!("no {}", path.display()))),
    }
}

pub(crate) fn install(cache: &Cache, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    if find(cache).is_ok() {
        return Ok(());
    }
    if find_program("npm").is_none() || find_program("tar").is_none() {
        bail!("the description is taken from an npm package, and there is no npm and tar in PATH");
    }
    let folder = cache.of(NAME);
    fs::create_dir_all(&folder)?;
    progress(&format!("downloading {PACKAGE} from npm"));
    let run = |command: &mut Command| output(command.current_dir(&folder)).map_err(anyhow::Error::msg);
    let printed = run(Command::new("npm").args(["pack", "--silent", PACKAGE]))?;
    let archive = printed.lines().last().context("npm did not say what it wrote")?.trim().to_owned();
    run(Command::new("tar").args(["--extract", "--gzip", "--file", &archive, FILE]))?;
    fs::remove_file(folder.join(&archive))?;
    find(cache)?;
    Ok(())
}
