//! Discovery: how clients learn what is served.

use serde_json::{Map, Value, json};

use super::{Catalog, Group, Origin, Resource, Scope, Subresource, Version, api_version};

/// The document at `/api`.
pub fn core_versions(catalog: &Catalog, server_address: &str) -> Value {
    let versions: Vec<&str> = catalog
        .group("")
        .into_iter()
        .flat_map(|group| &group.versions)
        .map(|version| &*version.name)
        .collect();
    json!({
        "kind": "APIVersions",
        "versions": versions,
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// The document at `/apis`.
pub fn group_list(catalog: &Catalog) -> Value {
    let groups: Vec<Value> =
        catalog.groups().iter().filter(|group| !group.name.is_empty()).map(group_summary).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// The document at `/apis/GROUP`.
pub fn group(catalog: &Catalog, name: &str) -> Option<Value> {
    let mut document = group_summary(catalog.group(name).filter(|_| !name.is_empty())?);
    document["kind"] = "APIGroup".into();
    document["apiVersion"] = "v1".into();
    Some(document)
}

fn group_summary(group: &Group) -> Value {
    let version =
        |version: &Version| json!({"groupVersion": version.api_version(), "version": &*version.name});
    let versions: Vec<Value> = group.versions.iter().map(|candidate| version(candidate)).collect();
    json!({
        "name": &*group.name,
        "versions": versions,
        "preferredVersion": group.preferred().map(|preferred| version(preferred)),
    })
}

/// The document at `/api/v1` (with an empty group) or `/apis/GROUP/VERSION`.
pub fn resource_list(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let version = catalog.version(group, version)?;
    let mut resources: Vec<Value> = version.resources.iter().flat_map(|resource| entries(resource)).collect();
    resources.sort_by(|left, right| left["name"].as_str().cmp(&right["name"].as_str()));
    Some(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": version.api_version(),
        "resources": resources,
    }))
}

/// A resource's entry and those of its subresources.
fn entries(resource: &Resource) -> Vec<Value> {
    let namespaced = resource.scope == Scope::Namespaced;
    let mut entry = Map::new();
    entry.insert("name".into(), (*resource.plural).into());
    entry.insert("singularName".into(), (*resource.singular).into());
    entry.insert("namespaced".into(), namespaced.into());
    entry.insert("kind".into(), (*resource.kind).into());
    entry.insert("verbs".into(), json!(resource.verbs));
    if !resource.short_names.is_empty() {
        entry.insert("shortNames".into(), json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        entry.insert("categories".into(), json!(resource.categories));
    }
    let mut entries = vec![Value::Object(entry)];
    for subresource in &resource.subresources {
        let mut entry = json!({
            "name": format!("{}/{}", resource.plural, subresource.name()),
            "singularName": "",
            "namespaced": namespaced,
            "kind": body_kind(resource, subresource).2,
            "verbs": subresource.verbs(),
        });
        let (group, version, _) = body_kind(resource, subresource);
        if (group, version) != (&*resource.group, &*resource.version) {
            entry["group"] = group.into();
            entry["version"] = version.into();
        }
        entries.push(entry);
    }
    entries
}

/// Group, version and kind of the body of a subresource.
pub fn body_kind<'a>(resource: &'a Resource, subresource: &'a Subresource) -> (&'a str, &'a str, &'a str) {
    match subresource {
        Subresource::Status => (&resource.group, &resource.version, &resource.kind),
        Subresource::Scale(_) => ("autoscaling", "v1", "Scale"),
        Subresource::Other { group, version, kind, .. } => (group, version, kind),
    }
}

/// Which part of discovery an aggregated document covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// `/api`: the core group.
    Core,
    /// `/apis`: all other groups.
    Groups,
}

/// The aggregated document at `/api` or `/apis`, for `apidiscovery.k8s.io` in `version`
/// (`v2` or `v2beta1`).
pub fn aggregated(catalog: &Catalog, root: Root, version: &str) -> Value {
    let items: Vec<Value> = catalog
        .groups()
        .iter()
        .filter(|group| group.name.is_empty() == (root == Root::Core))
        .map(aggregated_group)
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": api_version("apidiscovery.k8s.io", version),
        "metadata": {},
        "items": items,
    })
}

fn aggregated_group(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| {
            let mut resources: Vec<&Resource> =
                version.resources.iter().map(|resource| &**resource).collect();
            resources.sort_by(|left, right| left.plural.cmp(&right.plural));
            let resources: Vec<Value> = resources.into_iter().map(aggregated_resource).collect();
            json!({"version": &*version.name, "freshness": "Current", "resources": resources})
        })
        .collect();
    let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": &*group.name}) };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let kind =
        |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut entry = json!({
        "resource": &*resource.plural,
        "responseKind": kind(&resource.group, &resource.version, &resource.kind),
        "scope": if resource.scope == Scope::Namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": &*resource.singular,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|subresource| {
            let (group, version, body) = body_kind(resource, subresource);
            json!({
                "subresource": subresource.name(),
                "responseKind": kind(group, version, body),
                "verbs": subresource.verbs(),
            })
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = subresources.into();
    }
    entry
}

/// Whether the resource comes from a definition; such groups may vanish.
pub fn is_custom(resource: &Resource) -> bool {
    matches!(resource.origin, Origin::Custom { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_group_lists_pods_with_their_subresources() {
        let catalog = Catalog::builtin();
        let document = resource_list(&catalog, "", "v1").expect("the core group");
        assert_eq!(document["groupVersion"], "v1");
        let find = |name: &str| {
            let resources = document["resources"].as_array().into_iter().flatten();
            resources
                .into_iter()
                .find(|entry| entry["name"] == name)
                .unwrap_or_else(|| panic!("no {name}"))
                .clone()
        };
        assert_eq!(
            find("pods"),
            json!({
                "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "shortNames": ["po"],
                "categories": ["all"],
                "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            })
        );
        assert_eq!(
            find("pods/eviction"),
            json!({"name": "pods/eviction", "singularName": "", "namespaced": true, "kind": "Eviction",
                "group": "policy", "version": "v1", "verbs": ["create"]})
        );
        assert_eq!(find("pods/status")["verbs"], json!(["get", "patch", "update"]));
        assert_eq!(find("namespaces")["namespaced"], false);
    }

    #[test]
    fn groups_name_their_preferred_version() {
        let catalog = Catalog::builtin();
        let document = group(&catalog, "autoscaling").expect("autoscaling");
        assert_eq!(document["preferredVersion"]["groupVersion"], "autoscaling/v2");
        assert_eq!(document["versions"][1]["version"], "v1");
        assert_eq!(group(&catalog, ""), None, "the core group is at /api");
        assert_eq!(group(&catalog, "nope.example.com"), None);
        assert_eq!(resource_list(&catalog, "apps", "v9"), None);
        let list = group_list(&catalog);
        assert_eq!(list["groups"][0]["name"], "apiregistration.k8s.io");
    }

    #[test]
    fn aggregated_discovery_holds_what_the_single_documents_say() {
        let catalog = Catalog::builtin();
        let document = aggregated(&catalog, Root::Groups, "v2");
        assert_eq!(document["apiVersion"], "apidiscovery.k8s.io/v2");
        let items = document["items"].as_array().expect("items");
        let apps = items.iter().find(|item| item["metadata"]["name"] == "apps").expect("apps");
        let resources = apps["versions"][0]["resources"].as_array().expect("resources");
        let deployments =
            resources.iter().find(|entry| entry["resource"] == "deployments").expect("deployments");
        assert_eq!(
            deployments["responseKind"],
            json!({"group": "apps", "version": "v1", "kind": "Deployment"})
        );
        assert_eq!(deployments["subresources"].as_array().map(Vec::len), Some(2));
        assert_eq!(deployments["scope"], "Namespaced");
        let core = aggregated(&catalog, Root::Core, "v2beta1");
        assert_eq!(core["items"].as_array().map(Vec::len), Some(1));
    }
}
