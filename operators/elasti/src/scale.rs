//! Reading and changing how many replicas a target has.

use crate::types::{Autoscaler, AutoscalerType, ElastiService, ScaleTargetRef};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind, TypeMeta};
use kube::{Client, ResourceExt};
use serde_json::json;

/// Why a target cannot be read or scaled.
#[derive(Debug, thiserror::Error)]
pub enum ScaleError {
    /// There is no such kind.
    #[error(
        "spec.scaleTargetRef: the cluster knows no {kind} in {api_version}; correct it, or install what defines it"
    )]
    Kind {
        /// The kind that was named.
        kind: String,
        /// And its group and version.
        api_version: String,
    },
    /// There is no such object.
    #[error("spec.scaleTargetRef: there is no {kind} named {name}")]
    NotFound {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// No ElastiService is about this Service.
    #[error("no ElastiService is about Service {0}")]
    UnknownService(String),
    /// The API server said something else.
    #[error("{}", message(.0))]
    Api(#[source] kube::Error),
}

/// kube prints an API error with all of its fields; people want its sentence.
fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// A target that can be scaled.
#[derive(Clone, Debug)]
pub struct Target {
    api: Api<DynamicObject>,
    resource: ApiResource,
    name: String,
}

impl Target {
    /// Finds out how a target is reached.
    ///
    /// # Errors
    /// When the cluster knows no such kind.
    pub async fn find(client: &Client, namespace: &str, target: &ScaleTargetRef) -> Result<Self, ScaleError> {
        let resource = resource(client, target).await?;
        let api = Api::namespaced_with(client.clone(), namespace, &resource);
        Ok(Self { api, resource, name: target.name.clone() })
    }

    /// Its kind.
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// How many replicas it should have.
    ///
    /// # Errors
    /// When it is not there or has no scale.
    pub async fn replicas(&self) -> Result<i32, ScaleError> {
        let scale = self.api.get_scale(&self.name).await.map_err(|error| self.explain(error))?;
        Ok(scale.spec.and_then(|spec| spec.replicas).unwrap_or(0))
    }

    /// Says how many replicas it should have.
    ///
    /// # Errors
    /// When it is not there or the server refuses.
    pub async fn set(&self, replicas: i32) -> Result<(), ScaleError> {
        let patch = json!({"spec": {"replicas": replicas}});
        let params = PatchParams { field_manager: Some(crate::OPERATOR.into()), ..PatchParams::default() };
        let result = self.api.patch_scale(&self.name, &params, &Patch::Merge(&patch)).await;
        result.map(drop).map_err(|error| self.explain(error))
    }

    fn explain(&self, error: kube::Error) -> ScaleError {
        match error {
            kube::Error::Api(status) if status.code == 404 => {
                ScaleError::NotFound { kind: self.resource.kind.clone(), name: self.name.clone() }
            }
            other => ScaleError::Api(other),
        }
    }
}

/// The kind of a target; the well-known ones are known without asking.
async fn resource(client: &Client, target: &ScaleTargetRef) -> Result<ApiResource, ScaleError> {
    let kind = match target.kind.as_str() {
        "deployments" => "Deployment",
        "statefulsets" => "StatefulSet",
        "rollouts" => "Rollout",
        other => other,
    };
    let types = TypeMeta { api_version: target.api_version.clone(), kind: kind.to_owned() };
    let unknown = || ScaleError::Kind { kind: target.kind.clone(), api_version: target.api_version.clone() };
    let gvk = GroupVersionKind::try_from(&types).map_err(|_| unknown())?;
    match (target.api_version.as_str(), kind) {
        ("apps/v1", "Deployment" | "StatefulSet" | "ReplicaSet") | ("argoproj.io/v1alpha1", "Rollout") => {
            let plural = format!("{}s", kind.to_lowercase());
            Ok(ApiResource::from_gvk_with_plural(&gvk, &plural))
        }
        _ => match kube::discovery::pinned_kind(client, &gvk).await {
            Ok((resource, _)) => Ok(resource),
            Err(kube::Error::Discovery(_)) => Err(unknown()),
            Err(kube::Error::Api(status)) if status.code == 404 => Err(unknown()),
            Err(error) => Err(ScaleError::Api(error)),
        },
    }
}

/// Whether an autoscaler may act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// It must not.
    Paused,
    /// It may.
    Resumed,
}

/// Pauses or resumes the autoscaler of a target. One that is gone needs nothing.
///
/// # Errors
/// When the server refuses.
pub async fn rest(
    client: &Client,
    namespace: &str,
    autoscaler: Option<&Autoscaler>,
    rest: Rest,
) -> Result<(), ScaleError> {
    let Some(scaler) = autoscaler.filter(|scaler| scaler.kind == AutoscalerType::Keda) else {
        return Ok(());
    };
    let gvk = GroupVersionKind::gvk("keda.sh", "v1alpha1", "ScaledObject");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "scaledobjects");
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let annotations = match rest {
        Rest::Paused => {
            json!({"autoscaling.keda.sh/paused": "true", "autoscaling.keda.sh/paused-replicas": "0"})
        }
        Rest::Resumed => {
            json!({"autoscaling.keda.sh/paused": "false", "autoscaling.keda.sh/paused-replicas": null})
        }
    };
    let patch = json!({"metadata": {"annotations": annotations}});
    match api.patch(&scaler.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map(drop).map_err(ScaleError::Api),
    }
}

/// Wakes the target behind a Service, if it sleeps. Safe to be called by anybody at any time.
///
/// # Errors
/// When no ElastiService is about the Service, or its target cannot be scaled.
pub async fn wake(client: &Client, namespace: &str, service: &str) -> Result<(), ScaleError> {
    let all: Api<ElastiService> = Api::namespaced(client.clone(), namespace);
    let all = all.list(&ListParams::default()).await.map_err(ScaleError::Api)?;
    let about = all.items.into_iter().filter(|one| one.spec.service == service);
    // Of two about one Service, the older counts.
    let elasti = about
        .min_by_key(|one| (one.creation_timestamp(), one.name_any()))
        .ok_or_else(|| ScaleError::UnknownService(format!("{namespace}/{service}")))?;
    wake_target(client, namespace, &elasti).await
}

/// Wakes the target of an ElastiService, if it sleeps.
///
/// # Errors
/// When the target cannot be scaled.
pub async fn wake_target(client: &Client, namespace: &str, elasti: &ElastiService) -> Result<(), ScaleError> {
    let target = Target::find(client, namespace, &elasti.spec.scale_target_ref).await?;
    if target.replicas().await? > 0 {
        return Ok(());
    }
    rest(client, namespace, elasti.spec.autoscaler.as_ref(), Rest::Resumed).await?;
    target.set(awake(client, namespace, elasti).await?).await
}

/// To how many replicas a target is woken: what the ElastiService says, and no fewer than its
/// HorizontalPodAutoscaler would have at once.
///
/// # Errors
/// When the API server refuses.
pub async fn awake(client: &Client, namespace: &str, elasti: &ElastiService) -> Result<i32, ScaleError> {
    let least = elasti.spec.min_target_replicas.max(1);
    let scaler = elasti.spec.autoscaler.as_ref();
    let Some(scaler) = scaler.filter(|scaler| scaler.kind == AutoscalerType::Hpa) else { return Ok(least) };
    let api: Api<HorizontalPodAutoscaler> = Api::namespaced(client.clone(), namespace);
    let found = match api.get_opt(&scaler.name).await {
        // Whoever may not look does without.
        Err(kube::Error::Api(status)) if status.code == 403 => None,
        result => result.map_err(ScaleError::Api)?,
    };
    let wanted = found.and_then(|found| found.spec.min_replicas).unwrap_or(1);
    Ok(least.max(wanted))
}
