//! What is checked before types and resources are stored: schemas that are none, parameters that do not
//! fit theirs. The REST face makes the same checks in its own words.

use kube::{Api, Client};
use steersman::Error;
use steersman::webhook::{Admission, Findings, Validator, Webhooks};

use crate::schema::{Schema, Schemas};
use crate::types::{DriftInterval, Resource, ResourceType, type_object_name};

/// Adds the webhooks of ResourceTypes and Resources; types are looked up with the client.
#[must_use]
pub fn webhooks(webhooks: Webhooks, client: Client) -> Webhooks {
    webhooks.validator(Types).validator(Resources { client, schemas: Schemas::default() })
}

/// Judges types.
struct Types;

impl Validator for Types {
    type Object = ResourceType;

    async fn create(&self, known: &ResourceType, _: &Admission) -> Result<Findings, Error> {
        let mut findings = Findings::new();
        if let Err(error) = Schema::compile(&known.spec.schema) {
            findings.wrong("spec.schema", error.to_string());
        }
        if let Err(wrong) = DriftInterval::read(&known.spec.metadata) {
            findings.wrong("spec.metadata", wrong);
        }
        Ok(findings)
    }
}

/// Judges resources by the schemas of their types.
struct Resources {
    client: Client,
    /// Compiled once, not with every request.
    schemas: Schemas,
}

impl Validator for Resources {
    type Object = Resource;

    async fn create(&self, resource: &Resource, _: &Admission) -> Result<Findings, Error> {
        let mut findings = Findings::new();
        let spec = &resource.spec;
        if let Err(wrong) = DriftInterval::read(&spec.metadata) {
            findings.wrong("spec.metadata", wrong);
        }
        let types: Api<ResourceType> = Api::all(self.client.clone());
        let known = types.get_opt(&type_object_name(&spec.type_name, &spec.type_version)).await?;
        let Some(known) = known else {
            // It may come: the resource waits for it.
            findings.warn(format!(
                "spec.type: there is no resource type {}/{} yet; the resource fails until there is one",
                spec.type_name, spec.type_version
            ));
            return Ok(findings);
        };
        if let Ok(schema) = self.schemas.of(&known) {
            let mut parameters = spec.parameters.clone();
            schema.default_into(&mut parameters);
            for complaint in schema.check(&parameters).err().unwrap_or_default() {
                findings.wrong("spec.parameters", complaint);
            }
        }
        Ok(findings)
    }

    async fn update(
        &self,
        resource: &Resource,
        old: &Resource,
        admission: &Admission,
    ) -> Result<Findings, Error> {
        // Finalizers, labels and triggers are written to resources whose type has changed meanwhile.
        if resource.spec == old.spec || resource.metadata.deletion_timestamp.is_some() {
            return Ok(Findings::new());
        }
        self.create(resource, admission).await
    }
}
