//! From a tree to an object of the right type, without what nobody knows.

use serde_json::Value;

use crate::{
    engine::{Call, FieldValidation, api_version, meta::object_mut},
    http::Decoded,
    schema::{self, FieldError},
    status::Failure,
    types::{Origin, Resource, object_meta},
};

/// A tree that should be an object, and where it comes from.
pub(crate) struct Body {
    decoded: Decoded,
    source: Source,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The body of a request.
    Request,
    /// A live object with a patch.
    Patch,
    /// What somebody applies: fields may be missing that an object needs.
    Intent,
}

impl Body {
    /// From the body of a request.
    pub(crate) fn request(decoded: Decoded) -> Self {
        Self { decoded, source: Source::Request }
    }

    /// From a live object with a patch.
    pub(crate) fn patched(value: Value) -> Self {
        Self { decoded: Decoded { value, duplicates: Vec::new() }, source: Source::Patch }
    }

    /// From the body of an apply.
    pub(crate) fn applied(value: Value) -> Self {
        Self { decoded: Decoded { value, duplicates: Vec::new() }, source: Source::Intent }
    }
}

/// The object that a body holds: of the right kind and types, without unknown fields.
pub(crate) fn object(call: &Call<'_>, body: Body) -> Result<Value, Failure> {
    let resource = call.resource;
    let Decoded { value: mut object, duplicates } = body.decoded;
    let (kind, version) = (&*resource.kind, &*resource.version);
    let patched = (body.source == Source::Patch).then(|| object.to_string());
    let wrong = |why: String| match &patched {
        Some(text) => Failure::invalid("", "", "", &[FieldError::invalid("patch", text.as_str(), why)]),
        None => Failure::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
        )),
    };
    if !object.is_object() {
        return Err(wrong("the body is not an object".to_owned()));
    }
    if body.source == Source::Intent {
        return Ok(object);
    }
    check_kind(call, &mut object)?;
    let mut complaints: Vec<String> =
        duplicates.iter().map(|path| format!("duplicate field {path:?}")).collect();
    match resource.origin {
        Origin::BuiltIn => schema::check_types(&object, &resource.schema).map_err(wrong)?,
        Origin::Custom { .. } => check_metadata_types(&object).map_err(wrong)?,
    }
    let unknown = schema::prune(&mut object, &resource.schema);
    complaints.extend(unknown.iter().map(|path| format!("unknown field {path:?}")));
    complain(call, complaints)?;
    canonical(&mut object, resource);
    if object.get("metadata").is_none_or(|metadata| !metadata.is_object()) {
        object_mut(&mut object).insert("metadata".into(), Value::Object(serde_json::Map::new()));
    }
    Ok(object)
}

/// Warns of complaints or refuses because of them, as the client asked.
pub(crate) fn complain(call: &Call<'_>, complaints: Vec<String>) -> Result<(), Failure> {
    match call.validation {
        FieldValidation::Strict if !complaints.is_empty() => {
            let kind = &call.resource.kind;
            let version = &call.resource.version;
            Err(Failure::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {}",
                complaints.join(", ")
            )))
        }
        FieldValidation::Warn => {
            complaints.into_iter().for_each(|complaint| call.warn(complaint));
            Ok(())
        }
        FieldValidation::Strict | FieldValidation::Ignore => Ok(()),
    }
}

/// Kind and version must be those of the path, or absent for built-in types.
fn check_kind(call: &Call<'_>, object: &mut Value) -> Result<(), Failure> {
    let resource = call.resource;
    let expected = api_version(resource);
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (given_version, given_kind) = (text(object, "apiVersion"), text(object, "kind"));
    let built_in = resource.origin == Origin::BuiltIn;
    if (given_version.is_empty() || given_kind.is_empty()) && !built_in {
        return Err(Failure::bad_request("the object must have an apiVersion and a kind".to_owned()));
    }
    if !given_version.is_empty() && given_version != expected {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version ({expected})"
        )));
    }
    if !given_kind.is_empty() && given_kind != *resource.kind {
        if built_in {
            return Err(Failure::bad_request(format!(
                "{given_kind} in version {:?} cannot be handled as a {}: converting ({given_kind}) to ({}): unknown conversion",
                resource.version, resource.kind, resource.kind
            )));
        }
        let error = FieldError::invalid("kind", given_kind.as_str(), format!("must be {}", resource.kind));
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        return Err(Failure::invalid(&resource.group, &given_kind, name, &[error]));
    }
    let map = object_mut(object);
    map.insert("apiVersion".into(), expected.into());
    map.insert("kind".into(), resource.kind.to_string().into());
    Ok(())
}

/// Custom resources are checked by validation, except for their metadata.
fn check_metadata_types(object: &Value) -> Result<(), String> {
    object.get("metadata").map_or(Ok(()), |metadata| schema::check_types(metadata, &object_meta()))
}

/// The one form of an object: as Kubernetes writes it. Custom resources keep all but their metadata as it is.
pub(crate) fn canonical(object: &mut Value, resource: &Resource) {
    // An empty list of owners asks to forget them all, so it is not the same as none.
    let forget_owners =
        object.pointer("/metadata/managedFields").and_then(Value::as_array).is_some_and(Vec::is_empty);
    match resource.origin {
        Origin::BuiltIn => schema::canonical(object, &resource.schema),
        Origin::Custom { .. } => {
            if let Some(metadata) = object.get_mut("metadata") {
                schema::canonical(metadata, &object_meta());
            }
        }
    }
    if forget_owners {
        object["metadata"]["managedFields"] = Value::Array(Vec::new());
    }
}
