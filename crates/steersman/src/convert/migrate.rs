//! Rewriting what is stored in an old version.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::error::Error;

/// Objects that are read at once.
const PAGE: u32 = 200;
/// How often an object is read again when somebody else writes it at the same moment.
const ATTEMPTS: usize = 10;

/// What [`migrate`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migration {
    /// Objects that were written again.
    pub rewritten: usize,
    /// Versions in which nothing is stored any more.
    pub retired: Vec<String>,
}

/// Stores every object of a custom resource in the version in which new ones are stored, then notes in the
/// definition that no other version is left: from then on the old ones may be removed from it.
///
/// `definition` is its name, such as `webapps.example.com`. Objects are written as they are, so that nothing but
/// their bytes changes; those that somebody else writes or deletes meanwhile need nothing. It may be stopped and
/// called again at any time.
///
/// # Errors
/// When the API server refuses, or does not yet store in the new version.
pub async fn migrate(client: &Client, definition: &str) -> Result<Migration, Error> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let found = definitions.get(definition).await?;
    let spec = &found.spec;
    let storage =
        spec.versions.iter().find(|version| version.storage).ok_or_else(|| {
            Error::terminal(format!("{definition} has no version in which objects are stored"))
        })?;
    let stored = found.status.as_ref().and_then(|status| status.stored_versions.clone()).unwrap_or_default();
    let retired: Vec<String> = stored.into_iter().filter(|version| *version != storage.name).collect();
    if retired.is_empty() {
        return Ok(Migration::default());
    }
    // Any served version will do: what is written is stored in the new one.
    let served = spec.versions.iter().filter(|version| version.served);
    let served = served.max_by_key(|version| version.storage).ok_or_else(|| {
        Error::terminal(format!("{definition} serves no version; serve one to rewrite its objects"))
    })?;
    let resource = ApiResource {
        group: spec.group.clone(),
        version: served.name.clone(),
        api_version: format!("{}/{}", spec.group, served.name),
        kind: spec.names.kind.clone(),
        plural: spec.names.plural.clone(),
    };
    let rewritten = rewrite(client, &resource).await?;
    let trimmed = json!({"metadata": {"resourceVersion": found.resource_version()},
        "status": {"storedVersions": [storage.name]}});
    // The version that was read makes this fail where the definition changed meanwhile.
    definitions.patch_status(definition, &PatchParams::default(), &Patch::Merge(trimmed)).await?;
    tracing::info!(definition, rewritten, "all objects are stored in {}", storage.name);
    Ok(Migration { rewritten, retired })
}

async fn rewrite(client: &Client, resource: &ApiResource) -> Result<usize, Error> {
    let all: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let mut rewritten = 0;
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = all.list(&page).await?;
        for object in &list.items {
            let api: Api<DynamicObject> = match object.namespace() {
                Some(namespace) => Api::namespaced_with(client.clone(), &namespace, resource),
                None => all.clone(),
            };
            rewritten += usize::from(rewrite_one(&api, object.clone(), resource).await?);
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = ListParams::default().limit(PAGE).continue_token(&token),
            None => return Ok(rewritten),
        }
    }
}

/// Writes an object as it is; says whether it was still there.
async fn rewrite_one(
    api: &Api<DynamicObject>,
    mut object: DynamicObject,
    resource: &ApiResource,
) -> Result<bool, Error> {
    let name = object.name_any();
    for _ in 0..ATTEMPTS {
        object.types.get_or_insert_with(|| kube::api::TypeMeta {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
        });
        match api.replace(&name, &PostParams::default(), &object).await {
            Ok(_) => return Ok(true),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
            Err(kube::Error::Api(status)) if status.code == 409 => match api.get_opt(&name).await? {
                Some(fresh) => object = fresh,
                None => return Ok(false),
            },
            Err(error) => return Err(Error::from(error).context(format!("cannot rewrite {name}"))),
        }
    }
    Err(Error::msg(format!("{name} changes too often to be rewritten; try again")))
}
