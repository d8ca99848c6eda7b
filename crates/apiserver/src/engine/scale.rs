//! The `scale` subresource: how many replicas are wanted and there, the same for every kind.

use serde_json::{Value, json};

use super::{
    Call, Engine, Outcome,
    create::Ownership,
    meta::Meta,
    patch::{Patch, apply_failure, failure_of},
    update::{Shown, Side, Unconditional, Wanted},
};
use crate::{
    apply::{self, FieldSet, OneVersion, Writer},
    http::Decoded,
    schema::{FieldError, Ref},
    selector::selector_text,
    status::Failure,
    types::{Origin, Path, Resource, ScalePaths, definition},
};

impl Engine {
    /// `GET` of a scale.
    pub(crate) async fn get_scale(&self, call: &Call<'_>, paths: &ScalePaths) -> Result<Outcome, Failure> {
        let stored = self.stored(call.resource, call.object_namespace(), call.name)?;
        let object = self.live(call.resource, &stored).await?;
        Ok(Outcome::plain(200, scale_of(call.resource, paths, &object)))
    }

    /// `PUT` of a scale.
    pub(crate) async fn update_scale(
        &self,
        call: &Call<'_>,
        paths: &ScalePaths,
        body: Decoded,
    ) -> Result<Outcome, Failure> {
        let scale = body.value;
        check(call, &scale)?;
        self.rescale(call, paths, |before, writer| tracked(before, scale.clone(), writer)).await
    }

    /// `PATCH` of a scale.
    pub(crate) async fn patch_scale(
        &self,
        call: &Call<'_>,
        paths: &ScalePaths,
        patch: &Patch,
    ) -> Result<Outcome, Failure> {
        self.rescale(call, paths, |before, writer| {
            let patched = match patch {
                Patch::Json(operations) => crate::patch::json_patch(before, operations),
                Patch::Merge(patch) | Patch::Strategic(patch) => Ok(crate::patch::merge_patch(before, patch)),
                Patch::Apply { intent, force } => {
                    check(call, intent)?;
                    return apply::apply(Some(before), intent, &scale_schema(), writer, *force)
                        .map_err(apply_failure);
                }
            };
            let patched = patched.map_err(|error| failure_of(&error))?;
            check(call, &patched)?;
            tracked(before, patched, writer)
        })
        .await
    }

    /// Writes what `wanted` makes of a scale, with its owners, into the object that it is a view of.
    async fn rescale(
        &self,
        call: &Call<'_>,
        paths: &ScalePaths,
        mut wanted: impl FnMut(&Value, &Writer<'_>) -> Result<Value, Failure> + Send,
    ) -> Result<Outcome, Failure> {
        let resource = call.resource;
        let reset = FieldSet::default();
        let writer = Writer {
            manager: &call.manager,
            api_version: "autoscaling/v1",
            kind: "Scale",
            subresource: "scale",
            time: (self.options.clock)(),
            reset: &reset,
            versions: &OneVersion,
        };
        let outcome = self
            .change(call, Side::Other("scale"), Unconditional::Fine, Shown::Scale(paths), |live, _| {
                let mut before = scale_of(resource, paths, live);
                let owners = apply::scale::to_scale(live.meta_get("managedFields"), &paths.spec_replicas);
                before.meta_set("managedFields", owners.map_err(Failure::internal)?);
                let scale = wanted(&before, &writer)?;
                let mut object = live.clone();
                write(paths, &scale, &mut object)?;
                object.meta_set("resourceVersion", scale.meta_get("resourceVersion").cloned());
                if !scale.uid().is_empty() {
                    object.meta_set("uid", Some(scale.uid().into()));
                }
                let owners = apply::scale::to_parent(
                    live.meta_get("managedFields"),
                    scale.meta_get("managedFields"),
                    &paths.spec_replicas,
                    &super::api_version(resource),
                );
                object.meta_set("managedFields", owners.map_err(Failure::internal)?);
                Ok(Wanted { object, ownership: Ownership::Applied })
            })
            .await?;
        let object = self.value_of(resource, outcome.answer);
        Ok(Outcome::plain(outcome.code, scale_of(resource, paths, &object)))
    }
}

/// Writes the replicas of a scale into the object that it is a view of.
pub(super) fn write(paths: &ScalePaths, scale: &Value, object: &mut Value) -> Result<(), Failure> {
    if parse(&paths.spec_replicas)?.set(object, replicas_of(scale)?.into()) {
        return Ok(());
    }
    Err(Failure::internal(format!("cannot write {}", paths.spec_replicas)))
}

/// A scale with its owners after a write that is not an apply.
fn tracked(before: &Value, mut after: Value, writer: &Writer<'_>) -> Result<Value, Failure> {
    apply::track_update(Some(before), &mut after, &scale_schema(), writer).map_err(Failure::internal)?;
    Ok(after)
}

/// The type of a Scale.
fn scale_schema() -> Ref {
    definition("io.k8s.api.autoscaling.v1.Scale").unwrap_or_default()
}

fn parse(path: &str) -> Result<Path, Failure> {
    Path::parse(path).map_err(|error| Failure::internal(error.to_string()))
}

fn at<'a>(path: &str, object: &'a Value) -> Option<&'a Value> {
    Path::parse(path).ok()?.get(object)
}

/// The scale of an object.
pub(super) fn scale_of(resource: &Resource, paths: &ScalePaths, object: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.meta_get(field) {
            metadata[field] = value.clone();
        }
    }
    let number = |path: &str| at(path, object).and_then(Value::as_i64).unwrap_or(0);
    let mut spec = json!({});
    let wanted = number(&paths.spec_replicas);
    if wanted != 0 {
        spec["replicas"] = wanted.into();
    }
    let mut status = json!({"replicas": number(&paths.status_replicas)});
    let selector = match (&paths.label_selector, &resource.origin) {
        (Some(path), Origin::Custom { .. }) => {
            at(path, object).and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        (_, Origin::BuiltIn) => match &object["spec"]["selector"] {
            selector
                if selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some() =>
            {
                selector_text(selector)
            }
            plain => selector_text(&json!({"matchLabels": plain})),
        },
        (None, Origin::Custom { .. }) => String::new(),
    };
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

fn check(call: &Call<'_>, scale: &Value) -> Result<(), Failure> {
    let kind = scale["kind"].as_str().unwrap_or("Scale");
    if !scale.is_object() || kind != "Scale" {
        return Err(Failure::bad_request(format!("expected a Scale in the body, found {kind}")));
    }
    for (what, given, expected) in
        [("name", scale.name(), call.name), ("namespace", scale.namespace(), call.object_namespace())]
    {
        if !given.is_empty() && given != expected {
            return Err(Failure::bad_request(format!(
                "the {what} of the object ({given}) does not match the {what} on the URL ({expected})"
            )));
        }
    }
    Ok(())
}

fn replicas_of(scale: &Value) -> Result<i64, Failure> {
    let replicas = match &scale["spec"]["replicas"] {
        Value::Null => 0,
        value => value
            .as_i64()
            .filter(|replicas| i32::try_from(*replicas).is_ok())
            .ok_or_else(|| Failure::bad_request("Scale in version \"v1\" cannot be handled as a Scale: spec.replicas must be a whole number of 32 bits"))?,
    };
    if replicas < 0 {
        let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
        return Err(Failure::invalid("autoscaling", "Scale", scale.name(), &[error]));
    }
    Ok(replicas)
}
