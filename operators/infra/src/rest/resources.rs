//! `/api/v1/resources`.

use http::StatusCode;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use serde::Serialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::Face;
use super::answer::{Answer, Refusal, json_answer, ok};
use super::fields::{Fields, Query};
use super::store::{ATTEMPTS, updated_at, written};
use crate::history::Record;
use crate::ids::Numbered;
use crate::types::{
    ID, ON_DELETE, Resource, ResourceSpec, ResourceStatus, ResourceType, State, TRIGGER, USUAL_PLUGIN,
    is_label, object_name, type_object_name,
};

/// What names must look like.
const NAME: &str = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";

/// A resource as clients see it. Twelve fields; more on request with `?fields=all`.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    id: Option<i64>,
    name: &'a str,
    resource_type_name: &'a str,
    resource_type_version: &'a str,
    action_plugin: &'a str,
    status: State,
    status_message: Option<&'a str>,
    generation: i64,
    observed_generation: i64,
    created_at: Option<String>,
    updated_at: Option<String>,
    last_reconcile_time: Option<String>,
    #[serde(flatten)]
    more: Option<More<'a>>,
}

/// What is shown on request.
#[derive(Debug, Serialize)]
struct More<'a> {
    spec: &'a Map<String, Value>,
    metadata: &'a Map<String, Value>,
    conditions: Value,
    retry_count: u32,
    next_reconcile_time: Option<String>,
}

impl<'a> Shown<'a> {
    fn of(resource: &'a Resource, query: &Query) -> Self {
        let (spec, status) = (&resource.spec, resource.status.as_ref());
        let state = resource.state();
        // A message about an earlier wish says nothing about this one.
        let waits_for_plugin = status.is_some_and(ResourceStatus::waits_for_plugin);
        let message = status
            .and_then(|status| status.message.as_deref())
            .filter(|_| state != State::Pending || waits_for_plugin);
        let more = (query.text("fields") == Some("all")).then(|| More {
            spec: &spec.parameters,
            metadata: &spec.metadata,
            conditions: status.map_or(json!([]), |status| json!(status.conditions)),
            retry_count: status.map_or(0, |status| status.failures),
            next_reconcile_time: written(status.and_then(|status| status.next_attempt_at)),
        });
        Self {
            id: resource.id(),
            name: resource.short_name(),
            resource_type_name: &spec.type_name,
            resource_type_version: &spec.type_version,
            action_plugin: &spec.action_plugin,
            status: state,
            status_message: message,
            generation: resource.metadata.generation.unwrap_or(1),
            observed_generation: status.and_then(|status| status.last_reconciled_generation).unwrap_or(0),
            created_at: written(resource.creation_timestamp().map(|time| time.0)),
            updated_at: written(updated_at(resource)),
            last_reconcile_time: written(status.and_then(|status| status.last_reconcile_time)),
            more,
        }
    }
}

/// An attempt as clients see it.
#[derive(Debug, Serialize)]
struct Entry<'a> {
    id: i64,
    resource_id: i64,
    generation: i64,
    success: bool,
    phase: &'a str,
    error_message: Option<&'a str>,
    resources_created: u32,
    resources_updated: u32,
    resources_deleted: u32,
    reconcile_time: String,
    #[serde(flatten)]
    more: Option<EntryMore<'a>>,
}

/// What is shown of an attempt on request.
#[derive(Debug, Serialize)]
struct EntryMore<'a> {
    plan_output: Option<&'a str>,
    apply_output: Option<&'a str>,
    duration_seconds: f64,
    trigger_reason: &'a str,
    drift_detected: bool,
}

impl<'a> Entry<'a> {
    fn of(id: i64, record: &'a Record, query: &Query) -> Self {
        Self {
            id,
            resource_id: record.resource_id,
            generation: record.generation,
            success: record.success,
            phase: &record.phase,
            error_message: record.error_message.as_deref(),
            resources_created: record.created,
            resources_updated: record.updated,
            resources_deleted: record.deleted,
            reconcile_time: record.time.to_string(),
            more: (query.text("fields") == Some("all")).then(|| EntryMore {
                plan_output: record.plan.as_deref(),
                apply_output: record.apply.as_deref(),
                duration_seconds: record.duration.as_secs_f64(),
                trigger_reason: &record.trigger,
                drift_detected: record.drift,
            }),
        }
    }
}

pub(super) async fn list(face: &Face, query: &Query) -> Result<Answer, Refusal> {
    let limit = query.limit(100)?;
    let mut all = face.resources().list(&ListParams::default()).await?.items;
    all.retain(|resource| {
        query.text("status").is_none_or(|wanted| resource.state().as_str() == wanted)
            && query.text("action_plugin").is_none_or(|wanted| resource.spec.action_plugin == wanted)
            && query.text("resource_type_name").is_none_or(|wanted| resource.spec.type_name == wanted)
    });
    let age = |resource: &Resource| (resource.creation_timestamp().map(|time| time.0), resource.id());
    all.sort_by_key(|resource| std::cmp::Reverse(age(resource)));
    if let Some(cursor) = query.number("cursor")? {
        // What the last page ended with may be gone by now; ids grow with time.
        let seen = all.iter().position(|resource| resource.id() == Some(cursor));
        match seen {
            Some(seen) => drop(all.drain(..=seen)),
            None => all.retain(|resource| resource.id() < Some(cursor)),
        }
    }
    all.truncate(limit as usize);
    Ok(ok(&all.iter().map(|resource| Shown::of(resource, query)).collect::<Vec<_>>()))
}

pub(super) async fn get(face: &Face, id: i64, query: &Query) -> Result<Answer, Refusal> {
    Ok(ok(&Shown::of(&face.resource_by_id(id).await?, query)))
}

pub(super) async fn named(
    face: &Face,
    kind: &str,
    version: &str,
    name: &str,
    query: &Query,
) -> Result<Answer, Refusal> {
    let missing = || Refusal::missing("Resource not found");
    // Names that no object can have are not asked for.
    if !is_label(name) {
        return Err(missing());
    }
    let resource = face.resources().get_opt(&object_name(kind, name)).await?;
    let resource = resource.filter(|found| found.spec.type_name == kind).ok_or_else(missing)?;
    // Another version of the type shows the same resource, if it can.
    if resource.spec.type_version != version {
        let fits = match known_type(face, kind, version).await? {
            Some(known) => {
                face.schemas.of(&known).is_ok_and(|schema| schema.check(&resource.spec.parameters).is_ok())
            }
            None => false,
        };
        if !fits {
            return Err(missing());
        }
    }
    Ok(ok(&Shown::of(&resource, query)))
}

pub(super) async fn create(face: &Face, query: &Query, body: &[u8]) -> Result<Answer, Refusal> {
    let mut fields = Fields::parse(body)?;
    let name = fields.text("name", 255);
    if !name.is_empty() && !is_label(&name) {
        fields.wrong("string_pattern_mismatch", "name", format!("String should match pattern '{NAME}'"));
    }
    let type_name = fields.text("resource_type_name", 255);
    let type_version = fields.text("resource_type_version", 50);
    let action_plugin = fields.optional_text("action_plugin", 63).unwrap_or_else(|| USUAL_PLUGIN.to_owned());
    let parameters = fields.object("spec");
    let plugin_config = fields.object("plugin_config").unwrap_or_default();
    let metadata = fields.metadata().unwrap_or_default();
    fields.finish()?;
    let parameters = parameters.ok_or_else(|| Refusal::bad("spec is required"))?;
    let Some(known) = known_type(face, &type_name, &type_version).await? else {
        return Err(Refusal::bad(format!("Resource type {type_name}/{type_version} not found")));
    };
    if face.plugins.get(&action_plugin).is_none() {
        return Err(Refusal::bad(face.plugins.unknown(&action_plugin)));
    }
    let parameters = checked(face, &known, parameters)?;
    let object = object_name(&type_name, &name);
    let taken = || Refusal::conflict(format!("Resource {name} of type {type_name} already exists"));
    if face.resources().get_metadata_opt(&object).await?.is_some() {
        return Err(taken());
    }
    let spec = ResourceSpec {
        type_name: type_name.clone(),
        type_version,
        action_plugin,
        parameters,
        plugin_config,
        metadata,
    };
    let mut resource = Resource::new(&object, spec);
    let id = face.ids.next(Numbered::Resources).await?;
    resource.labels_mut().insert(ID.to_owned(), id.to_string());
    // From the first moment on, so that a deletion right after the creation is seen.
    resource.finalizers_mut().push(crate::FINALIZER.to_owned());
    match face.resources().create(&PostParams::default(), &resource).await {
        Ok(resource) => Ok(json_answer(StatusCode::CREATED, &Shown::of(&resource, query))),
        Err(kube::Error::Api(status)) if status.code == 409 => Err(taken()),
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn update(face: &Face, id: i64, query: &Query, body: &[u8]) -> Result<Answer, Refusal> {
    let mut fields = Fields::parse(body)?;
    let parameters = fields.object("spec");
    let plugin_config = fields.object("plugin_config");
    let expected = fields.optional_number("expected_generation");
    fields.finish()?;
    for _ in 0..ATTEMPTS {
        let mut resource = face.resource_by_id(id).await?;
        if resource.metadata.deletion_timestamp.is_some() {
            return Err(Refusal::conflict("the resource is being deleted"));
        }
        let found = resource.metadata.generation.unwrap_or_default();
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            return Err(Refusal::conflict(format!(
                "the generation is {found}, not {expected}: somebody else changed it"
            )));
        }
        let before = resource.spec.clone();
        if let Some(parameters) = &parameters {
            let (name, version) = (&before.type_name, &before.type_version);
            let Some(known) = known_type(face, name, version).await? else {
                return Err(Refusal::bad(format!("Resource type {name}/{version} not found")));
            };
            resource.spec.parameters = checked(face, &known, parameters.clone())?;
        }
        if let Some(plugin_config) = &plugin_config {
            resource.spec.plugin_config.clone_from(plugin_config);
        }
        // The same wish again is no change.
        if resource.spec == before {
            return Ok(ok(&Shown::of(&resource, query)));
        }
        match face.resources().replace(&resource.name_any(), &PostParams::default(), &resource).await {
            Ok(resource) => return Ok(ok(&Shown::of(&resource, query))),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Refusal::conflict("others change this resource all the time; try again"))
}

pub(super) async fn delete(face: &Face, id: i64, query: &Query) -> Result<Answer, Refusal> {
    let resource = face.resource_by_id(id).await?;
    let name = resource.name_any();
    if query.is_set("orphan") || query.is_set("force") {
        let orphan = json!({"metadata": {"annotations": {ON_DELETE: "orphan"}}});
        face.resources().patch(&name, &PatchParams::default(), &Patch::Merge(&orphan)).await?;
    }
    if resource.metadata.deletion_timestamp.is_none() {
        let only_this = Preconditions { uid: resource.uid(), ..Preconditions::default() };
        let params = DeleteParams { preconditions: Some(only_this), ..DeleteParams::default() };
        match face.resources().delete(&name, &params).await {
            Ok(_) => {}
            // Somebody else was faster.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(json_answer(
        StatusCode::ACCEPTED,
        &json!({"message": "Resource marked for deletion", "resource_id": id}),
    ))
}

pub(super) async fn reconcile(face: &Face, id: i64) -> Result<Answer, Refusal> {
    let resource = face.resource_by_id(id).await?;
    let now = (face.clock)();
    let value = format!("{now}/{}", Uuid::new_v4());
    let trigger = json!({"metadata": {"annotations": {TRIGGER: value}}});
    face.resources().patch(&resource.name_any(), &PatchParams::default(), &Patch::Merge(&trigger)).await?;
    Ok(json_answer(StatusCode::ACCEPTED, &json!({"message": "Reconciliation triggered", "resource_id": id})))
}

pub(super) async fn history(face: &Face, id: i64, query: &Query) -> Result<Answer, Refusal> {
    let (limit, before) = (query.limit(10)?, query.number("cursor")?);
    let entries = face.history.of(id, limit, before).await?;
    // What is gone is still told about.
    if entries.is_empty() && !face.history.knows(id).await? {
        face.resource_by_id(id).await?;
    }
    Ok(ok(&entries.iter().map(|(id, record)| Entry::of(*id, record, query)).collect::<Vec<_>>()))
}

pub(super) async fn outputs(face: &Face, id: i64) -> Result<Answer, Refusal> {
    let resource = face.resource_by_id(id).await?;
    let outputs = resource.status.and_then(|status| status.outputs).unwrap_or_default();
    Ok(ok(&json!({"outputs": outputs})))
}

async fn known_type(face: &Face, name: &str, version: &str) -> Result<Option<ResourceType>, Refusal> {
    let found = face.types().get_opt(&type_object_name(name, version)).await?;
    Ok(found.filter(|found| {
        found.spec.name == name
            && found.spec.version == version
            && found.metadata.deletion_timestamp.is_none()
    }))
}

/// The parameters with defaults, or everything that is wrong with them.
fn checked(
    face: &Face,
    known: &ResourceType,
    mut parameters: Map<String, Value>,
) -> Result<Map<String, Value>, Refusal> {
    let schema = face
        .schemas
        .of(known)
        .map_err(|error| Refusal::bad(format!("the schema of the resource type cannot be used: {error}")))?;
    schema.default_into(&mut parameters);
    match schema.check(&parameters) {
        Ok(()) => Ok(parameters),
        Err(complaints) => Err(Refusal::bad(format!("Spec validation failed: {}", complaints.join("; ")))),
    }
}
