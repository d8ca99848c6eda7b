//! The folder of a resource: a copy of its module, the settings of its backend, and what tells two
//! configurations apart.

use std::io;
use std::path::Path;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::action::template::Scope;
use crate::action::{ActionError, Task};

/// How deep modules may nest folders.
const DEPTH: usize = 8;

pub(super) fn is_folder(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && !name.starts_with('.')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.'))
}

/// Copies a module, and removes configuration that it no longer has; state and providers stay.
pub(super) fn refresh(module: &Path, workspace: &Path, depth: usize) -> io::Result<()> {
    if depth > DEPTH {
        return Err(io::Error::other(format!("a module may nest folders at most {DEPTH} deep")));
    }
    std::fs::create_dir_all(workspace)?;
    for entry in std::fs::read_dir(workspace)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        let configuration =
            name.to_string_lossy().ends_with(".tf") || name.to_string_lossy().ends_with(".tf.json");
        if configuration && !module.join(name).exists() {
            std::fs::remove_file(&path)?;
        }
    }
    for entry in std::fs::read_dir(module)? {
        let entry = entry?;
        let (kind, name) = (entry.file_type()?, entry.file_name());
        let hidden = name.to_string_lossy().starts_with(".terraform") && name != ".terraform.lock.hcl";
        if hidden || name.to_string_lossy().contains(".tfstate") {
            continue;
        }
        if kind.is_dir() {
            refresh(&entry.path(), &workspace.join(&name), depth + 1)?;
        } else if kind.is_file() {
            std::fs::copy(entry.path(), workspace.join(&name))?;
        }
    }
    Ok(())
}

/// The backend's settings as Terraform reads them; `{{ uid }}` and the like are filled in, so that
/// each resource can have a state of its own.
pub(super) fn backend_file(task: &Task, backend: &Map<String, Value>) -> Result<String, ActionError> {
    let mut text = String::new();
    for (name, value) in backend {
        let value = match Scope::of(task).fill(value)? {
            Value::String(value) => {
                // As JSON has it, but for what would begin a template.
                let quoted = Value::String(value).to_string();
                quoted.replace("${", "$${").replace("%{", "%%{")
            }
            other => other.to_string(),
        };
        text.push_str(&format!("{name} = {value}\n"));
    }
    Ok(text)
}

/// What tells configurations of a folder apart, if its files can be read.
pub(super) async fn configuration(folder: &Path, settings: &str) -> Option<String> {
    let (folder, settings) = (folder.to_owned(), settings.to_owned());
    tokio::task::spawn_blocking(move || digest(&folder, &settings)).await.ok()?.ok()
}

/// Tells configurations of a folder apart: its own files, those of modules in it, the versions of
/// its providers, and the settings of its backend.
fn digest(folder: &Path, settings: &str) -> io::Result<String> {
    fn add(folder: &Path, depth: usize, sum: &mut Sha256) -> io::Result<()> {
        let mut entries: Vec<_> = std::fs::read_dir(folder)?.collect::<Result<_, _>>()?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let kind = entry.file_type()?;
            let counts = name.ends_with(".tf") || name.ends_with(".tf.json") || name == ".terraform.lock.hcl";
            if kind.is_dir() && name != ".terraform" && depth < DEPTH {
                sum.update(format!("folder {name}\n"));
                add(&path, depth + 1, sum)?;
            } else if kind.is_file() && counts {
                let content = std::fs::read(&path)?;
                sum.update(format!("file {name} {}\n", content.len()));
                sum.update(&content);
            }
        }
        Ok(())
    }
    let mut sum = Sha256::new();
    sum.update(settings);
    add(folder, 0, &mut sum)?;
    Ok(sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_named_by_a_plain_folder_name() {
        assert!(is_folder("database-cluster_v1.2"));
        for name in ["", "..", ".hidden", "a/b", "/etc", "a\0b"] {
            assert!(!is_folder(name), "{name:?}");
        }
    }
}
