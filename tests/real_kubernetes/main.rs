//! The operators and our node on a real Kubernetes control plane, with its own controllers.

#[path = "../support/mod.rs"]
mod support;

mod chart;
mod deploy;

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use support::{eventually, processes_with, repository, steer};
use xtask::parts::{self, Kubernetes};

const NODE: &str = "steersman-node";

/// A `steer` that runs beside the control plane, stopped when the test ends.
struct Running(Child);

impl Running {
    fn start(log: &Path, args: &[&str]) -> Self {
        let log = fs::File::create(log).unwrap();
        let command = Command::new(steer())
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        Self(command.unwrap())
    }

    fn stop(mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.0.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let status = eventually("it stops when told to", || self.0.try_wait().unwrap());
        assert!(status.success(), "it ended with {status}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn json(kubernetes: &Kubernetes, args: &[&str]) -> Value {
    let text = kubernetes.run(&[args, &["-o", "json"]].concat()).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn count(kubernetes: &Kubernetes, kind: &str, name: &str) -> usize {
    let list = json(kubernetes, &["get", kind]);
    let items = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
    items.iter().filter(|item| text(item, "/metadata/name").starts_with(name)).count()
}

#[test]
fn a_webapp_runs_on_a_real_control_plane() {
    let Some(kubernetes) = parts::or_skip(parts::kubernetes()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let admin = kubernetes.kubeconfig().to_str().unwrap().to_owned();
    let identity = kubernetes.kubeconfig_for(&format!("system:node:{NODE}"), "system:nodes").unwrap();

    let node = Running::start(
        Path::new(&at("node.log")),
        &[
            "node",
            "--name",
            NODE,
            "--kubeconfig",
            identity.to_str().unwrap(),
            "--data-dir",
            &at("node"),
            "--client-ca-file",
            kubernetes.ca_certificate().to_str().unwrap(),
        ],
    );
    let logs = || {
        let read = |name: &str| fs::read_to_string(at(name)).unwrap_or_default();
        format!("--- node\n{}\n--- operator\n{}", read("node.log"), read("operator.log"))
    };
    eventually("our node is ready", || {
        let node = json(&kubernetes, &["get", "node", NODE]);
        let conditions =
            node.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        conditions.iter().any(|c| text(c, "/type") == "Ready" && text(c, "/status") == "True").then_some(())
    });
    let operator = Running::start(
        Path::new(&at("operator.log")),
        &[
            "run",
            "webapp",
            "--install-crds",
            "--kubeconfig",
            &admin,
            "--metrics-address",
            "127.0.0.1:0",
            "--health-address",
            "127.0.0.1:0",
        ],
    );
    eventually("the WebApp type is there", || {
        kubernetes.run(&["wait", "--for=condition=Established", "crd/webapps.example.com"]).ok()
    });

    let sample = repository().join("config/samples/example_v1_webapp.yaml");
    eventually("the sample is accepted", || kubernetes.run(&["apply", "-f", sample.to_str().unwrap()]).ok());
    let webapps = json(&kubernetes, &["get", "webapps"]);
    let name = text(&webapps, "/items/0/metadata/name").to_owned();
    let replicas = webapps.pointer("/items/0/spec/replicas").and_then(Value::as_u64).unwrap();
    let ready = |wanted: u64| {
        eventually(&format!("the WebApp has {wanted} replicas and says Ready"), || {
            let webapp = json(&kubernetes, &["get", "webapp", &name]);
            let there =
                webapp.pointer("/status/availableReplicas").and_then(Value::as_u64).unwrap_or_default();
            (there == wanted && text(&webapp, "/status/phase") == "Ready").then_some(())
        });
    };
    ready(replicas);
    kubernetes.run(&["rollout", "status", &format!("deployment/{name}"), "--timeout=60s"]).unwrap();

    let endpoints = || {
        let slices = json(
            &kubernetes,
            &["get", "endpointslices", "-l", &format!("kubernetes.io/service-name={name}")],
        );
        let slices = slices.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        slices
            .iter()
            .flat_map(|slice| slice.get("endpoints").and_then(Value::as_array).cloned().unwrap_or_default())
            .filter(|e| e.pointer("/conditions/ready").and_then(Value::as_bool) == Some(true))
            .count()
    };
    eventually("the Service has an endpoint per replica", || (endpoints() as u64 == replicas).then_some(()));

    kubernetes.run(&["scale", &format!("webapp/{name}"), "--replicas=3"]).unwrap();
    ready(3);
    eventually("the Service has three endpoints", || (endpoints() == 3).then_some(()));
    let pod = text(
        &json(&kubernetes, &["get", "pods", "-l", &format!("app.kubernetes.io/name={name}")]),
        "/items/0/metadata/name",
    )
    .to_owned();
    let pod = if pod.is_empty() {
        text(&json(&kubernetes, &["get", "pods"]), "/items/0/metadata/name").to_owned()
    } else {
        pod
    };
    let log = eventually("kubectl logs shows what the pod wrote", || kubernetes.run(&["logs", &pod]).ok());
    assert!(!log.is_empty(), "{}", logs());

    kubernetes.run(&["delete", "deployment", &name]).unwrap();
    ready(3);

    kubernetes.run(&["delete", &format!("webapp/{name}"), "--timeout=60s"]).unwrap();
    eventually("nothing is left behind", || {
        let left: usize = ["webapps", "deployments", "replicasets", "pods", "services"]
            .iter()
            .map(|kind| count(&kubernetes, kind, &name))
            .sum();
        (left == 0).then_some(())
    });
    operator.stop();
    node.stop();
    assert_eq!(processes_with(&at("node")), Vec::<u32>::new(), "no process of a pod survives the node");
}
