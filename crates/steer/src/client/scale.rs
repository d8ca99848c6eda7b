//! `steer scale`: through the scale subresource, so that anything scalable works.

use anyhow::bail;
use serde_json::json;

use super::{Connection, resolve::Catalog};
use crate::cli::ScaleArgs;

/// Scales what the arguments name.
pub(crate) async fn scale(args: &ScaleArgs) -> anyhow::Result<()> {
    if args.replicas < 0 {
        bail!("--replicas={} is not possible: it must be 0 or more", args.replicas);
    }
    let connection = Connection::open(&args.client).await?;
    let catalog = Catalog::load(&connection).await?;
    for (kind, name) in catalog.parse(&args.what)? {
        let Some(name) = name else { bail!("name what to scale, for example {}/NAME", kind.plural) };
        let path = kind.path(Some(&connection.namespace), Some(name)) + "/scale?fieldManager=steer";
        let patch = json!({"spec": {"replicas": args.replicas}}).to_string().into_bytes();
        connection
            .request("PATCH", &path, "application/json", Some(("application/merge-patch+json", patch)))
            .await?;
        println!("{} scaled", kind.label(name));
    }
    Ok(())
}
