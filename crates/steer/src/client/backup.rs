//! `steer backup` and `steer restore`: everything in a running `steer up`, as one file.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
};

use anyhow::Context as _;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

use super::{Connection, connect::refused};
use crate::cli::BackupArgs;

/// Writes a backup, whole or not at all, readable by its owner alone: it holds secrets.
pub(crate) async fn backup(args: &BackupArgs) -> anyhow::Result<()> {
    let connection = Connection::open(&args.client).await?;
    let request = http::Request::get("/steersman/v1/backup").body(Body::empty())?;
    let response = connection.client.send(request).await.map_err(|error| connection.unreachable(error))?;
    let status = response.status();
    let bytes =
        response.into_body().collect().await.map_err(|error| connection.unreachable(error))?.to_bytes();
    if !status.is_success() {
        return Err(refused(status.as_u16(), &serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
            .context("only `steer up` makes backups");
    }
    let half = args.file.with_extension("part");
    let write = || -> std::io::Result<()> {
        let mut file = File::options().create(true).write(true).truncate(true).mode(0o600).open(&half)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&half, &args.file)
    };
    write().with_context(|| format!("cannot write {}", args.file.display()))?;
    println!("{} bytes written to {}", bytes.len(), args.file.display());
    Ok(())
}

/// Makes a running `steer up` what a backup shows.
pub(crate) async fn restore(args: &BackupArgs) -> anyhow::Result<()> {
    let bytes = fs::read(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    let connection = Connection::open(&args.client).await?;
    let body = Some(("application/gzip", bytes));
    let restored = connection.request("POST", "/steersman/v1/restore", "application/json", body).await?;
    let count = |what: &str| restored[what].as_u64().unwrap_or_default();
    println!(
        "{} created, {} changed, {} deleted, {} were as in the backup",
        count("created"),
        count("updated"),
        count("deleted"),
        count("unchanged"),
    );
    Ok(())
}
