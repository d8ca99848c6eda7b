//! Objects read from files of YAML or JSON.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde_json::Value;

/// The largest file that is read, far above any sensible manifest.
const LARGEST: u64 = 64 << 20;

/// An object as it was written, and where.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) object: Value,
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
}

/// Reads every object of these files and folders; `-` is standard input.
pub(crate) fn read(files: &[PathBuf]) -> anyhow::Result<Vec<Manifest>> {
    let mut manifests = Vec::new();
    for file in files {
        for (origin, text) in texts(file)? {
            manifests.extend(parse(&text).with_context(|| format!("{origin} cannot be read"))?);
        }
    }
    if manifests.is_empty() {
        bail!("no objects found in what was given with -f");
    }
    Ok(manifests)
}

fn texts(file: &Path) -> anyhow::Result<Vec<(String, String)>> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().take(LARGEST).read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(vec![("standard input".into(), text)]);
    }
    let read = |path: &Path| -> anyhow::Result<(String, String)> {
        let shown = path.display().to_string();
        let size = std::fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.len();
        if size > LARGEST {
            bail!("{shown} has {size} bytes; a manifest may have {LARGEST}");
        }
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
        Ok((shown, text))
    };
    if !file.is_dir() {
        return Ok(vec![read(file)?]);
    }
    let mut paths: Vec<_> = std::fs::read_dir(file)
        .with_context(|| format!("cannot read {}", file.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json")
                && path.file_stem().is_none_or(|stem| stem != "kustomization")
        })
        .collect();
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

/// Parses documents separated by `---`; a `List` stands for its items.
fn parse(text: &str) -> anyhow::Result<Vec<Manifest>> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|e| anyhow::anyhow!("malformed YAML: {e}"))?;
    let mut manifests = Vec::new();
    for (index, document) in documents.into_iter().enumerate() {
        let position = index + 1;
        match document {
            Value::Null => {}
            Value::Object(mut map)
                if map.get("kind").and_then(Value::as_str).is_some_and(|k| k.ends_with("List"))
                    && map.contains_key("items") =>
            {
                let Some(Value::Array(items)) = map.remove("items") else {
                    bail!("document {position}: items is not a list");
                };
                for item in items {
                    manifests.push(manifest(item).with_context(|| format!("document {position}"))?);
                }
            }
            object => manifests.push(manifest(object).with_context(|| format!("document {position}"))?),
        }
    }
    Ok(manifests)
}

fn manifest(object: Value) -> anyhow::Result<Manifest> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let Some(api_version) = text("/apiVersion") else { bail!("apiVersion is missing") };
    let Some(kind) = text("/kind") else { bail!("kind is missing") };
    let Some(name) = text("/metadata/name") else { bail!("metadata.name is missing ({kind})") };
    let namespace = text("/metadata/namespace");
    Ok(Manifest { object, api_version, kind, name, namespace })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_lists_become_objects() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: b, namespace: other}}\n";
        let read = parse(text).unwrap();
        let shown: Vec<_> = read.iter().map(|m| format!("{}/{}", m.kind, m.name)).collect();
        assert_eq!(shown, ["ConfigMap/a", "Secret/b"]);
        assert_eq!(read[1].namespace.as_deref(), Some("other"));
    }

    #[test]
    fn malformed_yaml_is_an_error_with_its_place() {
        let error = parse("apiVersion: v1\nkind: [unclosed\nmetadata:\n  name: a\n").unwrap_err().to_string();
        assert!(error.contains("malformed YAML") && error.contains("line"), "{error}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = format!("{:#}", parse("kind: Pod\nmetadata: {name: a}\n").unwrap_err());
        assert_eq!(error, "document 1: apiVersion is missing");
        let error = format!("{:#}", parse("apiVersion: v1\nkind: Pod\n").unwrap_err());
        assert_eq!(error, "document 1: metadata.name is missing (Pod)");
    }
}
