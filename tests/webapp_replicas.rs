//! Replicas of the WebApp operator on a real control plane, each with no more rights than `config/` gives
//! it: fail-over by kill, by a cut network and by SIGSTOP, never two that write, webhooks, and nothing
//! that is forbidden.

mod support;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use support::{
    audit::Audit,
    eventually, repository, steer,
    way::{SEEN_AS, Way},
};
use xtask::parts::{self, Kubernetes, KubernetesOptions};

const NAMESPACE: &str = "webapp-system";
const ACCOUNT: &str = "system:serviceaccount:webapp-system:webapp-manager";

/// One replica of the operator.
struct Replica {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Replica {
    fn start(folder: &Path, kubeconfig: &str, name: &str, more: &[String]) -> Self {
        let log = folder.join(format!("{name}.log"));
        let file = fs::File::create(&log).unwrap();
        let child = Command::new(steer())
            .args(["run", "webapp", "--kubeconfig", kubeconfig, "--lease-namespace", NAMESPACE])
            .args(["--metrics-address", "127.0.0.1:0", "--health-address", "127.0.0.1:0"])
            .args(more)
            .env("POD_NAME", name)
            .env("STEER_LOG", "info")
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { child, name: name.to_owned(), log }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// Waits until its caches are warm.
    fn ready(&self) {
        eventually(&format!("{} is ready", self.name), || {
            let address = self.address("health")?;
            let mut stream = TcpStream::connect(address).ok()?;
            write!(stream, "GET /readyz HTTP/1.0\r\n\r\n").ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            text.starts_with("HTTP/1.0 200").then_some(())
        });
    }

    fn metrics(&self) -> Option<String> {
        self.address("metrics")
    }

    /// An address out of its log.
    fn address(&self, of: &str) -> Option<String> {
        let log = self.log();
        let start = log.find(&format!("{of}=\""))? + of.len() + 2;
        Some(log.get(start..)?.split('"').next()?.to_owned())
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The body of an HTTP answer; none where nobody answers.
fn scrape(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

fn get(kubernetes: &Kubernetes, args: &[&str], path: &str) -> String {
    let mut all = vec!["get"];
    all.extend(args);
    let output = format!("jsonpath={path}");
    all.extend(["-o", &output]);
    kubernetes.run(&all).unwrap_or_default().trim().to_owned()
}

fn leader(kubernetes: &Kubernetes) -> String {
    get(kubernetes, &["lease", "webapp.steersman.io", "-n", NAMESPACE], "{.spec.holderIdentity}")
}

fn webapp(name: &str) -> String {
    format!(
        "apiVersion: example.com/v1\nkind: WebApp\nmetadata: {{name: {name}}}\nspec: {{image: \"nginx:1.25\"}}\n"
    )
}

/// Applies a WebApp and waits until its Deployment is declared, which only a leader does.
fn declared(kubernetes: &Kubernetes, folder: &Path, name: &str) {
    let file = folder.join(format!("{name}.yaml"));
    fs::write(&file, webapp(name)).unwrap();
    eventually(&format!("{name} is accepted"), || {
        kubernetes.run(&["apply", "-f", file.to_str().unwrap()]).ok()
    });
    exists(kubernetes, name);
}

/// Waits until the Deployment of a WebApp is declared.
fn exists(kubernetes: &Kubernetes, name: &str) {
    eventually(&format!("{name} is declared"), || {
        (get(kubernetes, &["deployment", name], "{.metadata.name}") == name).then_some(())
    });
}

#[test]
fn replicas_take_over_from_each_other_within_their_rights() {
    let folder = tempfile::tempdir().unwrap();
    let audit = Audit::new(folder.path());
    let options = KubernetesOptions { api_server_flags: audit.flags(), ..KubernetesOptions::default() };
    let Some(kubernetes) = parts::or_skip(Kubernetes::start(&options)) else { return };
    let config = |path: &str| repository().join("config").join(path).to_str().unwrap().to_owned();
    kubernetes.run(&["apply", "-f", &config("crd/bases/example.com_webapps.yaml")]).unwrap();
    kubernetes.run(&["create", "namespace", NAMESPACE]).unwrap();
    kubernetes.run(&["apply", "-k", &config("rbac")]).unwrap();
    kubernetes.run(&["wait", "--for=condition=Established", "crd/webapps.example.com"]).unwrap();
    let identity = kubernetes.kubeconfig_for(ACCOUNT, "system:serviceaccounts").unwrap();
    let identity = identity.to_str().unwrap();
    let (way, detour) = detour(&kubernetes, identity, folder.path());

    let start = |name: &str, more: &[String]| Replica::start(folder.path(), identity, name, more);
    let leads = |replica: &Replica| {
        eventually(&format!("{} leads", replica.name), || {
            (leader(&kubernetes) == replica.name).then_some(())
        });
    };
    let mut first = start("replica-1", &[]);
    leads(&first);
    let mut second = Replica::start(folder.path(), detour.to_str().unwrap(), "replica-2", &[]);
    second.ready();
    declared(&kubernetes, folder.path(), "before");

    // A killed leader says nothing more: the other one leads when the Lease has stood still long enough.
    first.signal(Signal::SIGKILL);
    leads(&second);
    declared(&kubernetes, folder.path(), "after-kill");
    let _ = first.child.wait();

    // One that is cut off in the middle of its work gives up before another one may lead.
    let mut third = start("replica-3", &[]);
    third.ready();
    let burst: Vec<String> = (0..30).map(|number| format!("burst-{number}")).collect();
    let all = burst.iter().map(|name| webapp(name)).collect::<Vec<_>>().join("---\n");
    let file = folder.path().join("burst.yaml");
    fs::write(&file, all).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| kubernetes.run(&["apply", "-f", file.to_str().unwrap()]).unwrap());
        exists(&kubernetes, &burst[0]);
        way.cut();
    });
    let status = eventually("the leader that is cut off ends", || second.child.try_wait().unwrap());
    assert_eq!(status.code(), Some(4), "{}", second.log());
    way.mend();
    leads(&third);
    for name in &burst {
        exists(&kubernetes, name);
    }
    never_two_writers(&audit);

    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let fourth = start(
        "replica-4",
        &[format!("--webhook-address=127.0.0.1:{port}"), format!("--webhook-url=https://127.0.0.1:{port}")],
    );
    eventually("the webhook configurations are written", || {
        let name = get(&kubernetes, &["validatingwebhookconfiguration", "webapp"], "{.metadata.name}");
        (name == "webapp").then_some(())
    });
    fourth.ready();

    // One that stands still does not know that it is deposed. When it wakes up it writes nothing more.
    third.signal(Signal::SIGSTOP);
    leads(&fourth);
    declared(&kubernetes, folder.path(), "first");
    third.signal(Signal::SIGCONT);
    let status = eventually("the deposed leader ends", || third.child.try_wait().unwrap());
    assert_eq!(status.code(), Some(4), "{}", third.log());

    let labels = get(&kubernetes, &["webapp", "first"], "{.metadata.labels}");
    let labels: Value = serde_json::from_str(&labels).unwrap_or_default();
    assert_eq!(labels["app.kubernetes.io/component"], "webapp", "the defaulter was asked");
    let bad = folder.path().join("bad.yaml");
    fs::write(
        &bad,
        "apiVersion: example.com/v1\nkind: WebApp\nmetadata: {name: bad}\nspec: {image: nginx, replicas: 2000}\n",
    )
    .unwrap();
    let refused = kubernetes.run(&["apply", "-f", bad.to_str().unwrap()]).unwrap_err();
    for expected in [
        "spec.image: Invalid value: \"nginx\": must say which version",
        "spec.replicas: Invalid value: 2000: must be between 0 and 1000",
    ] {
        assert!(refused.contains(expected), "{refused}");
    }

    let metrics = fourth.metrics().expect("an address in the log");
    let text = eventually("metrics are served", || scrape(&metrics));
    assert!(text.contains("rest_client_requests_total"), "{text}");
    let denied = audit.denied();
    assert!(denied.is_empty(), "something was denied: {denied:#?}");
}

/// A way to the API server that can be cut, and a kubeconfig that takes it.
fn detour(kubernetes: &Kubernetes, kubeconfig: &str, folder: &Path) -> (Way, PathBuf) {
    let server = kubernetes.server();
    let port = server.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap();
    let way = Way::to(port);
    let file = folder.join("detour.kubeconfig");
    let text = fs::read_to_string(kubeconfig).unwrap();
    assert!(text.contains(server), "{server} is in the kubeconfig");
    fs::write(&file, text.replace(server, &format!("https://127.0.0.1:{}", way.port))).unwrap();
    (way, file)
}

/// Holds what the API server was asked against the claim: nothing that the cut-off leader wrote came in
/// after another one had the Lease.
fn never_two_writers(audit: &Audit) {
    let writes = |verb: &str| matches!(verb, "create" | "update" | "patch" | "delete");
    let seen_as = SEEN_AS.to_string();
    let asked = audit.read();
    let mine: Vec<_> = asked.iter().filter(|one| one.from == seen_as && writes(&one.verb)).collect();
    let last = mine.iter().map(|one| &one.at).max().expect("the leader that was cut off had written");
    let is_lease = |path: &str| path.contains("/leases/webapp.steersman.io");
    let led = mine.iter().filter(|one| is_lease(&one.path)).map(|one| &one.at).min().expect("and had led");
    let taken = asked
        .iter()
        .filter(|one| one.from == "127.0.0.1" && one.verb == "update" && is_lease(&one.path) && one.at > *led)
        .map(|one| &one.at)
        .min()
        .expect("another one has taken the Lease");
    assert!(last < taken, "the old leader still wrote at {last}, the new one leads since {taken}");
}
