//! The kinds a server has, by discovery.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIResourceList, OwnerReference};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
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
    /// Asks the server. A group that vanishes while being asked about is left out; any other
    /// failure is one, so that nobody takes "not known" for "not there".
    pub(crate) async fn discover(client: &Client) -> Result<Self, kube::Error> {
        let mut kinds = Vec::new();
        for version in client.list_core_api_versions().await?.versions {
            let served = unless_gone(client.list_core_api_resources(&version).await)?;
            take_in(&mut kinds, "", &version, served);
        }
        for group in client.list_api_groups().await?.groups {
            let preferred = group.preferred_version.map(|preferred| preferred.group_version);
            let mut versions: Vec<String> =
                group.versions.into_iter().map(|version| version.group_version).collect();
            // Of a kind with several versions the preferred one is taken.
            versions.sort_by_key(|version| Some(version) != preferred.as_ref());
            for group_version in versions {
                let version = group_version.rsplit('/').next().unwrap_or_default();
                let served = unless_gone(client.list_api_group_resources(&group_version).await)?;
                take_in(&mut kinds, &group.name, version, served);
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

/// Adds the kinds of one version of a group that are not there already.
fn take_in(kinds: &mut Vec<Arc<Kind>>, group: &str, version: &str, served: Option<APIResourceList>) {
    for resource in served.into_iter().flat_map(|served| served.resources) {
        let can = |verb: &str| resource.verbs.iter().any(|known| known == verb);
        let usable = !resource.name.contains('/') && ["get", "list", "watch", "delete"].into_iter().all(can);
        if usable && !kinds.iter().any(|kind| kind.group == group && kind.plural == resource.name) {
            kinds.push(Arc::new(Kind {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: resource.kind,
                plural: resource.name,
                namespaced: resource.namespaced,
            }));
        }
    }
}

fn unless_gone<T>(result: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        other => other.map(Some),
    }
}
