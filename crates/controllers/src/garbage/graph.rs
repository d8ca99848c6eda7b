//! Who depends on whom, as far as has been seen, without any I/O.
//!
//! The graph only says *where to look*: [`Graph::observe`] and [`Graph::remove`] return the uids
//! that a change concerns, and what is done to those is decided on fresh answers from the API
//! server. A change costs as much as the object it is about has owners and dependents.

use crate::kinds::Kind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Holds an owner back until what blocks its deletion is gone.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// Holds an owner back until its dependents are let go.
pub(super) const ORPHAN: &str = "orphan";
/// How many deleted uids are remembered; older ones are asked for again.
const REMEMBERED: usize = 20_000;

/// Names an object for good: names are used again, uids never.
pub(super) type Uid = Arc<str>;

/// An object as the garbage collector sees it.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: Arc<Kind>,
    pub(super) namespace: Option<Arc<str>>,
    pub(super) name: Arc<str>,
    pub(super) owners: Vec<OwnerReference>,
    pub(super) deleting: bool,
    pub(super) foreground: bool,
    pub(super) orphan: bool,
}

/// What there is to do about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Find out whether any owner is left.
    Examine,
    /// Let its dependents go, then let it go.
    Orphan,
    /// See its dependents off, then let it go.
    Foreground,
}

/// The objects that were seen, and who names whom as an owner.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: HashMap<Uid, Node>,
    dependents: HashMap<Uid, HashSet<Uid>>,
    gone: HashSet<Uid>,
    gone_order: VecDeque<Uid>,
}

impl Graph {
    /// Takes in the state of an object; returns the uids that should be looked at.
    pub(super) fn observe(&mut self, uid: &Uid, node: Node) -> Vec<Uid> {
        let mut look = Vec::new();
        let before = self.nodes.remove(uid).map(|before| before.owners).unwrap_or_default();
        for owner in &before {
            if !node.owners.iter().any(|now| now.uid == owner.uid) {
                self.unlink(&owner.uid, uid);
            }
            // An owner may have waited for this reference to go, or to stop blocking.
            if self.is_foreground(&owner.uid) {
                look.push(Uid::from(owner.uid.as_str()));
            }
        }
        for owner in &node.owners {
            self.dependents.entry(owner.uid.as_str().into()).or_default().insert(uid.clone());
        }
        self.nodes.insert(uid.clone(), node);
        if self.task(uid).is_some() {
            look.push(uid.clone());
        }
        look
    }

    /// Takes in that an object is gone; returns the uids that should be looked at.
    pub(super) fn remove(&mut self, uid: &Uid) -> Vec<Uid> {
        let mut look: Vec<Uid> = self.dependents_of(uid).cloned().collect();
        if let Some(node) = self.nodes.remove(uid) {
            for owner in &node.owners {
                self.unlink(&owner.uid, uid);
                if self.is_foreground(&owner.uid) {
                    look.push(owner.uid.as_str().into());
                }
            }
        }
        if self.gone.insert(uid.clone()) {
            self.gone_order.push_back(uid.clone());
        }
        if self.gone_order.len() > REMEMBERED
            && let Some(oldest) = self.gone_order.pop_front()
        {
            self.gone.remove(&oldest);
        }
        look
    }

    /// Takes in that a kind is no longer served: its objects can neither be seen nor touched.
    pub(super) fn forget_kind(&mut self, kind: &Kind) {
        let uids: Vec<Uid> =
            self.nodes.iter().filter(|(_, node)| *node.kind == *kind).map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            if let Some(node) = self.nodes.remove(&uid) {
                node.owners.iter().for_each(|owner| self.unlink(&owner.uid, &uid));
            }
        }
    }

    /// The object of a uid.
    pub(super) fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// Whether the object of this uid was seen to go.
    pub(super) fn is_gone(&self, uid: &str) -> bool {
        self.gone.contains(uid)
    }

    /// The uids of the objects that name this one as an owner.
    pub(super) fn dependents_of(&self, uid: &str) -> impl Iterator<Item = &Uid> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// What there is to do about an object, as far as is known.
    pub(super) fn task(&self, uid: &str) -> Option<Task> {
        let node = self.nodes.get(uid)?;
        match node {
            Node { deleting: true, orphan: true, .. } => Some(Task::Orphan),
            Node { deleting: true, foreground: true, .. } => Some(Task::Foreground),
            Node { deleting: true, .. } => None,
            _ if node.owners.iter().any(|owner| self.is_doubtful(node, owner)) => Some(Task::Examine),
            _ => None,
        }
    }

    /// Whether the owner a reference names is not known to be there, at the place where the
    /// reference looks for it, and to stay.
    fn is_doubtful(&self, node: &Node, reference: &OwnerReference) -> bool {
        let Some(owner) = self.nodes.get(reference.uid.as_str()) else { return true };
        let group = reference.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let same_place = owner.namespace.is_none() || owner.namespace == node.namespace;
        let same =
            owner.kind.kind == reference.kind && owner.kind.group == group && *owner.name == *reference.name;
        !same || !same_place || (owner.deleting && owner.foreground)
    }

    /// The dependents that an owner in foreground deletion must wait for.
    pub(super) fn blocking(&self, uid: &str) -> Vec<Uid> {
        let blocks = |dependent: &&Uid| {
            self.nodes.get(*dependent).is_some_and(|node| {
                let references = node.owners.iter().filter(|owner| owner.uid == uid);
                references.into_iter().any(|owner| owner.block_owner_deletion == Some(true))
            })
        };
        self.dependents_of(uid).filter(blocks).cloned().collect()
    }

    /// Whether the object of this uid waits for its dependents to go.
    pub(super) fn is_foreground(&self, uid: &str) -> bool {
        self.nodes.get(uid).is_some_and(|node| node.deleting && node.foreground)
    }

    fn unlink(&mut self, owner: &str, dependent: &Uid) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(namespaced: bool) -> Arc<Kind> {
        Arc::new(Kind {
            group: String::new(),
            version: "v1".into(),
            kind: if namespaced { "ConfigMap" } else { "Node" }.into(),
            plural: if namespaced { "configmaps" } else { "nodes" }.into(),
            namespaced,
        })
    }

    fn node(namespace: &str, name: &str, owners: &[(&str, &str)]) -> Node {
        let owners = owners.iter().map(|(uid, name)| OwnerReference {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: (*name).into(),
            uid: (*uid).into(),
            block_owner_deletion: Some(true),
            ..OwnerReference::default()
        });
        Node {
            kind: kind(true),
            namespace: Some(namespace.into()),
            name: name.into(),
            owners: owners.collect(),
            deleting: false,
            foreground: false,
            orphan: false,
        }
    }

    fn uid(text: &str) -> Uid {
        text.into()
    }

    #[test]
    fn a_dependent_of_an_owner_that_was_seen_needs_no_look() {
        let mut graph = Graph::default();
        assert!(graph.observe(&uid("o"), node("n", "owner", &[])).is_empty());
        assert!(graph.observe(&uid("c"), node("n", "child", &[("o", "owner")])).is_empty());
    }

    #[test]
    fn an_owner_that_was_never_seen_is_doubtful_and_so_is_one_elsewhere_or_of_another_name() {
        for (owner, reference) in [
            (None, ("o", "owner")),
            (Some(node("other", "owner", &[])), ("o", "owner")),
            (Some(node("n", "renamed", &[])), ("o", "owner")),
        ] {
            let mut graph = Graph::default();
            if let Some(owner) = owner {
                graph.observe(&uid("o"), owner);
            }
            let look = graph.observe(&uid("c"), node("n", "child", &[reference]));
            assert_eq!(look, [uid("c")]);
            assert_eq!(graph.task("c"), Some(Task::Examine));
        }
    }

    #[test]
    fn a_cluster_scoped_owner_may_own_in_any_namespace() {
        let mut graph = Graph::default();
        let owner = Node { kind: kind(false), namespace: None, ..node("", "owner", &[]) };
        graph.observe(&uid("o"), owner);
        let mut child = node("n", "child", &[("o", "owner")]);
        child.owners[0].kind = "Node".into();
        assert!(graph.observe(&uid("c"), child).is_empty());
    }

    #[test]
    fn a_deleted_owner_points_at_its_dependents_and_at_nothing_else() {
        let mut graph = Graph::default();
        graph.observe(&uid("o"), node("n", "owner", &[]));
        graph.observe(&uid("a"), node("n", "a", &[("o", "owner")]));
        graph.observe(&uid("b"), node("n", "b", &[("o", "owner")]));
        graph.observe(&uid("x"), node("n", "x", &[]));
        let mut look = graph.remove(&uid("o"));
        look.sort();
        assert_eq!(look, [uid("a"), uid("b")]);
        assert!(graph.is_gone("o"));
        assert_eq!(graph.task("a"), Some(Task::Examine));
        assert_eq!(graph.task("x"), None);
    }

    #[test]
    fn foreground_deletion_waits_for_those_that_block() {
        let mut graph = Graph::default();
        graph.observe(&uid("o"), node("n", "owner", &[]));
        let mut free = node("n", "free", &[("o", "owner")]);
        free.owners[0].block_owner_deletion = None;
        graph.observe(&uid("free"), free);
        graph.observe(&uid("a"), node("n", "a", &[("o", "owner")]));
        let look =
            graph.observe(&uid("o"), Node { deleting: true, foreground: true, ..node("n", "owner", &[]) });
        assert_eq!(look, [uid("o")]);
        assert_eq!(graph.task("o"), Some(Task::Foreground));
        assert_eq!(graph.blocking("o"), [uid("a")]);
        assert_eq!(graph.task("free"), Some(Task::Examine), "it goes too");
        assert_eq!(graph.remove(&uid("a")), [uid("o")]);
        assert!(graph.blocking("o").is_empty());
    }

    #[test]
    fn a_reference_that_goes_away_wakes_the_owner_that_waits() {
        let mut graph = Graph::default();
        graph.observe(&uid("o"), Node { deleting: true, foreground: true, ..node("n", "owner", &[]) });
        graph.observe(&uid("a"), node("n", "a", &[("o", "owner")]));
        assert_eq!(graph.observe(&uid("a"), node("n", "a", &[])), [uid("o")]);
        assert!(graph.blocking("o").is_empty());
    }

    #[test]
    fn objects_on_their_way_out_are_left_alone_unless_they_wait_for_us() {
        let mut graph = Graph::default();
        graph.observe(&uid("c"), Node { deleting: true, ..node("n", "c", &[("o", "owner")]) });
        assert_eq!(graph.task("c"), None);
        graph.observe(&uid("c"), Node { deleting: true, orphan: true, ..node("n", "c", &[]) });
        assert_eq!(graph.task("c"), Some(Task::Orphan));
    }

    #[test]
    fn a_kind_that_is_no_longer_served_leaves_nothing_behind() {
        let mut graph = Graph::default();
        graph.observe(&uid("o"), node("n", "owner", &[]));
        graph.observe(&uid("a"), node("n", "a", &[("o", "owner")]));
        graph.forget_kind(&kind(true));
        assert!(graph.node("a").is_none());
        assert_eq!(graph.dependents_of("o").count(), 0);
    }
}
