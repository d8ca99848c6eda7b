//! Pods that only pretend to run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{DeleteParams, Patch};
use serde_json::{Value, json};
use steersman::{
    CancellationToken, Clock, Context, Controller, Error, Manager, Options, Outcome, Reconciler,
};
use tokio::task::JoinHandle;

/// Plays the kubelet: pods that are bound to a node become Running and Ready, or fail, as the
/// test says. Begins with the first call that says how.
pub struct Pods {
    client: Client,
    clock: Clock,
    script: Arc<Mutex<Script>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Script {
    ready_after: Duration,
    schedule: bool,
    /// Later rules win.
    rules: Vec<(String, Fate)>,
    addresses: u32,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Ready(Duration),
    NeverReady,
    Exit { code: i32, after: Duration },
}

impl Pods {
    pub(crate) fn new(client: Client, clock: Clock) -> Self {
        let script = Script { ready_after: Duration::ZERO, schedule: false, rules: Vec::new(), addresses: 1 };
        Self { client, clock, script: Arc::new(Mutex::new(script)), task: Mutex::default() }
    }

    /// Pods become Ready this long after they were bound to a node.
    pub fn ready_after(&self, delay: Duration) -> &Self {
        lock(&self.script).ready_after = delay;
        self.begin()
    }

    /// Also binds pods to a node, for tests without a scheduler.
    pub fn schedule_all(&self) -> &Self {
        lock(&self.script).schedule = true;
        self.begin()
    }

    /// Pods whose names begin like this become Ready after another delay than the rest.
    pub fn ready(&self, prefix: &str, delay: Duration) -> &Self {
        self.rule(prefix, Fate::Ready(delay))
    }

    /// Pods whose names begin like this run, but never become Ready.
    pub fn never_ready(&self, prefix: &str) -> &Self {
        self.rule(prefix, Fate::NeverReady)
    }

    /// Pods whose names begin like this end with an exit code other than 0 after a while.
    pub fn fail(&self, prefix: &str, code: i32, after: Duration) -> &Self {
        self.rule(prefix, Fate::Exit { code, after })
    }

    /// Pods whose names begin like this end well after a while.
    pub fn succeed(&self, prefix: &str, after: Duration) -> &Self {
        self.rule(prefix, Fate::Exit { code: 0, after })
    }

    fn rule(&self, prefix: &str, fate: Fate) -> &Self {
        lock(&self.script).rules.push((prefix.to_owned(), fate));
        self.begin()
    }

    fn begin(&self) -> &Self {
        let mut task = lock(&self.task);
        if task.is_none() {
            let kubelet = Kubelet { script: Arc::clone(&self.script) };
            let options =
                Options { clock: self.clock.clone(), seed: Some(2), ..Options::named("fake-kubelet") };
            let manager = Manager::new(self.client.clone(), options)
                .controller(Controller::new("fake-kubelet", kubelet).concurrency(1));
            *task = Some(tokio::spawn(async move {
                if let Err(error) = manager.run(CancellationToken::new()).await {
                    tracing::error!(%error, "fake pods ended");
                }
            }));
        }
        self
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }
}

impl std::fmt::Debug for Pods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pods").field(&*lock(&self.script)).finish()
    }
}

struct Kubelet {
    script: Arc<Mutex<Script>>,
}

impl Reconciler for Kubelet {
    type Object = Pod;

    async fn reconcile(&self, pod: Arc<Pod>, cx: &Context) -> Result<Outcome, Error> {
        let spec = pod.spec.clone().unwrap_or_default();
        if spec.node_name.is_none() {
            if lock(&self.script).schedule && pod.metadata.deletion_timestamp.is_none() {
                bind(&pod, cx).await?;
            }
            return Ok(Outcome::Done);
        }
        if pod.metadata.deletion_timestamp.is_some() {
            cx.delete_with(&*pod, DeleteParams::default().grace_period(0)).await?;
            return Ok(Outcome::Done);
        }
        let status = pod.status.clone().unwrap_or_default();
        let phase = status.phase.as_deref().unwrap_or("Pending");
        if phase == "Succeeded" || phase == "Failed" {
            return Ok(Outcome::Done);
        }
        let started = match &status.start_time {
            Some(time) => time.0,
            None => {
                let address = self.address();
                report(cx, &running(&pod, cx, &address, false, None)).await?;
                cx.now()
            }
        };
        let age = cx.now().duration_since(started).unsigned_abs();
        let (delay, fate) = self.fate(cx.key().name());
        if age < delay {
            return Ok(Outcome::RequeueAfter(delay - age, "the script goes on"));
        }
        let address = status.pod_ip.unwrap_or_else(|| self.address());
        match fate {
            Fate::NeverReady => {}
            Fate::Ready(_) => {
                let ready = status.conditions.unwrap_or_default();
                let ready = ready.iter().any(|one| one.type_ == "Ready" && one.status == "True");
                if !ready {
                    report(cx, &running(&pod, cx, &address, true, Some(started))).await?;
                }
            }
            Fate::Exit { code, .. } => report(cx, &ended(&pod, cx, code)).await?,
        }
        Ok(Outcome::Done)
    }
}

impl Kubelet {
    fn fate(&self, name: &str) -> (Duration, Fate) {
        let script = lock(&self.script);
        let rule = script.rules.iter().rev().find(|(prefix, _)| name.starts_with(prefix.as_str()));
        match rule.map(|(_, fate)| *fate) {
            None => (script.ready_after, Fate::Ready(script.ready_after)),
            Some(fate @ Fate::Ready(delay)) => (delay, fate),
            Some(fate @ Fate::Exit { after, .. }) => (after, fate),
            Some(Fate::NeverReady) => (Duration::ZERO, Fate::NeverReady),
        }
    }

    fn address(&self) -> String {
        let mut script = lock(&self.script);
        script.addresses += 1;
        let [_, _, high, low] = script.addresses.to_be_bytes();
        format!("10.244.{high}.{low}")
    }
}

async fn bind(pod: &Pod, cx: &Context) -> Result<(), Error> {
    let (name, namespace) = (cx.key().name(), cx.key().namespace().unwrap_or("default"));
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace, "uid": pod.metadata.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "fake-node"},
    });
    let request = http::Request::post(format!("/api/v1/namespaces/{namespace}/pods/{name}/binding"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(binding.to_string().into_bytes())?;
    match cx.client().request::<Value>(request).await {
        Ok(_) => Ok(()),
        // Bound by someone else, or gone.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn report(cx: &Context, status: &Value) -> Result<(), Error> {
    let path = format!("/api/v1/namespaces/{}/pods", cx.key().namespace().unwrap_or("default"));
    let request = kube::core::Request::new(path).patch_subresource(
        "status",
        cx.key().name(),
        &kube::api::PatchParams::default(),
        &Patch::Merge(json!({"status": status})),
    )?;
    match cx.client().request::<Pod>(request).await {
        Ok(pod) => {
            cx.remember(&pod);
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn running(pod: &Pod, cx: &Context, address: &str, ready: bool, started: Option<jiff::Timestamp>) -> Value {
    let now = cx.now();
    let state = match ready {
        true => "True",
        false => "False",
    };
    let condition =
        |r#type: &str, status: &str| json!({"type": r#type, "status": status, "lastTransitionTime": now});
    let containers: Vec<Value> = containers(pod)
        .map(|(name, image)| {
            json!({
                "name": name, "image": image, "imageID": image, "restartCount": 0,
                "ready": ready, "started": true, "state": {"running": {"startedAt": now}},
            })
        })
        .collect();
    json!({
        "phase": "Running", "startTime": started.unwrap_or(now),
        "podIP": address, "podIPs": [{"ip": address}], "hostIP": "10.0.0.1",
        "conditions": [
            condition("PodScheduled", "True"), condition("Initialized", "True"),
            condition("ContainersReady", state), condition("Ready", state),
        ],
        "containerStatuses": containers,
    })
}

fn ended(pod: &Pod, cx: &Context, code: i32) -> Value {
    let now = cx.now();
    let (phase, reason) = match code {
        0 => ("Succeeded", "Completed"),
        _ => ("Failed", "Error"),
    };
    let containers: Vec<Value> = containers(pod)
        .map(|(name, image)| {
            json!({
                "name": name, "image": image, "imageID": image, "restartCount": 0,
                "ready": false, "started": false,
                "state": {"terminated": {"exitCode": code, "reason": reason, "finishedAt": now}},
            })
        })
        .collect();
    json!({
        "phase": phase,
        "conditions": [
            {"type": "Ready", "status": "False", "lastTransitionTime": now},
            {"type": "ContainersReady", "status": "False", "lastTransitionTime": now},
        ],
        "containerStatuses": containers,
    })
}

fn containers(pod: &Pod) -> impl Iterator<Item = (&str, &str)> {
    pod.spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .map(|container| (container.name.as_str(), container.image.as_deref().unwrap_or_default()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
