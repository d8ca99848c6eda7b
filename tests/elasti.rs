//! Scale to zero in `steer up`: a WebApp sleeps and a request wakes it; and the same on a real control
//! plane with our node.

mod support;

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use serde_json::{Value, json};
use support::{
    PATIENCE, Up,
    beside::{Beside, text},
    egress::Egress,
    eventually, http_get, processes_with, repository, steer,
};
use xtask::parts::{self, Kubernetes, KubernetesOptions};

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

/// A real control plane with our node, and what `kubectl apply -k config/elasti` puts there.
struct Cluster {
    kubernetes: Kubernetes,
    folder: tempfile::TempDir,
    _node: Beside,
}

impl Cluster {
    fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let egress = Egress::new(folder.path());
        let options =
            KubernetesOptions { api_server_flags: vec![egress.flag()], ..KubernetesOptions::default() };
        let kubernetes = parts::or_skip(Kubernetes::start(&options))?;
        let egress = ["--egress-socket", egress.socket.to_str().unwrap()];
        let node = Beside::node(&kubernetes, folder.path(), &egress);
        let cluster = Self { kubernetes, folder, _node: node };
        cluster.change_over();
        for deployment in [OPERATOR, RESOLVER] {
            cluster.available(deployment, 2);
        }
        Some(cluster)
    }

    /// Comes from KubeElasti, as the guide says: what it leaves has our names and would mix with ours.
    fn change_over(&self) {
        self.run(&["create", "namespace", "elasti"]);
        for name in ["elasti-operator-controller", "elasti-resolver"] {
            let labels = "app.kubernetes.io/instance: elasti\n";
            let deployment = if name == RESOLVER { RESOLVER } else { OPERATOR };
            self.apply(&format!(
                "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}-service\n  namespace: elasti\nspec:\n  \
                 selector:\n    {labels}  ports:\n  - name: http\n    port: 8013\n---\n\
                 apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {deployment}\n  namespace: elasti\nspec:\n  \
                 replicas: 0\n  selector:\n    matchLabels:\n      {labels}  template:\n    metadata:\n      \
                 labels:\n        {labels}    spec:\n      containers:\n      - name: manager\n        image: kubeelasti\n"
            ));
        }
        self.run(&["delete", "deployments,services", "--all", "-n", "elasti"]);
        self.install();
    }

    fn install(&self) {
        let config = repository().join("config/elasti");
        self.kubernetes.run(&["apply", "-k", config.to_str().unwrap()]).unwrap();
    }

    /// Waits for something, or fails with what everybody wrote.
    fn until<T>(&self, what: &str, mut check: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = check() {
                return found;
            }
            assert!(Instant::now() < deadline, "gave up waiting: {what}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn run(&self, args: &[&str]) -> String {
        self.kubernetes.run(args).unwrap_or_else(|error| panic!("{args:?}: {error}"))
    }

    fn json(&self, args: &[&str]) -> Value {
        let text = self.kubernetes.run(&[args, &["-o", "json"]].concat()).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn apply(&self, yaml: &str) {
        let file = self.folder.path().join("objects.yaml");
        fs::write(&file, yaml).unwrap();
        let file = file.to_str().unwrap().to_owned();
        self.until("the objects are accepted", || self.kubernetes.run(&["apply", "-f", &file]).ok());
    }

    fn available(&self, deployment: &str, wanted: u64) {
        self.until(&format!("{deployment} has {wanted} ready pods"), || {
            let found = self.json(&["get", "deployment", deployment, "-n", "elasti"]);
            let there = found.pointer("/status/readyReplicas").and_then(Value::as_u64).unwrap_or(0);
            let all = found.pointer("/status/replicas").and_then(Value::as_u64).unwrap_or(0);
            (there == wanted && all == wanted).then_some(())
        });
    }

    fn stands(&self, name: &str, expected: &str) {
        self.until(&format!("{name} is {expected}"), || {
            (state(&self.json(&["get", "elastiservice", name])) == expected).then_some(())
        });
    }

    fn replicas(&self, resource: &str, wanted: u64) {
        self.until(&format!("{resource} has {wanted} replicas"), || {
            let found = self.json(&["get", resource, resource]);
            let spec = found.pointer("/spec/replicas").and_then(Value::as_u64);
            let ready = found.pointer("/status/readyReplicas").and_then(Value::as_u64).unwrap_or(0);
            (spec == Some(wanted) && ready == wanted).then_some(())
        });
    }

    fn put_to_sleep(&self, name: &str) {
        let kubeconfig = self.kubernetes.kubeconfig().to_str().unwrap().to_owned();
        let args = ["elasti", "sleep", name, "--kubeconfig", &kubeconfig];
        assert!(Command::new(steer()).args(args).output().unwrap().status.success());
    }

    fn sleep(&self, name: &str) {
        self.put_to_sleep(name);
        self.stands(name, "Asleep");
        self.replicas(name, 0);
    }

    /// What a pod sees that asks with curl, as the clients of a Service do.
    fn curl(&self, pod: &str, args: &[String]) -> String {
        let args = serde_json::to_string(args).unwrap();
        self.apply(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {pod}\nspec:\n  restartPolicy: Never\n  containers:\n  \
             - name: curl\n    image: curlimages/curl\n    command: [curl]\n    args: {args}\n    \
             ports:\n    - containerPort: 1\n"
        ));
        self.until(&format!("{pod} is answered"), || {
            (text(&self.json(&["get", "pod", pod]), "/status/phase") == "Succeeded").then_some(())
        });
        self.until("its log can be read", || self.kubernetes.run(&["logs", pod]).ok())
    }

    /// Asks for a Service by its name; the resolver holds, has it woken and hands on.
    fn ask(&self, pod: &str, name: &str) {
        let usual = ["--silent", "--show-error", "--fail", "--max-time", "100"];
        let url = format!("http://{name}.default/");
        self.curl(pod, &usual.into_iter().map(str::to_owned).chain([url]).collect::<Vec<_>>());
        self.replicas(name, 1);
    }

    fn pods(&self, app: &str) -> Vec<Value> {
        let label = format!("app.kubernetes.io/name={app}");
        let found = self.json(&["get", "pods", "-n", "elasti", "-l", &label]);
        found.pointer("/items").and_then(Value::as_array).cloned().unwrap_or_default()
    }

    /// Kills the program of a pod, which then cannot say a word.
    fn kill(&self, pod: &Value, argument: &str) {
        let ours = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes())
        };
        let found: Vec<u32> = processes_with(text(pod, "/metadata/uid")).into_iter().filter(ours).collect();
        assert!(!found.is_empty(), "no process of {} runs", text(pod, "/metadata/name"));
        for pid in found {
            let pid = Pid::from_raw(i32::try_from(pid).unwrap());
            // It may have ended by itself in the meantime.
            let _ = signal::kill(pid, Signal::SIGKILL);
        }
    }

    fn leader(&self) -> Value {
        self.until("an operator leads", || {
            let lease = self.json(&["get", "lease", "elasti.steersman.io", "-n", "elasti"]);
            let holder = text(&lease, "/spec/holderIdentity").to_owned();
            self.pods("elasti-operator").into_iter().find(|pod| text(pod, "/metadata/name") == holder)
        })
    }

    fn log_of(&self, pod: &Value) -> String {
        self.kubernetes.run(&["logs", "-n", "elasti", text(pod, "/metadata/name")]).unwrap_or_default()
    }

    /// Nobody of these was denied anything: neither do logs say so, nor what the operators count.
    fn nothing_was_denied(&self, asking: &str, apps: &[&str]) {
        let pods: Vec<Value> = apps.iter().flat_map(|app| self.pods(app)).collect();
        assert!(pods.len() >= 2 * apps.len(), "{pods:?}");
        for pod in &pods {
            let log = self.log_of(pod).to_lowercase();
            assert!(!log.contains("forbidden"), "{log}");
        }
        let mut args = vec!["--silent".to_owned(), "--fail".to_owned()];
        for pod in self.pods("elasti-operator") {
            args.push(format!("http://{}:8080/metrics", text(&pod, "/status/podIP")));
        }
        let metrics = self.curl(asking, &args);
        assert!(metrics.contains("rest_client_requests_total"), "{metrics}");
        let denied: Vec<_> = metrics.lines().filter(|line| line.contains("code=\"403\"")).collect();
        assert!(denied.is_empty(), "{denied:?}");
    }

    /// Whether resolvers may wake by themselves, as the authorizer sees it.
    fn resolvers_may_scale(&self) -> bool {
        let account = "--as=system:serviceaccount:elasti:elasti-resolver";
        let ask = ["auth", "can-i", "patch", "deployments.apps", "--subresource=scale", account];
        self.kubernetes.run(&ask).is_ok()
    }

    fn logs(&self) -> String {
        let node = fs::read_to_string(self.folder.path().join("node.log")).unwrap_or_default();
        let pods = [self.pods("elasti-operator"), self.pods("elasti-resolver")].concat();
        let each = pods.iter().map(|pod| {
            let state = pod.pointer("/status/containerStatuses").cloned().unwrap_or_default();
            format!("--- {} {state}\n{}", text(pod, "/metadata/name"), self.log_of(pod))
        });
        format!("--- node\n{node}\n{}", each.collect::<String>())
    }
}

const OPERATOR: &str = "elasti-operator-controller-manager";
const RESOLVER: &str = "elasti-resolver";

#[test]
fn what_config_installs_runs_on_a_real_control_plane_within_its_rights() {
    let Some(mut cluster) = Cluster::start() else { return };

    // Resolvers that may not scale depend on the operator, which takes only calls with their token.
    let reads_only = r#"[{"op": "replace", "path": "/rules", "value": [
        {"apiGroups": ["elasti.truefoundry.com"], "resources": ["elastiservices"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}]}]"#;
    cluster.run(&["patch", "clusterrole", "elasti-resolver-role", "--type=json", "-p", reads_only]);
    eventually("resolvers may not scale", || (!cluster.resolvers_may_scale()).then_some(()));
    cluster.apply(&workload("Deployment", "deployment"));
    cluster.replicas("deployment", 1);
    cluster.sleep("deployment");
    cluster.ask("ask-deployment", "deployment");
    for pod in cluster.pods("elasti-resolver") {
        let log = cluster.log_of(&pod);
        assert!(!log.contains("scaling without the operator"), "{log}");
    }
    callers_are_told_apart(&cluster);
    cluster.install();
    eventually("resolvers may scale again", || cluster.resolvers_may_scale().then_some(()));
    cluster.nothing_was_denied("count-first", &["elasti-operator", "elasti-resolver"]);

    // All watches end, those of the node too; what comes afterwards is heard of all the same.
    cluster.kubernetes.restart_api_server().unwrap();
    cluster.sleep("deployment");
    cluster.ask("ask-after-restart", "deployment");

    // Without an operator the resolver wakes by itself.
    cluster.apply(&workload("StatefulSet", "statefulset"));
    cluster.replicas("statefulset", 1);
    cluster.sleep("statefulset");
    cluster.run(&["scale", "deployment", OPERATOR, "-n", "elasti", "--replicas=0"]);
    eventually("the operators are gone", || cluster.pods("elasti-operator").is_empty().then_some(()));
    cluster.ask("ask-statefulset", "statefulset");
    cluster.install();
    cluster.available(OPERATOR, 2);
    // An API server that has just started denies everything for a moment: resolvers have seen that.
    cluster.nothing_was_denied("count-last", &["elasti-operator"]);
    no_request_is_lost_when_operators_and_resolvers_are_killed(&cluster);
    a_real_prometheus_puts_a_rollout_to_sleep_and_keda_rests(&cluster);

    for name in ["deployment", "statefulset"] {
        cluster.run(&["delete", "elastiservice", name, "--timeout=100s"]);
        let label = format!("kubernetes.io/service-name={name}");
        let left = cluster.json(&["get", "endpointslices", "-l", &label]);
        let slices = left.pointer("/items").and_then(Value::as_array).cloned().unwrap_or_default();
        let ours: Vec<_> =
            slices.iter().filter(|one| text(one, "/metadata/name").contains("to-resolver")).collect();
        assert!(ours.is_empty(), "{ours:?}");
    }
}

/// The operator asks the API server whose a token is, and for whom it was made.
fn callers_are_told_apart(cluster: &Cluster) {
    let token = |account: &str, namespace: &str, more: &[&str]| {
        let args = [&["create", "token", account, "-n", namespace], more].concat();
        cluster.run(&args).trim().to_owned()
    };
    let meant = "--audience=elasti-operator";
    let shown = [
        token("elasti-resolver", "elasti", &[meant]),
        token("elasti-resolver", "elasti", &[]),
        token("default", "default", &[meant]),
        "invented".to_owned(),
    ];
    let mut args = Vec::new();
    for token in shown {
        let one = ["--silent", "--output", "/dev/null", "--write-out", "%{http_code} ", "--header"];
        args.extend(one.map(str::to_owned));
        args.push(format!("Authorization: Bearer {token}"));
        args.push("http://elasti-operator-controller-service.elasti:8013/crd-cache".to_owned());
        args.push("--next".to_owned());
    }
    args.pop();
    assert_eq!(cluster.curl("call", &args).trim(), "200 401 401 401");
}

/// While one client asks without a pause, its service is put to sleep again and again, and the operator
/// that leads and a resolver are killed. One round; `TORTURE_ROUNDS` makes it longer.
fn no_request_is_lost_when_operators_and_resolvers_are_killed(cluster: &Cluster) {
    let rounds: usize = std::env::var("TORTURE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let over = cluster.folder.path().join("over");
    fs::create_dir(&over).unwrap();
    // What a killed resolver held is lost to its client, which asks again, as clients do.
    let script = "n=0; while [ ! -e /over/now ]; do \
                  curl --silent --show-error --fail --output /dev/null --retry 100 --retry-all-errors \
                  --retry-delay 1 --max-time 110 http://deployment.default/ || exit 1; n=$((n + 1)); done; \
                  echo answered $n";
    cluster.apply(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: client\nspec:\n  restartPolicy: Never\n  containers:\n  \
         - name: curl\n    image: curlimages/curl\n    command: [sh, -c]\n    args: [{}]\n    \
         ports:\n    - containerPort: 1\n    volumeMounts:\n    - name: over\n      mountPath: /over\n  \
         volumes:\n  - name: over\n    hostPath:\n      path: {}\n",
        serde_json::to_string(script).unwrap(),
        over.display()
    ));
    let phase = || text(&cluster.json(&["get", "pod", "client"]), "/status/phase").to_owned();
    cluster.until("the client asks", || (phase() == "Running").then_some(()));
    for round in 0..rounds {
        for deployment in [OPERATOR, RESOLVER] {
            cluster.available(deployment, 2);
        }
        // A wish for sleep is older than a wake-up that is noticed later, and would not count.
        cluster.stands("deployment", "Serving");
        // Every time that it is put to sleep or woken it gets another.
        let generation = || {
            let found = cluster.json(&["get", "deployment", "deployment"]);
            found.pointer("/metadata/generation").and_then(Value::as_u64).unwrap_or(0)
        };
        let before = generation();
        cluster.put_to_sleep("deployment");
        // The resolver is hardly in the path then; another operator goes on from there.
        cluster.kill(&cluster.leader(), "elasti");
        cluster.until("it sleeps and is woken", || (generation() >= before + 2).then_some(()));
        let resolvers = cluster.pods("elasti-resolver");
        cluster.kill(&resolvers[round % resolvers.len()], "resolver");
        assert_eq!(phase(), "Running", "{}", cluster.logs());
    }
    cluster.replicas("deployment", 1);
    fs::write(over.join("now"), "").unwrap();
    cluster.until("the client ends", || (phase() != "Running").then_some(()));
    let log = cluster.until("its log can be read", || cluster.kubernetes.run(&["logs", "client"]).ok());
    assert!(phase() == "Succeeded" && log.contains("answered "), "{log}\n{}", cluster.logs());
}

/// A definition of somebody else's, as its users know it: with a scale, or without.
fn definition(group: &str, kind: &str, subresources: &Value) -> Value {
    let singular = kind.to_lowercase();
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{singular}s.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"plural": format!("{singular}s"), "singular": singular, "kind": kind},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "subresources": subresources,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": free, "status": free}}}}]}})
}

/// Prometheus runs in a pod, and the operators ask it through its Service. A Rollout has no controller here:
/// the pods of the StatefulSet stand in for its own.
fn a_real_prometheus_puts_a_rollout_to_sleep_and_keda_rests(cluster: &Cluster) {
    let Some(program) = parts::or_skip(parts::prometheus_program()) else { return };
    // Operators that ask every second are quicker to test.
    let deployment = format!("deployment/{OPERATOR}");
    cluster.run(&["set", "env", &deployment, "-n", "elasti", "POLLING_INTERVAL=1"]);
    let settings = "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: prometheus\n  \
                    static_configs: [{targets: ['127.0.0.1:9090']}]\n";
    let arguments = ["--config.file=/settings/prometheus.yml", "--storage.tsdb.path=/data/tsdb"];
    let labels = json!({"app": "prometheus"});
    let service = |name: &str, app: &str, port: u16, to: u16| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"selector": {"app": app}, "ports": [{"port": port, "targetPort": to}]}})
    };
    let scale = json!({"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas"}});
    let trigger = |query: &str| {
        json!([{"type": "prometheus", "metadata": {"query": query, "threshold": "1",
            "serverAddress": "http://prometheus.default:9090", "uptimeFilter": "job=\"prometheus\""}}])
    };
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        definition("argoproj.io", "Rollout", &scale),
        definition("keda.sh", "ScaledObject", &json!({})),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "prometheus"},
            "data": {"prometheus.yml": settings}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "prometheus", "labels": labels},
            "spec": {"containers": [{"name": "prometheus", "image": "busybox", "command": [program],
                    "args": arguments, "ports": [{"containerPort": 9090}],
                    "volumeMounts": [{"name": "settings", "mountPath": "/settings"},
                        {"name": "data", "mountPath": "/data"}]}],
                "volumes": [{"name": "settings", "configMap": {"name": "prometheus"}},
                    {"name": "data", "emptyDir": {}}]}},
        service("prometheus", "prometheus", 9090, 9090),
        service("rollout", "statefulset", 80, 8080),
        {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "rollout"},
            "spec": {"replicas": 2}},
        {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "rollout"}, "spec": {}},
        {"apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
            "metadata": {"name": "rollout"},
            "spec": {"service": "rollout", "cooldownPeriod": 2, "minTargetReplicas": 3,
                "autoscaler": {"type": "keda", "name": "rollout"},
                "scaleTargetRef": {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "rollout"},
                "triggers": trigger("sum(up{job=\"nobody\"}) or vector(0)")}},
    ]});
    cluster.apply(&objects.to_string());
    let stands = |replicas: u64, paused: &str| {
        cluster.until(&format!("the Rollout has {replicas} replicas"), || {
            let rollout = cluster.json(&["get", "rollouts.argoproj.io", "rollout"]);
            let scaled = cluster.json(&["get", "scaledobjects.keda.sh", "rollout"]);
            let told = text(&scaled, "/metadata/annotations/autoscaling.keda.sh~1paused");
            (rollout.pointer("/spec/replicas").and_then(Value::as_u64) == Some(replicas) && told == paused)
                .then_some(())
        });
    };
    stands(0, "true");
    cluster.stands("rollout", "Asleep");
    let busy = json!({"spec": {"triggers": trigger("sum(up{job=\"prometheus\"})")}}).to_string();
    cluster.until("the trigger is changed", || {
        cluster.kubernetes.run(&["patch", "elastiservice", "rollout", "--type=merge", "-p", &busy]).ok()
    });
    stands(3, "false");
    cluster.stands("rollout", "Serving");
    cluster.run(&["delete", "pod", "prometheus", "--now"]);
    cluster.until("the operator misses Prometheus", || {
        let elasti = cluster.json(&["get", "elastiservice", "rollout"]);
        let conditions = elasti.pointer("/status/conditions").and_then(Value::as_array)?;
        let healthy = conditions.iter().find(|one| text(one, "/type") == "TriggerHealthy")?;
        (text(healthy, "/status") == "False").then_some(())
    });
    stands(3, "false");
    cluster.run(&["delete", "elastiservice", "rollout", "--timeout=100s"]);
    cluster.nothing_was_denied("count-rollout", &["elasti-operator"]);
}
