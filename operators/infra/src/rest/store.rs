//! What requests ask of the API server.

use http::StatusCode;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use kube::core::object::HasSpec;
use serde_json::{Value, json};
use steersman::Object;

use super::Face;
use super::answer::{Answer, Refusal, ok};
use crate::types::{ID, Resource, ResourceType};

/// How often a write that others were faster with is repeated.
pub(super) const ATTEMPTS: usize = 8;

impl Face {
    pub(super) fn types(&self) -> Api<ResourceType> {
        Api::all(self.client.clone())
    }

    pub(super) fn resources(&self) -> Api<Resource> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The type with this number.
    pub(super) async fn type_by_id(&self, id: i64) -> Result<ResourceType, Refusal> {
        let found = by_id(&self.types(), id).await?;
        let there = found.filter(|found| found.metadata.deletion_timestamp.is_none());
        there.ok_or_else(|| Refusal::missing("Resource type not found"))
    }

    /// The resource with this number.
    pub(super) async fn resource_by_id(&self, id: i64) -> Result<Resource, Refusal> {
        by_id(&self.resources(), id).await?.ok_or_else(|| Refusal::missing("Resource not found"))
    }

    /// Whether the store and the history answer.
    pub(super) async fn health(&self) -> Result<Answer, Refusal> {
        let unhealthy = |what: &str| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, what);
        if let Err(error) = self.types().list(&ListParams::default().limit(1)).await {
            tracing::warn!(%error, "not healthy");
            return Err(unhealthy("the store cannot be reached"));
        }
        if let Err(error) = self.history.check().await {
            tracing::warn!(%error, "not healthy");
            return Err(unhealthy("the history cannot be reached"));
        }
        Ok(ok(&json!({"status": "ok", "service": "infrastructure-controller"})))
    }

    pub(super) fn action_plugins(&self) -> Value {
        let all = self.plugins.describe();
        all.iter().map(|plugin| json!({"name": plugin.name, "version": plugin.version})).collect()
    }
}

async fn by_id<K: Object + HasSpec>(api: &Api<K>, id: i64) -> Result<Option<K>, Refusal> {
    // No object has one, and no label can hold it.
    if id < 0 {
        return Ok(None);
    }
    let found = api.list(&ListParams::default().labels(&format!("{ID}={id}"))).await?;
    // The oldest, should somebody have given a number twice.
    Ok(found.items.into_iter().min_by_key(|object| object.creation_timestamp().map(|time| time.0)))
}

/// When an object was last written, by whomever.
pub(super) fn updated_at<K: kube::Resource<DynamicType = ()>>(object: &K) -> Option<jiff::Timestamp> {
    let written = object.managed_fields().iter().filter_map(|entry| entry.time.as_ref().map(|time| time.0));
    written.chain(object.meta().creation_timestamp.as_ref().map(|time| time.0)).max()
}

/// A time as clients read it: whole seconds, or with their fraction.
pub(super) fn written(time: Option<jiff::Timestamp>) -> Option<String> {
    time.map(|time| time.to_string())
}
