//! Every kubectl on this machine.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::{find_program, is_executable, output};
use super::{Cache, Progress, Unavailable, debian, kubernetes};

/// The part's name.
pub(crate) const NAME: &str = "kubectl";
/// Where Google's command line tools put one of each release.
const MORE_FOLDERS: [&str; 2] = ["/usr/lib/google-cloud-sdk/bin", "/usr/local/bin"];
/// Debian's package, which is an old release and so a good one to test with.
const PACKAGE: &str = "kubernetes-client";

/// One kubectl, with the version that it says it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubectl {
    /// The program.
    pub path: PathBuf,
    /// Its release.
    pub version: Version,
}

/// A release, ordered as releases are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// `1` in 1.36.4.
    pub major: u32,
    /// `36` in 1.36.4.
    pub minor: u32,
    /// `4` in 1.36.4.
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Every kubectl found, oldest first, one of each version: in `PATH`, beside Google's command
/// line tools, Debian's and the one that was built with Kubernetes.
///
/// # Errors
/// [`Unavailable::Missing`] when there is none at all.
pub fn kubectls() -> Result<Vec<Kubectl>, Unavailable> {
    let mut found = BTreeMap::new();
    for path in candidates(&Cache::of_user()) {
        if let Some(version) = version_of(&path) {
            found.entry(version).or_insert(path);
        }
    }
    if found.is_empty() {
        return Err(Unavailable::missing(NAME, "no kubectl in PATH or in the cache"));
    }
    Ok(found.into_iter().map(|(version, path)| Kubectl { path, version }).collect())
}

/// Unpacks Debian's, and leaves whatever kubectl the machine has alone.
pub(crate) fn install(cache: &Cache, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    debian::unpack(PACKAGE, &cache.of(NAME), progress)
}

fn candidates(cache: &Cache) -> Vec<PathBuf> {
    let mut candidates = vec![cache.of(NAME).join("usr/bin/kubectl")];
    candidates.extend(kubernetes::find(cache).ok().map(|programs| programs.join("kubectl")));
    candidates.extend(find_program("kubectl"));
    for folder in MORE_FOLDERS {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        let names = entries.flatten().filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name == "kubectl" || name.starts_with("kubectl.1.") || name.starts_with("kubectl-1.")
        });
        candidates.extend(names.map(|entry| entry.path()));
    }
    candidates.retain(|path| is_executable(path));
    candidates
}

fn version_of(kubectl: &Path) -> Option<Version> {
    let printed = output(Command::new(kubectl).args(["version", "--client", "--output=json"]));
    let printed: serde_json::Value = serde_json::from_str(&printed.ok()?).ok()?;
    parse(printed["clientVersion"]["gitVersion"].as_str()?)
}

/// Reads `v1.27.16`, also with a suffix after a minus or a plus. A dispatcher only starts one of
/// the others, so it is none of its own.
fn parse(version: &str) -> Option<Version> {
    if version.ends_with("-dispatcher") {
        return None;
    }
    let numbers = version.trim_start_matches('v').split(['-', '+']).next()?;
    let mut numbers = numbers.split('.').map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some(Version { major: next()?, minor: next()?, patch: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_ordered_as_numbers() {
        let version = |text| parse(text).map(|version| version.to_string());
        assert_eq!(version("v1.36.4").as_deref(), Some("1.36.4"));
        assert_eq!(version("1.20.5+really1.20.2").as_deref(), Some("1.20.5"));
        assert_eq!(version("v1.32.4-gke.1").as_deref(), Some("1.32.4"));
        assert_eq!(version("v1.32.4-dispatcher"), None);
        assert_eq!(version("unknown"), None);
        assert!(parse("v1.9.0") < parse("v1.20.0"));
    }
}
