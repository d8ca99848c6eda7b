//! A call as webhooks get to know it.

use serde_json::{Value, json};

use super::{Call, DryRun, Engine, meta::Meta};
use crate::{
    admit::webhook::{Attributes, Kind, Rehearsal, Verb},
    status::Failure,
};

impl Call<'_> {
    /// What a webhook is told of a write, besides the objects.
    pub(super) fn attributes<'s>(&'s self, verb: Verb, subresource: &'s str) -> Attributes<'s> {
        let kind = match verb {
            Verb::Create => "CreateOptions",
            Verb::Update => "UpdateOptions",
            Verb::Delete => "DeleteOptions",
        };
        let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if verb != Verb::Delete {
            for field in ["fieldManager", "fieldValidation"] {
                if let Some(value) = self.query.get(field) {
                    options[field] = value.into();
                }
            }
        }
        if self.dry_run == DryRun::All {
            options["dryRun"] = json!(["All"]);
        }
        Attributes {
            user: self.user,
            resource: self.resource,
            subresource,
            kind: Kind::of(self.resource),
            verb,
            name: self.name.to_owned(),
            namespace: self.object_namespace().to_owned(),
            rehearsal: match self.dry_run {
                DryRun::All => Rehearsal::DryRun,
                DryRun::No => Rehearsal::No,
            },
            options,
        }
    }
}

impl Engine {
    /// Asks about something that is sent to a subresource and never stored itself, such as a Binding.
    pub(super) async fn admit_sent(
        &self,
        call: &Call<'_>,
        subresource: &str,
        kind: Kind,
        sent: &Value,
    ) -> Result<Value, Failure> {
        let attributes = Attributes { kind, ..call.attributes(Verb::Create, subresource) };
        let mut sent = sent.clone();
        self.mutate(call, &attributes, Some(&mut sent), None).await?;
        self.validate(call, &attributes, Some(&sent), None).await?;
        Ok(sent)
    }

    /// Asks about an object that is to go.
    pub(super) async fn admit_deletion(
        &self,
        call: &Call<'_>,
        options: Value,
        live: &Value,
    ) -> Result<(), Failure> {
        let mut attributes = call.attributes(Verb::Delete, "");
        attributes.name = live.name().to_owned();
        attributes.namespace = live.namespace().to_owned();
        if let (Some(all), Value::Object(more)) = (attributes.options.as_object_mut(), options) {
            all.extend(more);
        }
        self.mutate(call, &attributes, None, Some(live)).await?;
        self.validate(call, &attributes, None, Some(live)).await
    }
}
