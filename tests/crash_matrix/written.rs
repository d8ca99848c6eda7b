//! kill -9 of `steer run infra` at every write to the API server.
//!
//! The intent, every step, every checkpoint and the end of an attempt are writes. Each of them is
//! lost, or made without the operator hearing of it, or the last thing that it hears of.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use nix::unistd::Pid;
use serde_json::json;
use steersman_infra::types::State;
use steersman_infra::{Resource, ResourceType};

use crate::api_server::ApiServer;
use crate::support::{PATIENCE, steer};
use crate::world::{Kill, When, World};
use crate::{Subject, environment, has_terraform, is_whole, last_lines, subjects};

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_killed_at_any_write_loses_and_doubles_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::default();
    let url = world.serve().await;
    let server = ApiServer::start(folder.path()).await;
    let environment = environment(folder.path(), &url);
    let mut operator = Runner::new(&server, folder.path(), environment);
    operator.revive();
    until("the kinds are known, and the type is taken", async || {
        operator.revive();
        let resources: Api<Resource> = Api::all(server.client.clone());
        resources.list(&ListParams::default()).await.ok()?;
        let types: Api<ResourceType> = Api::all(server.client.clone());
        let schema = json!({"type": "object", "properties": {"size": {"type": "integer"}}});
        let spec = json!({"name": "Thing", "version": "v1", "schema": schema});
        let made = ResourceType::new("thing.v1", serde_json::from_value(spec).expect("a type"));
        match types.create(&PostParams::default(), &made).await {
            Ok(_) => Some(()),
            Err(kube::Error::Api(status)) if status.code == 409 => Some(()),
            Err(_) => None,
        }
    })
    .await;
    let mut runs = 0;
    for subject in subjects(&url) {
        let chosen = is_whole() || ["http", "outside"].contains(&subject.plugin);
        if !chosen || (subject.plugin == "terraform" && !has_terraform()) {
            continue;
        }
        let kills = lives(&server, &mut operator, &world, &subject).await;
        println!("{}: {kills} kills at writes, 0 lost, 0 doubled", subject.plugin);
        runs += kills;
    }
    println!("{runs} kills at writes in all");
    assert!(runs > 5, "too few writes were made for this to mean anything");
}

/// One life after the other, each with a kill at a later write, until a life has no more of them.
async fn lives(server: &ApiServer, operator: &mut Runner, world: &World, subject: &Subject) -> usize {
    let (mut kills, mut number) = (0, 0);
    loop {
        let kill = Kill { request: number / 3, when: When::ALL[number % 3] };
        number += 1;
        if !is_whole() && !(number - 1).is_multiple_of(7) {
            continue;
        }
        let name = format!("{}-{number}", subject.plugin.replace('_', "-"));
        world.clear();
        server.trap.set(kill, operator.pid());
        live(server, operator, subject, &name).await;
        server.trap.settle().await;
        let sprung = server.trap.sprung();
        let (effects, log) = (world.effects(), operator.log());
        assert_eq!(effects, subject.effects, "{name}, {kill:?} at {sprung:?}:\n{log}");
        if sprung.is_none() {
            return kills;
        }
        kills += 1;
        operator.revive();
    }
}

/// Created, changed, deleted.
async fn live(server: &ApiServer, operator: &mut Runner, subject: &Subject, name: &str) {
    let api: Api<Resource> = Api::namespaced(server.client.clone(), "default");
    let name = &format!("thing.{name}");
    let spec = json!({"type": "Thing", "typeVersion": "v1", "actionPlugin": subject.plugin,
        "pluginConfig": subject.config, "parameters": {"size": 3}});
    let resource = Resource::new(name, serde_json::from_value(spec).expect("a resource"));
    api.create(&PostParams::default(), &resource).await.expect("created");
    reach(&api, operator, name, 1).await;
    let change = Patch::Merge(json!({"spec": {"parameters": {"size": 5}}}));
    api.patch(name, &PatchParams::default(), &change).await.expect("changed");
    reach(&api, operator, name, 2).await;
    api.delete(name, &DeleteParams::default()).await.expect("deleted");
    let told = format!("{name} is gone");
    until(&told, async || {
        operator.revive();
        api.get_opt(name).await.expect("an answer").is_none().then_some(())
    })
    .await;
}

async fn reach(api: &Api<Resource>, operator: &mut Runner, name: &str, generation: i64) {
    let told = format!("{name} is ready at generation {generation}");
    until(&told, async || {
        operator.revive();
        let shown = api.get(name).await.expect("the resource");
        let reached = shown.status.as_ref().and_then(|status| status.last_reconciled_generation);
        (shown.state() == State::Ready && reached == Some(generation)).then_some(())
    })
    .await;
}

/// Waits until something is found, or fails with what it was waiting for.
async fn until<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "gave up waiting: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A `steer run infra` that is started again whenever it was killed.
struct Runner {
    child: Option<Child>,
    kubeconfig: PathBuf,
    dir: PathBuf,
    environment: Vec<(String, String)>,
    trap: crate::api_server::Trap,
}

impl Runner {
    fn new(server: &ApiServer, folder: &Path, environment: Vec<(String, String)>) -> Self {
        let (kubeconfig, trap) = (server.kubeconfig.clone(), server.trap.clone());
        Self { child: None, kubeconfig, dir: folder.join("infra"), environment, trap }
    }

    fn pid(&self) -> Pid {
        let id = self.child.as_ref().map(Child::id).expect("a process");
        Pid::from_raw(i32::try_from(id).expect("a pid"))
    }

    fn log(&self) -> String {
        last_lines(&self.dir.with_extension("log"))
    }

    /// Starts the process, if it does not run.
    fn revive(&mut self) {
        if self.child.is_some() && self.trap.killed() == Some(self.pid()) {
            // It may still be about to go.
            self.child.take().map(|mut child| child.wait().expect("ended"));
        }
        if let Some(child) = &mut self.child {
            let Some(status) = child.try_wait().expect("a status") else { return };
            panic!("it ended by itself with {status}:\n{}", self.log());
        }
        let log = std::fs::File::options().create(true).append(true).open(self.dir.with_extension("log"));
        let log = log.expect("a log");
        let child = Command::new(steer())
            .args(["run", "infra", "--install-crds", "--metrics-address", "127.0.0.1:0"])
            .args(["--health-address", "127.0.0.1:0", "--rest-address", "127.0.0.1:0", "--data-dir"])
            .arg(&self.dir)
            .env("KUBECONFIG", &self.kubeconfig)
            // The same name each time: what an earlier life held need not be waited for.
            .env("POD_NAME", "infra-0")
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("started"));
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
