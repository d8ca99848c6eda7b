//! What is special about a resource in the way its objects are written.

use super::names::NameRule;
use crate::types::{Origin, Resource};

/// The rules of one resource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strategy {
    /// What names are good.
    pub(crate) name: NameRule,
    /// Whether `metadata.generation` counts changes of what is wanted.
    pub(crate) generation: bool,
    /// Whether a PUT may come without a resourceVersion.
    pub(crate) unconditional_update: bool,
    /// Whether a PUT to a free name creates.
    pub(crate) create_on_update: bool,
    /// Whether DELETE answers with the object instead of a Status.
    pub(crate) returns_deleted: bool,
}

/// The rules of a resource.
pub(crate) fn strategy(resource: &Resource) -> Strategy {
    if matches!(resource.origin, Origin::Custom { .. }) {
        return Strategy {
            name: NameRule::Subdomain,
            generation: true,
            unconditional_update: false,
            create_on_update: false,
            returns_deleted: false,
        };
    }
    let (group, plural) = (&*resource.group, &*resource.plural);
    Strategy {
        name: match (group, plural) {
            ("", "namespaces" | "services") => NameRule::Label,
            ("rbac.authorization.k8s.io", _) => NameRule::PathSegment,
            _ => NameRule::Subdomain,
        },
        generation: matches!(
            (group, plural),
            ("", "pods" | "podtemplates" | "replicationcontrollers")
                | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
                | ("batch", "jobs" | "cronjobs")
                | ("networking.k8s.io", "ingresses" | "ingressclasses" | "networkpolicies")
                | ("policy", "poddisruptionbudgets")
                | ("discovery.k8s.io", "endpointslices")
                | ("apiextensions.k8s.io", "customresourcedefinitions")
                | ("admissionregistration.k8s.io" | "flowcontrol.apiserver.k8s.io", _)
                | ("scheduling.k8s.io", "priorityclasses")
                | ("storage.k8s.io", "csidrivers")
        ),
        unconditional_update: !matches!(
            (group, plural),
            ("coordination.k8s.io" | "node.k8s.io" | "admissionregistration.k8s.io", _)
                | ("policy", "poddisruptionbudgets")
                | (
                    "storage.k8s.io",
                    "csidrivers" | "csinodes" | "csistoragecapacities" | "volumeattachments"
                )
                | ("apiextensions.k8s.io", "customresourcedefinitions")
                | ("apiregistration.k8s.io", "apiservices")
        ),
        create_on_update: matches!(
            (group, plural),
            ("rbac.authorization.k8s.io", _)
                | ("coordination.k8s.io", "leases")
                | ("node.k8s.io", "runtimeclasses")
                | ("", "limitranges" | "events" | "services" | "endpoints")
                | ("events.k8s.io", "events")
        ),
        returns_deleted: matches!(
            (group, plural),
            (
                "",
                "pods"
                    | "services"
                    | "namespaces"
                    | "serviceaccounts"
                    | "podtemplates"
                    | "resourcequotas"
                    | "persistentvolumes"
                    | "persistentvolumeclaims"
            ) | ("storage.k8s.io", _)
        ),
    }
}
