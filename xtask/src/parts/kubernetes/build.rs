//! Building the control plane from its published Go modules.
//!
//! A small Go module of our own requires `k8s.io/kubernetes` at one release and points each of
//! the modules that it replaces inside its own repository at the published module of the same
//! release. Then its programs are packages like any other.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};

use super::{NAME, PROGRAMS, find};
use crate::parts::process::{find_program, output};
use crate::parts::{Cache, Progress};

/// The release that tests run against.
pub(crate) const RELEASE: &str = "v1.36.4";
const MAJOR: &str = "1";
const MINOR: &str = "36";
/// The modules published out of Kubernetes' repository carry this version.
const STAGING_RELEASE: &str = "v0.36.4";

pub(super) fn programs_folder(cache: &Cache) -> PathBuf {
    cache.of(&format!("{NAME}-{RELEASE}")).join("bin")
}

/// Builds what is missing.
pub(crate) fn install(cache: &Cache, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    if find(cache).is_ok() {
        return Ok(());
    }
    let Some(go) = find_program("go") else {
        bail!(
            "Kubernetes {RELEASE} is built from Go modules and there is no `go` in PATH; \
             install Go (https://go.dev/doc/install) and run this again"
        );
    };
    let bin = programs_folder(cache);
    let source = cache.of(&format!("{NAME}-{RELEASE}")).join("source");
    fs::create_dir_all(&bin)?;
    write_module(&go, &source, progress)?;
    let programs = PROGRAMS.len();
    for (index, name) in PROGRAMS.iter().enumerate() {
        let target = bin.join(name);
        if target.exists() {
            continue;
        }
        progress(&format!("building {name} ({} of {programs}; minutes when new)", index + 1));
        let begin = Instant::now();
        build(&go, &source, name, &target)?;
        progress(&format!("built {name} in {} s", begin.elapsed().as_secs()));
    }
    Ok(())
}

fn build(go: &Path, source: &Path, name: &str, target: &Path) -> anyhow::Result<()> {
    let package = if name == "etcd" { "./etcd".into() } else { format!("k8s.io/kubernetes/cmd/{name}") };
    // Written beside its place and moved there: a stopped build leaves no half of a program.
    let partial = target.with_extension("partial");
    output(
        Command::new(go)
            .current_dir(source)
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-mod=mod -buildvcs=false")
            .args(["build", "-trimpath", "-ldflags", &linker_flags(), "-o"])
            .arg(&partial)
            .arg(package),
    )
    .map_err(anyhow::Error::msg)
    .with_context(|| format!("building {name}"))?;
    fs::rename(&partial, target).with_context(|| format!("moving {}", partial.display()))
}

/// Without these, `/version` answers with a placeholder.
fn linker_flags() -> String {
    let mut flags = String::from("-s -w");
    let variables = [
        ("gitVersion", RELEASE),
        ("gitMajor", MAJOR),
        ("gitMinor", MINOR),
        ("gitTreeState", "clean"),
        ("buildDate", "1970-01-01T00:00:00Z"),
    ];
    for (name, value) in variables {
        let _ = write!(flags, " -X k8s.io/component-base/version.{name}={value}");
    }
    flags
}

/// Writes the Go module that the programs are built from.
fn write_module(go: &Path, source: &Path, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    fs::create_dir_all(source.join("etcd"))?;
    progress(&format!("fetching the module k8s.io/kubernetes {RELEASE}"));
    let module = format!("k8s.io/kubernetes@{RELEASE}");
    let described = output(Command::new(go).current_dir(source).args(["mod", "download", "-json", &module]))
        .map_err(anyhow::Error::msg)
        .context("fetching the module k8s.io/kubernetes; is the Go module proxy reachable?")?;
    let described: serde_json::Value = serde_json::from_str(&described)?;
    let Some(path) = described["GoMod"].as_str() else {
        bail!("`go mod download` did not say where go.mod is: {described}");
    };
    let theirs = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    write_if_new(&source.join("go.mod"), &module_file(&theirs))?;
    fs::write(
        source.join("etcd/main.go"),
        "package main\n\nimport (\n\t\"os\"\n\n\t\"go.etcd.io/etcd/server/v3/etcdmain\"\n)\n\n\
         func main() { etcdmain.Main(os.Args) }\n",
    )?;
    Ok(())
}

/// Go adds to the file while it builds, so an existing one is kept.
fn write_if_new(path: &Path, contents: &str) -> anyhow::Result<()> {
    if !path.exists() {
        fs::write(path, contents).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Our `go.mod`, given that of Kubernetes.
fn module_file(theirs: &str) -> String {
    let go = theirs.lines().find(|line| line.starts_with("go ")).unwrap_or("go 1.25");
    let mut ours = format!("module parts\n\n{go}\n\nrequire k8s.io/kubernetes {RELEASE}\n");
    // etcd's server is required by Kubernetes for its tests only; ours is to be the same version.
    if let Some(etcd) = theirs.lines().map(str::trim).find(|line| is_etcd_server(line)) {
        let etcd = etcd.split("//").next().unwrap_or(etcd).trim();
        let _ = writeln!(ours, "require {etcd}");
    }
    ours.push_str("\nreplace (\n");
    for line in theirs.lines().filter(|line| line.contains("=> ./staging/")) {
        if let Some(module) = line.trim().trim_start_matches("replace ").split_whitespace().next() {
            let _ = writeln!(ours, "\t{module} => {module} {STAGING_RELEASE}");
        }
    }
    ours.push_str(")\n");
    ours
}

fn is_etcd_server(line: &str) -> bool {
    line.trim_start_matches("require ").starts_with("go.etcd.io/etcd/server/v3 ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_points_every_staging_module_at_its_published_version() {
        let theirs = "module k8s.io/kubernetes\n\ngo 1.26.0\n\nrequire (\n\
                      \tgo.etcd.io/etcd/client/v3 v3.6.8\n\
                      \tgo.etcd.io/etcd/server/v3 v3.6.8 // indirect\n)\n\
                      replace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\
                      \tk8s.io/client-go => ./staging/src/k8s.io/client-go\n)\n";
        assert_eq!(
            module_file(theirs),
            "module parts\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.36.4\n\
             require go.etcd.io/etcd/server/v3 v3.6.8\n\nreplace (\n\
             \tk8s.io/api => k8s.io/api v0.36.4\n\
             \tk8s.io/client-go => k8s.io/client-go v0.36.4\n)\n"
        );
    }
}
