//! What the fields of built-in kinds are for, in the words of Kubernetes' own documentation: `kubectl explain` shows
//! them. The API server knows only facts of types; the words come with the crate of typed objects.

use std::{collections::BTreeMap, sync::LazyLock};

use k8s_openapi::{
    api, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    schemars::SchemaGenerator,
};
use serde_json::Value;
use steersman_apiserver::openapi::{Description, Descriptions};

/// Of all kinds; made when somebody first asks.
pub(crate) fn descriptions() -> &'static Descriptions {
    static MADE: LazyLock<Descriptions> = LazyLock::new(make);
    &MADE
}

/// Adds the kinds of a group version.
macro_rules! add {
    ($generator:ident, $($group:ident :: $version:ident :: { $($kind:ident),* $(,)? };)*) => {
        $($($generator.subschema_for::<api::$group::$version::$kind>();)*)*
    };
}

fn make() -> Descriptions {
    let mut generator = SchemaGenerator::default();
    add!(generator,
        core::v1::{Binding, ComponentStatus, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume,
            PersistentVolumeClaim, Pod, PodTemplate, ReplicationController, ResourceQuota, Secret, Service, ServiceAccount};
        admissionregistration::v1::{MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding,
            MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
            ValidatingWebhookConfiguration};
        apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
        authentication::v1::{SelfSubjectReview, TokenRequest, TokenReview};
        authorization::v1::{LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview,
            SubjectAccessReview};
        autoscaling::v1::{HorizontalPodAutoscaler, Scale};
        autoscaling::v2::{HorizontalPodAutoscaler};
        batch::v1::{CronJob, Job};
        certificates::v1::{CertificateSigningRequest};
        coordination::v1::{Lease};
        discovery::v1::{EndpointSlice};
        events::v1::{Event};
        flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
        networking::v1::{Ingress, IngressClass, IPAddress, NetworkPolicy, ServiceCIDR};
        node::v1::{RuntimeClass};
        policy::v1::{Eviction, PodDisruptionBudget};
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
        resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
        scheduling::v1::{PriorityClass};
        storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass};
    );
    generator.subschema_for::<CustomResourceDefinition>();
    generator.definitions().iter().map(|(name, schema)| (name.clone(), description(schema))).collect()
}

fn description(schema: &Value) -> Description {
    let text = |schema: &Value| schema["description"].as_str().map(ToOwned::to_owned);
    let fields = schema["properties"].as_object().into_iter().flatten();
    Description {
        text: text(schema).unwrap_or_default(),
        fields: fields
            .filter_map(|(name, field)| Some((name.clone(), text(field)?)))
            .collect::<BTreeMap<_, _>>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_kinds_are_described() {
        let words = descriptions();
        let field = |name: &str, field: &str| words[name].fields[field].clone();
        assert!(
            field("io.k8s.api.apps.v1.DeploymentSpec", "replicas").starts_with("Number of desired pods.")
        );
        assert!(field("io.k8s.api.core.v1.PodSpec", "containers").starts_with("List of containers"));
        assert!(words["io.k8s.api.core.v1.ConfigMap"].text.starts_with("ConfigMap holds configuration data"));
    }
}
