//! Scale to zero in `steer up`: a WebApp sleeps and a request wakes it; and the same on a real control
//! plane with our node.

mod support;

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use support::{Up, eventually, http_get, repository, steer};
use xtask::parts::{self, Kubernetes};

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// The reason of the condition Ready of an ElastiService.
fn state(elasti: &Value) -> String {
    let conditions = elasti.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|one| text(one, "/type") == "Ready");
    ready.map(|ready| text(ready, "/reason").to_owned()).unwrap_or_default()
}

fn sleeps(up: &Up) -> Option<()> {
    let elasti = up.objects(&["elastiservices", "hello"]).remove(0);
    let pods = up.objects(&["pods"]);
    (state(&elasti) == "Asleep" && pods.is_empty()).then_some(())
}

fn a_webapp_sleeps_and_wakes(up: &Up) {
    for sample in ["example_v1_webapp.yaml", "elasti_v1alpha1_elastiservice.yaml"] {
        let sample = repository().join("config/samples").join(sample);
        up.run(&["apply", "-f", sample.to_str().unwrap()]);
    }
    let address = eventually("the Service has an address", || {
        let services = up.run(&["get", "services", "hello"]);
        let address = services.lines().last()?.split_whitespace().last()?.to_owned();
        address.contains(':').then_some(address)
    });
    let proxied = || {
        let elasti = up.objects(&["elastiservices", "hello"]).remove(0);
        (state(&elasti) == "Proxying" && elasti.pointer("/status/resolverPorts").is_some()).then_some(())
    };
    eventually("the resolver is in the path", proxied);
    eventually("it answers while it is awake", || http_get(&address));

    up.run(&["elasti", "sleep", "hello"]);
    eventually("it sleeps", || sleeps(up));
    let listed = up.run(&["elasti", "list"]);
    assert!(listed.contains("Asleep") && listed.contains("webapp/hello"), "{listed}");
    let body = eventually("a request is held, wakes it and is answered", || http_get(&address));
    assert!(body.contains("hello-"), "{body}");
    eventually("it is awake", || {
        up.run(&["elasti", "get", "hello"]).contains("State:      Proxying").then_some(())
    });

    up.run(&["elasti", "sleep", "hello"]);
    eventually("it sleeps again", || sleeps(up));
    up.run(&["elasti", "wake", "hello"]);
    eventually("it is awake again", || (up.objects(&["pods"]).len() == 1).then_some(()));
    up.run(&["elasti", "sleep", "hello"]);
    eventually("it sleeps once more", || sleeps(up));
    up.run(&["delete", "elastiservice/hello"]);
    eventually("deleting the ElastiService brings it back", || http_get(&address));
}

#[test]
fn a_webapp_sleeps_and_a_request_wakes_it() {
    let folder = tempfile::tempdir().unwrap();
    let up = Up::start(&folder.path().join("state"));
    a_webapp_sleeps_and_wakes(&up);
    up.stop();
}

#[test]
fn a_webapp_sleeps_and_wakes_where_there_are_no_sandboxes() {
    let folder = tempfile::tempdir().unwrap();
    let up = Up::start_with(&folder.path().join("state"), &["--runtime", "process"]);
    a_webapp_sleeps_and_wakes(&up);
    up.stop();
}

/// A `steer` that runs beside the control plane, ended with the test.
struct Running(Child);

impl Running {
    fn start(log: &Path, args: &[&str], env: &[(&str, &str)]) -> Self {
        let log = fs::File::create(log).unwrap();
        let mut command = Command::new(steer());
        command.args(args).envs(env.iter().copied()).stdin(Stdio::null());
        Self(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.0.id()).unwrap_or(i32::MAX));
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        for _ in 0..200 {
            if self.0.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn json(kubernetes: &Kubernetes, args: &[&str]) -> Value {
    let text = kubernetes.run(&[args, &["-o", "json"]].concat()).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Applies objects.
fn apply(kubernetes: &Kubernetes, folder: &Path, yaml: &str) {
    let file = folder.join("objects.yaml");
    fs::write(&file, yaml).unwrap();
    let file = file.to_str().unwrap().to_owned();
    eventually("the objects are accepted", || kubernetes.run(&["apply", "-f", &file]).ok());
}

/// A workload of our own image and its Service; StatefulSets have a name for theirs.
fn workload(kind: &str, name: &str) -> String {
    let service_name = if kind == "StatefulSet" { format!("\n  serviceName: {name}") } else { String::new() };
    format!(
        "apiVersion: apps/v1\nkind: {kind}\nmetadata:\n  name: {name}\nspec:\n  replicas: 1{service_name}\n  \
         selector:\n    matchLabels:\n      app: {name}\n  template:\n    metadata:\n      labels:\n        app: {name}\n    \
         spec:\n      containers:\n      - name: web\n        image: steersman.io/steer\n        \
         ports:\n        - containerPort: 8080\n---\n\
         apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\nspec:\n  selector:\n    app: {name}\n  \
         ports:\n  - port: 80\n    targetPort: 8080\n---\n\
         apiVersion: elasti.truefoundry.com/v1alpha1\nkind: ElastiService\nmetadata:\n  name: {name}\nspec:\n  \
         service: {name}\n  cooldownPeriod: 3600\n  scaleTargetRef:\n    apiVersion: apps/v1\n    kind: {kind}\n    name: {name}\n"
    )
}

#[test]
fn deployments_and_stateful_sets_sleep_and_wake_on_a_real_control_plane() {
    const NODE: &str = "steersman-node";
    let Some(kubernetes) = parts::or_skip(parts::kubernetes()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let admin = kubernetes.kubeconfig().to_str().unwrap().to_owned();
    let identity = kubernetes.kubeconfig_for(&format!("system:node:{NODE}"), "system:nodes").unwrap();
    // It also does what kube-proxy does, and needs its rights.
    let user = format!("--user=system:node:{NODE}");
    let proxier =
        ["create", "clusterrolebinding", "node-proxier", "--clusterrole=system:node-proxier", &user];
    kubernetes.run(&proxier).unwrap();
    let _node = Running::start(
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
        &[],
    );
    let _operator = Running::start(
        Path::new(&at("operator.log")),
        &[
            "run",
            "elasti",
            "--install-crds",
            "--kubeconfig",
            &admin,
            "--metrics-address",
            "127.0.0.1:0",
            "--health-address",
            "127.0.0.1:0",
            "--elasti-address",
            "127.0.0.1:0",
        ],
        &[("POLLING_INTERVAL", "1"), ("ELASTI_SWITCH_DELAY", "1")],
    );
    eventually("the type is there", || {
        kubernetes
            .run(&["wait", "--for=condition=Established", "crd/elastiservices.elasti.truefoundry.com"])
            .ok()
    });
    let config = repository().join("config/elasti");
    for file in ["namespace.yaml", "operator_service.yaml", "resolver.yaml"] {
        let file = config.join(file).to_str().unwrap().to_owned();
        eventually("the resolver's objects are accepted", || kubernetes.run(&["apply", "-f", &file]).ok());
    }
    let logs = || {
        let read = |name: &str| fs::read_to_string(at(name)).unwrap_or_default();
        format!("--- node\n{}\n--- operator\n{}", read("node.log"), read("operator.log"))
    };
    let resolvers = || {
        let found = json(&kubernetes, &["get", "deployment", "elasti-resolver", "-n", "elasti"]);
        (found.pointer("/status/readyReplicas").and_then(Value::as_u64) == Some(2)).then_some(())
    };
    eventually("two resolvers are ready", resolvers);
    for (kind, resource) in [("Deployment", "deployment"), ("StatefulSet", "statefulset")] {
        let name = resource;
        apply(&kubernetes, folder.path(), &workload(kind, name));
        let stands = |expected: &str| {
            eventually(&format!("{name} is {expected}\n{}", logs()), || {
                (state(&json(&kubernetes, &["get", "elastiservice", name])) == expected).then_some(())
            });
        };
        let replicas = |wanted: u64| {
            eventually(&format!("{name} has {wanted} replicas"), || {
                let found = json(&kubernetes, &["get", resource, name]);
                let spec = found.pointer("/spec/replicas").and_then(Value::as_u64);
                let ready = found.pointer("/status/readyReplicas").and_then(Value::as_u64).unwrap_or(0);
                (spec == Some(wanted) && ready == wanted).then_some(())
            });
        };
        replicas(1);
        let run = |command: &str| {
            let output =
                Command::new(steer()).args(["elasti", command, name, "--kubeconfig", &admin]).output();
            assert!(output.unwrap().status.success());
        };
        run("sleep");
        stands("Asleep");
        replicas(0);
        // A pod asks for the Service by its name, as its clients do; the resolver holds, wakes and hands on.
        let client = format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: ask-{name}\nspec:\n  restartPolicy: Never\n  containers:\n  \
             - name: curl\n    image: curlimages/curl\n    command: [curl, --silent, --show-error, --fail, --max-time, '100', \
             'http://{name}.default/']\n    ports:\n    - containerPort: 1\n"
        );
        apply(&kubernetes, folder.path(), &client);
        eventually(&format!("the client of {name} is answered\n{}", logs()), || {
            let pod = json(&kubernetes, &["get", "pod", &format!("ask-{name}")]);
            (text(&pod, "/status/phase") == "Succeeded").then_some(())
        });
        replicas(1);
        kubernetes.run(&["delete", "elastiservice", name, "--timeout=100s"]).unwrap();
        let left = json(
            &kubernetes,
            &["get", "endpointslices", "-l", &format!("kubernetes.io/service-name={name}")],
        );
        let slices = left.pointer("/items").and_then(Value::as_array).cloned().unwrap_or_default();
        assert!(
            !slices.iter().any(|slice| text(slice, "/metadata/name").contains("to-resolver")),
            "{slices:?}"
        );
    }
}
