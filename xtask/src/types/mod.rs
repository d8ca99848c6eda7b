//! The table of Kubernetes' built-in types, from its published modules.
//!
//! Read are the discovery documents (which resources there are), the OpenAPI documents (what
//! they look like) and the tags of the Go types (protobuf numbers and what the encoder leaves
//! out). Written is `crates/apiserver/src/types/builtin.json`: names, types and numbers, no
//! prose, one field per line so that a new release reads as a short diff.

use std::{fmt::Write as _, path::Path};

use anyhow::Context;
use serde_json::Value;

use self::{definitions::Definitions, modules::Modules};
use crate::generate::{GeneratedFile, Outcome};

mod definitions;
mod go_tags;
mod modules;
mod resources;

/// The release that the table describes.
pub const KUBERNETES: &str = "v1.36.4";

/// The groups that are served, in their stable versions; the empty name is the core group.
const GROUPS: &[&str] = &[
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Types of the API machinery that no resource refers to but every client meets.
const MACHINERY: &[&str] = &["DeleteOptions", "ListMeta", "ObjectMeta", "Patch", "Status", "WatchEvent"];

/// Makes the table, where the modules can be had.
pub fn generate(_root: &Path) -> anyhow::Result<Outcome> {
    let modules = match Modules::find() {
        Ok(modules) => modules,
        Err(reason) => return Ok(Outcome::Skipped(format!("{reason:#}"))),
    };
    let resources = resources::read(&modules, GROUPS).context("cannot read the discovery documents")?;
    let mut definitions =
        Definitions::read(&modules, &resources).context("cannot read the OpenAPI documents")?;
    let mut wanted: Vec<String> = definitions.kinds(&resources)?;
    wanted.extend(MACHINERY.iter().map(|name| format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}")));
    let table = definitions.closure(wanted)?;

    let mut text = String::from("{\n\"source\": ");
    let _ = write!(text, "\"k8s.io/kubernetes {KUBERNETES}\"");
    text.push_str(",\n\"resources\": [\n");
    let lines: anyhow::Result<Vec<String>> = resources
        .iter()
        .map(|resource| Ok(serde_json::to_string(&resource.to_json(&definitions)?)?))
        .collect();
    text.push_str(&lines?.join(",\n"));
    text.push_str("\n],\n\"definitions\": {\n");
    let blocks: Vec<String> = table.iter().map(|(name, definition)| block(name, definition)).collect();
    text.push_str(&blocks.join(",\n"));
    text.push_str("\n}\n}\n");
    Ok(Outcome::Files(vec![GeneratedFile {
        path: "crates/apiserver/src/types/builtin.json".into(),
        contents: text.into_bytes(),
    }]))
}

/// A definition with one field per line.
fn block(name: &str, definition: &Value) -> String {
    let mut parts = Vec::new();
    for (key, value) in definition.as_object().into_iter().flatten() {
        if key == "fields" {
            let fields: Vec<String> = value
                .as_object()
                .into_iter()
                .flatten()
                .map(|(field, facts)| format!("{}:{facts}", Value::from(field.as_str())))
                .collect();
            parts.push(format!("\"fields\":{{\n{}}}", fields.join(",\n")));
        } else {
            parts.push(format!("{}:{value}", Value::from(key.as_str())));
        }
    }
    format!("{}:{{{}}}", Value::from(name), parts.join(","))
}
