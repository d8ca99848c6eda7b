//! Workflows whose pods really run: in `steer up`, and on a real Kubernetes control plane with our node.

#[path = "../support/mod.rs"]
mod support;

mod metrics;

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;
use support::{
    Up,
    beside::{Beside, json, ready, text},
    eventually, processes_with, repository, steer,
};
use xtask::parts::{self, Kubernetes};

/// One task that fails twice before it succeeds, one that takes too long, and one that depends on it.
const HARD: &str = r#"
apiVersion: workflow.seventh-horizon.io/v1alpha1
kind: Observatory
metadata:
  name: hard
spec:
  tasks:
    - name: flaky
      image: busybox:1.36
      command: [sh, -c, "echo attempt of $HOSTNAME; exit 7"]
      retry: {limit: 2}
    - name: endless
      image: busybox:1.36
      command: [sh, -c, "echo begun; sleep 600"]
      timeout: 2s
    - name: after
      image: busybox:1.36
      command: ["true"]
      dependencies: [endless]
    - name: fine
      image: busybox:1.36
      command: [sh, -c, "echo all is well"]
"#;

fn task<'a>(workflow: &'a Value, name: &str) -> &'a Value {
    let tasks = workflow.pointer("/status/tasks").and_then(Value::as_array);
    tasks.and_then(|tasks| tasks.iter().find(|task| text(task, "/name") == name)).unwrap_or(&Value::Null)
}

/// What `hard` must come to, whoever runs it.
fn check_hard(workflow: &Value, logs: &str) {
    assert_eq!(text(workflow, "/status/phase"), "Failed", "{workflow:#}");
    let flaky = task(workflow, "flaky");
    assert_eq!(text(flaky, "/phase"), "Failed");
    assert!(text(flaky, "/message").starts_with("exit code 7: attempt of hard-flaky-"), "{flaky:#}");
    assert_eq!(flaky.pointer("/attempts").and_then(Value::as_array).map(Vec::len), Some(2), "{flaky:#}");
    let endless = task(workflow, "endless");
    assert_eq!((text(endless, "/reason"), text(endless, "/message")), ("TimedOut", "took longer than 2s"));
    assert_eq!(text(task(workflow, "after"), "/reason"), "UpstreamFailed");
    assert_eq!(text(task(workflow, "fine"), "/phase"), "Succeeded");
    for line in ["flaky/0: attempt of", "flaky/1: attempt of", "flaky/2: attempt of", "fine/0: all is well"] {
        assert!(logs.contains(line), "{line} is missing in\n{logs}");
    }
    assert!(logs.contains("endless/0: begun"), "the log of a pod that was ended is kept:\n{logs}");
}

#[test]
fn workflows_run_and_every_command_tells_the_truth() {
    let folder = tempfile::tempdir().unwrap();
    let up = Up::start(&folder.path().join("state"));
    let sample = repository().join("config/samples/workflow_v1alpha1_observatory.yaml");
    let sample = sample.to_str().unwrap();

    assert_eq!(up.run(&["workflow", "lint", sample]), "");
    let watched = up.run(&["workflow", "run", sample, "--watch"]);
    assert!(watched.contains("3/3 Succeeded") && watched.contains("✔ task-3 │"), "{watched}");
    assert!(up.run(&["workflow", "list"]).contains("observatory-sample"));
    let listed = up.run(&["get", "observatories"]);
    assert!(listed.contains("TASKS") && listed.contains("3/3"), "{listed}");
    let details = up.run(&["workflow", "get", "observatory-sample"]);
    assert!(details.contains("observatory-sample-task-2"), "{details}");
    let logs = up.run(&["workflow", "logs", "observatory-sample"]);
    for number in 1..=3 {
        assert!(logs.contains(&format!("task-{number}/0: task {number} ends")), "{logs}");
    }
    let one = up.run(&["workflow", "logs", "observatory-sample", "task-2"]);
    assert!(one.contains("task-2/0:") && !one.contains("task-1/0:"), "{one}");
    assert!(up.run(&["workflow", "graph", sample]).contains("task-1"));
    assert!(up.run(&["workflow", "graph", "observatory-sample", "-o", "svg"]).starts_with("<svg"));
    assert!(up.run(&["workflow", "graph", sample, "-o", "mermaid"]).contains("-->"));
    let refused = up.refuse(&["workflow", "retry", "observatory-sample"]);
    assert!(refused.contains("has succeeded; name tasks to run again, or run all"), "{refused}");
    up.run(&["workflow", "retry", "observatory-sample", "task-3"]);
    up.run(&["workflow", "watch", "observatory-sample"]);
    let again = up.objects(&["observatory", "observatory-sample"]).remove(0);
    assert_eq!(task(&again, "task-3").pointer("/attempt"), Some(&Value::from(1)), "{again:#}");

    let hard = folder.path().join("hard.yaml");
    fs::write(&hard, HARD).unwrap();
    let failed = up.refuse(&["workflow", "run", hard.to_str().unwrap(), "--watch"]);
    assert!(failed.contains("workflow hard failed; `steer workflow get hard` says why"), "{failed}");
    let workflow = up.objects(&["observatory", "hard"]).remove(0);
    check_hard(&workflow, &up.run(&["workflow", "logs", "hard"]));
    let why = up.run(&["workflow", "explain", "hard", "after"]);
    assert!(why.contains("It began with task endless: took longer than 2s."), "{why}");

    up.run(&["workflow", "run", hard.to_str().unwrap(), "--name", "cut"]);
    up.run(&["workflow", "stop", "cut", "--now"]);
    let stopped = up.refuse(&["workflow", "watch", "cut"]);
    assert!(stopped.contains("workflow cut failed"), "{stopped}");
    assert_eq!(text(&up.objects(&["observatory", "cut"]).remove(0), "/status/reason"), "Terminated");

    for name in ["observatory-sample", "hard", "cut"] {
        up.run(&["delete", &format!("observatory/{name}")]);
    }
    eventually("pods and kept logs go with their workflows", || {
        let left = up.objects(&["pods"]).len()
            + up.objects(&["configmaps"])
                .iter()
                .filter(|map| text(map, "/metadata/name").ends_with("-log"))
                .count();
        (left == 0).then_some(())
    });
    up.stop();
}

fn ended(kubernetes: &Kubernetes, name: &str) -> Value {
    eventually(&format!("workflow {name} ends"), || {
        let found = json(kubernetes, &["get", "observatory", name]);
        matches!(text(&found, "/status/phase"), "Succeeded" | "Failed").then_some(found)
    })
}

#[test]
fn workflows_run_on_a_real_control_plane_with_our_node_and_the_rights_that_are_asked_for() {
    let Some(kubernetes) = parts::or_skip(parts::kubernetes()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // Everything is installed as a user would, but the manager runs here, as the account it has there: there is
    // no node yet that could start it.
    let package = repository().join("config/observatory");
    kubernetes.run(&["apply", "--server-side", "-k", package.to_str().unwrap()]).unwrap();
    let system = "observatory-operator-system";
    kubernetes
        .run(&["-n", system, "scale", "deployment", "observatory-operator-manager", "--replicas=0"])
        .unwrap();
    let crd = "crd/observatories.workflow.seventh-horizon.io";
    eventually("the type is there", || {
        kubernetes.run(&["wait", "--for=condition=Established", crd, "--timeout=10s"]).ok()
    });
    let node = Beside::node(&kubernetes, folder.path(), &[]);
    ready(&kubernetes);

    let account = format!("system:serviceaccount:{system}:observatory-operator-manager");
    let manager = kubernetes.kubeconfig_for(&account, "system:serviceaccounts").unwrap();
    let operator = Beside::start(
        Path::new(&at("operator.log")),
        &[
            "run",
            "observatory",
            "--kubeconfig",
            manager.to_str().unwrap(),
            "--lease-namespace",
            system,
            "--leader-elect",
            "--metrics-bind-address=127.0.0.1:0",
            "--health-probe-bind-address=127.0.0.1:0",
        ],
    );
    let logs = || {
        let read = |name: &str| fs::read_to_string(at(name)).unwrap_or_default();
        format!("--- node\n{}\n--- operator\n{}", read("node.log"), read("operator.log"))
    };

    let sample = repository().join("config/samples/workflow_v1alpha1_observatory.yaml");
    kubernetes.run(&["apply", "-f", sample.to_str().unwrap()]).unwrap();
    let done = ended(&kubernetes, "observatory-sample");
    assert_eq!(text(&done, "/status/phase"), "Succeeded", "{done:#}\n{}", logs());
    let lease = json(&kubernetes, &["-n", system, "get", "lease", "observatory-operator.seventh-horizon.io"]);
    assert!(!text(&lease, "/spec/holderIdentity").is_empty(), "{lease:#}");
    let table = kubernetes.run(&["get", "obs"]).unwrap();
    assert!(table.contains("3/3"), "{table}");
    let log = kubernetes.run(&["logs", "observatory-sample-task-3"]).unwrap();
    assert!(log.contains("task 3 ends"), "{log}");

    let hard = folder.path().join("hard.yaml");
    fs::write(&hard, HARD).unwrap();
    kubernetes.run(&["apply", "-f", hard.to_str().unwrap()]).unwrap();
    let done = ended(&kubernetes, "hard");
    let output = Command::new(steer())
        .args(["workflow", "logs", "hard"])
        .env("KUBECONFIG", kubernetes.kubeconfig())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), logs());
    check_hard(&done, &String::from_utf8_lossy(&output.stdout));

    kubernetes.run(&["delete", "obs", "--all", "--timeout=60s"]).unwrap();
    eventually("nothing is left behind", || {
        let left = json(&kubernetes, &["get", "pods"]);
        left.get("items").and_then(Value::as_array).is_some_and(Vec::is_empty).then_some(())
    });
    let operator_log = fs::read_to_string(at("operator.log")).unwrap_or_default();
    assert!(!operator_log.to_lowercase().contains("forbidden"), "a right is missing:\n{operator_log}");
    operator.stop();
    node.stop();
    assert_eq!(processes_with(&at("node")), Vec::<u32>::new(), "no process of a pod survives the node");
}
