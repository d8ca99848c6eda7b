//! Who a pod of a StatefulSet is: its name, its place in the order, its labels and its claims.

use crate::owner::controller_reference;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;

/// The label with the name of the revision that a pod was made from.
pub(super) const REVISION: &str = "controller-revision-hash";
/// The label with a pod's own name, so that a Service can select it alone.
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// The label with a pod's place in the order.
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// A pod's place in the order of its StatefulSet, by its name.
pub(super) fn ordinal(set: &str, pod: &str) -> Option<i32> {
    let number = pod.strip_prefix(set)?.strip_prefix('-')?;
    let plain = number == "0" || !number.starts_with('0');
    (plain && number.bytes().all(|byte| byte.is_ascii_digit())).then(|| number.parse().ok())?
}

/// The first place of the order.
pub(super) fn start(spec: &StatefulSetSpec) -> i32 {
    spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0).max(0)
}

/// The revision that a pod was made from.
pub(super) fn revision(pod: &Pod) -> &str {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION)).map_or("", String::as_str)
}

/// The pod of a place, made from the template that `set` has.
pub(super) fn pod(set: &StatefulSet, ordinal: i32, revision: &str) -> Pod {
    let owner = set.name_any();
    let name = format!("{owner}-{ordinal}");
    let spec = set.spec.clone().unwrap_or_default();
    let template = spec.template.metadata.unwrap_or_default();
    let mut labels = template.labels.unwrap_or_default();
    labels.insert(REVISION.into(), revision.into());
    labels.insert(POD_NAME.into(), name.clone());
    labels.insert(POD_INDEX.into(), ordinal.to_string());
    let mut pod = spec.template.spec.unwrap_or_default();
    pod.hostname = Some(name.clone());
    pod.subdomain = spec.service_name.filter(|service| !service.is_empty());
    let claims = spec.volume_claim_templates.unwrap_or_default();
    // A claim takes the place of a volume of the same name.
    let mut volumes = pod.volumes.take().unwrap_or_default();
    volumes.retain(|volume| !claims.iter().any(|claim| claim.name_any() == volume.name));
    volumes.extend(claims.iter().map(|claim| Volume {
        name: claim.name_any(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim_name(&claim.name_any(), &owner, ordinal),
            read_only: Some(false),
        }),
        ..Volume::default()
    }));
    pod.volumes = (!volumes.is_empty()).then_some(volumes);
    Pod {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: set.namespace(),
            labels: Some(labels),
            annotations: template.annotations,
            finalizers: template.finalizers,
            owner_references: Some(vec![controller_reference(set)]),
            ..ObjectMeta::default()
        },
        spec: Some(pod),
        status: None,
    }
}

/// The claims of a place; they outlive its pods.
pub(super) fn claims(set: &StatefulSet, ordinal: i32) -> Vec<PersistentVolumeClaim> {
    let Some(spec) = &set.spec else { return Vec::new() };
    let templates = spec.volume_claim_templates.as_deref().unwrap_or_default();
    templates
        .iter()
        .map(|template| {
            let mut labels = template.labels().clone();
            labels.extend(spec.selector.match_labels.clone().unwrap_or_default());
            PersistentVolumeClaim {
                metadata: ObjectMeta {
                    name: Some(claim_name(&template.name_any(), &set.name_any(), ordinal)),
                    namespace: set.namespace(),
                    labels: Some(labels),
                    annotations: template.metadata.annotations.clone(),
                    owner_references: goes_with(set).map(|owner| vec![owner]),
                    ..ObjectMeta::default()
                },
                spec: template.spec.clone(),
                status: None,
            }
        })
        .collect()
}

fn claim_name(template: &str, set: &str, ordinal: i32) -> String {
    format!("{template}-{set}-{ordinal}")
}

/// Who takes the claims along, where they are to go with their StatefulSet.
fn goes_with(set: &StatefulSet) -> Option<OwnerReference> {
    let policy = set.spec.as_ref()?.persistent_volume_claim_retention_policy.as_ref()?;
    (policy.when_deleted.as_deref() == Some("Delete")).then(|| controller_reference(set))
}

/// Whether the claims of a place go with its pod when there are to be fewer.
pub(super) fn goes_when_scaled(set: &StatefulSet) -> bool {
    let policy = set.spec.as_ref().and_then(|spec| spec.persistent_volume_claim_retention_policy.as_ref());
    policy.is_some_and(|policy| policy.when_scaled.as_deref() == Some("Delete"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set() -> StatefulSet {
        serde_json::from_value(json!({"metadata": {"name": "db", "namespace": "n", "uid": "u"}, "spec": {
            "serviceName": "dbs", "selector": {"matchLabels": {"app": "db"}},
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
            "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": {"tier": "slow"}},
                "spec": {"accessModes": ["ReadWriteOnce"]}}],
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": {
                "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}],
                "containers": [{"name": "c", "image": "i"}]}}}}))
        .expect("a StatefulSet")
    }

    #[test]
    fn names_have_their_place_in_them() {
        for (pod, expected) in [
            ("db-0", Some(0)),
            ("db-12", Some(12)),
            ("db", None),
            ("db-", None),
            ("db-01", None),
            ("db-x", None),
            ("other-1", None),
            ("db-99999999999", None),
        ] {
            assert_eq!(ordinal("db", pod), expected, "{pod}");
        }
    }

    #[test]
    fn a_pod_knows_its_name_its_place_and_its_claims() {
        let pod = pod(&set(), 3, "db-abc");
        assert_eq!(pod.name_any(), "db-3");
        assert_eq!(pod.labels()[POD_NAME], "db-3");
        assert_eq!(pod.labels()[POD_INDEX], "3");
        assert_eq!((revision(&pod), pod.labels()["app"].as_str()), ("db-abc", "db"));
        let spec = pod.spec.expect("a spec");
        assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("db-3"), Some("dbs")));
        let volumes = spec.volumes.expect("volumes");
        let names: Vec<&str> = volumes.iter().map(|volume| volume.name.as_str()).collect();
        assert_eq!(names, ["tmp", "data"]);
        let claim = volumes[1].persistent_volume_claim.as_ref().expect("a claim");
        assert_eq!(claim.claim_name, "data-db-3");
    }

    #[test]
    fn claims_are_labelled_and_owned_as_the_policy_says() {
        let claims = claims(&set(), 0);
        assert_eq!(claims[0].name_any(), "data-db-0");
        assert_eq!((claims[0].labels()["app"].as_str(), claims[0].labels()["tier"].as_str()), ("db", "slow"));
        assert_eq!(claims[0].owner_references()[0].uid, "u");
        assert!(!goes_when_scaled(&set()));
    }
}
