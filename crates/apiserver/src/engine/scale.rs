//! The `scale` subresource: how many replicas are wanted and there, the same for every kind.

use serde_json::{Value, json};

use std::sync::Arc;

use super::{
    Call, Engine, Outcome,
    create::Ownership,
    meta::{Meta, object_mut},
    patch::Patch,
    update::{Side, Unconditional, Wanted},
    view,
};
use crate::{
    apply::{self, FieldSet, Writer},
    http::Decoded,
    schema::{Field, FieldError, PatchStrategy, Scalar, Schema, Shape, Struct, Zero},
    selector::selector_text,
    status::Failure,
    types::{Origin, Resource, ScalePaths, Path},
};

impl Engine {
    /// `GET` of a scale.
    pub(crate) fn get_scale(&self, call: &Call<'_>, paths: &ScalePaths) -> Result<Outcome, Failure> {
        let stored = self.stored(call.resource, call.object_namespace(), call.name)?;
        let object = view::value(&self.served.load(), call.resource, &stored);
        Ok(Outcome::plain(200, scale_of(call.resource, paths, &object)))
    }

    /// `PUT` of a scale.
    pub(crate) async fn update_scale(&self, call: &Call<'_>, paths: &ScalePaths, body: Decoded) -> Result<Outcome, Failure> {
        let scale = body.value;
        check(call, &scale)?;
        self.rescale(call, paths, Unconditional::Fine, |_| Ok(scale.clone())).await
    }

    /// `PATCH` of a scale.
    pub(crate) async fn patch_scale(&self, call: &Call<'_>, paths: &ScalePaths, patch: &Patch) -> Result<Outcome, Failure> {
        self.rescale(call, paths, Unconditional::Fine, |scale| {
            let patched = match patch {
                Patch::Json(operations) => crate::patch::json_patch(scale, operations),
                Patch::Merge(patch) | Patch::Strategic(patch) => Ok(crate::patch::merge_patch(scale, patch)),
                Patch::Apply { intent, .. } => Ok(crate::patch::merge_patch(scale, intent)),
            };
            let patched = patched.map_err(|error| match error.code() {
                422 => Failure::unprocessable(error.to_string()),
                _ => Failure::bad_request(error.to_string()),
            })?;
            check(call, &patched)?;
            Ok(patched)
        })
        .await
    }

    async fn rescale(
        &self,
        call: &Call<'_>,
        paths: &ScalePaths,
        unconditional: Unconditional,
        mut wanted: impl FnMut(&Value) -> Result<Value, Failure> + Send,
    ) -> Result<Outcome, Failure> {
        let resource = call.resource;
        let path = parse(&paths.spec_replicas)?;
        let outcome = self
            .change(call, Side::Other("scale"), unconditional, |live| {
                let scale = wanted(&scale_of(resource, paths, live))?;
                let replicas = replicas_of(resource, &scale)?;
                let mut object = live.clone();
                if !path.set(&mut object, replicas.into()) {
                    return Err(Failure::internal(format!("cannot write {}", paths.spec_replicas)));
                }
                object.meta_set("resourceVersion", scale.meta_get("resourceVersion").cloned());
                if !scale.uid().is_empty() {
                    object.meta_set("uid", Some(scale.uid().into()));
                }
                self.own_replicas(call, paths, live, &scale, &mut object)?;
                Ok(Wanted { object, ownership: Ownership::Applied })
            })
            .await?;
        let object = self.value_of(resource, outcome.answer);
        Ok(Outcome::plain(outcome.code, scale_of(resource, paths, &object)))
    }
}

impl Engine {
    /// Notes who owns the replicas now. Owners are those of the Scale, seen from the object.
    fn own_replicas(&self, call: &Call<'_>, paths: &ScalePaths, live: &Value, scale: &Value, object: &mut Value) -> Result<(), Failure> {
        let before = scale_of(call.resource, paths, live);
        let mut after = scale.clone();
        let reset = FieldSet::default();
        let writer = Writer {
            manager: &call.manager,
            api_version: "autoscaling/v1",
            kind: "Scale",
            subresource: "scale",
            time: (self.options.clock)(),
            reset: &reset,
        };
        object_mut(&mut after).remove("status");
        apply::track_update(Some(&before), &mut after, &scale_schema(), &writer);
        let api_version = super::api_version(call.resource);
        let entries = apply::scale::to_parent(
            live.meta_get("managedFields"),
            after.meta_get("managedFields"),
            &paths.spec_replicas,
            &api_version,
        )
        .map_err(Failure::internal)?;
        object.meta_set("managedFields", entries);
        Ok(())
    }
}

/// The type of a Scale, as far as ownership needs it.
fn scale_schema() -> Schema {
    let field = |schema: Schema| Field { schema: schema.into(), required: false, patch: PatchStrategy::default(), number: 0, zero: Zero::Keep };
    let structure = |fields: Vec<(&str, Field)>| {
        let fields = fields.into_iter().map(|(name, field)| (Arc::from(name), field)).collect();
        Schema::of(Shape::Struct(Struct { fields, ..Struct::default() }))
    };
    let text = || field(Schema::of(Shape::Scalar(Scalar::String)));
    structure(vec![
        ("apiVersion", text()),
        ("kind", text()),
        ("metadata", field(Schema::any())),
        ("spec", field(structure(vec![("replicas", field(Schema::of(Shape::Scalar(Scalar::Int32))))]))),
    ])
}

fn parse(path: &str) -> Result<Path, Failure> {
    Path::parse(path).map_err(|error| Failure::internal(error.to_string()))
}

fn at<'a>(path: &str, object: &'a Value) -> Option<&'a Value> {
    Path::parse(path).ok()?.get(object)
}

/// The scale of an object.
fn scale_of(resource: &Resource, paths: &ScalePaths, object: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.meta_get(field) {
            metadata[field] = value.clone();
        }
    }
    if let Ok(Some(entries)) = apply::scale::to_scale(object.meta_get("managedFields"), &paths.spec_replicas) {
        metadata["managedFields"] = entries;
    }
    let number = |path: &str| at(path, object).and_then(Value::as_i64).unwrap_or(0);
    let mut spec = json!({});
    let wanted = number(&paths.spec_replicas);
    if wanted != 0 {
        spec["replicas"] = wanted.into();
    }
    let mut status = json!({"replicas": number(&paths.status_replicas)});
    let selector = match (&paths.label_selector, &resource.origin) {
        (Some(path), Origin::Custom { .. }) => at(path, object).and_then(Value::as_str).unwrap_or_default().to_owned(),
        (_, Origin::BuiltIn) => match &object["spec"]["selector"] {
            selector if selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some() => selector_text(selector),
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
    for (what, given, expected) in [("name", scale.name(), call.name), ("namespace", scale.namespace(), call.object_namespace())] {
        if !given.is_empty() && given != expected {
            return Err(Failure::bad_request(format!("the {what} of the object ({given}) does not match the {what} on the URL ({expected})")));
        }
    }
    Ok(())
}

fn replicas_of(resource: &Resource, scale: &Value) -> Result<i64, Failure> {
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
    let _ = resource;
    Ok(replicas)
}
