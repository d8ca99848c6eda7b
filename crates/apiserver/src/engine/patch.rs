//! `PATCH`, all of its kinds.

use serde_json::Value;

use super::{
    Call, Engine, Outcome, api_version,
    create::Ownership,
    meta::Meta,
    update::{Shown, Side, Unconditional, Wanted},
};
use crate::{
    admit::{self, Body},
    apply::{self, ApplyError, Force, Writer},
    conversion::Translations,
    http::{Media, decode},
    patch::{self, PatchError},
    schema::FieldError,
    status::{Cause, Failure},
    types::Origin,
};

/// How a patch is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchKind {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' own, which knows lists by their keys.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchKind {
    /// From a media type.
    pub(crate) fn of(media: &str) -> Result<Self, Failure> {
        match media {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/apply-patch+yaml" | "application/apply-patch+json" => Ok(Self::Apply),
            _ => Err(Failure::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, \
                 application/apply-patch+yaml",
            )),
        }
    }
}

/// A patch that is read but not applied.
pub(crate) enum Patch {
    Json(Vec<u8>),
    Merge(Value),
    Strategic(Value),
    Apply { intent: Value, force: Force },
}

impl Patch {
    /// Reads the body of a `PATCH`.
    pub(crate) fn parse(call: &Call<'_>, kind: PatchKind, body: &[u8]) -> Result<Self, Failure> {
        let forced = call.query.given("force").map(|_| call.query.flag("force")).transpose()?;
        if kind != PatchKind::Apply && forced.is_some() {
            let error = FieldError::forbidden("force", "may not be specified for non-apply patch");
            return Err(super::call::options_failure("PatchOptions", &error));
        }
        let object = |media| {
            let decoded = decode(media, body)?;
            admit::decode::complain(
                call,
                decoded.duplicates.iter().map(|path| format!("duplicate field {path:?}")).collect(),
            )?;
            if decoded.value.is_object() {
                Ok(decoded.value)
            } else {
                Err(Failure::bad_request("a patch of this kind must be an object"))
            }
        };
        match kind {
            PatchKind::Json => Ok(Self::Json(body.to_vec())),
            PatchKind::Merge => object(Media::Json).map(Self::Merge),
            PatchKind::Strategic if call.resource.origin != Origin::BuiltIn => {
                Err(Failure::unsupported_media_type(
                    "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                ))
            }
            PatchKind::Strategic => object(Media::Json).map(Self::Strategic),
            PatchKind::Apply => {
                if !call.names_manager() {
                    let error = FieldError::required("fieldManager", "is required for apply patch");
                    return Err(super::call::options_failure("PatchOptions", &error));
                }
                let intent = object(Media::Yaml)?;
                Ok(Self::Apply { intent, force: if forced == Some(true) { Force::Yes } else { Force::No } })
            }
        }
    }

    /// The object after a patch that is not an apply.
    fn to(&self, live: &Value, schema: &crate::schema::Schema) -> Result<Value, Failure> {
        let patched = match self {
            Self::Json(operations) => patch::json_patch(live, operations),
            Self::Merge(patch) => Ok(patch::merge_patch(live, patch)),
            Self::Strategic(patch) => patch::strategic_patch(live, patch, schema),
            Self::Apply { intent, .. } => Ok(intent.clone()),
        };
        patched.map_err(|error| failure_of(&error))
    }
}

/// What the client sees of a patch that does not fit.
pub(super) fn failure_of(error: &PatchError) -> Failure {
    let message = error.to_string();
    match error.code() {
        413 => Failure::too_large_because(message),
        422 => Failure::unprocessable(message),
        _ => Failure::bad_request(message),
    }
}

impl Engine {
    /// `PATCH` of an object or of one side of it.
    pub(crate) async fn patch(
        &self,
        call: &Call<'_>,
        side: Side<'_>,
        patch: &Patch,
    ) -> Result<Outcome, Failure> {
        let Patch::Apply { intent, force } = patch else {
            return self
                .change(call, side, Unconditional::Fine, Shown::Object, |live, _| {
                    let object = patch.to(live, &call.resource.schema)?;
                    let mut object = admit::decode::object(call, Body::patched(object))?;
                    unchanged_identity(call, &mut object)?;
                    Ok(Wanted { object, ownership: Ownership::Track })
                })
                .await;
        };
        let intent = self.intent(call, side, intent.clone())?;
        let applied = |live: Option<&Value>, versions: &Translations| {
            self.applied(call, side, live, &intent, *force, versions)
        };
        let exists = self.store.get(&super::key(call.resource, call.object_namespace(), call.name)).is_some();
        if !exists {
            if side != Side::Main {
                return Err(Failure::not_found(call.resource, call.name));
            }
            if !intent.uid().is_empty() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {}, and no existing object was found",
                    intent.uid()
                );
                return Err(Failure::conflict(call.resource, call.name, &why));
            }
            match self
                .create_object(call, applied(None, &Translations::new(call.resource))?, Ownership::Applied)
                .await
            {
                Err(failure) if failure.reason == "AlreadyExists" => {}
                other => return other,
            }
        }
        self.change(call, side, Unconditional::Fine, Shown::Object, |live, versions| {
            Ok(Wanted { object: applied(Some(live), versions)?, ownership: Ownership::Applied })
        })
        .await
    }

    /// What an applier wants, checked and without what it may not say.
    fn intent(&self, call: &Call<'_>, side: Side<'_>, intent: Value) -> Result<Value, Failure> {
        for field in ["apiVersion", "kind"] {
            if intent[field].as_str().unwrap_or_default().is_empty() {
                return Err(Failure::bad_request(format!(
                    "error decoding the applied object: {field} must be set"
                )));
            }
        }
        let mut intent = admit::decode::object(call, Body::applied(intent))?;
        // Checked, not filled in: what is not applied is nobody's.
        super::create::place(call, &mut intent.clone())?;
        let map = super::meta::object_mut(&mut intent);
        match side {
            Side::Main if call.resource.has_status() => {
                map.remove("status");
            }
            Side::Status => {
                map.retain(|field, _| {
                    matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "status")
                });
            }
            Side::Main | Side::Other(_) => {}
        }
        Ok(intent)
    }

    /// The live object with an applier's intent merged in.
    fn applied(
        &self,
        call: &Call<'_>,
        side: Side<'_>,
        live: Option<&Value>,
        intent: &Value,
        force: Force,
        versions: &Translations,
    ) -> Result<Value, Failure> {
        let api_version = api_version(call.resource);
        let time = (self.options.clock)();
        let reset = apply::reset_fields(call.resource, side.name());
        let kind = &call.resource.kind;
        let writer = Writer {
            manager: &call.manager,
            api_version: &api_version,
            kind,
            subresource: side.name(),
            time,
            reset: &reset,
            versions,
        };
        let mut object =
            apply::apply(live, intent, &call.resource.schema, &writer, force).map_err(apply_failure)?;
        // Below preserved fields an intent may name what the type does not keep.
        crate::schema::prune(&mut object, &call.resource.schema);
        // Whoever names a version insists on it; whoever does not gets the live one.
        if !intent.resource_version().is_empty() {
            object.meta_set("resourceVersion", Some(intent.resource_version().into()));
        } else if live.is_none() {
            object.meta_set("resourceVersion", None);
        }
        Ok(object)
    }
}

pub(super) fn apply_failure(error: ApplyError) -> Failure {
    let message = error.to_string();
    match error {
        ApplyError::Conflicts(conflicts) => {
            let causes = conflicts
                .0
                .iter()
                .map(|conflict| Cause {
                    reason: "FieldManagerConflict".into(),
                    message: conflict.cause(),
                    field: conflict.field(),
                })
                .collect();
            Failure::apply_conflict(message, causes)
        }
        _ => Failure::bad_request(message),
    }
}

/// A patch may not take an object's name or give it another.
fn unchanged_identity(call: &Call<'_>, object: &mut Value) -> Result<(), Failure> {
    if object.name().is_empty() {
        return Err(Failure::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            call.name
        )));
    }
    super::create::place(call, object)
}
