//! Looks after ResourceTypes: gives them their numbers, and says whether their schemas are any.

use std::sync::Arc;

use kube::ResourceExt;
use kube::api::Patch;
use serde_json::json;
use steersman::conditions::{self, ConditionStatus, Observation};
use steersman::{Context, Error, Key, Outcome, Reconciler};

use crate::history::Catalog;
use crate::ids::{Ids, Numbered};
use crate::schema::Schema;
use crate::types::{ID, ResourceType, ResourceTypeStatus};

/// Reconciles ResourceTypes.
pub(super) struct Types {
    ids: Arc<Ids>,
    catalog: Catalog,
}

impl Types {
    pub(super) fn new(ids: Arc<Ids>, catalog: Catalog) -> Self {
        Self { ids, catalog }
    }
}

impl Reconciler for Types {
    type Object = ResourceType;

    async fn reconcile(&self, known: Arc<ResourceType>, cx: &Context) -> Result<Outcome, Error> {
        if known.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done);
        }
        if !known.labels().contains_key(ID) {
            let id = self.ids.next(Numbered::Types).await?;
            let label = json!({"metadata": {"labels": {ID: id.to_string()}}});
            cx.patch::<ResourceType, _>(cx.key(), &Patch::Merge(&label)).await?;
        }
        self.catalog.saw_type(&known);
        let generation = known.metadata.generation;
        let (status, reason, message) = match Schema::compile(&known.spec.schema) {
            Ok(_) => (ConditionStatus::True, "Compiled", "the schema can be used".to_owned()),
            Err(error) => (ConditionStatus::False, "NoSchema", error.to_string()),
        };
        let mut conditions = known.status.clone().unwrap_or_default().conditions;
        let observation = Observation { r#type: "Valid", status, reason, message, generation };
        conditions::set(&mut conditions, cx.now(), observation);
        cx.apply_status(&ResourceTypeStatus { observed_generation: generation, conditions }).await?;
        Ok(Outcome::Done)
    }
    async fn gone(&self, key: &Key, _: &Context) -> Result<(), Error> {
        self.catalog.type_gone(key.name());
        Ok(())
    }
}
