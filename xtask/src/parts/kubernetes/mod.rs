//! A real Kubernetes control plane: etcd, kube-apiserver, kube-controller-manager and
//! kube-scheduler of one release, on loopback, without containers and without a node.

mod build;
mod certificates;
mod run;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub(crate) use build::{RELEASE, install};
use certificates::Authority;
pub use certificates::Identity;

use super::process::is_executable;
use super::{Cache, Folder, Process, ProcessError, Unavailable};

/// The part's name.
pub(crate) const NAME: &str = "kubernetes";
/// The programs a control plane needs, and kubectl, which tells when it is ready.
pub(crate) const PROGRAMS: [&str; 5] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"];

/// How much of a control plane to start.
#[derive(Clone, Debug)]
pub struct KubernetesOptions {
    /// Starts kube-controller-manager, and waits for the default service account, without which
    /// no pod can be created. Default: yes.
    pub controller_manager: bool,
    /// Starts kube-scheduler. Default: yes.
    pub scheduler: bool,
    /// More flags for kube-apiserver, such as `--feature-gates=…`. Default: none.
    pub api_server_flags: Vec<String>,
}

impl Default for KubernetesOptions {
    fn default() -> Self {
        Self { controller_manager: true, scheduler: true, api_server_flags: Vec::new() }
    }
}

/// A running control plane, stopped when this is dropped.
pub struct Kubernetes {
    // In the order in which they are stopped: clients before servers.
    scheduler: Option<Process>,
    controller_manager: Option<Process>,
    api_server: Process,
    api_server_args: Vec<String>,
    etcd: Process,
    folder: Folder,
    programs: PathBuf,
    authority: Authority,
    server: String,
    kubeconfig: PathBuf,
    token: String,
    start_time: Duration,
}

/// A whole control plane, ready for pods.
///
/// # Errors
/// [`Unavailable::Missing`] when its programs were never built on this machine.
pub fn kubernetes() -> Result<Kubernetes, Unavailable> {
    Kubernetes::start(&KubernetesOptions::default())
}

impl Kubernetes {
    /// Starts a control plane and waits until it can be used.
    ///
    /// # Errors
    /// [`Unavailable::Missing`] when its programs were never built on this machine,
    /// [`Unavailable::Broken`] when they do not start.
    pub fn start(options: &KubernetesOptions) -> Result<Self, Unavailable> {
        let programs = find(&Cache::of_user())?;
        run::start(&programs, options).map_err(Unavailable::broken(NAME))
    }

    /// Credentials of an administrator, the certificates inside.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The API server's address, `https://127.0.0.1:PORT`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The certificate that signs the API server's and every client's certificate.
    pub fn ca_certificate(&self) -> PathBuf {
        self.folder.path().join(certificates::CA_CERTIFICATE)
    }

    /// The key of [`Self::ca_certificate`], for a test that signs certificates itself.
    pub fn ca_key(&self) -> PathBuf {
        self.folder.path().join(certificates::CA_KEY)
    }

    /// A bearer token of an administrator.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The kubectl of the same release.
    pub fn kubectl(&self) -> PathBuf {
        self.programs.join("kubectl")
    }

    /// A call of kubectl as administrator: `kubernetes.run(&["get", "pods"])`.
    ///
    /// # Errors
    /// What kubectl wrote to its standard error, when it fails.
    pub fn run(&self, args: &[&str]) -> Result<String, String> {
        kubectl(&self.kubectl(), &self.kubeconfig, self.folder.path(), args)
    }

    /// The release, such as `v1.36.4`.
    pub fn version(&self) -> &'static str {
        RELEASE
    }

    /// A client certificate for a user in a group: `system:node:NAME` in `system:nodes` is what a
    /// kubelet calls itself.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn identity(&self, user: &str, group: &str) -> Result<Identity, ProcessError> {
        self.authority.identity(&self.folder, user, group)
    }

    /// A kubeconfig for a user in a group.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn kubeconfig_for(&self, user: &str, group: &str) -> Result<PathBuf, ProcessError> {
        let identity = self.identity(user, group)?;
        self.authority.kubeconfig(&self.folder, &self.server, &identity)
    }

    /// Kills the API server and starts it again on the same port: every connection and every watch
    /// is cut, and nothing answers in between. Returns once it is ready.
    ///
    /// # Errors
    /// When it does not start again.
    pub fn restart_api_server(&mut self) -> Result<(), ProcessError> {
        run::restart_api_server(self)
    }

    /// How long it took from nothing until the API server's `/readyz` said yes.
    pub fn start_time(&self) -> Duration {
        self.start_time
    }

    /// The ids of [`Self::processes`].
    pub fn pids(&self) -> Vec<u32> {
        self.processes().map(Process::pid).collect()
    }

    /// The processes, clients before servers; their logs say what they do.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        let clients = [self.scheduler.as_ref(), self.controller_manager.as_ref()];
        clients.into_iter().flatten().chain([&self.api_server, &self.etcd])
    }
}

/// The folder with the programs.
pub(crate) fn find(cache: &Cache) -> Result<PathBuf, Unavailable> {
    let folder = build::programs_folder(cache);
    match PROGRAMS.iter().find(|name| !is_executable(&folder.join(name))) {
        None => Ok(folder),
        Some(missing) => {
            let what = format!("no {missing} {RELEASE} in {}", folder.display());
            let remedy = "build it with `cargo xtask parts install kubernetes`, which needs Go and takes \
                          some minutes once";
            Err(Unavailable::Missing { part: NAME, what, remedy: remedy.into() })
        }
    }
}

fn kubectl(program: &Path, kubeconfig: &Path, folder: &Path, args: &[&str]) -> Result<String, String> {
    super::process::output(
        Command::new(program)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--cache-dir")
            .arg(folder.join("kubectl-cache"))
            .args(args),
    )
}
