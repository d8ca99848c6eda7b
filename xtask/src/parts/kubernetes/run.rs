//! Starting the programs of a control plane in their order.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::certificates::{self, Authority, Identity, SigningKey};
use super::{Kubernetes, KubernetesOptions, kubectl};
use crate::parts::process::Launch;
use crate::parts::{Folder, Process, ProcessError, free_port};

/// The group that may do everything.
const MASTERS: &str = "system:masters";
/// Kubernetes refuses loopback as the address that pods see, and nobody uses this one.
const ADVERTISED_ADDRESS: &str = "192.0.2.1";
/// Where Services get their addresses from.
const SERVICE_RANGE: &str = "10.96.0.0/16";
/// A busy machine may take twenty times as long as an idle one.
const DEADLINE: Duration = Duration::from_secs(120);
/// A free port may be taken by someone else before we use it, which shows as an early end.
const ATTEMPTS: usize = 3;

/// Everything on disk that the programs read.
struct Files {
    serving: Identity,
    admin: PathBuf,
    controller_manager: PathBuf,
    scheduler: PathBuf,
    proxy: Identity,
    kubelet: Identity,
    signing_key: SigningKey,
    tokens: PathBuf,
}

pub(super) fn start(programs: &Path, options: &KubernetesOptions) -> Result<Kubernetes, ProcessError> {
    let mut attempt = 1;
    loop {
        match start_once(programs, options) {
            Err(ProcessError::Ended { .. }) if attempt < ATTEMPTS => attempt += 1,
            outcome => return outcome,
        }
    }
}

fn start_once(programs: &Path, options: &KubernetesOptions) -> Result<Kubernetes, ProcessError> {
    let begin = Instant::now();
    let folder = Folder::new()?;
    let authority = Authority::new(&folder)?;
    let port = free_port()?;
    let server = format!("https://127.0.0.1:{port}");
    let token = random_token()?;
    let files = prepare(&folder, &authority, &server, &token)?;

    let etcd_url = format!("http://127.0.0.1:{}", free_port()?);
    let etcd = launch(programs, &folder, "etcd", etcd_args(&folder, &etcd_url)?)?;
    // kube-apiserver waits for etcd by itself.
    let mut args = api_server_args(&folder, &files, &etcd_url, port);
    args.extend(options.api_server_flags.iter().cloned());
    let api_server = launch(programs, &folder, "kube-apiserver", args.clone())?;

    let mut kubernetes = Kubernetes {
        scheduler: None,
        controller_manager: None,
        api_server,
        api_server_args: args,
        etcd,
        programs: programs.to_path_buf(),
        authority,
        server,
        kubeconfig: files.admin.clone(),
        token,
        start_time: Duration::ZERO,
        folder,
    };
    kubernetes.wait_for("/readyz of kube-apiserver", &["get", "--raw", "/readyz"])?;
    kubernetes.start_time = begin.elapsed();

    let folder = &kubernetes.folder;
    let controller_manager = options
        .controller_manager
        .then(|| {
            let args = controller_manager_args(folder, &files);
            launch(programs, folder, "kube-controller-manager", args)
        })
        .transpose()?;
    let scheduler = options
        .scheduler
        .then(|| launch(programs, folder, "kube-scheduler", scheduler_args(&files)))
        .transpose()?;
    kubernetes.controller_manager = controller_manager;
    kubernetes.scheduler = scheduler;
    if options.controller_manager {
        let account = ["get", "serviceaccount", "default", "--namespace=default"];
        kubernetes.wait_for("the default service account", &account)?;
    }
    Ok(kubernetes)
}

pub(super) fn restart_api_server(kubernetes: &mut Kubernetes) -> Result<(), ProcessError> {
    kubernetes.api_server.end();
    let (programs, args) = (kubernetes.programs.clone(), kubernetes.api_server_args.clone());
    kubernetes.api_server = launch(&programs, &kubernetes.folder, "kube-apiserver", args)?;
    kubernetes.wait_for("/readyz of kube-apiserver", &["get", "--raw", "/readyz"])
}

fn launch(programs: &Path, folder: &Folder, name: &str, args: Vec<String>) -> Result<Process, ProcessError> {
    Process::start(Launch {
        name,
        program: &programs.join(name),
        args,
        log: folder.path().join(format!("{name}.log")),
        stop: Signal::SIGKILL,
        account: None,
        env: Vec::new(),
    })
}

impl Kubernetes {
    /// Waits until kubectl succeeds with these arguments, or any of the processes has ended.
    fn wait_for(&mut self, what: &str, args: &[&str]) -> Result<(), ProcessError> {
        let program = self.kubectl();
        // One attempt must not use up the time of all.
        let args = [&["--request-timeout=10s"], args].concat();
        let (kubeconfig, folder) = (&self.kubeconfig, self.folder.path());
        let others = [Some(&mut self.etcd), self.scheduler.as_mut()];
        let mut others: Vec<_> = others.into_iter().flatten().collect();
        // The log that matters is that of the process which brings the condition about.
        let awaited = match self.controller_manager.as_mut() {
            Some(controller_manager) => {
                others.push(&mut self.api_server);
                controller_manager
            }
            None => &mut self.api_server,
        };
        let mut ended = None;
        let outcome = awaited.wait_ready(what, DEADLINE, || {
            if let Some(error) = others.iter_mut().find_map(|other| other.still_running().err()) {
                ended = Some(error);
                return Ok(());
            }
            kubectl(&program, kubeconfig, folder, &args).map(drop)
        });
        ended.map_or(outcome, Err)
    }
}

fn prepare(folder: &Folder, authority: &Authority, server: &str, token: &str) -> Result<Files, ProcessError> {
    let kubeconfig = |user: &str, group: &str| {
        let identity = authority.identity(folder, user, group)?;
        authority.kubeconfig(folder, server, &identity)
    };
    Ok(Files {
        serving: authority.server(folder, "kube-apiserver")?,
        admin: kubeconfig("admin", MASTERS)?,
        controller_manager: kubeconfig("system:kube-controller-manager", "system:authenticated")?,
        scheduler: kubeconfig("system:kube-scheduler", "system:authenticated")?,
        proxy: authority.identity(folder, "front-proxy-client", "system:authenticated")?,
        kubelet: authority.identity(folder, "kube-apiserver-kubelet-client", MASTERS)?,
        signing_key: SigningKey::new(folder)?,
        tokens: folder.write("tokens.csv", &format!("{token},admin,admin,{MASTERS}\n"))?,
    })
}

fn etcd_args(folder: &Folder, url: &str) -> Result<Vec<String>, ProcessError> {
    let peers = format!("http://127.0.0.1:{}", free_port()?);
    Ok(vec![
        format!("--data-dir={}", folder.make("etcd")?.display()),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=default={peers}"),
        "--log-level=warn".into(),
    ])
}

fn api_server_args(folder: &Folder, files: &Files, etcd: &str, port: u16) -> Vec<String> {
    let authority = folder.path().join(certificates::CA_CERTIFICATE);
    let authority = authority.display();
    let mut args = vec![
        format!("--etcd-servers={etcd}"),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        format!("--advertise-address={ADVERTISED_ADDRESS}"),
        format!("--cert-dir={}", folder.path().display()),
        format!("--client-ca-file={authority}"),
        format!("--token-auth-file={}", files.tokens.display()),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-signing-key-file={}", files.signing_key.private.display()),
        format!("--service-account-key-file={}", files.signing_key.public.display()),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--allow-privileged=true".into(),
        "--profiling=false".into(),
        // Aggregated API servers and webhooks.
        format!("--requestheader-client-ca-file={authority}"),
        "--requestheader-allowed-names=front-proxy-client".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-username-headers=X-Remote-User".into(),
        // Logs and exec through the node; which certificate it shows is not checked.
        "--kubelet-preferred-address-types=InternalIP,Hostname".into(),
    ];
    let pairs = [
        ("--tls-cert-file", "--tls-private-key-file", &files.serving),
        ("--proxy-client-cert-file", "--proxy-client-key-file", &files.proxy),
        ("--kubelet-client-certificate", "--kubelet-client-key", &files.kubelet),
    ];
    for (certificate, key, identity) in pairs {
        args.push(format!("{certificate}={}", identity.certificate.display()));
        args.push(format!("{key}={}", identity.key.display()));
    }
    args
}

fn controller_manager_args(folder: &Folder, files: &Files) -> Vec<String> {
    let authority = folder.path().join(certificates::CA_CERTIFICATE);
    let key = folder.path().join(certificates::CA_KEY);
    vec![
        format!("--kubeconfig={}", files.controller_manager.display()),
        "--leader-elect=false".into(),
        "--use-service-account-credentials=true".into(),
        format!("--service-account-private-key-file={}", files.signing_key.private.display()),
        format!("--root-ca-file={}", authority.display()),
        format!("--cluster-signing-cert-file={}", authority.display()),
        format!("--cluster-signing-key-file={}", key.display()),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--secure-port=0".into(),
        "--profiling=false".into(),
    ]
}

fn scheduler_args(files: &Files) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", files.scheduler.display()),
        "--leader-elect=false".into(),
        "--secure-port=0".into(),
        "--profiling=false".into(),
    ]
}

/// 32 hexadecimal digits that nobody can guess.
fn random_token() -> Result<String, ProcessError> {
    use std::io::Read;
    let mut bytes = [0_u8; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(ProcessError::setup("reading /dev/urandom"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
