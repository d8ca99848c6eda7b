//! What is served: resource types, built-in and custom, and the catalog of those alive now.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

pub use builtin::{definition, object_meta, schema_of_kind};
pub use catalog::{Catalog, Group, Version};
pub use path::{Path, PathError};

use crate::schema::Ref;

mod builtin;
mod catalog;
pub mod crd;
pub mod discovery;
mod fields;
mod path;
pub mod protobuf;
mod version;

/// One served resource type at one version, for example `apps/v1` `deployments`.
#[derive(Debug)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// API version.
    pub version: Arc<str>,
    /// Plural name, as in the path.
    pub plural: Arc<str>,
    /// Singular name.
    pub singular: Arc<str>,
    /// Kind of one object.
    pub kind: Arc<str>,
    /// Kind of a list of them.
    pub list_kind: Arc<str>,
    /// Short names for the command line.
    pub short_names: Vec<Arc<str>>,
    /// Categories for the command line, such as `all`.
    pub categories: Vec<Arc<str>>,
    /// Whether objects live in namespaces.
    pub scope: Scope,
    /// What may be done with it, in discovery's words.
    pub verbs: Vec<Arc<str>>,
    /// Its type.
    pub schema: Ref,
    /// The columns of `kubectl get`.
    pub columns: Vec<Column>,
    /// Fields besides name and namespace that a field selector may name, as selectors write
    /// them: `spec.nodeName`. [`Resource::field`] reads them.
    pub selectable: Vec<Arc<str>>,
    /// Its subresources.
    pub subresources: Vec<Subresource>,
    /// Where objects are kept: resources that show the same objects share it.
    pub storage: Storage,
    /// Where the type comes from.
    pub origin: Origin,
    /// How a custom resource's objects get from one version to another; none for built-in types.
    pub versions: Option<Arc<Versions>>,
}

impl Resource {
    /// `group/version`, or the version alone for the core group.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// `plural.group`, or the plural alone for the core group, as messages name it.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_string()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Whether this may be done with it, in discovery's words.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|candidate| &**candidate == verb)
    }

    /// Its subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|candidate| candidate.name() == name)
    }

    /// Whether status is written apart from the rest.
    pub fn has_status(&self) -> bool {
        self.subresources.contains(&Subresource::Status)
    }

    /// The webhook that converts objects between versions, where one does.
    pub fn conversion_webhook(&self) -> Option<&ConversionWebhook> {
        match &self.versions.as_ref()?.strategy {
            ConversionStrategy::None => None,
            ConversionStrategy::Webhook(webhook) => Some(webhook),
        }
    }

    /// What a field selector sees in a field; `None` where selectors may not name it.
    pub fn field(&self, name: &str, object: &Value) -> Option<String> {
        let path = match name {
            "metadata.name" | "metadata.namespace" => name,
            _ if self.selectable.iter().any(|candidate| &**candidate == name) => match self.origin {
                Origin::BuiltIn => fields::stored_path(name),
                Origin::Custom { .. } => name,
            },
            _ => return None,
        };
        let value = Path::parse(path).ok()?.get(object).cloned().unwrap_or_default();
        Some(match value {
            Value::Null => fields::absent(name).to_owned(),
            Value::String(text) => text,
            other => other.to_string(),
        })
    }
}

/// `group/version`, or the version alone for the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Whether objects live in namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// In a namespace.
    Namespaced,
    /// In none.
    Cluster,
}

/// Where the objects of a resource are kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Storage {
    /// `group/plural`, or `plural` for the core group: `apps/deployments`, `pods`.
    pub name: Arc<str>,
    /// The `apiVersion` that stored bytes carry.
    pub api_version: Arc<str>,
}

/// Where a type comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The built-in table.
    BuiltIn,
    /// A CustomResourceDefinition of this name and uid.
    Custom {
        /// `metadata.name` of the definition.
        definition: Arc<str>,
        /// `metadata.uid` of the definition.
        uid: Arc<str>,
    },
}

/// All versions of a custom resource, served or not.
#[derive(Debug, Default)]
pub struct Versions {
    /// `metadata.generation` of the definition: another one may convert in another way.
    pub generation: i64,
    /// Their types, by `apiVersion`.
    pub schemas: BTreeMap<Arc<str>, Ref>,
    /// How objects get from one to another.
    pub strategy: ConversionStrategy,
}

/// How objects of a custom resource get from one version to another.
#[derive(Debug, Default)]
pub enum ConversionStrategy {
    /// They are the same in all but their `apiVersion`.
    #[default]
    None,
    /// A webhook is asked.
    Webhook(ConversionWebhook),
}

/// The webhook that converts objects of a custom resource.
#[derive(Debug)]
pub struct ConversionWebhook {
    /// `clientConfig` as in the definition.
    pub client_config: Value,
    /// The versions of `ConversionReview` that it understands, the best first.
    pub review_versions: Vec<String>,
}

/// A subresource of a [`Resource`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subresource {
    /// `/status`: everything but status is ignored, and the other way round.
    Status,
    /// `/scale`, with the paths that it shows.
    Scale(ScalePaths),
    /// Any other: name, group, version and kind of its body, and its verbs.
    Other {
        /// Name in the path, for example `log`.
        name: Arc<str>,
        /// Group of its body; empty for core.
        group: Arc<str>,
        /// Version of its body.
        version: Arc<str>,
        /// Kind of its body.
        kind: Arc<str>,
        /// What may be done with it.
        verbs: Vec<Arc<str>>,
    },
}

impl Subresource {
    /// Its name in the path.
    pub fn name(&self) -> &str {
        match self {
            Self::Status => "status",
            Self::Scale(_) => "scale",
            Self::Other { name, .. } => name,
        }
    }

    /// What may be done with it, in discovery's words.
    pub fn verbs(&self) -> Vec<&str> {
        match self {
            Self::Status | Self::Scale(_) => vec!["get", "patch", "update"],
            Self::Other { verbs, .. } => verbs.iter().map(|verb| &**verb).collect(),
        }
    }
}

/// What `/scale` shows, as JSON paths such as `.spec.replicas`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// Wanted replicas.
    pub spec_replicas: Arc<str>,
    /// Replicas there are.
    pub status_replicas: Arc<str>,
    /// The selector, where there is one: text in custom resources, an object in built-in ones.
    pub label_selector: Option<Arc<str>>,
}

/// A column of `kubectl get`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Heading.
    pub name: Arc<str>,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: Arc<str>,
    /// OpenAPI format, such as `name`.
    pub format: Arc<str>,
    /// What it means.
    pub description: Arc<str>,
    /// 0 for the default view, more for `-o wide`.
    pub priority: i32,
    /// JSON path of its value; empty for columns that are computed by code.
    pub path: Arc<str>,
}
