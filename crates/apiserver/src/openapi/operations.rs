//! What may be done with a resource, apart from how a dialect of OpenAPI writes it.

use crate::types::{Resource, Scope, Subresource, discovery::body_kind};

use super::schemas::name_of;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The operations at one path.
pub(super) struct PathItem {
    pub(super) path: String,
    /// Names of the parameters in the path.
    pub(super) parameters: Vec<&'static str>,
    pub(super) operations: Vec<Operation>,
}

/// One operation.
pub(super) struct Operation {
    /// HTTP method in lower case.
    pub(super) method: &'static str,
    /// `x-kubernetes-action`.
    pub(super) action: &'static str,
    /// Unique in the document.
    pub(super) id: String,
    pub(super) description: String,
    /// Group, version and kind of the object that it works on.
    pub(super) kind: (String, String, String),
    /// Name of the definition of the body, where there is one.
    pub(super) body: Option<String>,
    /// Name of the definition of the answer.
    pub(super) answer: String,
    /// Query parameters: name and type.
    pub(super) query: Vec<(&'static str, &'static str)>,
}

const WRITE: [(&str, &str); 3] =
    [("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const FORCE: (&str, &str) = ("force", "boolean");
const LIST: [(&str, &str); 10] = [
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const DELETE: [(&str, &str); 4] = [
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];

/// The media types of a PATCH; custom resources have no strategic merge.
pub(super) fn patch_types(resource: &Resource) -> Vec<&'static str> {
    let mut types = vec!["application/json-patch+json", "application/merge-patch+json"];
    if !crate::types::discovery::is_custom(resource) {
        types.push("application/strategic-merge-patch+json");
    }
    types.push("application/apply-patch+yaml");
    types
}

/// Every path at which a resource is served.
pub(super) fn paths(resource: &Resource) -> Vec<PathItem> {
    let base = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };
    let namespaced = resource.scope == Scope::Namespaced;
    let mut items = Vec::new();
    if namespaced && resource.allows("list") {
        items.push(PathItem {
            path: format!("{base}/{}", resource.plural),
            parameters: Vec::new(),
            operations: vec![list(resource, "ForAllNamespaces")],
        });
    }
    let (prefix, mut parameters) = if namespaced {
        (format!("{base}/namespaces/{{namespace}}"), vec!["namespace"])
    } else {
        (base, Vec::new())
    };
    let collection = format!("{prefix}/{}", resource.plural);
    let operations = collection_operations(resource);
    if !operations.is_empty() {
        items.push(PathItem { path: collection.clone(), parameters: parameters.clone(), operations });
    }
    parameters.insert(0, "name");
    let operations = object_operations(resource);
    let object = format!("{collection}/{{name}}");
    if !operations.is_empty() {
        items.push(PathItem { path: object.clone(), parameters: parameters.clone(), operations });
    }
    for subresource in &resource.subresources {
        let operations = subresource_operations(resource, subresource);
        if !operations.is_empty() {
            let path = format!("{object}/{}", subresource.name());
            items.push(PathItem { path, parameters: parameters.clone(), operations });
        }
    }
    items
}

fn collection_operations(resource: &Resource) -> Vec<Operation> {
    let mut operations = Vec::new();
    if resource.allows("list") {
        operations.push(list(resource, ""));
    }
    if resource.allows("create") {
        operations.push(Operation {
            body: Some(name_of(resource)),
            query: WRITE.to_vec(),
            ..operation(resource, "post", "post", "create", "")
        });
    }
    if resource.allows("deletecollection") {
        let query = LIST.iter().chain(&DELETE).filter(|(name, _)| *name != "watch").copied().collect();
        operations.push(Operation {
            answer: format!("{META}.Status"),
            body: Some(format!("{META}.DeleteOptions")),
            query,
            ..operation(resource, "delete", "deletecollection", "deleteCollection", "")
        });
    }
    operations
}

fn object_operations(resource: &Resource) -> Vec<Operation> {
    let mut operations = Vec::new();
    if resource.allows("get") {
        operations.push(operation(resource, "get", "get", "read", ""));
    }
    if resource.allows("update") {
        operations.push(Operation {
            body: Some(name_of(resource)),
            query: WRITE.to_vec(),
            ..operation(resource, "put", "put", "replace", "")
        });
    }
    if resource.allows("patch") {
        operations.push(patch(operation(resource, "patch", "patch", "patch", "")));
    }
    if resource.allows("delete") {
        operations.push(Operation {
            answer: format!("{META}.Status"),
            body: Some(format!("{META}.DeleteOptions")),
            query: DELETE.to_vec(),
            ..operation(resource, "delete", "delete", "delete", "")
        });
    }
    operations
}

fn subresource_operations(resource: &Resource, subresource: &Subresource) -> Vec<Operation> {
    let suffix = capitalized(subresource.name());
    let (group, version, kind) = body_kind(resource, subresource);
    let name = match subresource {
        Subresource::Status => name_of(resource),
        _ => {
            let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() };
            let name = format!("io.k8s.api.{package}.{version}.{kind}");
            if crate::types::definition(&name).is_none() {
                // A connection such as exec or proxy: parameters and a stream, no body.
                return Vec::new();
            }
            name
        }
    };
    let with = |operation: Operation| Operation {
        kind: (group.to_owned(), version.to_owned(), kind.to_owned()),
        answer: name.clone(),
        ..operation
    };
    let mut operations = Vec::new();
    for verb in subresource.verbs() {
        operations.push(match verb {
            "get" => with(operation(resource, "get", "get", "read", &suffix)),
            "create" => Operation {
                body: Some(name.clone()),
                query: WRITE.to_vec(),
                ..with(operation(resource, "post", "post", "create", &suffix))
            },
            "update" => Operation {
                body: Some(name.clone()),
                query: WRITE.to_vec(),
                ..with(operation(resource, "put", "put", "replace", &suffix))
            },
            "patch" => patch(with(operation(resource, "patch", "patch", "patch", &suffix))),
            _ => continue,
        });
    }
    operations
}

fn list(resource: &Resource, suffix: &str) -> Operation {
    Operation {
        answer: format!("{}List", name_of(resource)),
        query: LIST.to_vec(),
        ..operation(resource, "get", "list", "list", suffix)
    }
}

fn patch(operation: Operation) -> Operation {
    let query = WRITE.iter().copied().chain([FORCE]).collect();
    Operation { body: Some(format!("{META}.Patch")), query, ..operation }
}

fn operation(
    resource: &Resource,
    method: &'static str,
    action: &'static str,
    verb: &str,
    suffix: &str,
) -> Operation {
    let group = if resource.group.is_empty() { "core" } else { &*resource.group };
    let group: String = group.split(['.', '-']).map(capitalized).collect();
    let scope =
        if resource.scope == Scope::Namespaced && suffix != "ForAllNamespaces" { "Namespaced" } else { "" };
    let version = capitalized(&resource.version);
    Operation {
        method,
        action,
        id: format!("{verb}{group}{version}{scope}{}{suffix}", resource.kind),
        description: format!("{verb} {}", resource.kind),
        kind: (resource.group.to_string(), resource.version.to_string(), resource.kind.to_string()),
        body: None,
        answer: name_of(resource),
        query: Vec::new(),
    }
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}
