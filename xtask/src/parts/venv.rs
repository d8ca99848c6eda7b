//! Python's virtual environments: programs from PyPI in folders of their own, without root.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::process::{find_program, output};
use super::{Cache, Progress};

/// The programs of a part's environment.
pub(super) fn programs(cache: &Cache, part: &str) -> PathBuf {
    cache.of(part).join("bin")
}

/// Makes the environment of a part anew, with these packages.
pub(super) fn install(
    cache: &Cache,
    part: &str,
    packages: &[&str],
    progress: &mut Progress<'_>,
) -> anyhow::Result<()> {
    let Some(python) = find_program("python3") else {
        bail!("there is no python3 in PATH");
    };
    progress("making a virtual environment");
    step(
        Command::new(python).args(["-m", "venv", "--clear"]).arg(cache.of(part)),
        "making a virtual environment; Debian has it in the package python3-venv",
    )?;
    progress(&format!("installing {} from PyPI", packages.join(" and ")));
    let python: &Path = &programs(cache, part).join("python3");
    step(
        Command::new(python).args(["-m", "pip", "install", "--quiet"]).args(packages),
        "installing from PyPI; is it reachable?",
    )
}

fn step(command: &mut Command, what: &'static str) -> anyhow::Result<()> {
    output(command).map(drop).map_err(anyhow::Error::msg).context(what)
}
