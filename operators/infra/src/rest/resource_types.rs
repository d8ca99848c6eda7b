//! `/api/v1/resource-types`.

use http::StatusCode;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use serde::Serialize;
use serde_json::{Map, Value};

use super::Face;
use super::answer::{Answer, Problem, Refusal, empty, json_answer, ok};
use super::fields::{Fields, Query};
use super::store::{ATTEMPTS, updated_at, written};
use crate::ids::Numbered;
use crate::schema::Schema;
use crate::types::{ID, Resource, ResourceType, ResourceTypeSpec, type_object_name};

/// A type as clients see it.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    id: Option<i64>,
    name: &'a str,
    version: &'a str,
    schema: &'a Value,
    description: Option<&'a str>,
    status: &'static str,
    metadata: &'a Map<String, Value>,
    created_at: Option<String>,
    updated_at: Option<String>,
}

impl<'a> Shown<'a> {
    fn of(known: &'a ResourceType) -> Self {
        let spec = &known.spec;
        Self {
            id: id(known),
            name: &spec.name,
            version: &spec.version,
            schema: &spec.schema,
            description: spec.description.as_deref(),
            status: status(known),
            metadata: &spec.metadata,
            created_at: written(known.creation_timestamp().map(|time| time.0)),
            updated_at: written(updated_at(known)),
        }
    }
}

fn id(known: &ResourceType) -> Option<i64> {
    known.labels().get(ID)?.parse().ok()
}

fn status(known: &ResourceType) -> &'static str {
    if known.spec.deprecated { "deprecated" } else { "active" }
}

pub(super) async fn list(face: &Face, query: &Query) -> Result<Answer, Refusal> {
    let limit = query.limit(100)?;
    let mut all = face.types().list(&ListParams::default()).await?.items;
    all.retain(|known| {
        known.metadata.deletion_timestamp.is_none()
            && query.text("name").is_none_or(|name| known.spec.name == name)
            && query.text("status").is_none_or(|wanted| status(known) == wanted)
    });
    all.sort_by(|one, other| {
        (&one.spec.name, &one.spec.version).cmp(&(&other.spec.name, &other.spec.version))
    });
    all.truncate(limit as usize);
    Ok(ok(&all.iter().map(Shown::of).collect::<Vec<_>>()))
}

pub(super) async fn get(face: &Face, id: i64) -> Result<Answer, Refusal> {
    Ok(ok(&Shown::of(&face.type_by_id(id).await?)))
}

pub(super) async fn named(face: &Face, name: &str, version: &str) -> Result<Answer, Refusal> {
    let found = face.types().get_opt(&type_object_name(name, version)).await?;
    let found = found.filter(|found| {
        found.spec.name == name
            && found.spec.version == version
            && found.metadata.deletion_timestamp.is_none()
    });
    Ok(ok(&Shown::of(&found.ok_or_else(|| Refusal::missing("Resource type not found"))?)))
}

pub(super) async fn create(face: &Face, body: &[u8]) -> Result<Answer, Refusal> {
    let mut fields = Fields::parse(body)?;
    let name = fields.text("name", 255);
    let version = fields.text("version", 50);
    let description = fields.optional_text("description", 4096);
    let metadata = fields.metadata().unwrap_or_default();
    let schema = Value::Object(fields.required_object("schema"));
    fields.finish()?;
    check(&schema)?;
    let object = type_object_name(&name, &version);
    let mut known = ResourceType::new(
        &object,
        ResourceTypeSpec {
            name: name.clone(),
            version: version.clone(),
            description,
            schema,
            deprecated: false,
            metadata,
        },
    );
    let taken = || Refusal::conflict(format!("Resource type {name}/{version} already exists"));
    if face.types().get_metadata_opt(&object).await?.is_some() {
        return Err(taken());
    }
    let id = face.ids.next(Numbered::Types).await?;
    known.labels_mut().insert(ID.to_owned(), id.to_string());
    match face.types().create(&PostParams::default(), &known).await {
        Ok(known) => Ok(json_answer(StatusCode::CREATED, &Shown::of(&known))),
        Err(kube::Error::Api(status)) if status.code == 409 => Err(taken()),
        Err(error) => Err(error.into()),
    }
}

fn check(schema: &Value) -> Result<(), Refusal> {
    match Schema::compile(schema) {
        Ok(_) => Ok(()),
        Err(error) => {
            let message = format!("Value error, Invalid OpenAPI v3 schema: {error}");
            Err(Problem::new("value_error", &["body", "schema"], message, schema.clone()).into())
        }
    }
}

pub(super) async fn update(face: &Face, id: i64, body: &[u8]) -> Result<Answer, Refusal> {
    let mut fields = Fields::parse(body)?;
    let schema = fields.object("schema").map(Value::Object);
    let description = fields.optional_text("description", 4096);
    let metadata = fields.metadata();
    let status = fields.optional_text("status", 64);
    if status.as_deref().is_some_and(|status| !matches!(status, "active" | "deprecated")) {
        fields.wrong("literal_error", "status", "Input should be 'active' or 'deprecated'");
    }
    fields.finish()?;
    if let Some(schema) = &schema {
        check(schema)?;
    }
    for _ in 0..ATTEMPTS {
        let mut known = face.type_by_id(id).await?;
        let spec = &mut known.spec;
        if let Some(schema) = &schema {
            spec.schema = schema.clone();
        }
        if description.is_some() {
            spec.description.clone_from(&description);
        }
        if let Some(metadata) = &metadata {
            spec.metadata.clone_from(metadata);
        }
        if let Some(status) = &status {
            spec.deprecated = status == "deprecated";
        }
        match face.types().replace(&known.name_any(), &PostParams::default(), &known).await {
            Ok(known) => return Ok(ok(&Shown::of(&known))),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Refusal::conflict("others change this resource type all the time; try again"))
}

pub(super) async fn delete(face: &Face, id: i64) -> Result<Answer, Refusal> {
    let known = face.type_by_id(id).await?;
    let everywhere: kube::Api<Resource> = kube::Api::all(face.client.clone());
    let all = everywhere.list(&ListParams::default()).await?;
    let object = known.name_any();
    let used = all
        .iter()
        .any(|resource| type_object_name(&resource.spec.type_name, &resource.spec.type_version) == object);
    if used {
        return Err(Refusal::conflict("Cannot delete: resources still reference this type"));
    }
    let only_this = Preconditions { uid: known.uid(), ..Preconditions::default() };
    let params = DeleteParams { preconditions: Some(only_this), ..DeleteParams::default() };
    match face.types().delete(&object, &params).await {
        Ok(_) => Ok(empty()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
            Err(Refusal::missing("Resource type not found"))
        }
        Err(error) => Err(error.into()),
    }
}
