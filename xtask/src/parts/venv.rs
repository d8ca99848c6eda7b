//! Python's virtual environments: programs from PyPI in folders of their own, without root.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::process::{find_program, is_executable, output};
use super::{Cache, Progress, Unavailable};

/// A part that is an environment of its own.
pub(super) struct Environment {
    /// The part's name.
    pub(super) part: &'static str,
    /// What is in it, as PyPI calls it.
    pub(super) packages: &'static [&'static str],
    /// The program that is wanted of it, such as `python3`.
    pub(super) program: &'static str,
    /// The arguments with which the program prints a version, if everything is there.
    pub(super) version: &'static [&'static str],
}

impl Environment {
    /// The program in the cache, and the version it prints.
    pub(super) fn find(&self, cache: &Cache) -> Result<(PathBuf, String), Unavailable> {
        let path = programs(cache, self.part).join(self.program);
        if !is_executable(&path) {
            return Err(Unavailable::missing(self.part, format!("no {}", path.display())));
        }
        match output(Command::new(&path).args(self.version)) {
            Ok(version) => Ok((path, version.trim().to_owned())),
            Err(why) => Err(Unavailable::missing(self.part, why)),
        }
    }

    /// Makes the environment, unless it is there.
    pub(super) fn install(&self, cache: &Cache, progress: &mut Progress<'_>) -> anyhow::Result<()> {
        if self.find(cache).is_err() {
            install(cache, self.part, self.packages, progress)?;
            self.find(cache)?;
        }
        Ok(())
    }
}

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
