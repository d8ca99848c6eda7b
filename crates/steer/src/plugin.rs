//! `steer plugin`: for those who write plugins.

use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Map, Value};
use steersman_infra::plugin::{
    ProcessOptions,
    conformance::{Sample, check},
};

use crate::cli::{ConformanceArgs, PluginCommand};

/// Does what was asked.
pub(crate) async fn run(command: PluginCommand) -> anyhow::Result<()> {
    match command {
        PluginCommand::Conformance(args) => conformance(&args).await,
    }
}

async fn conformance(args: &ConformanceArgs) -> anyhow::Result<()> {
    let options = ProcessOptions {
        call_timeout: Duration::from_secs(args.timeout),
        start_timeout: Duration::from_secs(args.timeout),
        ..ProcessOptions::new(args.command.iter().cloned())
    };
    let sample = Sample {
        settings: object("--settings", &args.settings)?,
        parameters: object("--parameters", &args.parameters)?,
    };
    let report = check(&options, &sample).await;
    println!("{report}");
    if !report.passed() {
        bail!("the plugin does not keep the contract");
    }
    Ok(())
}

fn object(flag: &str, text: &str) -> anyhow::Result<Map<String, Value>> {
    serde_json::from_str(text).with_context(|| format!("{flag} is no JSON object"))
}
