//! What an operator must be allowed to do, as rules of role-based access control.
//!
//! Controllers declare what they read and own, managers which lease they hold and whether they serve
//! webhooks: from that follows what they ask of an API server. Whatever an operator asks beyond it is said
//! with [`Manager::needs`](crate::Manager::needs). [`Manager::rights`](crate::Manager::rights) puts it
//! together, so that roles are written by a program and not by hand.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::core::ApiResource;

/// What looking at a kind takes.
const LOOK: [&str; 3] = ["get", "list", "watch"];
/// Every verb that is granted, in the order in which rules name them.
const ORDER: [&str; 7] = ["get", "list", "watch", "create", "patch", "update", "delete"];

/// Permission to do some things with some resources.
///
/// # Example
/// ```
/// use steersman::Rule;
///
/// let rule = Rule::on("", &["pods/log"], &["get"]).because("What a pod wrote is kept.");
/// assert_eq!(rule.to_policy().resources, Some(vec!["pods/log".to_owned()]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
    verbs: BTreeSet<usize>,
    place: Place,
    why: Option<String>,
}

/// Where a rule counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In every namespace, and for what is in none.
    Everywhere,
    /// In the namespace in which the operator itself runs.
    OwnNamespace,
}

impl Rule {
    /// Permission for these verbs on these resources of a group, everywhere. A verb that Kubernetes does not
    /// have for single objects is left out.
    #[must_use]
    pub fn on(group: &str, resources: &[&str], verbs: &[&str]) -> Self {
        Self {
            group: group.to_owned(),
            resources: resources.iter().map(|&resource| resource.to_owned()).collect(),
            names: Vec::new(),
            verbs: verbs.iter().filter_map(|verb| ORDER.iter().position(|known| known == verb)).collect(),
            place: Place::Everywhere,
            why: None,
        }
    }

    /// Only for objects of these names.
    #[must_use]
    pub fn named(mut self, names: &[&str]) -> Self {
        self.names = names.iter().map(|&name| name.to_owned()).collect();
        self
    }

    /// Only in the namespace in which the operator itself runs.
    #[must_use]
    pub fn in_own_namespace(mut self) -> Self {
        self.place = Place::OwnNamespace;
        self
    }

    /// What it is for, for those who read the role.
    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    /// Where it counts.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Whether it is about this resource and nothing else.
    pub fn is_about(&self, resource: &str) -> bool {
        self.resources == [resource]
    }

    /// What it is for, where that was said.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// As a Role or ClusterRole holds it.
    pub fn to_policy(&self) -> PolicyRule {
        PolicyRule {
            api_groups: Some(vec![self.group.clone()]),
            resources: Some(self.resources.clone()),
            resource_names: Some(self.names.clone()).filter(|names| !names.is_empty()),
            verbs: self
                .verbs
                .iter()
                .filter_map(|&verb| ORDER.get(verb))
                .map(|&verb| verb.to_owned())
                .collect(),
            ..PolicyRule::default()
        }
    }

    fn is_about_the_same(&self, other: &Self) -> bool {
        self.group == other.group
            && self.resources == other.resources
            && self.names == other.names
            && self.place == other.place
    }
}

/// Everything that an operator must be allowed to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights(Vec<Rule>);

impl Rights {
    /// Adds a rule; one about the same resources grows instead.
    pub fn add(&mut self, rule: Rule) {
        match self.0.iter_mut().find(|known| known.is_about_the_same(&rule)) {
            Some(known) => {
                known.verbs.extend(rule.verbs);
                known.why = known.why.take().or(rule.why);
            }
            None => self.0.push(rule),
        }
    }

    /// The rules that count in a place.
    pub fn in_place(&self, place: Place) -> impl Iterator<Item = &Rule> {
        self.0.iter().filter(move |rule| rule.place == place)
    }
}

impl Extend<Rule> for Rights {
    fn extend<I: IntoIterator<Item = Rule>>(&mut self, rules: I) {
        rules.into_iter().for_each(|rule| self.add(rule));
    }
}

/// What a controller writes about the kind that it reconciles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// Status, events, finalizers, what it owns.
    Usual,
    /// Nothing at all.
    Nothing,
}

/// What the controller of a kind needs for that kind itself.
pub(crate) fn primary(resource: &ApiResource, writes: Writes, finalizer: Option<&str>) -> Vec<Rule> {
    let (group, plural) = (resource.group.as_str(), resource.plural.as_str());
    let mut rules = vec![look(resource)];
    if writes == Writes::Nothing {
        return rules;
    }
    if finalizer.is_some() {
        rules.push(Rule::on(group, &[plural], &["patch"]));
    }
    rules.push(Rule::on(group, &[&format!("{plural}/status")], &["patch"]));
    rules.push(
        Rule::on("", &["events"], &["create", "patch"])
            .because("Events are written beside the objects they are about, in any namespace."),
    );
    rules
}

/// What the controller of `owner` needs for a kind whose objects it owns.
pub(crate) fn owned(owner: &ApiResource, resource: &ApiResource) -> Vec<Rule> {
    vec![
        Rule::on(&owner.group, &[&format!("{}/finalizers", owner.plural)], &["update"])
            .because("Owner references that hold up a deletion need it where OwnerReferencesPermissionEnforcement is on."),
        look(resource),
        Rule::on(&resource.group, &[&resource.plural], &["create", "patch", "delete"]),
    ]
}

/// What a kind needs that is only read.
pub(crate) fn look(resource: &ApiResource) -> Rule {
    Rule::on(&resource.group, &[&resource.plural], &LOOK)
}

/// What an election on a lease needs. A name cannot be demanded of what is to be created.
pub(crate) fn election(lease: &str) -> [Rule; 2] {
    let on = |verbs: &[&str]| Rule::on("coordination.k8s.io", &["leases"], verbs).in_own_namespace();
    [
        on(&["get", "watch", "update"])
            .named(&[lease])
            .because("The lease that makes one replica the leader."),
        on(&["create"]),
    ]
}

/// What writing one's own webhook configurations needs.
pub(crate) fn webhook_configurations(name: &str) -> Rule {
    let kinds = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    Rule::on("admissionregistration.k8s.io", &kinds, &["create", "patch"])
        .named(&[name])
        .because("The operator tells the API server where its webhooks are, and whom to trust.")
}

/// What telling the API server where a kind is converted needs.
pub(crate) fn conversion(resource: &ApiResource) -> Rule {
    Rule::on("apiextensions.k8s.io", &["customresourcedefinitions"], &["get", "update"])
        .named(&[&format!("{}.{}", resource.plural, resource.group)])
        .because("The operator converts its other versions, and says so in the definition.")
}

/// What keeping certificates in a Secret of the own namespace needs.
pub(crate) fn webhook_certificate(name: &str) -> [Rule; 2] {
    let on = |verbs: &[&str]| Rule::on("", &["secrets"], verbs).in_own_namespace();
    [
        on(&["get", "update"])
            .named(&[name])
            .because("The certificates of its webhooks, shared by the replicas."),
        on(&["create"]),
    ]
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::object::Object;

    fn shown(rights: &Rights, place: Place) -> Vec<String> {
        let show = |rule: &Rule| {
            let policy = rule.to_policy();
            let names = policy.resource_names.map(|names| format!(" {names:?}")).unwrap_or_default();
            format!("{}{names}: {}", policy.resources.unwrap_or_default().join(" "), policy.verbs.join(" "))
        };
        rights.in_place(place).map(show).collect()
    }

    #[test]
    fn rules_about_the_same_become_one_with_verbs_in_order() {
        let mut rights = Rights::default();
        rights.add(look(&ConfigMap::api_resource()));
        rights.add(Rule::on("", &["configmaps"], &["update", "get"]).because("why"));
        assert_eq!(shown(&rights, Place::Everywhere), ["configmaps: get list watch update"]);
        assert_eq!(rights.in_place(Place::Everywhere).next().and_then(Rule::why), Some("why"));
    }

    #[test]
    fn a_controller_that_owns_and_finalizes_may_do_just_that() {
        let mut rights = Rights::default();
        let deployments = Deployment::api_resource();
        rights.extend(primary(&deployments, Writes::Usual, Some("a/b")));
        rights.extend(owned(&deployments, &ConfigMap::api_resource()));
        assert_eq!(
            shown(&rights, Place::Everywhere),
            [
                "deployments: get list watch patch",
                "deployments/status: patch",
                "events: create patch",
                "deployments/finalizers: update",
                "configmaps: get list watch create patch delete",
            ]
        );
        let mut looking = Rights::default();
        looking.extend(primary(&deployments, Writes::Nothing, None));
        assert_eq!(shown(&looking, Place::Everywhere), ["deployments: get list watch"]);
    }

    #[test]
    fn leases_and_certificates_are_named_and_at_home() {
        let mut rights = Rights::default();
        rights.extend(election("web.example.com"));
        rights.extend(webhook_certificate("web"));
        assert_eq!(shown(&rights, Place::Everywhere), Vec::<String>::new());
        assert_eq!(
            shown(&rights, Place::OwnNamespace),
            [
                "leases [\"web.example.com\"]: get watch update",
                "leases: create",
                "secrets [\"web\"]: get update",
                "secrets: create",
            ]
        );
    }
}
