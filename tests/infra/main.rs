//! Infrastructure as resources, with the binary that users have: one scenario on SQLite, on
//! PostgreSQL and on a real Kubernetes control plane, and what becomes of it when processes die.

#[path = "../support/mod.rs"]
mod support;

mod compose;
mod failover;
mod scenario;
mod world;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use scenario::{Place, scenario};
use support::{Up, audit::Audit, eventually, steer};
use world::World;
use xtask::parts::{self, Kubernetes, KubernetesOptions, Postgres, or_skip};

/// Settings that make minutes seconds.
const HURRY: [(&str, &str); 4] = [
    ("DRIFT_INTERVAL", "1"),
    ("BACKOFF_BASE_DELAY", "0.2"),
    ("RECONCILE_INTERVAL", "5"),
    ("ACTION_PRIVATE_ADDRESSES", "allow"),
];

/// The variables that name a database.
fn database(server: &Postgres) -> Vec<(&'static str, String)> {
    vec![
        ("DB_HOST", "127.0.0.1".to_owned()),
        ("DB_PORT", server.port().to_string()),
        ("DB_NAME", "postgres".to_owned()),
        ("DB_USER", "steersman".to_owned()),
    ]
}

fn hurry() -> Vec<(&'static str, String)> {
    HURRY.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

/// A `steer run infra` against a cluster, killed when dropped.
struct Operator {
    child: Child,
    log: PathBuf,
    address: String,
}

impl Operator {
    fn start(kubeconfig: &Path, dir: &Path, variables: &[(&'static str, String)]) -> Self {
        Self::start_with(kubeconfig, dir, variables, &["--install-crds"])
    }

    fn start_with(
        kubeconfig: &Path,
        dir: &Path,
        variables: &[(&'static str, String)],
        args: &[&str],
    ) -> Self {
        let port = parts::free_port().unwrap();
        let log = dir.with_extension("log");
        let out = fs::File::options().create(true).append(true).open(&log).unwrap();
        let child = Command::new(steer())
            .args(["run", "infra", "--metrics-address", "127.0.0.1:0"])
            .args(args)
            .args(["--health-address", "127.0.0.1:0", "--rest-address", &format!("127.0.0.1:{port}")])
            .arg("--data-dir")
            .arg(dir)
            .env("KUBECONFIG", kubeconfig)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        let mut operator = Self { child, log, address: format!("http://127.0.0.1:{port}") };
        eventually("`steer run infra` answers", || {
            if let Some(status) = operator.child.try_wait().unwrap() {
                panic!("it ended with {status}:\n{}", operator.log());
            }
            (scenario::curl(&format!("{}/health", operator.address), &[]).0 == 200).then_some(())
        });
        operator
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Kills it without a chance to clean up.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The API server and its store, without controllers: nothing here needs pods.
fn kubernetes() -> Option<Kubernetes> {
    audited(Vec::new())
}

/// The same with more flags for the API server.
fn audited(api_server_flags: Vec<String>) -> Option<Kubernetes> {
    let options = KubernetesOptions { controller_manager: false, scheduler: false, api_server_flags };
    or_skip(Kubernetes::start(&options))
}

fn rest_address(up: &Up) -> String {
    fs::read_to_string(up.dir.join("rest")).unwrap().trim().to_owned()
}

#[test]
fn the_scenario_on_sqlite() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::start());
    let up = Up::start_env(&folder.path().join("state"), &["--runtime", "fake"], &hurry());
    let address = rest_address(&up);
    scenario(&Place { address: &address, kubeconfig: &up.kubeconfig() }, &world);
    up.stop();
}

#[test]
fn the_scenario_on_postgresql() {
    let Some(server) = or_skip(parts::postgres()) else { return };
    let (folder, world) = (tempfile::tempdir().unwrap(), World::start());
    let variables = [hurry(), database(&server)].concat();
    let up = Up::start_env(&folder.path().join("state"), &["--runtime", "fake"], &variables);
    let address = rest_address(&up);
    scenario(&Place { address: &address, kubeconfig: &up.kubeconfig() }, &world);
    let kept = server.query("SELECT count(*) FROM reconciliation_history").unwrap();
    assert!(kept.parse::<u32>().unwrap() >= 6, "{kept} attempts are in the database");
    up.stop();
}

#[test]
fn the_scenario_on_a_real_control_plane_with_the_rights_that_are_asked_for() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::start());
    let audit = Audit::new(folder.path());
    let Some(kubernetes) = audited(audit.flags()) else { return };
    let Some(server) = or_skip(parts::postgres()) else { return };
    let manifests = support::repository().join("config/infra");
    kubernetes.run(&["apply", "--server-side", "-k", manifests.to_str().unwrap()]).unwrap();
    let variables = [hurry(), database(&server)].concat();
    let account = "system:serviceaccount:infra-system:infra-manager";
    let account = kubernetes.kubeconfig_for(account, "system:serviceaccounts").unwrap();
    let at_home = ["--lease-namespace", "infra-system"];
    let operator = Operator::start_with(&account, &folder.path().join("one"), &variables, &at_home);
    scenario(&Place { address: &operator.address, kubeconfig: kubernetes.kubeconfig() }, &world);
    let denied = audit.denied();
    assert!(denied.is_empty(), "rights are missing: {denied:#?}");
}
