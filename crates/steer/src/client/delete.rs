//! `steer delete`: deletes, and waits until what was deleted is gone.

use std::time::Duration;

use anyhow::bail;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{Connection, connect::is_not_found, manifest, resolve::Catalog};
use crate::cli::DeleteArgs;

/// How often the server is asked whether the object is gone.
const POLL: Duration = Duration::from_millis(100);

/// Deletes what the arguments or files name.
pub(crate) async fn delete(args: &DeleteArgs) -> anyhow::Result<()> {
    let connection = Connection::open(&args.client).await?;
    let catalog = Catalog::load(&connection).await?;
    let mut targets = Vec::new();
    if !args.what.is_empty() {
        for (kind, name) in catalog.parse(&args.what)? {
            let Some(name) = name else { bail!("name what to delete, for example {}/NAME", kind.plural) };
            targets.push((kind, connection.namespace.clone(), name.to_owned()));
        }
    }
    if !args.files.is_empty() {
        for manifest in manifest::read(&args.files)? {
            let kind = catalog.of_object(&manifest.api_version, &manifest.kind)?;
            let namespace = manifest.namespace.unwrap_or_else(|| connection.namespace.clone());
            targets.push((kind, namespace, manifest.name));
        }
    }
    let mut waiting = Vec::new();
    for (kind, namespace, name) in targets {
        let path = kind.path(Some(&namespace), Some(&name));
        let body = br#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}"#.to_vec();
        match connection.request("DELETE", &path, "application/json", Some(("application/json", body))).await
        {
            Ok(answer) => {
                println!("{} deleted", kind.label(&name));
                let uid = answer.pointer("/details/uid").or_else(|| answer.pointer("/metadata/uid"));
                waiting.push((
                    kind.label(&name),
                    path,
                    uid.and_then(Value::as_str).unwrap_or_default().to_owned(),
                ));
            }
            Err(error) if args.ignore_not_found && is_not_found(&error) => {}
            Err(error) => return Err(error),
        }
    }
    if args.no_wait {
        return Ok(());
    }
    let deadline = Instant::now() + Duration::from_secs(args.timeout);
    for (label, path, uid) in waiting {
        while !gone(&connection, &path, &uid).await? {
            if Instant::now() >= deadline {
                bail!(
                    "{label} is still there after {} s: see its finalizers with `steer describe`",
                    args.timeout
                );
            }
            sleep(POLL).await;
        }
    }
    Ok(())
}

/// Whether the object is gone, or another one has taken its name.
async fn gone(connection: &Connection, path: &str, uid: &str) -> anyhow::Result<bool> {
    match connection.get(path).await {
        Ok(object) => {
            let now = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
            Ok(!uid.is_empty() && now != uid)
        }
        Err(error) if is_not_found(&error) => Ok(true),
        Err(error) => Err(error),
    }
}
