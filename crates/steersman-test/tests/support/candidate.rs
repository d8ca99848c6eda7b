//! A candidate: a process of its own that writes as long as it leads.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::ObjectMeta;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use steersman::{
    CancellationToken, Context, Controller, Error, LeaseOptions, Manager, Options, Outcome, Reconciler,
};
use tokio::process::{Child, Command};
use xtask::parts::Kubernetes;

use super::Gate;

/// How long the leases of these tests count.
pub(crate) const DURATION: Duration = Duration::from_secs(5);

/// A process that wants to lead.
pub(crate) struct Candidate {
    child: Child,
}

impl Candidate {
    /// Starts this program again, as a candidate.
    pub(crate) fn start(identity: &str, lease: &str, gate: &Gate) -> Self {
        let program = std::env::current_exe().expect("this program");
        let child = Command::new(program)
            .args(["--exact", "a_candidate_leads_when_it_is_told_to", "--nocapture"])
            .env("CANDIDATE", identity)
            .env("CANDIDATE_LEASE", lease)
            .env("CANDIDATE_SERVER", format!("http://{}", gate.address))
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        Self { child: child.expect("a process") }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).expect("it runs");
        kill(Pid::from_raw(pid), signal).expect("a signal");
    }

    /// Waits for its end, and gives its exit code.
    pub(crate) async fn wait(&mut self) -> Option<i32> {
        let ended = tokio::time::timeout(Duration::from_secs(120), self.child.wait()).await;
        ended.expect("it ends").expect("a status").code()
    }

    /// Asks it to end, and waits for that.
    pub(crate) async fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        assert_eq!(self.wait().await, Some(0));
    }
}

/// Writes another number into a ConfigMap of its own every few milliseconds.
struct Writer {
    identity: String,
    written: AtomicU64,
}

impl Reconciler for Writer {
    type Object = Namespace;

    async fn reconcile(&self, namespace: Arc<Namespace>, cx: &Context) -> Result<Outcome, Error> {
        if namespace.metadata.name.as_deref() != Some("default") {
            return Ok(Outcome::Done);
        }
        let number = self.written.fetch_add(1, Ordering::Relaxed).to_string();
        cx.apply_unowned(&ConfigMap {
            metadata: ObjectMeta {
                name: Some(format!("written-by-{}", self.identity)),
                namespace: Some("default".to_owned()),
                ..ObjectMeta::default()
            },
            data: Some([("number".to_owned(), number)].into()),
            ..ConfigMap::default()
        })
        .await?;
        Ok(Outcome::RequeueAfter(Duration::from_millis(20), "the next number"))
    }
}

/// Leads until it is told to stop, if the environment says that this process is a candidate.
pub(crate) fn lead_if_asked() {
    let Ok(identity) = std::env::var("CANDIDATE") else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let code = runtime.block_on(lead(identity));
    std::process::exit(code);
}

async fn lead(identity: String) -> i32 {
    let setting = |name: &str| std::env::var(name).unwrap_or_default();
    let config = Config::new(setting("CANDIDATE_SERVER").parse().expect("an address"));
    let client = Client::try_from(config).expect("a client");
    let lease = LeaseOptions {
        identity: identity.clone(),
        duration: DURATION,
        renew_deadline: Duration::from_secs(3),
        retry_period: Duration::from_millis(500),
        ..LeaseOptions::new("default", setting("CANDIDATE_LEASE"))
    };
    let writer = Writer { identity, written: AtomicU64::new(0) };
    let manager = Manager::new(client, Options { lease: Some(lease), ..Options::named("candidate") })
        .controller(Controller::new("writer", writer).concurrency(1));
    let stop = CancellationToken::new();
    let token = stop.clone();
    let mut terminated =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).expect("a signal");
    let asked = tokio::spawn(async move {
        terminated.recv().await;
        token.cancel();
    });
    let ended = manager.run(stop).await;
    asked.abort();
    ended.map_or_else(|error| i32::from(error.exit_code()), |()| 0)
}

/// A client of a real control plane.
pub(crate) async fn client_of(kubernetes: &Kubernetes) -> Client {
    let file = Kubeconfig::read_from(kubernetes.kubeconfig()).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}
