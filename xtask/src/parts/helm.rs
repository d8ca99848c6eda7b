//! Helm, built from its published Go module.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};

use super::process::{find_program, is_executable, output};
use super::{Cache, Progress, Unavailable};

/// The part's name.
pub(crate) const NAME: &str = "helm";
/// The release that uses the same Kubernetes libraries as the control plane of the tests, so that what is
/// compiled for one is there for the other.
const RELEASE: &str = "v3.21.4";
const MODULE: &str = "helm.sh/helm/v3";
/// Those libraries, and the patch release that the control plane has.
const LIBRARIES: [&str; 8] = [
    "api",
    "apiextensions-apiserver",
    "apimachinery",
    "apiserver",
    "cli-runtime",
    "client-go",
    "component-base",
    "kubectl",
];
const LIBRARY_RELEASE: &str = "v0.36.4";

/// The program and what it says its version is.
#[derive(Clone, Debug)]
pub struct Helm {
    /// The program.
    pub path: PathBuf,
    /// Its version.
    pub version: String,
}

/// Helm from the cache, else one in `PATH`.
///
/// # Errors
/// [`Unavailable::Missing`] when it was never built on this machine.
pub fn helm() -> Result<Helm, Unavailable> {
    find(&Cache::of_user())
}

pub(crate) fn find(cache: &Cache) -> Result<Helm, Unavailable> {
    let candidates = [Some(program(cache)), find_program(NAME)];
    let mut working =
        candidates.into_iter().flatten().filter(|path| is_executable(path)).filter_map(|path| {
            let version = output(Command::new(&path).args(["version", "--template", "{{.Version}}"])).ok()?;
            Some(Helm { version: version.trim().to_owned(), path })
        });
    working.next().ok_or_else(|| {
        let what = format!("no {} and no working helm in PATH", program(cache).display());
        let remedy = "build it with `cargo xtask parts install helm`, which needs Go".to_owned();
        Unavailable::Missing { part: NAME, what, remedy }
    })
}

pub(crate) fn install(cache: &Cache, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    if find(cache).is_ok() {
        return Ok(());
    }
    let Some(go) = find_program("go") else {
        bail!(
            "Helm {RELEASE} is built from Go modules and there is no `go` in PATH; install Go and run this again"
        );
    };
    let source = folder(cache).join("source");
    fs::create_dir_all(&source)?;
    let file = source.join("go.mod");
    fs::write(&file, module_file()).with_context(|| format!("writing {}", file.display()))?;
    progress(&format!("building helm {RELEASE} (minutes when new)"));
    let begin = Instant::now();
    // Written beside its place and moved there: a stopped build leaves no half of a program.
    let (target, partial) = (program(cache), folder(cache).join("helm.partial"));
    output(
        Command::new(go)
            .current_dir(&source)
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-mod=mod -buildvcs=false")
            .args(["build", "-trimpath", "-ldflags", &linker_flags(), "-o"])
            .arg(&partial)
            .arg(format!("{MODULE}/cmd/helm")),
    )
    .map_err(anyhow::Error::msg)
    .context("building helm")?;
    fs::rename(&partial, &target).with_context(|| format!("moving {}", partial.display()))?;
    progress(&format!("built helm in {} s", begin.elapsed().as_secs()));
    Ok(())
}

fn folder(cache: &Cache) -> PathBuf {
    cache.of(&format!("{NAME}-{RELEASE}"))
}

fn program(cache: &Cache) -> PathBuf {
    folder(cache).join(NAME)
}

fn linker_flags() -> String {
    format!("-s -w -X {MODULE}/internal/version.version={RELEASE}")
}

fn module_file() -> String {
    let mut file = format!("module parts\n\ngo 1.26.0\n\nrequire (\n\t{MODULE} {RELEASE}\n");
    for library in LIBRARIES {
        file.push_str(&format!("\tk8s.io/{library} {LIBRARY_RELEASE}\n"));
    }
    file.push_str(")\n");
    file
}
