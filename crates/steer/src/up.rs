//! `steer up`: a control plane, a node and the operators in one process.
//!
//! ```text
//! lock the folder ─▶ bind ports ─▶ certificates ─▶ store ─▶ API server ─▶ definitions
//!                                         ─▶ controllers, operators, node ─▶ kubeconfig, "ready"
//! ```
//!
//! Stopping goes the other way: the node first, so that pods end while their status can still be
//! written, then controllers, then the API server, and the store last.

use std::{
    fs::{self, File, TryLockError},
    future::Future,
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use anyhow::{Context as _, anyhow};
use kube::Client;
use steersman::{Manager, Options as ManagerOptions};
use steersman_apiserver::{
    KubeletClient, LoopbackEndpoints, Options as ServerOptions, Server, User,
    auth::{Authority, Credentials},
    store::Store,
};
use steersman_controllers::{ControllerOptions, Scheduling};
use steersman_infra::action::web::PrivateAddresses;
use steersman_node::{Annotate, Node, NodeOptions, ServicePublishing};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    CouldNotStart,
    cli::{Runtime, Scheduler, UpArgs},
    crds, describe, elasti,
    infra::{self, Infra},
    output::tell,
    signals,
    store::StoreChoice,
    webhooks,
};

/// The name of the one node there is.
const NODE: &str = "steersman";

/// Runs everything until Ctrl-C.
pub(crate) async fn up(args: &UpArgs) -> anyhow::Result<()> {
    let shutdown = signals::shutdown_token()?;
    let begin = Instant::now();
    tell(format_args!("Starting a control plane, a node and the operators in {} …", args.data_dir.display()));
    let running = tokio::select! {
        started = Running::start(args) => started.map_err(|error| error.context(CouldNotStart))?,
        // A start may take long, on a disk that is full; what has begun ends as it is dropped.
        () = shutdown.cancelled() => {
            tell(format_args!("Stopped before everything was ready."));
            return Ok(());
        }
    };
    tell(format_args!("{}", running.welcome(begin)));
    running.until(&shutdown).await
}

/// Everything that runs, in the order in which it is stopped.
struct Running {
    node: Part,
    rest: Part,
    wake: Part,
    managers: Part,
    server: Part,
    store: Store,
    addresses: Addresses,
    kubeconfig: PathBuf,
    runtime: &'static str,
    /// Held until the end: the folder is ours.
    _lock: File,
}

struct Addresses {
    api: SocketAddr,
    http: SocketAddr,
    metrics: SocketAddr,
    wake: SocketAddr,
    webhooks: SocketAddr,
}

impl Running {
    async fn start(args: &UpArgs) -> anyhow::Result<Self> {
        let dir = &args.data_dir;
        let lock = claim(dir)?;
        let kubeconfig = dir.join("kubeconfig");
        remove_stale(&kubeconfig)?;
        remove_stale(&dir.join("rest"))?;
        let api = bind(args.bind, args.api_port, "--api-port").await?;
        let http = bind(args.bind, args.http_port, "--http-port").await?;
        let metrics = bind(args.bind, args.metrics_port, "--metrics-port").await?;
        let wake = bind(args.bind, args.elasti_port, "--elasti-port").await?;
        let webhooks = bind(args.bind, args.webhook_port, "--webhook-port").await?;
        let addresses = Addresses {
            api: api.local_addr()?,
            http: http.local_addr()?,
            metrics: metrics.local_addr()?,
            wake: wake.local_addr()?,
            webhooks: webhooks.local_addr()?,
        };
        // The manager opens these addresses itself; until then the ports were only tried.
        drop((metrics, webhooks));

        let authority = Authority::load_or_create(&dir.join("pki")).context("cannot set up certificates")?;
        let choice = match &args.store {
            Some(choice) => choice.clone(),
            None if args.memory => StoreChoice::Memory,
            None => infra::database_url()?.map_or(StoreChoice::Sqlite, StoreChoice::Postgres),
        };
        let store = choice.open(dir).await?;
        let options = ServerOptions {
            loopback_endpoints: match args.runtime {
                Runtime::Sandbox | Runtime::Fake => LoopbackEndpoints::Refuse,
                Runtime::Auto | Runtime::Process => LoopbackEndpoints::Accept,
            },
            advertise: Some(addresses.api),
            kubelet: Some(kubelet_client(&authority)?),
            authenticator: Some(Arc::new(authority.authenticator())),
            descriptions: Some(describe::descriptions),
            ..ServerOptions::default()
        };
        let server = Server::open(store.clone(), options).await.context("cannot start the API server")?;
        let url = format!("https://{}", addresses.api);
        let identity = authority.serving_identity();
        let serving = Part::start("the API server", {
            let server = server.clone();
            move |stop| async move { Ok(server.serve(api, identity, stop).await?) }
        });

        let operator = in_process(&server, User::new("system:steersman", ["system:masters"]));
        crds::install(&operator).await.context("cannot install the operators' definitions")?;

        // One manager for everything, so that pods and Deployments are watched and kept only once.
        let options = ManagerOptions {
            metrics: Some(addresses.metrics),
            health: Some(addresses.metrics),
            ..ManagerOptions::named("steersman")
        };
        let manager = Manager::new(operator.clone(), options);
        let manager = steersman_controllers::controllers(
            manager,
            ControllerOptions {
                root_ca: Some(authority.ca_pem().to_owned()),
                scheduling: match args.scheduler {
                    Scheduler::Own => Scheduling::Own,
                    Scheduler::None => Scheduling::Others,
                },
            },
        );
        let manager = manager.controller(steersman_webapp::controller());
        let manager = steersman_observatory::limited_controllers(manager, args.observatory.limits());
        // Whoever may speak to the API here may run programs here: nothing is private to plugins.
        let infra = Infra::open(&dir.join("infra"), "default", PrivateAddresses::Allow).await?;
        let manager = infra.add_to(manager);
        let way = elasti::Way::default();
        let manager = elasti::add_to(manager, &operator, &way);
        let manager = webhooks::all(manager, addresses.webhooks, &operator, args.policy);
        let managers = Part::start("the controllers", |stop| async move { Ok(manager.run(stop).await?) });

        let access = infra::access(addresses.http, args.rest_token.clone(), args.rest_access)?;
        let client = operator.clone();
        let wake = Part::start("the endpoint of wake-up calls", |stop| async move {
            elasti::wake_calls(wake, client, stop).await;
            Ok(())
        });
        let rest = Part::start("the REST API", |stop| async move {
            Ok(steersman_infra::rest(operator, infra.rest(access), http, stop).await?)
        });

        let node = Node::start(
            in_process(&server, User::new(format!("system:node:{NODE}"), ["system:nodes"])),
            NodeOptions {
                name: NODE.to_owned(),
                data_dir: dir.join("node"),
                runtime: args.runtime.into(),
                max_pods: args.max_pods,
                client_ca_pem: Some(authority.ca_pem().to_owned()),
                api_server: Some(addresses.api),
                host_services: vec![elasti::operator_service(addresses.wake)],
                services: ServicePublishing { annotate: Annotate::Yes, ..ServicePublishing::default() },
                ..NodeOptions::default()
            },
        )
        .await
        .context("cannot start the node")?;
        way.open(node.network());
        let runtime = node.runtime().name();
        let node = Part::start("the node", |stop| async move { Ok(node.run(stop).await?) });

        let admin = authority.issue_client(&User::admin())?;
        write_private(&kubeconfig, &authority.kubeconfig(&url, Credentials::Certificate(&admin)))?;
        // For `steer infra`, as the kubeconfig is for everything else.
        write_private(&dir.join("rest"), &format!("http://{}\n", addresses.http))?;
        let kubeconfig = std::path::absolute(kubeconfig)?;
        Ok(Self {
            node,
            rest,
            wake,
            managers,
            server: serving,
            store,
            addresses,
            kubeconfig,
            runtime,
            _lock: lock,
        })
    }

    /// What a user wants to know first.
    fn welcome(&self, begin: Instant) -> String {
        let kubeconfig = self.kubeconfig.display();
        let steer = std::env::args().next().unwrap_or_else(|| "steer".to_owned());
        format!(
            "Steersman is ready after {:.2} s.\n\n  \
               Kubernetes API   https://{}\n  \
               REST API         http://{}/api/v1/resources\n  \
               metrics, health  http://{}/metrics\n  \
               wake-up calls    http://{}\n  \
               webhooks         https://{}\n  \
               pods run as      {}\n\n\
             Try, in another terminal:\n\n  \
               export KUBECONFIG={kubeconfig}\n  \
               kubectl apply -f config/samples/example_v1_webapp.yaml\n  \
               kubectl get webapps,deployments,pods,services\n  \
               {steer} get services    # names the address to open\n\n\
             Without kubectl, {steer} does the same work.\n\
             Ctrl-C stops everything; the state stays in {}.",
            begin.elapsed().as_secs_f64(),
            self.addresses.api,
            self.addresses.http,
            self.addresses.metrics,
            self.addresses.wake,
            self.addresses.webhooks,
            self.runtime,
            self.kubeconfig.parent().unwrap_or(Path::new(".")).display(),
        )
    }

    /// Goes on until the token is cancelled or a part ends by itself, then stops everything in order.
    async fn until(mut self, shutdown: &CancellationToken) -> anyhow::Result<()> {
        let failed = tokio::select! {
            () = shutdown.cancelled() => None,
            error = self.node.ended() => Some(error),
            error = self.rest.ended() => Some(error),
            error = self.wake.ended() => Some(error),
            error = self.managers.ended() => Some(error),
            error = self.server.ended() => Some(error),
            by = self.store.deposed() => Some(anyhow!(
                "the database has been taken over by {by}: one `steer up` at a time can have it"
            )),
        };
        if failed.is_none() {
            tell(format_args!("Stopping: pods first, then everything else."));
        }
        let mut results = Vec::new();
        for part in [self.node, self.rest, self.wake, self.managers, self.server] {
            results.push(part.stop().await);
        }
        results.push(self.store.close().await.context("the store could not be closed properly"));
        match failed {
            Some(error) => Err(error),
            None => results.into_iter().collect(),
        }
    }
}

/// Something that runs until it is stopped.
struct Part {
    name: &'static str,
    stop: CancellationToken,
    task: JoinSet<anyhow::Result<()>>,
}

impl Part {
    fn start<F, T>(name: &'static str, run: F) -> Self
    where
        F: FnOnce(CancellationToken) -> T,
        T: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(run(stop.clone()));
        Self { name, stop, task }
    }

    /// Why it ended although nobody stopped it.
    async fn ended(&mut self) -> anyhow::Error {
        match self.task.join_next().await {
            Some(Ok(Err(error))) => error.context(format!("{} failed", self.name)),
            Some(Err(panic)) => anyhow!("{} failed: {panic}", self.name),
            Some(Ok(Ok(()))) | None => anyhow!("{} ended by itself", self.name),
        }
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        match self.task.join_next().await {
            Some(Ok(result)) => result.with_context(|| format!("{} did not stop properly", self.name)),
            Some(Err(panic)) => Err(anyhow!("{} failed while stopping: {panic}", self.name)),
            None => Ok(()),
        }
    }
}

/// Who the API server is to the node, when it asks for logs.
fn kubelet_client(authority: &Authority) -> anyhow::Result<KubeletClient> {
    let identity = authority.issue_client(&User::new("kube-apiserver-kubelet-client", ["system:masters"]))?;
    Ok(KubeletClient { certificate_pem: identity.certificate_pem, key_pem: identity.key_pem, ca_pem: None })
}

/// A client that calls the API server without a socket.
fn in_process(server: &Server, user: User) -> Client {
    Client::new(server.service(user), "default")
}

/// Makes the folder and locks it against a second `steer up`.
fn claim(dir: &Path) -> anyhow::Result<File> {
    let unusable = || format!("cannot write to the folder {}: choose another with --data-dir", dir.display());
    fs::create_dir_all(dir).with_context(unusable)?;
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(dir.join("lock"))
        .with_context(unusable)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(anyhow!(
            "a `steer up` is already running on {}: stop it, or choose another folder with --data-dir",
            dir.display()
        )),
        Err(TryLockError::Error(error)) => Err(error).with_context(unusable),
    }
}

/// A kubeconfig from an earlier run would name a port that nobody listens on.
fn remove_stale(kubeconfig: &Path) -> anyhow::Result<()> {
    match fs::remove_file(kubeconfig) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot replace {}", kubeconfig.display()))
        }
        _ => Ok(()),
    }
}

async fn bind(address: std::net::IpAddr, port: u16, flag: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind((address, port)).await.with_context(|| {
        format!("cannot listen on {address}:{port}: choose another port with {flag}, or 0 for a free one")
    })
}

/// Writes a file that only its owner may read, whole or not at all.
fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let half = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = File::options().create(true).write(true).truncate(true).mode(0o600).open(&half)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&half, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
