//! Where Go keeps the modules that the table is made from.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use serde_json::Value;

use super::KUBERNETES;

/// The unpacked modules of one Kubernetes release.
pub(super) struct Modules {
    cache: PathBuf,
}

impl Modules {
    /// Finds the modules in Go's cache and downloads what is missing.
    pub(super) fn find() -> anyhow::Result<Self> {
        let output = Command::new("go")
            .args(["env", "GOMODCACHE"])
            .output()
            .context("the type table is made from Go modules; install Go to make it again")?;
        let cache = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let modules = Self { cache };
        for module in ["kubernetes", "api", "apimachinery", "apiextensions-apiserver", "kube-aggregator"] {
            if !modules.folder(module).is_dir() {
                download(module)?;
            }
        }
        Ok(modules)
    }

    /// The folder of the module `k8s.io/<name>`.
    pub(super) fn folder(&self, name: &str) -> PathBuf {
        self.cache.join(format!("k8s.io/{name}@{}", version_of(name)))
    }

    /// A JSON document of the module `k8s.io/kubernetes`, by its path below `api/`.
    pub(super) fn document(&self, path: &str) -> anyhow::Result<Value> {
        read_json(&self.folder("kubernetes").join("api").join(path))
    }
}

/// The main module counts from 1, its parts from 0.
fn version_of(module: &str) -> String {
    if module == "kubernetes" { KUBERNETES.to_owned() } else { KUBERNETES.replacen("v1", "v0", 1) }
}

fn download(module: &str) -> anyhow::Result<()> {
    let wanted = format!("k8s.io/{module}@{}", version_of(module));
    let output = Command::new("go")
        .args(["mod", "download", &wanted])
        .current_dir(std::env::temp_dir())
        .output()
        .context("cannot run go")?;
    if !output.status.success() {
        bail!("cannot download {wanted}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn read_json(path: &Path) -> anyhow::Result<Value> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&bytes).with_context(|| format!("{} is not JSON", path.display()))
}
