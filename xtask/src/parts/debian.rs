//! Programs out of Debian packages, unpacked into the cache instead of installed.
//!
//! Nothing of the system is touched: no service starts, no program in `PATH` is replaced, and
//! no root is needed. What a package depends on and the system lacks is unpacked beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use nix::unistd::Uid;

use super::Progress;
use super::process::{find_program, output};

/// Unpacks a package, and those of its dependencies that the system lacks, into a folder.
/// The folder appears whole or not at all.
pub(crate) fn unpack(package: &str, folder: &Path, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    if folder.exists() {
        return Ok(());
    }
    if find_program("apt-get").is_none() || find_program("dpkg-deb").is_none() {
        bail!("{package} is taken from a Debian package, and this system has no apt-get");
    }
    let parent = folder.parent().context("the cache has no parent folder")?;
    fs::create_dir_all(parent)?;
    let downloads = tempfile::tempdir_in(parent)?;
    let packages = match missing_packages(package) {
        Ok(packages) => packages,
        // The lists of packages are often not there at all in a fresh container.
        Err(first) if Uid::effective().is_root() => {
            progress("updating the lists of Debian packages");
            run(Command::new("apt-get").args(["--quiet", "update"])).with_context(|| first.to_string())?;
            missing_packages(package)?
        }
        Err(first) => return Err(first.context("as root, try `apt-get update` first")),
    };
    progress(&format!("downloading {}", packages.join(", ")));
    // Without `_apt` as user: that one may not write below a home folder.
    run(Command::new("apt-get")
        .current_dir(downloads.path())
        .args(["--quiet", "--option", "APT::Sandbox::User=root", "download"])
        .args(&packages))?;
    let unpacked = downloads.path().join("root");
    for entry in fs::read_dir(downloads.path())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg-deb").arg("--extract").arg(&path).arg(&unpacked))?;
        }
    }
    fs::rename(&unpacked, folder).with_context(|| format!("moving {}", unpacked.display()))
}

/// The folders of shared libraries that [`unpack`] may have put there.
pub(crate) fn library_path(folder: &Path) -> String {
    let mut folders: Vec<PathBuf> = vec![folder.join("usr/lib"), folder.join("lib")];
    for base in folders.clone() {
        let triples = fs::read_dir(&base).into_iter().flatten().flatten();
        folders.extend(
            triples
                .map(|entry| entry.path())
                .filter(|path| path.is_dir() && path.to_string_lossy().ends_with("-linux-gnu")),
        );
    }
    let folders: Vec<_> = folders.iter().map(|path| path.to_string_lossy()).collect();
    folders.join(":")
}

/// The package and what would be installed with it, as a dry run of apt-get tells. Also right
/// where the package itself is installed already.
fn missing_packages(package: &str) -> anyhow::Result<Vec<String>> {
    let plan = output(
        Command::new("apt-get")
            .args(["--simulate", "--no-install-recommends", "--no-upgrade", "install", package])
            .env("LC_ALL", "C"),
    )
    .map_err(anyhow::Error::msg)
    .with_context(|| format!("Debian's package {package} is not to be had"))?;
    let mut packages = planned(&plan);
    if !packages.iter().any(|name| name == package) {
        packages.push(package.to_owned());
    }
    Ok(packages)
}

fn planned(plan: &str) -> Vec<String> {
    let installs = plan.lines().filter_map(|line| line.strip_prefix("Inst "));
    installs.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    output(command).map(drop).map_err(anyhow::Error::msg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_of_a_plan_are_its_inst_lines() {
        let plan = "NOTE: This is only a simulation!\n\
                    Inst iproute2 (6.1.0-3 Debian:12.11/oldstable [amd64])\n\
                    Inst nginx-common (1.22.1-9 Debian [all])\n\
                    Conf iproute2 (6.1.0-3 Debian [amd64])\n";
        assert_eq!(planned(plan), ["iproute2", "nginx-common"]);
    }
}
