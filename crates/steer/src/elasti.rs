//! Scale to zero, as `steer` sets it up: the operator's way to the pods, the wake-up endpoint, the
//! resolver as a program and as a Deployment of `steer up`, and `steer elasti`.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use kube::{
    Client, Config, ResourceExt as _,
    api::{Api, DynamicObject, Patch, PatchParams},
    config::{
        AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
    },
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;
use steersman::{CancellationToken, Controller, Error, Manager, Outcome, Reconciler};
use steersman_elasti::{
    Callers, Dial, ElastiOptions, ElastiService, EndpointOptions, ResolverOptions, cli, endpoint,
    options::names,
    resolver::Token,
    sentry::{Sentry, SentryError},
};
use steersman_node::{HostService, Network};
use tokio::{net::TcpListener, sync::Mutex};

use crate::{
    cli::{Command, ElastiArgs, ElastiCommand, ElastiServiceArgs, Operator, ResolverArgs},
    client::{Connection, load_config},
    signals,
};

/// What `steer up` applies so that a resolver runs, as on a cluster.
const MANIFESTS: [&str; 3] = [
    include_str!("../../../config/elasti/namespace.yaml"),
    include_str!("../../../config/elasti/operator_service.yaml"),
    include_str!("../../../config/elasti/resolver.yaml"),
];

/// The Service where the resolver asks for pods.
const OPERATOR_SERVICE: (&str, &str) = ("elasti", "elasti-operator-controller-service");

/// Who is told of errors and panics of the operator and the resolver, if `SENTRY_DSN` names somebody.
pub(crate) fn sentry(command: &Command) -> Result<Option<Sentry>, SentryError> {
    let program = match command {
        Command::Run(args)
            if args.operators.iter().any(|one| matches!(one, Operator::Elasti | Operator::All)) =>
        {
            "elasti-operator"
        }
        Command::Resolver(_) => "elasti-resolver",
        _ => return Ok(None),
    };
    let sentry = Sentry::from_env(variable, program)?;
    if let Some(sentry) = &sentry {
        sentry.hear_panics();
    }
    Ok(sentry)
}

/// The operator's options for `steer run`.
pub(crate) fn options(args: &ElastiArgs) -> ElastiOptions {
    let options = ElastiOptions::from_env(variable);
    let watch_namespaces = match &args.watch_namespace {
        Some(list) => names(list),
        None => options.watch_namespaces.clone(),
    };
    ElastiOptions { watch_namespaces, ..options }
}

/// Takes wake-up calls beside the operator, whether it leads or not.
pub(crate) async fn endpoint(
    address: SocketAddr,
    client: Client,
    manager: &Manager,
    options: &ElastiOptions,
) -> anyhow::Result<impl Future<Output = ()> + Send + use<>> {
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}: choose another address with --elasti-address")
    })?;
    tracing::info!(address = %listener.local_addr()?, "taking wake-up calls");
    let callers = Callers::from_env(variable, &options.resolver_namespace);
    let settings = EndpointOptions {
        callers,
        metrics: Some(manager.metrics()),
        namespaces: options.watch_namespaces.clone(),
    };
    let stop = CancellationToken::new();
    Ok(async move {
        let _stops = stop.clone().drop_guard();
        endpoint::serve(listener, client, settings, stop).await;
    })
}

/// The way from this process into the pods' network, known once the node runs.
#[derive(Clone, Default)]
pub(crate) struct Way(Arc<OnceLock<Network>>);

impl Way {
    /// The node runs.
    pub(crate) fn open(&self, network: Network) {
        let _ = self.0.set(network);
    }

    /// Pods by their address, Services by their name.
    fn dial(&self, client: Client) -> Dial {
        let way = self.clone();
        Dial::new(move |host, port| {
            let (way, client) = (way.clone(), client.clone());
            Box::pin(async move {
                let network = way.0.get().ok_or_else(|| io::Error::other("the node is still starting"))?;
                match host.parse::<IpAddr>() {
                    Ok(address) => network.connect(SocketAddr::new(address, port)).await,
                    Err(_) => match published(&client, &host, port).await {
                        Some(address) => tokio::net::TcpStream::connect(address).await,
                        None => tokio::net::TcpStream::connect((host.as_str(), port)).await,
                    },
                }
            })
        })
    }
}

/// Where a Service that is named as pods name it is reached from the host.
async fn published(client: &Client, host: &str, port: u16) -> Option<String> {
    let name = host.trim_end_matches(".cluster.local").trim_end_matches(".svc");
    let (name, namespace) = name.split_once('.')?;
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = services.get_opt(name).await.ok()??;
    let wanted = service.spec.as_ref()?.ports.iter().flatten().find(|one| one.port == i32::from(port))?;
    let named = wanted.name.clone().unwrap_or_else(|| port.to_string());
    let addresses = service.annotations().get(steersman_node::ADDRESS_ANNOTATION)?;
    addresses.split(',').find_map(|one| match one.split_once('=') {
        Some((name, address)) => (name == named).then(|| address.to_owned()),
        None => Some(one.to_owned()),
    })
}

/// Adds the operator to the manager of `steer up`, with a resolver from the first ElastiService on.
pub(crate) fn add_to(manager: Manager, client: &Client, way: &Way) -> Manager {
    let options = ElastiOptions { dial: Some(way.dial(client.clone())), ..ElastiOptions::from_env(variable) };
    let starter =
        Controller::new("elasti-resolver-starter", Starter { started: Mutex::new(false) }).shares_its_kind();
    steersman_elasti::controllers(manager, options).controller(starter)
}

/// Takes wake-up calls in `steer up`.
pub(crate) async fn wake_calls(listener: TcpListener, client: Client, stop: CancellationToken) {
    let options = EndpointOptions {
        callers: Callers::from_env(variable, OPERATOR_SERVICE.0),
        metrics: None,
        namespaces: ElastiOptions::from_env(variable).watch_namespaces,
    };
    endpoint::serve(listener, client, options, stop).await;
}

/// In `steer up` no pod stands behind the operator's Service, but this process.
pub(crate) fn operator_service(address: SocketAddr) -> HostService {
    let (namespace, name) = OPERATOR_SERVICE;
    HostService { namespace: namespace.to_owned(), name: name.to_owned(), address }
}

/// Puts the resolver up with the first ElastiService, so that those who have none have no process
/// of it.
struct Starter {
    started: Mutex<bool>,
}

impl Reconciler for Starter {
    type Object = ElastiService;

    async fn reconcile(&self, _: Arc<ElastiService>, cx: &steersman::Context) -> Result<Outcome, Error> {
        let mut started = self.started.lock().await;
        if !*started {
            for text in MANIFESTS {
                apply(cx.client(), text).await?;
            }
            *started = true;
        }
        Ok(Outcome::Done)
    }
}

/// Applies the objects of a file; of a Deployment one replica, for one machine.
async fn apply(client: &Client, text: &str) -> Result<(), Error> {
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| Error::msg(error.to_string()))?;
    for mut value in objects {
        if let Some(replicas) = value.pointer_mut("/spec/replicas") {
            *replicas = 1.into();
        }
        let object: DynamicObject =
            serde_json::from_value(value).map_err(|error| Error::msg(error.to_string()))?;
        let types = object.types.clone().unwrap_or_default();
        let gvk = GroupVersionKind::try_from(&types).map_err(|error| Error::msg(error.to_string()))?;
        let resource = ApiResource::from_gvk(&gvk);
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let params = PatchParams::apply("steer").force();
        api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await?;
    }
    Ok(())
}

/// `steer resolver`: the data plane, until told to stop.
pub(crate) async fn resolver(args: &ResolverArgs) -> anyhow::Result<()> {
    let shutdown = signals::shutdown_token()?;
    let given = args.connection.kubeconfig.is_some() || variable("KUBECONFIG").is_some();
    let config = match own_account().filter(|_| !given) {
        Some(account) => account.config().await?,
        None => load_config(&args.connection).await?,
    };
    let server = config.cluster_url.clone();
    let client = Client::try_from(config).context("the kubeconfig cannot be used")?;
    // A pod that shares the network of its host is told where to listen.
    let host =
        variable("HOST").and_then(|host| host.parse().ok()).unwrap_or(IpAddr::from(Ipv4Addr::UNSPECIFIED));
    let proxy = args.proxy_address.unwrap_or(SocketAddr::new(host, 8012));
    let internal = args.internal_address.unwrap_or(SocketAddr::new(host, 8013));
    let listen = |address: SocketAddr, flag: &'static str| async move {
        let bound = TcpListener::bind(address).await;
        bound.with_context(|| format!("cannot listen on {address}: choose another address with {flag}"))
    };
    let proxy = listen(proxy, "--proxy-address").await?;
    let internal = listen(internal, "--internal-address").await?;
    let mut options = ResolverOptions::from_env(variable);
    if let Token::File(path) = &options.token {
        options.token = Token::File(in_pod(path));
    }
    tracing::info!(
        %server, proxy = %proxy.local_addr()?, internal = %internal.local_addr()?,
        operator = options.operator.as_deref().unwrap_or("none"), "the resolver is starting"
    );
    let ran = steersman_elasti::run_resolver(client, proxy, internal, options, shutdown).await;
    ran.map_err(|error| anyhow::anyhow!("the resolver cannot go on: {error}"))
}

/// What a pod is given to speak to the API server with.
struct Account {
    server: String,
    folder: PathBuf,
}

/// Where a pod is given it.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn own_account() -> Option<Account> {
    let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let folder = in_pod(Path::new(ACCOUNT));
    folder.join("token").exists().then(|| Account { server: format!("https://{host}:{port}"), folder })
}

impl Account {
    async fn config(&self) -> anyhow::Result<Config> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let name = "in-cluster".to_owned();
        let cluster = Cluster {
            server: Some(self.server.clone()),
            certificate_authority: Some(file("ca.crt")),
            ..Cluster::default()
        };
        let user = AuthInfo { token_file: Some(file("token")), ..AuthInfo::default() };
        let context = Context { cluster: name.clone(), user: Some(name.clone()), ..Context::default() };
        let kubeconfig = Kubeconfig {
            clusters: vec![NamedCluster {
                name: name.clone(),
                cluster: Some(cluster),
                other: BTreeMap::new(),
            }],
            auth_infos: vec![NamedAuthInfo {
                name: name.clone(),
                auth_info: Some(user),
                other: BTreeMap::new(),
            }],
            contexts: vec![NamedContext {
                name: name.clone(),
                context: Some(context),
                other: BTreeMap::new(),
            }],
            current_context: Some(name),
            ..Kubeconfig::default()
        };
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .context("the service account of this pod cannot be used")
    }
}

/// A file of a pod's volume: where pods have no root of their own, it lies below `$POD_ROOT`.
fn in_pod(path: &Path) -> PathBuf {
    let below =
        variable("POD_ROOT").map(|root| Path::new(&root).join(path.strip_prefix("/").unwrap_or(path)));
    below.filter(|below| below.exists()).unwrap_or_else(|| path.to_owned())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// `steer elasti`.
pub(crate) async fn run(command: ElastiCommand) -> anyhow::Result<()> {
    match command {
        ElastiCommand::List { client, all_namespaces } => {
            let connection = Connection::open(&client).await?;
            let namespace = (!all_namespaces).then_some(connection.namespace.as_str());
            print!("{}", cli::table(&cli::list(&connection.client, namespace).await?, Timestamp::now()));
        }
        ElastiCommand::Get(ElastiServiceArgs { client, name }) => {
            let connection = Connection::open(&client).await?;
            let found = cli::get(&connection.client, &connection.namespace, &name).await?;
            print!("{}", cli::details(&found, Timestamp::now()));
        }
        ElastiCommand::Wake(ElastiServiceArgs { client, name }) => {
            let connection = Connection::open(&client).await?;
            cli::wake(&connection.client, &connection.namespace, &name).await?;
            println!("elastiservice {name} is woken");
        }
        ElastiCommand::Sleep(ElastiServiceArgs { client, name }) => {
            let connection = Connection::open(&client).await?;
            cli::sleep(&connection.client, &connection.namespace, &name, Timestamp::now()).await?;
            println!("elastiservice {name} is told to sleep");
        }
    }
    Ok(())
}
