//! Which requests a webhook is asked about.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Attributes, Kind, Verb,
    config::{Hook, MatchPolicy},
};
use crate::{
    definitions::Served, engine::meta::Meta, object::Key, selector::LabelSelector, status::Failure,
    store::Store, types::Resource,
};

/// One rule of a webhook.
#[derive(Debug, Clone, Default)]
pub(super) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
}

/// How a webhook is to be asked.
#[derive(Debug, Clone)]
pub(super) struct Invocation {
    pub(super) hook: Arc<Hook>,
    /// The resource whose version the webhook knows.
    pub(super) resource: Option<Arc<Resource>>,
    pub(super) kind: Kind,
}

impl Rule {
    pub(super) fn read(rule: &Value) -> Self {
        let list = |field: &str| {
            let values = rule[field].as_array().into_iter().flatten();
            values.filter_map(Value::as_str).map(ToOwned::to_owned).collect()
        };
        Self {
            operations: list("operations"),
            groups: list("apiGroups"),
            versions: list("apiVersions"),
            resources: list("resources"),
            scope: rule["scope"].as_str().unwrap_or("*").to_owned(),
        }
    }

    fn matches(&self, attributes: &Attributes<'_>, group: &str, version: &str, plural: &str) -> bool {
        let listed = |items: &[String], wanted: &str| items.iter().any(|item| item == "*" || item == wanted);
        let in_scope = match self.scope.as_str() {
            "Namespaced" => !attributes.is_namespace() && !attributes.namespace.is_empty(),
            "Cluster" => attributes.is_namespace() || attributes.namespace.is_empty(),
            _ => true,
        };
        in_scope
            && listed(&self.operations, attributes.verb.name())
            && listed(&self.groups, group)
            && listed(&self.versions, version)
            && self.resources.iter().any(|entry| {
                let (resource, subresource) = entry.split_once('/').unwrap_or((entry, ""));
                (resource == "*" || resource == plural)
                    && (subresource == "*" || subresource == attributes.subresource)
            })
    }
}

/// Whether and how a webhook is asked about a request with these objects.
pub(super) fn invocation(
    hook: &Arc<Hook>,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
    served: &Served,
    store: &Store,
) -> Result<Option<Invocation>, Failure> {
    let in_namespace = matches_namespace(hook, attributes, object, store);
    if matches!(in_namespace, Ok(false)) {
        return Ok(None);
    }
    let selected = matches_object(hook, object, old);
    if matches!(selected, Ok(false)) {
        return Ok(None);
    }
    // What is wrong with a selector concerns only requests that the rules are about.
    let Some(found) = by_rules(hook, attributes, served) else { return Ok(None) };
    in_namespace?;
    selected?;
    Ok(Some(found))
}

fn by_rules(hook: &Arc<Hook>, attributes: &Attributes<'_>, served: &Served) -> Option<Invocation> {
    let resource = attributes.resource;
    let exact = |rule: &Rule| rule.matches(attributes, &resource.group, &resource.version, &resource.plural);
    if hook.rules.iter().any(exact) {
        let kind = attributes.kind.clone();
        return Some(Invocation { hook: Arc::clone(hook), resource: None, kind });
    }
    if hook.match_policy == MatchPolicy::Exact {
        return None;
    }
    let others: Vec<&Arc<Resource>> = served
        .catalog
        .resources()
        .filter(|other| other.storage.name == resource.storage.name)
        .filter(|other| other.group != resource.group || other.version != resource.version)
        .collect();
    let other = hook.rules.iter().find_map(|rule| {
        others.iter().find(|other| rule.matches(attributes, &other.group, &other.version, &other.plural))
    })?;
    // A subresource with a kind of its own has the same one in every version.
    let kind = if attributes.kind == Kind::of(resource) { Kind::of(other) } else { attributes.kind.clone() };
    Some(Invocation { hook: Arc::clone(hook), resource: Some(Arc::clone(other)), kind })
}

fn matches_namespace(
    hook: &Hook,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    store: &Store,
) -> Result<bool, Failure> {
    let namespace = attributes.effective_namespace();
    if namespace.is_empty() {
        return Ok(true);
    }
    let selector = parsed(&hook.namespace_selector)?;
    if selector.is_empty() {
        return Ok(true);
    }
    if attributes.is_namespace() && attributes.subresource.is_empty() && attributes.verb != Verb::Delete {
        return Ok(object.is_some_and(|object| selects(selector, object)));
    }
    let stored = store
        .get(&Key::new("namespaces", "", namespace))
        .ok_or_else(|| Failure::not_found_as("", "namespaces", namespace))?;
    Ok(selects(selector, &crate::engine::view::tree(&stored)))
}

fn matches_object(hook: &Hook, object: Option<&Value>, old: Option<&Value>) -> Result<bool, Failure> {
    let selector = parsed(&hook.object_selector)?;
    Ok(selector.is_empty() || [object, old].into_iter().flatten().any(|object| selects(selector, object)))
}

fn parsed(selector: &Result<LabelSelector, String>) -> Result<&LabelSelector, Failure> {
    selector.as_ref().map_err(Failure::internal)
}

fn selects(selector: &LabelSelector, object: &Value) -> bool {
    let labels = object.meta_get("labels");
    selector.matches(|key| labels?.get(key)?.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        admit::webhook::Rehearsal,
        server::User,
        types::{Catalog, Scope},
    };

    fn rule(
        operations: &[&str],
        groups: &[&str],
        versions: &[&str],
        resources: &[&str],
        scope: &str,
    ) -> Rule {
        Rule::read(&json!({
            "operations": operations, "apiGroups": groups, "apiVersions": versions, "resources": resources,
            "scope": scope,
        }))
    }

    #[test]
    fn rules_match_as_kubernetes_says() {
        let catalog = Catalog::builtin();
        let user = User::admin();
        let matches = |rule: &Rule, plural: &str, subresource: &str| {
            let resource = catalog
                .resources()
                .find(|resource| &*resource.plural == plural)
                .expect("a built-in resource");
            let namespaced = resource.scope == Scope::Namespaced;
            let attributes = Attributes {
                user: &user,
                resource,
                subresource,
                kind: Kind::of(resource),
                verb: Verb::Create,
                name: "x".into(),
                namespace: if namespaced { "default".into() } else { String::new() },
                rehearsal: Rehearsal::No,
                options: Value::Null,
            };
            rule.matches(&attributes, &resource.group, &resource.version, &resource.plural)
        };
        let all = &["*"];
        for (rule, plural, subresource, expected) in [
            (rule(all, all, all, &["pods"], "*"), "pods", "", true),
            (rule(all, all, all, &["pods"], "*"), "pods", "status", false),
            (rule(all, all, all, &["pods/status"], "*"), "pods", "status", true),
            (rule(all, all, all, &["pods/*"], "*"), "pods", "", true),
            (rule(all, all, all, &["pods/*"], "*"), "pods", "status", true),
            (rule(all, all, all, &["*"], "*"), "pods", "status", false),
            (rule(all, all, all, &["*/*"], "*"), "pods", "status", true),
            (rule(all, all, all, &["*/scale"], "*"), "deployments", "scale", true),
            (rule(&["UPDATE"], all, all, &["pods"], "*"), "pods", "", false),
            (rule(&["CREATE"], &["apps"], all, &["pods"], "*"), "pods", "", false),
            (rule(&["CREATE"], &[""], &["v1"], &["pods"], "*"), "pods", "", true),
            (rule(&["CREATE"], &[""], &["v2"], &["pods"], "*"), "pods", "", false),
            (rule(all, all, all, all, "Namespaced"), "pods", "", true),
            (rule(all, all, all, all, "Cluster"), "pods", "", false),
            (rule(all, all, all, all, "Cluster"), "nodes", "", true),
            (rule(all, all, all, all, "Namespaced"), "namespaces", "", false),
            (rule(all, all, all, all, "Cluster"), "namespaces", "", true),
        ] {
            assert_eq!(matches(&rule, plural, subresource), expected, "{rule:?} {plural}/{subresource}");
        }
    }
}
