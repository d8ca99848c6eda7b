//! `steer infra`: the infrastructure operator's REST API behind a command line.

use std::{fs, path::PathBuf};

use jiff::Timestamp;
use serde_json::Value;
use steersman_infra::cli::{self, Filter, Server};

use crate::cli::{InfraArgs, InfraCommand};

/// Does what the command says.
pub(crate) async fn run(args: InfraArgs) -> anyhow::Result<()> {
    let server = Server::new(&address(args.server), args.token)?;
    let now = Timestamp::now();
    let (answer, shown) = match args.command {
        InfraCommand::Types => {
            let types = server.types().await?;
            let shown = cli::types_table(&types, now);
            (types, shown)
        }
        InfraCommand::List { status, plugin, kind, limit } => {
            let filter = Filter { status, action_plugin: plugin, resource_type: kind, limit: Some(limit) };
            let resources = server.list(&filter).await?;
            let shown = cli::resources_table(&resources, now);
            (resources, shown)
        }
        InfraCommand::Get(resource) => {
            let found = server.find(&resource.name).await?;
            let shown = cli::details(&found, now);
            (found, shown)
        }
        InfraCommand::History { resource, limit } => {
            let entries = server.history(&resource.name, limit).await?;
            let shown = cli::history_table(&entries, now);
            (entries, shown)
        }
        InfraCommand::Reconcile(resource) => {
            let accepted = server.reconcile(&resource.name).await?;
            (accepted, format!("resource {} is reconciled now\n", resource.name))
        }
        InfraCommand::Outputs(resource) => {
            let outputs = server.outputs(&resource.name).await?;
            let shown = pretty(&outputs);
            (outputs, shown)
        }
    };
    print!("{}", if args.json { pretty(&answer) } else { shown });
    Ok(())
}

fn pretty(value: &Value) -> String {
    format!("{}\n", serde_json::to_string_pretty(value).unwrap_or_default())
}

/// Where the REST API is: what was said, what a `steer up` in this folder wrote down, or the usual.
fn address(said: Option<String>) -> String {
    let dir = std::env::var_os("STEER_DATA_DIR").map_or_else(|| PathBuf::from(".steersman"), PathBuf::from);
    let written = || fs::read_to_string(dir.join("rest")).ok().map(|text| text.trim().to_owned());
    said.or_else(written).unwrap_or_else(|| "http://localhost:8000".to_owned())
}
