//! The packages as users install them: `make deploy`, and the Helm chart. The operators run as pods of our
//! node, with their own accounts and roles; the API server asks their webhooks; and nothing is left behind.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tempfile::TempDir;
use xtask::parts::{self, Kubernetes, KubernetesOptions};

use crate::support::{
    audit::Audit,
    beside::{Beside, json, text},
    egress::Egress,
    eventually, repository,
};

/// Every Deployment of the packages.
const DEPLOYMENTS: [(&str, &str); 5] = [
    ("webapp-system", "webapp-manager"),
    ("observatory-operator-system", "observatory-operator-manager"),
    ("infra-system", "infra-manager"),
    ("elasti", "elasti-operator-controller-manager"),
    ("elasti", "elasti-resolver"),
];

/// What webhooks must refuse, and with which words.
const REFUSED: [(&str, &str); 4] = [
    (
        "apiVersion: example.com/v1\nkind: WebApp\nmetadata: {name: bad}\nspec: {image: nginx}\n",
        "spec.image: Invalid value: \"nginx\": must say which version",
    ),
    (
        "apiVersion: workflow.seventh-horizon.io/v1alpha1\nkind: Observatory\nmetadata: {name: bad}\nspec:\n  tasks:\n  \
         - {name: a, image: \"busybox:1\", dependencies: [b]}\n  - {name: b, image: \"busybox:1\", dependencies: [a]}\n",
        "tasks wait for each other: a -> b -> a",
    ),
    (
        "apiVersion: infra.steersman.io/v1\nkind: Resource\nmetadata: {name: databasecluster.bad}\nspec:\n  \
         {type: DatabaseCluster, typeVersion: v1, actionPlugin: http, parameters: {engine: oracle, storage_gb: 500}}\n",
        "engine",
    ),
    (
        "apiVersion: elasti.truefoundry.com/v1alpha1\nkind: ElastiService\nmetadata: {name: bad}\nspec:\n  service: bad\n  \
         scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: bad}\n  triggers: [{type: prometheus, metadata: {}}]\n",
        "spec.triggers[0].metadata.query: Required value",
    ),
];

/// A real control plane whose API server reaches Services through our node.
struct World {
    node: Option<Beside>,
    kubernetes: Kubernetes,
    audit: Audit,
    folder: TempDir,
}

impl World {
    fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let egress = Egress::new(folder.path());
        let audit = Audit::new(folder.path());
        let mut api_server_flags = audit.flags();
        api_server_flags.push(egress.flag());
        let options = KubernetesOptions { api_server_flags, ..KubernetesOptions::default() };
        let kubernetes = parts::or_skip(Kubernetes::start(&options))?;
        let node = Beside::node(&kubernetes, folder.path(), &["--egress-socket", path(&egress.socket)]);
        Some(Self { node: Some(node), kubernetes, audit, folder })
    }

    /// `make TARGET` as a user types it.
    fn make(&self, target: &str) -> String {
        let output = Command::new("make")
            .args([
                "--no-print-directory",
                target,
                &format!("KUBECTL={}", self.kubernetes.kubectl().display()),
            ])
            .current_dir(repository())
            .env("KUBECONFIG", self.kubernetes.kubeconfig())
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL")
            .output()
            .unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "make {target}: {said}\n{}", self.told());
        said
    }

    fn run(&self, args: &[&str]) -> String {
        self.kubernetes.run(args).unwrap_or_else(|error| panic!("kubectl {args:?}: {error}\n{}", self.told()))
    }

    fn write(&self, name: &str, manifest: &str) -> PathBuf {
        let file = self.folder.path().join(name);
        fs::write(&file, manifest).unwrap();
        file
    }

    fn rolled_out(&self, deployments: &[(&str, &str)]) {
        for (namespace, name) in deployments {
            let name = format!("deployment/{name}");
            self.run(&["--namespace", namespace, "rollout", "status", &name, "--timeout=120s"]);
        }
    }

    fn eventually(&self, what: &str, args: &[&str], is: impl Fn(&Value) -> bool) {
        eventually(&format!("{what}\n{}", self.told()), || is(&json(&self.kubernetes, args)).then_some(()));
    }

    /// Everything that may explain a failure.
    fn told(&self) -> String {
        let pods = self.kubernetes.run(&["get", "pods", "--all-namespaces"]).unwrap_or_default();
        let node = fs::read_to_string(self.folder.path().join("node.log")).unwrap_or_default();
        let denied = self.audit.denied();
        let logs = DEPLOYMENTS.map(|(namespace, name)| {
            let name = format!("deployment/{name}");
            let log = self.kubernetes.run(&["--namespace", namespace, "logs", &name, "--tail=30"]);
            format!("--- {name}\n{}", log.unwrap_or_default())
        });
        format!("{pods}\n--- denied: {denied:#?}\n{}\n--- node\n{node}", logs.join("\n"))
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn sample(name: &str) -> String {
    fs::read_to_string(repository().join("config/samples").join(name)).unwrap()
}

#[test]
fn packages_run_as_pods_within_their_rights_and_leave_nothing() {
    let Some(mut world) = World::start() else { return };
    // The stand-in for a database API is a pod, and has a private address.
    world.run(&["create", "namespace", "infra-system"]);
    let allow = "--from-literal=ACTION_PRIVATE_ADDRESSES=allow";
    world.run(&["--namespace=infra-system", "create", "secret", "generic", "infra-settings", allow]);
    world.make("deploy");
    world.rolled_out(&DEPLOYMENTS);

    samples_become_ready(&world);
    for (manifest, words) in REFUSED {
        let file = world.write("bad.yaml", manifest);
        let refused = world.kubernetes.run(&["apply", "-f", path(&file)]).unwrap_err();
        assert!(refused.contains(words), "{refused}");
    }
    assert!(world.audit.read().iter().any(|asked| asked.user.ends_with(":elasti-resolver")), "audited");

    for kind in ["elastiservices", "resources", "resourcetypes", "observatories", "webapps"] {
        world.run(&["delete", kind, "--all", "--timeout=120s"]);
    }
    let denied = world.audit.denied();
    assert!(denied.is_empty(), "rights are missing: {denied:#?}");
    world.make("undeploy");
    nothing_is_left(&world);

    if let Some(helm) = parts::or_skip(parts::helm()) {
        the_chart_installs(&world, &helm.path);
        nothing_is_left(&world);
    }
    world.make("uninstall");
    let definitions = json(&world.kubernetes, &["get", "customresourcedefinitions"]);
    assert_eq!(definitions.pointer("/items").and_then(Value::as_array).map(Vec::len), Some(0));
    if let Some(node) = world.node.take() {
        node.stop();
    }
}

/// All four samples, the infrastructure's with an API that is there.
fn samples_become_ready(world: &World) {
    let samples = repository().join("config/samples");
    for name in ["example_v1_webapp.yaml", "workflow_v1alpha1_observatory.yaml"] {
        world.run(&["apply", "-f", path(&samples.join(name))]);
    }
    world.eventually("the WebApp is ready", &["get", "webapp", "hello"], |it| {
        text(it, "/status/phase") == "Ready"
    });
    world.run(&["apply", "-f", path(&samples.join("elasti_v1alpha1_elastiservice.yaml"))]);
    let kind = sample("infra_v1_resourcetype.yaml");
    let kind = kind.replace("https://databases.example.com/v1", "http://hello.default.svc.cluster.local");
    // Its answers are no JSON: nothing can be read back from them.
    let kind = kind.split("        read:\n").next().unwrap_or_default();
    world.run(&["apply", "-f", path(&world.write("type.yaml", kind))]);
    eventually("the Resource is accepted once its type is", || {
        world.kubernetes.run(&["apply", "-f", path(&samples.join("infra_v1_resource.yaml"))]).ok()
    });
    world.eventually("the workflow succeeds", &["get", "observatory", "observatory-sample"], |it| {
        text(it, "/status/phase") == "Succeeded"
    });
    world.eventually("the Resource is ready", &["get", "resource", "databasecluster.production-pg"], |it| {
        text(it, "/status/state") == "ready"
    });
    world.eventually("the ElastiService is looked after", &["get", "elastiservice", "hello"], |it| {
        let conditions =
            it.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        conditions.iter().any(|one| text(one, "/type") == "Ready" && text(one, "/status") == "True")
    });
}

/// Neither namespaces nor roles nor webhook configurations of the packages are there.
fn nothing_is_left(world: &World) {
    let kinds = [
        "namespaces",
        "clusterroles",
        "clusterrolebindings",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ];
    let is_ours = |name: &str| {
        ["webapp", "observatory", "infra", "elasti"].iter().any(|operator| name.starts_with(operator))
    };
    for kind in kinds {
        world.eventually(&format!("{kind} of the packages are gone"), &["get", kind], |list| {
            let items = list.pointer("/items").and_then(Value::as_array).cloned();
            items.is_some_and(|items| !items.iter().any(|item| is_ours(text(item, "/metadata/name"))))
        });
    }
}

fn the_chart_installs(world: &World, helm: &Path) {
    let chart = repository().join("charts/steersman");
    let run = |args: &[&str]| {
        let output = Command::new(helm)
            .args(args)
            .args(["--namespace", "default"])
            .env("KUBECONFIG", world.kubernetes.kubeconfig())
            .env("HELM_CACHE_HOME", world.folder.path().join("helm"))
            .env("HELM_CONFIG_HOME", world.folder.path().join("helm"))
            .env("HELM_DATA_HOME", world.folder.path().join("helm"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "helm {args:?}: {said}\n{}", world.told());
    };
    run(&[
        "install",
        "steersman",
        path(&chart),
        "--set",
        "webapp.replicas=1",
        "--set",
        "observatory.enabled=false",
    ]);
    let installed: Vec<_> =
        DEPLOYMENTS.into_iter().filter(|(namespace, _)| !namespace.starts_with("observatory")).collect();
    world.rolled_out(&installed);
    run(&["uninstall", "steersman", "--wait"]);
    // Written by the operators themselves.
    let configurations = "validatingwebhookconfigurations,mutatingwebhookconfigurations";
    world.run(&["delete", "--ignore-not-found", configurations, "webapp", "infra", "elasti"]);
}
