//! Files in the tree that are derived from others.
//!
//! Each generator says which files there should be and what is in them; this module writes
//! them, or only compares, so that a check never changes the tree it checks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::{chart, types};

/// One chore that derives files: a name for messages and the function that does it.
pub struct Generator {
    /// How messages and `cargo xtask generate NAME` call it.
    pub name: &'static str,
    /// Takes the root of the tree and tells what should be in it.
    pub run: fn(&Path) -> anyhow::Result<Outcome>,
}

/// What a [`Generator`] came to.
pub enum Outcome {
    /// These files.
    Files(Vec<GeneratedFile>),
    /// What it reads cannot be had on this machine; the sentence says what and how to get it.
    Skipped(String),
}

/// A file as it should be.
pub struct GeneratedFile {
    /// Where, from the root of the tree.
    pub path: PathBuf,
    /// Every byte of it.
    pub contents: Vec<u8>,
}

/// Whether generated files are written or only compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Write what differs.
    Write,
    /// Fail, naming what differs.
    Check,
}

/// The root of the source tree that this program was built from.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// Every generator, in the order in which they run: some run code that the first writes, and the last one
/// reads what those before it write.
pub fn generators() -> Vec<Generator> {
    vec![
        Generator { name: "types", run: types::generate },
        Generator { name: "crds", run: custom_resource_definitions },
        Generator { name: "roles", run: roles },
        Generator { name: "chart", run: chart::generate },
    ]
}

/// Runs the generators and tells through `say` what was done.
///
/// # Errors
/// When a generator fails, when a file cannot be written, or, in [`Mode::Check`], when a file
/// is not what it should be.
pub fn run(generators: &[Generator], mode: Mode, say: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
    let root = root();
    let mut stale = Vec::new();
    for generator in generators {
        let name = generator.name;
        match (generator.run)(&root).with_context(|| format!("generating {name}"))? {
            Outcome::Skipped(why) => say(&format!("{name}: skipped, {why}")),
            Outcome::Files(files) => {
                let different = differing(&root, &files)?;
                match mode {
                    Mode::Write => {
                        for file in &different {
                            write(&root, file)?;
                            say(&format!("{name}: wrote {}", file.path.display()));
                        }
                    }
                    Mode::Check => stale
                        .extend(different.iter().map(|file| format!("  {} ({name})", file.path.display()))),
                }
                if different.is_empty() {
                    say(&format!("{name}: {} file(s) up to date", files.len()));
                }
            }
        }
    }
    if !stale.is_empty() {
        bail!(
            "not what their sources say:\n{}\nrun `cargo xtask generate` and commit the result",
            stale.join("\n")
        );
    }
    Ok(())
}

fn differing<'a>(root: &Path, files: &'a [GeneratedFile]) -> anyhow::Result<Vec<&'a GeneratedFile>> {
    let mut different = Vec::new();
    for file in files {
        let path = root.join(&file.path);
        match fs::read(&path) {
            Ok(found) if found == file.contents => {}
            Ok(_) => different.push(file),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => different.push(file),
            Err(error) => {
                return Err(error).with_context(|| format!("reading {}", path.display()));
            }
        }
    }
    Ok(different)
}

fn write(root: &Path, file: &GeneratedFile) -> anyhow::Result<()> {
    let path = root.join(&file.path);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    fs::write(&path, &file.contents).with_context(|| format!("writing {}", path.display()))
}

/// The CRDs of the operators.
fn custom_resource_definitions(root: &Path) -> anyhow::Result<Outcome> {
    written_by_steer(root, "crds", Path::new("config/crd/bases"))
}

/// The accounts and roles of the operators.
fn roles(root: &Path) -> anyhow::Result<Outcome> {
    written_by_steer(root, "rbac", Path::new("config"))
}

/// What a command of the binary writes into a folder. The binary is asked instead of linked, so that this
/// crate stays small to build.
fn written_by_steer(root: &Path, command: &str, target: &Path) -> anyhow::Result<Outcome> {
    let folder = tempfile::tempdir().with_context(|| format!("creating a folder for `steer {command}`"))?;
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(root)
        .args(["run", "--quiet", "--package", "steersman-steer", "--bin", "steer", "--"])
        .args([command, "--dir"])
        .arg(folder.path())
        .status()
        .with_context(|| format!("running `steer {command}`"))?;
    if !status.success() {
        bail!("`steer {command}` failed: {status}");
    }
    let mut files = Vec::new();
    collect(folder.path(), target, &mut files)?;
    if files.is_empty() {
        bail!("`steer {command}` wrote no file");
    }
    files.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(Outcome::Files(files))
}

/// Every file below a folder, with its path below another.
fn collect(folder: &Path, target: &Path, files: &mut Vec<GeneratedFile>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let target = target.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => collect(&entry.path(), &target, files)?,
            false => files.push(GeneratedFile { path: target, contents: fs::read(entry.path())? }),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, contents: &str) -> GeneratedFile {
        GeneratedFile { path: path.into(), contents: contents.into() }
    }

    #[test]
    fn a_file_that_is_missing_or_changed_differs() {
        let root = tempfile::tempdir().expect("a temporary folder");
        write(root.path(), &file("a/same", "1")).expect("written");
        write(root.path(), &file("changed", "1")).expect("written");
        let wanted = [file("a/same", "1"), file("changed", "2"), file("missing", "3")];
        let different = differing(root.path(), &wanted).expect("compared");
        let names: Vec<_> = different.iter().map(|file| file.path.to_string_lossy()).collect();
        assert_eq!(names, ["changed", "missing"]);
    }

    #[test]
    fn the_root_is_the_folder_with_the_workspace_manifest() {
        assert!(root().join("Cargo.lock").exists());
    }
}
