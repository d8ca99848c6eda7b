//! What a resolver needs to know, from a watch on the cluster; and a whole resolver made of it.

use crate::resolver::{ResolverOptions, Token};
use crate::types::{ElastiService, Mode};
use crate::{ports, probe, rights, scale, world};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Client, ResourceExt};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use steersman::{
    Cache, CancellationToken, Context, Controller, Error, Key, Manager, Options, Outcome, Reconciler, Rights,
};
use steersman_resolver::{Directory, HttpWake, Route, ServiceKey, Wake, WakeError, Waking};
use tokio::net::TcpListener;

/// Keeps the directory of a resolver in step with the cluster.
#[derive(Debug)]
pub struct Feed {
    directory: Directory,
    /// Which service each ElastiService stood for.
    known: Known,
}

/// Which service each ElastiService stands for.
type Known = Arc<Mutex<HashMap<Key, ServiceKey>>>;

/// The controller that feeds a resolver. It writes nothing, so every resolver runs its own.
pub fn controller(directory: Directory) -> Controller<Feed> {
    fed(directory, Known::default())
}

fn fed(directory: Directory, known: Known) -> Controller<Feed> {
    Controller::new("elasti-resolver", Feed { directory, known })
        .watches::<Service>(|service, cache| {
            let all = cache.view::<ElastiService>().list_in(&service.namespace().unwrap_or_default());
            all.iter()
                .filter(|elasti| elasti.spec.service == service.name_any())
                .map(|elasti| Key::of(&**elasti))
                .collect()
        })
        .watches::<EndpointSlice>(|slice, cache| {
            let Some(service) = slice.labels().get(world::SERVICE_NAME) else { return Vec::new() };
            let all = cache.view::<ElastiService>().list_in(&slice.namespace().unwrap_or_default());
            all.iter()
                .filter(|elasti| elasti.spec.service == *service)
                .map(|elasti| Key::of(&**elasti))
                .collect()
        })
        .concurrency(1)
        .only_looks()
}

impl Reconciler for Feed {
    type Object = ElastiService;

    async fn reconcile(&self, elasti: Arc<ElastiService>, cx: &Context) -> Result<Outcome, Error> {
        let namespace = elasti.namespace().unwrap_or_default();
        let key = ServiceKey::new(&namespace, &elasti.spec.service);
        let service = cx.cache::<Service>().get(&Key::new(&namespace, &elasti.spec.service));
        let before = self.lock().insert(cx.key().clone(), key.clone());
        if let Some(before) = before.filter(|before| *before != key) {
            self.forget(&before);
        }
        let Some(service) = service else {
            self.directory.remove(&key);
            return Ok(Outcome::Done);
        };
        let slices = world::native(&cx.cache::<EndpointSlice>(), &namespace, &elasti.spec.service);
        self.directory.scheduled(&key, world::endpoints(&slices));
        let ports = world::ports(&service);
        let backends = world::backends(&ports, &slices);
        let mode = match elasti.status.as_ref().and_then(|status| status.mode) {
            Some(Mode::Serve) => steersman_resolver::Mode::Serve,
            _ => steersman_resolver::Mode::Proxy,
        };
        let (probes, problems) = probe::compile(&elasti.spec.probe_response);
        for problem in problems {
            tracing::warn!(elastiservice = %cx.key(), problem, "a probe is left out");
        }
        self.directory.set(&key, Route { ports, backends, mode, probes: probes.into() });
        self.directory.listen(&key, &ports::of(&elasti));
        Ok(Outcome::Done)
    }

    async fn gone(&self, key: &Key, _: &Context) -> Result<(), Error> {
        let service = self.lock().remove(key);
        if let Some(service) = service {
            self.forget(&service);
        }
        Ok(())
    }
}

impl Feed {
    /// Takes a service out of the directory, unless another ElastiService stands for it.
    fn forget(&self, service: &ServiceKey) {
        if !self.lock().values().any(|other| other == service) {
            self.directory.remove(service);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, ServiceKey>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes through the operator, and without it where that fails.
pub struct Waker {
    operator: Option<String>,
    token: Token,
    client: Client,
}

impl Waker {
    /// A waker that asks the operator at this `host:port` first, if there is one.
    pub fn new(operator: Option<String>, token: Token, client: Client) -> Self {
        Self { operator, token, client }
    }
}

impl Wake for Waker {
    fn wake<'a>(&'a self, service: &'a ServiceKey) -> Waking<'a> {
        Box::pin(async move {
            if let Some(operator) = &self.operator {
                let call = HttpWake::new(operator, self.token.read().await);
                match call.wake(service).await {
                    Ok(()) => return Ok(()),
                    Err(error) => tracing::warn!(%service, %error, "scaling without the operator"),
                }
            }
            let scaled = scale::wake(&self.client, &service.namespace, &service.name);
            match tokio::time::timeout(Duration::from_secs(10), scaled).await {
                Ok(result) => result.map_err(|error| WakeError(error.to_string())),
                Err(_) => Err(WakeError(format!("the API server did not answer in time about {service}"))),
            }
        })
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waker").field("operator", &self.operator).finish_non_exhaustive()
    }
}

/// Runs a whole resolver: the feed and the proxy, until told to stop.
///
/// # Errors
/// When the cluster cannot be watched, or a listener cannot be used.
pub async fn run_resolver(
    client: Client,
    proxy: TcpListener,
    internal: TcpListener,
    options: ResolverOptions,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let directory = Directory::new();
    let settings = options.settings(&client);
    // The feed goes on until the last held request has its pod.
    let done = CancellationToken::new();
    let known = Known::default();
    let manager = manager(client, directory.clone(), Arc::clone(&known));
    let cache = manager.cache();
    let feeding = async { Box::pin(manager.run(done.clone())).await.map_err(Error::from) };
    let serving = async {
        // Until everything is known, connections wait in the listener instead of being refused.
        while !is_fed(&cache, &known) && !shutdown.is_cancelled() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let serve = steersman_resolver::serve(proxy, internal, directory, settings, shutdown.clone());
        let result = Box::pin(serve).await;
        done.cancel();
        result.map_err(Error::from)
    };
    tokio::try_join!(feeding, serving).map(drop)
}

fn manager(client: Client, directory: Directory, known: Known) -> Manager {
    Manager::new(client, Options::named("elasti-resolver"))
        .controller(fed(directory, known))
        .needs(rights::resolver())
}

/// What a resolver must be allowed to do. Must be called within a tokio runtime.
pub fn resolver_rights(client: Client) -> Rights {
    manager(client, Directory::new(), Known::default()).rights()
}

/// Whether all ElastiServices that there were at the start have been looked at.
fn is_fed(cache: &Cache, known: &Known) -> bool {
    let all = cache.view::<ElastiService>();
    let synced =
        all.is_synced() && cache.view::<Service>().is_synced() && cache.view::<EndpointSlice>().is_synced();
    synced && known.lock().unwrap_or_else(PoisonError::into_inner).len() >= all.len()
}
