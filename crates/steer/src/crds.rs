//! `steer crds`: the CustomResourceDefinitions of the operators as files.

use std::path::Path;

use anyhow::{Context as _, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::cli::CrdsArgs;

/// Every definition that the operators need.
pub(crate) fn all() -> Vec<CustomResourceDefinition> {
    vec![CustomResourceDefinition::default()]
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
