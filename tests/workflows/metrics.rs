//! Metrics on a real control plane: shown to those whom it lets, scraped by a real Prometheus that evaluates
//! every alert and every query of the dashboard.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    sync::Arc,
    time::Duration,
};

use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde_json::Value;
use xtask::parts::{self, Kubernetes, PrometheusOptions};

use super::{
    Beside,
    support::{eventually, repository},
    text,
};

const SYSTEM: &str = "observatory-operator-system";
const MANAGER: &str = "observatory-operator-manager";

const WORKFLOW: &str = "
apiVersion: workflow.seventh-horizon.io/v1alpha1
kind: Observatory
metadata: {name: one}
spec: {tasks: [{name: a, image: busybox}]}
";

/// The operator, run by this test as the account that the package gives it.
struct Operator {
    _process: Beside,
    log: std::path::PathBuf,
}

impl Operator {
    fn start(log: &Path, kubeconfig: &Path, more: &[&str]) -> Self {
        let kubeconfig = kubeconfig.to_str().unwrap();
        let usual = ["run", "observatory", "--kubeconfig", kubeconfig, "--lease-namespace", SYSTEM];
        let addresses = ["--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"];
        let process = Beside::start(log, &[&usual, &addresses[..], &["--metrics-secure"], more].concat());
        Self { _process: process, log: log.to_owned() }
    }

    /// An address out of its log.
    fn address(&self, of: &str) -> String {
        eventually(&format!("the operator names its address of {of}"), || {
            let log = fs::read_to_string(&self.log).ok()?;
            let start = log.find(&format!("{of}=\""))? + of.len() + 2;
            Some(log.get(start..)?.split('"').next()?.to_owned())
        })
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// A certificate for loopback and its key, put where an operator reads them. Returns the certificate.
fn new_certificate(folder: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    fs::write(folder.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    fs::write(folder.join("tls.crt"), made.cert.pem()).unwrap();
    CertificateDer::from_pem_slice(made.cert.pem().as_bytes()).unwrap()
}

fn ask(
    stream: &mut (impl std::io::Read + std::io::Write),
    path: &str,
    token: Option<&str>,
) -> Option<String> {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{token}Connection: close\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    // Some servers end TLS without a word.
    let _ = stream.read_to_end(&mut answer);
    Some(String::from_utf8_lossy(&answer).into_owned()).filter(|answer| !answer.is_empty())
}

fn plain(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    ask(&mut stream, path, None)
}

/// What is answered over TLS to one who trusts this certificate and no other.
fn secure(address: &str, trusted: &CertificateDer<'static>, token: Option<&str>) -> Option<String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let connection = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
    let stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    ask(&mut StreamOwned::new(connection, stream), "/metrics", token)
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

/// A token of a new account of the namespace `default`.
fn token(kubernetes: &Kubernetes, account: &str) -> String {
    kubernetes.run(&["create", "serviceaccount", account]).unwrap();
    kubernetes.run(&["create", "token", account]).unwrap().trim().to_owned()
}

/// Installs the package, and lets two accounts have tokens, of which the first may read metrics.
fn install(kubernetes: &Kubernetes) -> (String, String) {
    let package = repository().join("config/observatory");
    kubernetes.run(&["apply", "--server-side", "-k", package.to_str().unwrap()]).unwrap();
    kubernetes.run(&["-n", SYSTEM, "scale", "deployment", MANAGER, "--replicas=0"]).unwrap();
    let crd = "crd/observatories.workflow.seventh-horizon.io";
    eventually("the type is there", || {
        kubernetes.run(&["wait", "--for=condition=Established", crd, "--timeout=10s"]).ok()
    });
    let tokens = (token(kubernetes, "scraper"), token(kubernetes, "stranger"));
    let role = "--clusterrole=observatory-operator-metrics-reader";
    let binding = ["create", "clusterrolebinding", "scraper", role, "--serviceaccount=default:scraper"];
    kubernetes.run(&binding).unwrap();
    tokens
}

#[test]
fn metrics_are_for_those_whom_the_cluster_lets_and_alerts_and_dashboard_know_them() {
    let Some(kubernetes) = parts::or_skip(parts::kubernetes()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (reader, stranger) = install(&kubernetes);
    let account = format!("system:serviceaccount:{SYSTEM}:{MANAGER}");
    let identity = kubernetes.kubeconfig_for(&account, "system:serviceaccounts").unwrap();

    let certificate = new_certificate(folder.path());
    let files = ["--leader-elect=false", "--metrics-cert-dir", folder.path().to_str().unwrap()];
    let operator = Operator::start(&folder.path().join("first.log"), &identity, &files);
    let (metrics, health) = (operator.address("metrics"), operator.address("health"));
    let answer =
        |token: Option<&str>| eventually("metrics are served", || secure(&metrics, &certificate, token));
    let good = answer(Some(&reader));
    assert_eq!(status(&good), "200", "{good}\n{}", operator.log());
    assert!(good.contains("\nobservatory_active_workflows 0"), "{good}");
    let forbidden = answer(Some(&stranger));
    assert_eq!(status(&forbidden), "403", "{forbidden}");
    assert!(
        forbidden.contains("\"system:serviceaccount:default:stranger\" may not get /metrics"),
        "{forbidden}"
    );
    for token in [None, Some("made-up")] {
        let unknown = answer(token);
        assert_eq!(status(&unknown), "401", "{unknown}");
        assert!(unknown.to_lowercase().contains("www-authenticate: bearer"), "{unknown}");
    }
    let refused = plain(&metrics, "/metrics").unwrap();
    assert!(status(&refused) == "400" && refused.contains("HTTPS"), "{refused}");
    // Probes have no tokens; what they may see tells nothing else.
    assert_eq!(status(&plain(&health, "/healthz").unwrap()), "200");
    assert_eq!(status(&plain(&health, "/metrics").unwrap()), "404");
    assert_eq!(status(&plain(&health, "/debug/cache").unwrap()), "404");
    // A new certificate in the same files is shown without a restart.
    let renewed = new_certificate(folder.path());
    let after = eventually("the new certificate is shown", || secure(&metrics, &renewed, Some(&reader)));
    assert_eq!(status(&after), "200");
    assert!(secure(&metrics, &certificate, Some(&reader)).is_none(), "the old certificate is shown");
    let log = operator.log();
    assert!(!log.to_lowercase().contains("forbidden"), "a right is missing:\n{log}");
    drop(operator);

    watched(&kubernetes, folder.path(), &identity, &reader);
}

/// The same operator with a certificate of its own, as Prometheus sees it.
fn watched(kubernetes: &Kubernetes, folder: &Path, identity: &Path, reader: &str) {
    let port = parts::free_port().unwrap();
    let (address, url) = (format!("127.0.0.1:{port}"), format!("https://127.0.0.1:{port}"));
    let webhooks = ["--webhook-address", &address, "--webhook-url", &url];
    let operator = Operator::start(&folder.join("second.log"), identity, &webhooks);
    let rules = fs::read_to_string(repository().join("config/prometheus/rules.yaml")).unwrap();
    let rules: Value = serde_saphyr::from_str(&rules).unwrap();
    let options = PrometheusOptions {
        target: operator.address("metrics"),
        token: Some(reader.to_owned()),
        rules: Some(rules.pointer("/spec").unwrap().to_string()),
    };
    let Some(prometheus) = parts::or_skip(parts::prometheus_with(&options)) else { return };
    let server = prometheus.url();
    // Something to count: a call of the webhook, reconciles, writes, the end of a workflow.
    let workflow = folder.join("one.yaml");
    fs::write(&workflow, WORKFLOW).unwrap();
    eventually("a workflow is taken", || kubernetes.run(&["apply", "-f", workflow.to_str().unwrap()]).ok());
    let ended = r#"{"status": {"phase": "Succeeded", "startTime": "2026-01-01T00:00:00Z", "containerStatuses": [{
        "name": "task", "image": "i", "imageID": "i", "ready": false, "restartCount": 0, "state": {"terminated":
        {"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"}}}]}}"#;
    eventually("its pod ends", || {
        kubernetes.run(&["patch", "pod", "one-a", "--subresource=status", "--patch", ended]).ok()
    });
    eventually("Prometheus has seen the end", || {
        let found = query(&server, "observatory_workflow_duration_seconds_count > 0")?;
        found.pointer("/data/result/0").is_some().then_some(())
    });

    let alerts = eventually("every rule has been evaluated", || {
        let found = get(&server, "/api/v1/rules")?;
        let groups = found.pointer("/data/groups")?.as_array()?.clone();
        let all: Vec<Value> =
            groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default()).collect();
        (!all.is_empty() && all.iter().all(|rule| text(rule, "/health") != "unknown")).then_some(all)
    });
    let expected = rules.pointer("/spec/groups").and_then(Value::as_array).unwrap();
    let expected: usize = expected.iter().filter_map(|group| group["rules"].as_array().map(Vec::len)).sum();
    assert_eq!(alerts.len(), expected);
    for alert in &alerts {
        assert_eq!(text(alert, "/health"), "ok", "{alert:#}");
        assert_ne!(text(alert, "/state"), "firing", "nothing is wrong here: {alert:#}");
    }

    let known = get(&server, "/api/v1/label/__name__/values").unwrap();
    let known: BTreeSet<&str> = known["data"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let queries = alerts.iter().map(|alert| text(alert, "/query").to_owned()).chain(dashboard());
    let (mut asked, mut unknown) = (0, BTreeSet::new());
    for expression in queries {
        let names = metrics_of(&expression).into_iter();
        unknown.extend(names.filter(|name| !known.contains(name.as_str())));
        let answer = query(&server, &expression).unwrap_or_default();
        assert_eq!(text(&answer, "/status"), "success", "{expression}: {answer:#}");
        asked += 1;
    }
    assert!(unknown.is_empty(), "nobody tells of {unknown:?}:\n{}", operator.log());
    assert!(asked >= alerts.len() + 10, "{asked} expressions");
}

/// The expressions of every dashboard.
fn dashboard() -> Vec<String> {
    let files = fs::read_dir(repository().join("config/grafana")).unwrap();
    let mut expressions = Vec::new();
    for file in files {
        let board: Value = serde_json::from_slice(&fs::read(file.unwrap().path()).unwrap()).unwrap();
        for panel in board["panels"].as_array().unwrap() {
            let targets = panel["targets"].as_array().cloned().unwrap_or_default();
            expressions.extend(targets.iter().map(|target| text(target, "/expr").to_owned()));
        }
    }
    assert!(!expressions.iter().any(String::is_empty), "a target without an expression");
    expressions
}

/// The names of metrics in an expression: words that are no labels, functions or operators.
fn metrics_of(expression: &str) -> BTreeSet<String> {
    const WORDS: [&str; 8] = ["and", "or", "unless", "bool", "offset", "inf", "nan", "atan2"];
    const LABELS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
    let mut names = BTreeSet::new();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        let length =
            rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
        if length == 0 {
            let end = match first {
                '{' => rest.find('}'),
                '[' => rest.find(']'),
                '"' => rest.get(1..).and_then(|rest| rest.find('"')).map(|at| at + 1),
                _ => None,
            };
            rest = rest.get(end.unwrap_or(0) + first.len_utf8()..).unwrap_or_default();
            continue;
        }
        let (word, after) = rest.split_at(length);
        let next = after.trim_start();
        let called = ["(", "by ", "by(", "without ", "without("].iter().any(|start| next.starts_with(start));
        rest = match called && LABELS.contains(&word) {
            true => after.split_once(')').map_or("", |(_, rest)| rest),
            false => after,
        };
        if !called && !first.is_ascii_digit() && !WORDS.contains(&word) && !LABELS.contains(&word) {
            names.insert(word.to_owned());
        }
    }
    names
}

fn query(server: &str, expression: &str) -> Option<Value> {
    let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
    get(server, &format!("/api/v1/query?query={encoded}"))
}

fn get(server: &str, path: &str) -> Option<Value> {
    let address = server.strip_prefix("http://")?;
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    // HTTP/1.0 so that the answer comes in one piece.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

#[test]
fn names_of_metrics_are_found_in_expressions() {
    let of = |expression: &str| metrics_of(expression).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(of("sum by (name) (up) < 1"), "up");
    assert_eq!(of("histogram_quantile(0.99, sum by (le, x) (rate(a_bucket{b=\"c d\"}[5m])))"), "a_bucket");
    assert_eq!(of("rate(a_total{x!=\"1\"}[1m]) / on(job) b unless c offset 5m > 1e3"), "a_total b c");
}
