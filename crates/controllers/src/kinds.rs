//! The kinds a server has, by discovery.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use kube::discovery::{Discovery, Scope, verbs};
use std::sync::Arc;

/// A kind whose objects can be listed, watched and deleted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) namespaced: bool,
}

impl Kind {
    /// The kind as `kube` names it.
    pub(crate) fn resource(&self) -> ApiResource {
        let api_version = match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        };
        ApiResource {
            group: self.group.clone(),
            version: self.version.clone(),
            api_version,
            kind: self.kind.clone(),
            plural: self.plural.clone(),
        }
    }

    /// Whether this is the kind that defines others.
    pub(crate) fn defines_kinds(&self) -> bool {
        self.group == "apiextensions.k8s.io" && self.kind == "CustomResourceDefinition"
    }

    /// Whether objects of this kind are notes about others, many and short-lived, and own nothing.
    pub(crate) fn is_event(&self) -> bool {
        self.kind == "Event" && matches!(self.group.as_str(), "" | "events.k8s.io")
    }

    /// The objects of this kind, in a namespace if they live in one.
    pub(crate) fn api(&self, client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource()),
            None => Api::all_with(client.clone(), &self.resource()),
        }
    }

    /// `plural.group`, as people name a kind.
    pub(crate) fn display(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }
}

/// The kinds that were served when the server was last asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kinds(Vec<Arc<Kind>>);

impl Kinds {
    /// Asks the server.
    pub(crate) async fn discover(client: &Client) -> Result<Self, kube::Error> {
        let discovery = Discovery::new(client.clone()).run().await?;
        let mut kinds = Vec::new();
        for group in discovery.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                let all = [verbs::LIST, verbs::WATCH, verbs::DELETE, verbs::GET];
                if !all.iter().all(|verb| capabilities.supports_operation(verb)) {
                    continue;
                }
                kinds.push(Arc::new(Kind {
                    group: resource.group,
                    version: resource.version,
                    kind: resource.kind,
                    plural: resource.plural,
                    namespaced: capabilities.scope == Scope::Namespaced,
                }));
            }
        }
        kinds.sort();
        Ok(Self(kinds))
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.0.iter()
    }

    /// The kind an owner reference means. The version does not matter: all versions of a kind are
    /// the same objects.
    pub(crate) fn of(&self, reference: &OwnerReference) -> Option<&Arc<Kind>> {
        let group = reference.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        self.0.iter().find(|kind| kind.group == group && kind.kind == reference.kind)
    }
}
