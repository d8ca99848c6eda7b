//! Which objects of a kind are followed, and how much of each.

use kube::core::{Selector, SelectorExt};

use super::header::Header;

/// How much of each object is fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// The whole object.
    #[default]
    Whole,
    /// Only the metadata.
    Metadata,
}

/// Some of the objects of a kind; all of them by default.
///
/// # Example
/// ```
/// use kube::core::Expression;
/// use steersman::Selection;
///
/// let ours = Selection::all()
///     .in_namespace("shop")
///     .with_labels(Expression::Equal("team".into(), "checkout".into()).into())
///     .metadata_only();
/// assert_eq!(ours.to_string(), "namespace shop, labels team=checkout, only metadata");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub(crate) namespace: Option<String>,
    pub(crate) labels: Option<Selector>,
    pub(crate) fields: Option<String>,
    pub(crate) form: Form,
}

impl Selection {
    /// Everything of a kind.
    pub fn all() -> Self {
        Self::default()
    }

    /// Only what is in this namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Only what has these labels.
    #[must_use]
    pub fn with_labels(mut self, labels: Selector) -> Self {
        self.labels = (!labels.selects_all()).then_some(labels);
        self
    }

    /// Only what the server finds by these fields, such as `spec.nodeName=node-1`.
    #[must_use]
    pub fn with_fields(mut self, fields: impl Into<String>) -> Self {
        self.fields = Some(fields.into()).filter(|fields| !fields.is_empty());
        self
    }

    /// Only the metadata of each object.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.form = Form::Metadata;
        self
    }

    /// Whether an object that we wrote ourselves would come through this watch. Fields are
    /// known to the server alone: then only the watch says.
    pub(crate) fn admits(&self, header: &Header) -> bool {
        (self.namespace.is_none() || header.key().namespace() == self.namespace.as_deref())
            && self.labels.as_ref().is_none_or(|labels| labels.matches(&header.labels()))
            && self.fields.is_none()
            && self.form == Form::Whole
    }
}

impl std::fmt::Display for Selection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts = Vec::new();
        if let Some(namespace) = &self.namespace {
            parts.push(format!("namespace {namespace}"));
        }
        if let Some(labels) = &self.labels {
            parts.push(format!("labels {labels}"));
        }
        if let Some(fields) = &self.fields {
            parts.push(format!("fields {fields}"));
        }
        if self.form == Form::Metadata {
            parts.push("only metadata".to_owned());
        }
        match parts.is_empty() {
            true => f.write_str("all"),
            false => f.write_str(&parts.join(", ")),
        }
    }
}
