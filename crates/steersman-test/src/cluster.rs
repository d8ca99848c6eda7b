//! The cluster and what a test asks of it.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionStatus,
};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::request::Request as RequestBuilder;
use kube::{Client, Resource};
use serde_json::Value;
use steersman::{Clock, Controller, Key, Manager, Object, Options, Reconciler, system_clock, virtual_clock};
use steersman_apiserver::store::{Store, StoreOptions};
use steersman_apiserver::{LoopbackEndpoints, Options as ServerOptions, Server, User};
use tokio::time::Instant;

use crate::faults::Faults;
use crate::pods::Pods;
use crate::running::Running;

/// How long a condition may take before a test fails, in virtual time.
const PATIENCE: Duration = Duration::from_secs(600);

/// An API server in this process, and what tests do with it.
///
/// Everything ends when it is dropped.
pub struct Cluster {
    server: Server,
    client: Client,
    clock: Clock,
    faults: Faults,
    pods: Pods,
}

impl Cluster {
    /// Starts an empty cluster at the beginning of 2026.
    ///
    /// # Panics
    /// When the API server does not start, which fails the test.
    pub async fn start() -> Self {
        const NEW_YEAR: i64 = 1_767_225_600;
        let start = Timestamp::from_second(NEW_YEAR).unwrap_or(Timestamp::UNIX_EPOCH);
        Self::start_at(virtual_clock(start)).await
    }

    /// Starts an empty cluster whose wall time is that of the machine, for tests with other
    /// processes.
    ///
    /// # Panics
    /// When the API server does not start, which fails the test.
    pub async fn start_in_real_time() -> Self {
        Self::start_at(system_clock()).await
    }

    async fn start_at(clock: Clock) -> Self {
        let options = ServerOptions {
            clock: clock.clone(),
            loopback_endpoints: LoopbackEndpoints::Accept,
            ..ServerOptions::default()
        };
        let store = Store::memory(StoreOptions::default());
        let server = match Server::open(store, options).await {
            Ok(server) => server,
            Err(error) => panic!("the API server did not start: {error}"),
        };
        let client = Client::new(server.service(User::admin()), "default");
        let pods = Pods::new(client.clone(), clock.clone());
        Self { server, client, clock, faults: Faults::default(), pods }
    }

    /// A client of the test's own, that no fault touches.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A client of another user.
    pub fn client_of(&self, user: User) -> Client {
        Client::new(self.server.service(user), "default")
    }

    /// The API server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The wall time of the cluster; it moves with tokio's clock.
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// What goes wrong between operators and the API server.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Pods that only pretend to run.
    pub fn pods(&self) -> &Pods {
        &self.pods
    }

    // === running operators ===

    /// Runs one controller, with faults between it and the server.
    pub fn run<R: Reconciler>(&self, controller: Controller<R>) -> Running {
        let options = self.options(controller.name());
        Running::start(self.manager(options).controller(controller))
    }

    /// Runs a manager made with [`Cluster::manager`].
    pub fn run_manager(&self, manager: Manager) -> Running {
        Running::start(manager)
    }

    /// A manager of this cluster, with faults between it and the server.
    pub fn manager(&self, options: Options) -> Manager {
        Manager::new(self.faults.between(&self.client), options)
    }

    /// Options with the cluster's clock and repeatable delays.
    pub fn options(&self, name: &str) -> Options {
        Options { clock: self.clock.clone(), seed: Some(1), ..Options::named(name) }
    }

    // === kinds ===

    /// Installs definitions of custom resources and waits until they are served.
    ///
    /// # Panics
    /// When the server refuses one, or finds that its schema is not structural.
    pub async fn install<'a>(&self, definitions: impl IntoIterator<Item = &'a CustomResourceDefinition>) {
        for definition in definitions {
            let name = definition.metadata.name.as_deref().unwrap_or_default();
            self.create(definition).await;
            let served = self.wait_until::<CustomResourceDefinition>(name, |definition| {
                definition.status.as_ref().is_some_and(|status| says(status, "Established"))
            });
            let status = served.await.status.unwrap_or_default();
            assert!(
                !says(&status, "NonStructuralSchema"),
                "the schema of {name} is not structural: {:?}",
                status.conditions
            );
        }
    }

    // === objects ===

    /// Creates an object; one without a namespace goes to `default` if its kind has any.
    ///
    /// # Panics
    /// When the server refuses it.
    pub async fn create<K: Object>(&self, object: &K) -> K {
        let path = K::url_path(&(), namespace::<K>(object.meta().namespace.as_deref()));
        let body = serde_json::to_vec(object).unwrap_or_default();
        let request = RequestBuilder::new(path).create(&PostParams::default(), body);
        self.send(request, "create", object).await
    }

    /// Creates an object from JSON.
    ///
    /// # Panics
    /// When the JSON is no such object, or the server refuses it.
    pub async fn create_json<K: Object>(&self, object: Value) -> K {
        match serde_json::from_value(object) {
            Ok(object) => self.create::<K>(&object).await,
            Err(error) => panic!("this is no {}: {error}", K::kind(&())),
        }
    }

    /// Merges a patch into an object named `name` or `namespace/name`.
    ///
    /// # Panics
    /// When the server refuses it.
    pub async fn patch<K: Object>(&self, name: &str, patch: Value) -> K {
        let key = key::<K>(name);
        let request = RequestBuilder::new(K::url_path(&(), key.namespace())).patch(
            key.name(),
            &PatchParams::default(),
            &Patch::Merge(&patch),
        );
        self.send(request, "patch", &patch).await
    }

    /// Merges a patch into the status of an object.
    ///
    /// # Panics
    /// When the server refuses it.
    pub async fn patch_status<K: Object>(&self, name: &str, patch: Value) -> K {
        let key = key::<K>(name);
        let request = RequestBuilder::new(K::url_path(&(), key.namespace())).patch_subresource(
            "status",
            key.name(),
            &PatchParams::default(),
            &Patch::Merge(&patch),
        );
        self.send(request, "patch the status of", &patch).await
    }

    /// An object, if there is one.
    ///
    /// # Panics
    /// When the server answers with another error than 404.
    pub async fn get<K: Object>(&self, name: &str) -> Option<K> {
        let key = key::<K>(name);
        let request =
            RequestBuilder::new(K::url_path(&(), key.namespace())).get(key.name(), &Default::default());
        let request = match request {
            Ok(request) => request,
            Err(error) => panic!("{name} is no name: {error}"),
        };
        match self.client.request::<K>(request).await {
            Ok(object) => Some(object),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("cannot get {} {name}: {error}", K::kind(&())),
        }
    }

    /// All objects of a kind, in all namespaces.
    ///
    /// # Panics
    /// When the server answers with an error.
    pub async fn list<K: Object>(&self) -> Vec<K> {
        let api: kube::Api<K> = kube::Api::all(self.client.clone());
        match api.list(&Default::default()).await {
            Ok(list) => list.items,
            Err(error) => panic!("cannot list {}: {error}", K::plural(&())),
        }
    }

    /// Deletes an object.
    ///
    /// # Panics
    /// When the server refuses it.
    pub async fn delete<K: Object>(&self, name: &str) {
        let key = key::<K>(name);
        let request = RequestBuilder::new(K::url_path(&(), key.namespace()))
            .delete(key.name(), &DeleteParams::default());
        let _: Value = self.send(request, "delete", &name).await;
    }

    // === waiting ===

    /// Waits until `probe` finds something.
    ///
    /// Under a paused clock this takes no time: it passes whenever nothing else is to be done.
    ///
    /// # Panics
    /// After ten minutes of the test's time, with `what` in the message.
    pub async fn wait_for<T, F>(&self, what: &str, mut probe: impl FnMut() -> F) -> T
    where
        F: Future<Output = Option<T>>,
    {
        let began = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(found) = probe().await {
                return found;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{what} did not come to pass within {PATIENCE:?} (from {})",
                (self.clock)()
            );
            tokio::time::sleep(pause).await;
            pause = pause.mul_f64(1.2).min(Duration::from_secs(1));
        }
    }

    /// Waits for an object named `name` or `namespace/name`.
    ///
    /// # Panics
    /// When it does not come.
    pub async fn wait_for_object<K: Object>(&self, name: &str) -> K {
        let what = format!("{} {name}", K::kind(&()));
        self.wait_for(&what, || self.get::<K>(name)).await
    }

    /// Waits until an object is there and fulfils a condition.
    ///
    /// # Panics
    /// When it does not; the message shows how the object looked last.
    pub async fn wait_until<K: Object>(&self, name: &str, condition: impl Fn(&K) -> bool) -> K {
        let began = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            let object = self.get::<K>(name).await;
            match object {
                Some(object) if condition(&object) => return object,
                object if began.elapsed() >= PATIENCE => {
                    let seen = object.and_then(|object| serde_json::to_string_pretty(&object).ok());
                    panic!(
                        "{} {name} did not fulfil the condition within {PATIENCE:?}; it is now {}",
                        K::kind(&()),
                        seen.unwrap_or_else(|| "not there".to_owned())
                    );
                }
                _ => {}
            }
            tokio::time::sleep(pause).await;
            pause = pause.mul_f64(1.2).min(Duration::from_secs(1));
        }
    }

    /// Waits until there is no such object.
    ///
    /// # Panics
    /// When it stays.
    pub async fn wait_until_gone<K: Object>(&self, name: &str) {
        let what = format!("the end of {} {name}", K::kind(&()));
        self.wait_for(&what, || async { self.get::<K>(name).await.is_none().then_some(()) }).await;
    }

    /// Waits until operators have written nothing for a minute.
    ///
    /// # Panics
    /// When they still write after an hour of the test's time; the message names what.
    pub async fn converge(&self) {
        const QUIET: Duration = Duration::from_secs(60);
        const LONGEST: Duration = Duration::from_secs(3600);
        let began = Instant::now();
        let mut writes = self.faults.writes();
        loop {
            tokio::time::sleep(QUIET).await;
            let now = self.faults.writes();
            if now == writes {
                return;
            }
            writes = now;
            assert!(
                began.elapsed() < LONGEST,
                "operators do not come to rest; they last wrote:\n{}",
                self.faults.last_writes().join("\n")
            );
        }
    }

    /// Checks that operators write nothing for this long.
    ///
    /// # Panics
    /// When they do; the message names what.
    pub async fn assert_silent(&self, time: Duration) {
        let before = self.faults.writes();
        tokio::time::sleep(time).await;
        let written = self.faults.writes() - before;
        let last = self.faults.last_writes();
        let shown = last.len().min(usize::try_from(written).unwrap_or(usize::MAX));
        assert!(
            written == 0,
            "{written} writes within {time:?} in which nothing was to be done, the last of them:\n{}",
            last[last.len() - shown..].join("\n")
        );
    }

    /// Lets time pass.
    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn send<T: serde::de::DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
        verb: &str,
        what: &impl Debug,
    ) -> T {
        let request = match request {
            Ok(request) => request,
            Err(error) => panic!("cannot {verb} {what:?}: {error}"),
        };
        match self.client.request(request).await {
            Ok(answer) => answer,
            Err(error) => panic!("cannot {verb} {what:?}: {error}"),
        }
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cluster")
    }
}

fn says(status: &CustomResourceDefinitionStatus, condition: &str) -> bool {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    conditions.iter().any(|known| known.type_ == condition && known.status == "True")
}

fn namespace<K: Object>(given: Option<&str>) -> Option<&str> {
    K::is_namespaced().then(|| given.unwrap_or("default"))
}

/// `namespace/name` or `name`, which then is in `default` if its kind has namespaces.
fn key<K: Object + Resource<DynamicType = ()>>(name: &str) -> Key {
    match name.split_once('/') {
        Some((namespace, name)) => Key::new(namespace, name),
        None => Key::new(namespace::<K>(None).unwrap_or_default(), name),
    }
}
