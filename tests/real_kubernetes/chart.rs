//! The Helm chart renders what `config/` holds.

use std::{collections::BTreeMap, process::Command};

use serde_json::Value;
use xtask::parts;

use crate::support::{beside::text, repository};

/// Objects by what names them.
type Objects = BTreeMap<String, Value>;

fn objects(yaml: &str) -> Objects {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
    let documents = documents.into_iter().filter(|one| !one.is_null());
    let name = |one: &Value| {
        ["/kind", "/metadata/namespace", "/metadata/name"].map(|path| text(one, path)).join("/")
    };
    documents.map(|one| (name(&one), one)).collect()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_chart_renders_the_objects_of_the_packages() {
    let Some(helm) = parts::or_skip(parts::helm()) else { return };
    let Some(kubectls) = parts::or_skip(parts::kubectls()) else { return };
    let kubectl = &kubectls.last().unwrap().path;
    let mut expected = Objects::new();
    for package in ["default", "observatory", "infra", "elasti"] {
        let folder = repository().join("config").join(package);
        expected.extend(objects(&run(Command::new(kubectl).arg("kustomize").arg(folder))));
    }
    let chart = repository().join("charts/steersman");
    run(Command::new(&helm.path).args(["lint", "--strict"]).arg(&chart));
    let template = |args: &[&str]| {
        let mut command = Command::new(&helm.path);
        command.args(["template", "steersman", "--kube-version=v1.36.4"]).arg(&chart).args(args);
        objects(&run(&mut command))
    };

    let mut rendered = template(&["--include-crds"]);
    let token = rendered.remove("Secret/infra-system/infra-rest").expect("a token for the REST API");
    assert_eq!(text(&token, "/stringData/token").len(), 48);
    assert_eq!(rendered.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    // Definitions are the same files, whose numbers kustomize writes in another way.
    let (definitions, others): (Vec<_>, Vec<_>) =
        expected.iter().partition(|(name, _)| name.starts_with("CustomResourceDefinition/"));
    assert_eq!(definitions.len(), 5);
    for (name, object) in others {
        assert_eq!(&rendered[name], object, "{name}");
    }

    let chosen = template(&[
        "--set=image.repository=registry.example.com/steer,image.tag=v1,image.pullPolicy=IfNotPresent",
        "--set=webapp.replicas=3,webapp.extraArgs={--latest-images=refuse},webapp.podSpec.priorityClassName=high",
        "--set=observatory.enabled=false,infra.enabled=false,elasti.enabled=false",
    ]);
    assert!(chosen.keys().all(|name| name.contains("webapp")), "{:?}", chosen.keys());
    let deployment = &chosen["Deployment/webapp-system/webapp-manager"];
    assert_eq!(deployment["spec"]["replicas"], 3);
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["priorityClassName"], "high");
    assert_eq!(pod["containers"][0]["image"], "registry.example.com/steer:v1");
    assert_eq!(pod["containers"][0]["imagePullPolicy"], "IfNotPresent");
    assert_eq!(pod["containers"][0]["args"][3], "--latest-images=refuse");
}
