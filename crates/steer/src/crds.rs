//! `steer crds`: the CustomResourceDefinitions of the operators as files.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use tokio::time::{Instant, sleep};

use crate::cli::CrdsArgs;

/// How long a server may take to serve a new definition.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);

/// Every definition that the operators need.
pub(crate) fn all() -> Vec<CustomResourceDefinition> {
    let mut all = vec![steersman_webapp::crd(), steersman_observatory::crd(), steersman_elasti::crd()];
    all.extend(steersman_infra::crds());
    all
}

/// Creates or updates the definitions and waits until the server serves them.
pub(crate) async fn install(client: &Client) -> anyhow::Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply("steer").force();
    for mut definition in all() {
        let name = definition.name_any();
        if let Some(live) = api.get_opt(&name).await? {
            keep_served(&mut definition, &live);
        }
        api.patch(&name, &params, &Patch::Apply(&definition)).await.with_context(|| name.clone())?;
        let deadline = Instant::now() + ESTABLISHED_WITHIN;
        while !established(&api.get(&name).await?) {
            if Instant::now() >= deadline {
                bail!("{name} is not served after {} s: see its conditions", ESTABLISHED_WITHIN.as_secs());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

/// Keeps versions served that a webhook converts, so that nobody is cut off while a replica starts.
fn keep_served(definition: &mut CustomResourceDefinition, live: &CustomResourceDefinition) {
    let converted = live.spec.conversion.as_ref().is_some_and(|found| found.strategy == "Webhook");
    let served = |name: &str| live.spec.versions.iter().any(|version| version.served && version.name == name);
    for version in &mut definition.spec.versions {
        version.served |= converted && served(&version.name);
    }
}

fn established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|list| list.iter().any(|c| c.type_ == "Established" && c.status == "True"))
}

/// Prints the definitions, or writes or checks their files.
pub(crate) fn write(args: &CrdsArgs) -> anyhow::Result<()> {
    for definition in all() {
        let text = format!("---\n{}", serde_saphyr::to_string(&definition)?);
        let Some(dir) = &args.dir else {
            print!("{text}");
            continue;
        };
        let file = dir.join(format!("{}_{}.yaml", definition.spec.group, definition.spec.names.plural));
        if args.check {
            check(&file, &text)?;
        } else {
            std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(())
}

fn check(file: &Path, wanted: &str) -> anyhow::Result<()> {
    let found = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    if found != wanted {
        bail!("{} is out of date: run `cargo xtask generate`", file.display());
    }
    Ok(())
}
