//! Which built-in kind has which columns.

use super::{
    cluster,
    column::{BuiltIn, Cell, column, name},
    network, pods, storage, workloads,
};

/// The columns of a built-in resource; name and time of creation for those without their own.
pub(super) fn columns(group: &str, plural: &str) -> &'static [BuiltIn] {
    static PLAIN: &[BuiltIn] =
        &[name(), column("Created At", "date", Cell::Text("/metadata/creationTimestamp"))];
    match (group, plural) {
        ("", "pods") => pods::COLUMNS,
        ("", "podtemplates") => workloads::POD_TEMPLATES,
        ("", "replicationcontrollers") => workloads::REPLICATION_CONTROLLERS,
        ("apps", "deployments") => workloads::DEPLOYMENTS,
        ("apps", "replicasets") => workloads::REPLICA_SETS,
        ("apps", "statefulsets") => workloads::STATEFUL_SETS,
        ("apps", "daemonsets") => workloads::DAEMON_SETS,
        ("apps", "controllerrevisions") => workloads::CONTROLLER_REVISIONS,
        ("batch", "jobs") => workloads::JOBS,
        ("batch", "cronjobs") => workloads::CRON_JOBS,
        ("policy", "poddisruptionbudgets") => workloads::DISRUPTION_BUDGETS,
        ("autoscaling", "horizontalpodautoscalers") => workloads::AUTOSCALERS,
        ("", "services") => network::SERVICES,
        ("", "endpoints") => network::ENDPOINTS,
        ("discovery.k8s.io", "endpointslices") => network::ENDPOINT_SLICES,
        ("networking.k8s.io", "ingresses") => network::INGRESSES,
        ("networking.k8s.io", "ingressclasses") => network::INGRESS_CLASSES,
        ("networking.k8s.io", "networkpolicies") => network::NETWORK_POLICIES,
        ("networking.k8s.io", "servicecidrs") => network::SERVICE_CIDRS,
        ("networking.k8s.io", "ipaddresses") => network::IP_ADDRESSES,
        ("", "nodes") => cluster::NODES,
        ("", "namespaces") => cluster::NAMESPACES,
        ("", "events") => cluster::EVENTS,
        ("", "configmaps") => cluster::CONFIG_MAPS,
        ("", "secrets") => cluster::SECRETS,
        ("", "resourcequotas") => cluster::RESOURCE_QUOTAS,
        ("coordination.k8s.io", "leases") => cluster::LEASES,
        ("", "serviceaccounts") => cluster::SERVICE_ACCOUNTS,
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => cluster::ROLE_BINDINGS,
        ("apiregistration.k8s.io", "apiservices") => cluster::API_SERVICES,
        ("", "persistentvolumes") => storage::VOLUMES,
        ("", "persistentvolumeclaims") => storage::VOLUME_CLAIMS,
        ("storage.k8s.io", "storageclasses") => storage::STORAGE_CLASSES,
        ("storage.k8s.io", "volumeattachments") => storage::VOLUME_ATTACHMENTS,
        ("storage.k8s.io", "volumeattributesclasses") => storage::VOLUME_ATTRIBUTES_CLASSES,
        ("storage.k8s.io", "csinodes") => storage::CSI_NODES,
        ("storage.k8s.io", "csidrivers") => storage::CSI_DRIVERS,
        ("storage.k8s.io", "csistoragecapacities") => storage::CSI_CAPACITIES,
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => cluster::VALIDATING_POLICIES,
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies") => cluster::MUTATING_POLICIES,
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings",
        ) => cluster::POLICY_BINDINGS,
        ("scheduling.k8s.io", "priorityclasses") => cluster::PRIORITY_CLASSES,
        ("node.k8s.io", "runtimeclasses") => cluster::RUNTIME_CLASSES,
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => cluster::WEBHOOKS,
        ("certificates.k8s.io", "certificatesigningrequests") => cluster::SIGNING_REQUESTS,
        _ => PLAIN,
    }
}
