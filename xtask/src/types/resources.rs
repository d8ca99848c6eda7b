//! Which resources there are: from the discovery documents.

use std::collections::BTreeMap;

use anyhow::Context;
use serde_json::{Map, Value, json};

use super::{definitions::Definitions, modules::Modules};

/// A resource of one group and version, with its subresources.
pub(super) struct Resource {
    /// Group; empty for core.
    pub(super) group: String,
    /// Version.
    pub(super) version: String,
    /// Its entry in discovery.
    entry: Value,
    /// The entries of its subresources, by name.
    subresources: BTreeMap<String, Value>,
}

/// Reads the stable versions of `groups`, in the order in which discovery lists them.
pub(super) fn read(modules: &Modules, groups: &[&str]) -> anyhow::Result<Vec<Resource>> {
    let mut resources = Vec::new();
    read_version(modules, "", "v1", &mut resources)?;
    let index = modules.document("discovery/apis.json")?;
    for group in list(&index, "groups") {
        let name = text(group, "name")?;
        if !groups.contains(&name) {
            continue;
        }
        for version in list(group, "versions") {
            let version = text(version, "version")?;
            if !version.contains("alpha") && !version.contains("beta") {
                read_version(modules, name, version, &mut resources)?;
            }
        }
    }
    Ok(resources)
}

fn read_version(
    modules: &Modules,
    group: &str,
    version: &str,
    resources: &mut Vec<Resource>,
) -> anyhow::Result<()> {
    let path = if group.is_empty() { "api".to_owned() } else { format!("apis__{group}") };
    let document = modules.document(&format!("discovery/{path}__{version}.json"))?;
    let mut subresources: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
    for entry in list(&document, "resources") {
        if let Some((parent, name)) = text(entry, "name")?.split_once('/') {
            subresources.entry(parent.to_owned()).or_default().insert(name.to_owned(), entry.clone());
        }
    }
    for entry in list(&document, "resources") {
        let name = text(entry, "name")?;
        if !name.contains('/') {
            resources.push(Resource {
                group: group.to_owned(),
                version: version.to_owned(),
                entry: entry.clone(),
                subresources: subresources.remove(name).unwrap_or_default(),
            });
        }
    }
    Ok(())
}

impl Resource {
    /// The group, version and kind of its objects.
    pub(super) fn kind(&self) -> anyhow::Result<(String, String, String)> {
        self.kind_of(&self.entry)
    }

    /// The groups, versions and kinds of the bodies of its subresources.
    pub(super) fn subresource_kinds(&self) -> anyhow::Result<Vec<(String, String, String)>> {
        self.subresources.values().map(|entry| self.kind_of(entry)).collect()
    }

    fn kind_of(&self, entry: &Value) -> anyhow::Result<(String, String, String)> {
        let own = |key: &str, or: &str| entry[key].as_str().unwrap_or(or).to_owned();
        Ok((own("group", &self.group), own("version", &self.version), text(entry, "kind")?.to_owned()))
    }

    /// Its line in the table.
    pub(super) fn to_json(&self, definitions: &Definitions) -> anyhow::Result<Value> {
        let mut line = Map::new();
        line.insert("group".into(), json!(self.group));
        line.insert("version".into(), json!(self.version));
        line.insert("name".into(), self.entry["name"].clone());
        line.insert("singular".into(), self.entry["singularName"].clone());
        line.insert("kind".into(), self.entry["kind"].clone());
        line.insert("namespaced".into(), self.entry["namespaced"].clone());
        for (from, to) in [("shortNames", "short"), ("categories", "categories")] {
            if self.entry[from].is_array() {
                line.insert(to.into(), self.entry[from].clone());
            }
        }
        line.insert("verbs".into(), json!(verbs(&self.entry)));
        let (group, version, kind) = self.kind()?;
        if let Some(definition) = definitions.of_kind(&group, &version, &kind) {
            line.insert("type".into(), json!(definition));
        }
        if !self.subresources.is_empty() {
            let mut subresources = Map::new();
            for (name, entry) in &self.subresources {
                let (group, version, kind) = self.kind_of(entry)?;
                let api_version = if group.is_empty() { version } else { format!("{group}/{version}") };
                subresources.insert(
                    name.clone(),
                    json!({"apiVersion": api_version, "kind": kind, "verbs": verbs(entry)}),
                );
            }
            line.insert("subresources".into(), Value::Object(subresources));
        }
        Ok(Value::Object(line))
    }
}

fn verbs(entry: &Value) -> String {
    let verbs: Vec<&str> = list(entry, "verbs").filter_map(Value::as_str).collect();
    verbs.join(" ")
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> anyhow::Result<&'a str> {
    value[key].as_str().with_context(|| format!("an entry of discovery has no {key}: {value}"))
}
