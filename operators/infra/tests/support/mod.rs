//! A cluster with the operator's kinds, a plugin that the test holds, and stand-ins for servers.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

pub mod answering;
pub mod service;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use steersman::Manager;
use steersman_infra::action::{
    Action, ActionError, Answer, Capability, Changes, Completed, Description, Drift, Plan, Progress,
    Registry, Task,
};
use steersman_infra::types::Operation;
use steersman_infra::{History, OperatorController, Options, Resource, ResourceType, controllers, crds};
use steersman_test::{Cluster, Running};

use self::answering::{Question, Reply, answering};

/// A cluster that knows the kinds.
pub async fn cluster() -> Cluster {
    let cluster = Cluster::start().await;
    cluster.install(&crds()).await;
    cluster
}

/// Starts the operator with faults between it and the server.
pub fn operate(cluster: &Cluster, plugins: Registry, history: &History) -> Running {
    operate_with(cluster, plugins, history, OperatorController::default())
}

pub fn operate_with(
    cluster: &Cluster,
    plugins: Registry,
    history: &History,
    controller: OperatorController,
) -> Running {
    let manager: Manager = cluster.manager(cluster.options("infra"));
    let options = Options { controller, plugins, history: history.clone(), namespace: "default".into() };
    cluster.run_manager(controllers(manager, options))
}

/// A type `Box` with a number `size` of at least 1, by default 1.
pub async fn box_type(cluster: &Cluster) -> ResourceType {
    cluster
        .create_json(json!({"apiVersion": "infra.steersman.io/v1", "kind": "ResourceType",
            "metadata": {"name": "box.v1"}, "spec": {"name": "Box", "version": "v1", "schema": {
                "type": "object", "properties": {"size": {"type": "integer", "minimum": 1, "default": 1}}}}}))
        .await
}

/// A resource of the type `Box`.
pub async fn create_box(cluster: &Cluster, name: &str, parameters: Value) -> Resource {
    cluster
        .create_json(json!({"apiVersion": "infra.steersman.io/v1", "kind": "Resource",
            "metadata": {"name": format!("box.{name}"), "namespace": "default"},
            "spec": {"type": "Box", "typeVersion": "v1", "actionPlugin": "fake", "parameters": parameters}}))
        .await
}

/// What a test knows about the world that the plugin `fake` acts on.
#[derive(Clone, Debug, Default)]
pub struct World(pub Arc<Mutex<State>>);

#[derive(Debug, Default)]
pub struct State {
    /// What there is, by uid and name.
    pub things: HashMap<String, Value>,
    /// How often each attempt has really begun.
    pub begun: HashMap<String, u32>,
    /// Answers to the next calls of apply, before anything is done.
    pub failures: Vec<ActionError>,
    /// How many questions a run takes until it is done.
    pub questions: u32,
    /// The time between two questions; ten seconds if none is given.
    pub pause: Option<Duration>,
    /// The question at which each run is.
    pub asked: HashMap<String, u32>,
    /// How many requests to cancel fail.
    pub cancel_failures: u32,
    /// Requests to cancel.
    pub cancels: u32,
    /// Runs that were cancelled.
    pub cancelled: HashSet<String>,
    /// Calls to detect drift.
    pub drift_checks: u32,
    /// How many of them fail.
    pub drift_failures: u32,
    /// What was asked for, in order: `apply one`, `drift two`.
    pub calls: Vec<String>,
    /// Highest number of calls at the same time.
    pub applies: u32,
}

impl World {
    pub fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("the world")
    }

    fn begin(&self, task: &Task) -> Progress {
        let mut state = self.lock();
        *state.begun.entry(task.attempt.clone()).or_default() += 1;
        if state.questions > 0 {
            return Progress::Running {
                checkpoint: json!({"run": task.attempt}),
                after: state.pause.unwrap_or(Duration::from_secs(10)),
                message: "under way".into(),
            };
        }
        Progress::Done(state.complete(task))
    }
}

impl State {
    fn complete(&mut self, task: &Task) -> Completed {
        let thing = format!("{}/{}", task.uid, task.name);
        match task.operation {
            Operation::Apply => {
                self.things.insert(thing, Value::Object(task.parameters.clone()));
            }
            Operation::Destroy => {
                self.things.remove(&thing);
            }
        }
        let outputs =
            Map::from_iter([("size".to_owned(), task.parameters.get("size").cloned().unwrap_or_default())]);
        Completed { outputs, text: "done".into(), ..Completed::default() }
    }
}

impl Action for World {
    fn describe(&self) -> Description {
        Description::new("fake", "1.0.0", [Capability::Plan, Capability::DetectDrift, Capability::Cancel])
    }

    fn validate<'a>(&'a self, _: &'a Task) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn plan<'a>(&'a self, _: &'a Task) -> Answer<'a, Plan> {
        let changes = Changes { created: 1, ..Changes::default() };
        Box::pin(async move { Ok(Plan { changes, text: "1 to create".into(), ..Plan::default() }) })
    }

    fn apply<'a>(&'a self, task: &'a Task) -> Answer<'a, Progress> {
        Box::pin(async move {
            let failure = {
                let mut state = self.lock();
                state.applies += 1;
                state.calls.push(format!("apply {}", task.name));
                (!state.failures.is_empty()).then(|| state.failures.remove(0))
            };
            match failure {
                // The worst case: it was done, and nobody was told.
                Some(ActionError::Unknown(message)) => {
                    self.begin(task);
                    Err(ActionError::Unknown(message))
                }
                Some(error) => Err(error),
                None => Ok(self.begin(task)),
            }
        })
    }

    fn destroy<'a>(&'a self, task: &'a Task) -> Answer<'a, Progress> {
        self.apply(task)
    }

    fn resume<'a>(&'a self, task: &'a Task, checkpoint: Option<&'a Value>) -> Answer<'a, Progress> {
        Box::pin(async move {
            let begun = self.lock().begun.contains_key(&task.attempt);
            if checkpoint.is_none() && !begun {
                return Ok(self.begin(task));
            }
            let mut state = self.lock();
            let questions = state.questions;
            let asked = state.asked.entry(task.attempt.clone()).or_default();
            *asked += 1;
            if *asked < questions {
                return Ok(Progress::Running {
                    checkpoint: json!({"run": task.attempt}),
                    after: state.pause.unwrap_or(Duration::from_secs(10)),
                    message: "under way".into(),
                });
            }
            Ok(Progress::Done(state.complete(task)))
        })
    }

    fn detect_drift<'a>(&'a self, task: &'a Task) -> Answer<'a, Drift> {
        Box::pin(async move {
            let mut state = self.lock();
            state.drift_checks += 1;
            state.calls.push(format!("drift {}", task.name));
            if state.drift_failures > 0 {
                state.drift_failures -= 1;
                return Err(ActionError::transient("cannot look"));
            }
            let there = state.things.get(&format!("{}/{}", task.uid, task.name));
            Ok(match there == Some(&Value::Object(task.parameters.clone())) {
                true => Drift::None,
                false => Drift::Found("it is not as it should be".into()),
            })
        })
    }

    fn cancel<'a>(&'a self, task: &'a Task, _: Option<&'a Value>) -> Answer<'a, ()> {
        Box::pin(async move {
            let mut state = self.lock();
            state.cancels += 1;
            if state.cancels <= state.cancel_failures {
                return Err(ActionError::transient("still at work"));
            }
            state.cancelled.insert(task.attempt.clone());
            Ok(())
        })
    }
}

/// Serves a function over HTTP whose answers are a code and a body.
pub async fn stand_in(answer: impl Fn(Question) -> (u16, Value) + Send + Sync + 'static) -> String {
    answering(move |asked| {
        let (code, body) = answer(asked);
        Reply::new(code, body)
    })
    .await
}
