//! `steer apply`: server-side apply of manifests.

use serde_json::Value;

use super::{
    Connection,
    connect::{Refused, is_not_found},
    manifest::{self, Manifest},
    resolve::Catalog,
};
use crate::cli::ApplyArgs;

/// The name under which fields applied from the command line are owned.
const FIELD_MANAGER: &str = "steer";

/// Applies every object of the files, in order; goes on after a failure and reports it at the end.
pub(crate) async fn apply(args: &ApplyArgs) -> anyhow::Result<()> {
    let manifests = manifest::read(&args.files)?;
    let connection = Connection::open(&args.client).await?;
    let mut catalog = Catalog::load(&connection).await?;
    let mut failures = 0;
    for manifest in &manifests {
        if catalog.of_object(&manifest.api_version, &manifest.kind).is_err() {
            // A definition applied a moment ago may have added the type.
            catalog = Catalog::load(&connection).await?;
        }
        if let Err(error) = apply_one(&connection, &catalog, manifest, args).await {
            eprintln!("error: {} {}: {error:#}", manifest.kind, manifest.name);
            failures += 1;
        }
    }
    match failures {
        0 => Ok(()),
        n => Err(anyhow::anyhow!("{n} of {} objects could not be applied", manifests.len())),
    }
}

async fn apply_one(
    connection: &Connection,
    catalog: &Catalog,
    manifest: &Manifest,
    args: &ApplyArgs,
) -> anyhow::Result<()> {
    let kind = catalog.of_object(&manifest.api_version, &manifest.kind)?;
    let namespace = manifest.namespace.as_deref().unwrap_or(&connection.namespace);
    let path = kind.path(Some(namespace), Some(&manifest.name));
    let before = match connection.get(&path).await {
        Ok(object) => Some(declared(object)),
        Err(error) if is_not_found(&error) => None,
        Err(error) => return Err(error),
    };
    let mut query = format!("?fieldManager={FIELD_MANAGER}&fieldValidation=Strict&force={}", args.force);
    if args.dry_run {
        query.push_str("&dryRun=All");
    }
    let body = serde_json::to_vec(&manifest.object)?;
    let applied = connection
        .request("PATCH", &(path + &query), "application/json", Some(("application/apply-patch+yaml", body)))
        .await
        .map_err(|error| match error.downcast_ref::<Refused>() {
            Some(refused) if refused.code == 409 && !args.force => {
                error.context("someone else manages these fields; --force takes them over")
            }
            _ => error,
        })?;
    let outcome = match before {
        None => "created",
        Some(before) if before == declared(applied) => "unchanged",
        Some(_) => "configured",
    };
    let suffix = if args.dry_run { " (dry run)" } else { "" };
    println!("{} {outcome}{suffix}", kind.label(&manifest.name));
    Ok(())
}

/// The part of an object that a user declares; the rest changes by itself.
fn declared(mut object: Value) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| !["resourceVersion", "managedFields", "generation"].contains(&key.as_str()));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|key, _| key != "deployment.kubernetes.io/revision");
        }
    }
    object
}
