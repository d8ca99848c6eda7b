//! The outside world: APIs that count what happens, and kill the operator at one request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::answering::{Question, Reply, answering};
use crate::support::eventually;

/// When the operator is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kill {
    /// At which request, from 0.
    pub(crate) request: usize,
    pub(crate) when: When,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// The request never takes effect.
    Before,
    /// It has taken effect, and nobody is told.
    After,
    /// The answer is on its way: the operator dies while it writes down what it was told.
    Answered,
}

impl When {
    pub(crate) const ALL: [Self; 3] = [Self::Before, Self::After, Self::Answered];
}

/// How long the operator lives after an answer.
pub(crate) const MOMENT: Duration = Duration::from_millis(3);

#[derive(Clone, Default)]
pub(crate) struct World(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    trap: Option<(Kill, Pid)>,
    has_killed: bool,
    /// Whether a kill is about to happen.
    aims: bool,
    requests: usize,
    /// What happened, in order.
    effects: Vec<String>,
    /// Effects by the key under which they were asked for: the same key is the same request.
    by_key: HashMap<String, usize>,
    /// Variables of pipelines and titles of runs, by number from 1.
    runs: Vec<Value>,
    looks: HashMap<String, u32>,
}

impl World {
    pub(crate) async fn serve(&self) -> String {
        let world = self.clone();
        answering(move |asked| {
            let (reply, aims) = {
                let mut state = world.lock();
                (state.answer(&asked), state.aims)
            };
            if aims {
                let world = world.clone();
                std::thread::spawn(move || {
                    std::thread::sleep(MOMENT);
                    world.lock().kill();
                });
            }
            reply
        })
        .await
    }

    /// Waits for a kill that is about to happen.
    pub(crate) fn settle(&self) {
        eventually("the kill", || (!self.lock().aims).then_some(()));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("the world")
    }

    /// Forgets everything, and kills this process once.
    pub(crate) fn reset(&self, kill: Kill, pid: Pid) {
        *self.lock() = State { trap: Some((kill, pid)), ..State::default() };
    }

    /// Forgets everything, and kills nobody.
    pub(crate) fn clear(&self) {
        *self.lock() = State::default();
    }

    pub(crate) fn has_killed(&self) -> bool {
        self.lock().has_killed
    }

    pub(crate) fn effects(&self) -> Vec<String> {
        self.lock().effects.clone()
    }
}

impl State {
    fn answer(&mut self, asked: &Question) -> Reply {
        let number = self.requests;
        self.requests += 1;
        let due = self.trap.filter(|(trap, _)| trap.request == number).map(|(trap, _)| trap.when);
        // Terraform is a process of its own: what it asks for happens whoever is killed.
        let is_of_operator = !asked.path.starts_with("/terraform");
        if due == Some(When::Before) {
            self.kill();
            if is_of_operator && !asked.path.starts_with("/outside") {
                return Reply::new(503, Value::Null);
            }
        }
        let reply = self.effect(asked);
        match due {
            Some(When::After) => self.kill(),
            Some(When::Answered) => self.aims = true,
            _ => {}
        }
        reply
    }

    fn kill(&mut self) {
        if let Some((_, pid)) = self.trap.take() {
            kill(pid, Signal::SIGKILL).expect("killed");
            self.has_killed = true;
        }
        self.aims = false;
    }

    /// Notes what happens, once per key.
    fn note(&mut self, key: &str, effect: String) -> usize {
        if let Some(number) = self.by_key.get(key) {
            return *number;
        }
        self.effects.push(effect);
        self.by_key.insert(key.to_owned(), self.effects.len());
        self.effects.len()
    }

    /// Whether something that takes two looks is over.
    fn is_over(&mut self, what: &str) -> bool {
        let looks = self.looks.entry(what.to_owned()).or_default();
        *looks += 1;
        *looks >= 2
    }

    fn effect(&mut self, asked: &Question) -> Reply {
        let path: Vec<&str> = asked.path.trim_matches('/').split('/').collect();
        match (asked.method.as_str(), path.as_slice()) {
            ("PUT", ["http", "things", _]) => {
                let key = asked.headers["idempotency-key"].to_str().expect("a key").to_owned();
                let operation = self.note(&key, format!("apply {}", asked.body["size"]));
                Reply::new(202, json!({"operation": operation}))
            }
            ("DELETE", ["http", "things", _]) => {
                let key = asked.headers["idempotency-key"].to_str().expect("a key").to_owned();
                self.note(&key, "destroy".into());
                Reply::new(204, Value::Null)
            }
            ("GET", ["http", "operations", id]) => {
                let state = if self.is_over(id) { "done" } else { "running" };
                Reply::new(200, json!({"state": state, "id": id}))
            }
            (method, ["github", "repos", "o", "r", "actions", rest @ ..]) => {
                self.github(method, rest, &asked.body)
            }
            (method, ["gitlab", "projects", "7", rest @ ..]) => self.gitlab(method, rest, &asked.body),
            ("POST", ["outside", "effects"]) => {
                let text = |field: &str| asked.body[field].as_str().unwrap_or_default().to_owned();
                // Not by key: a plugin that asks twice has done it twice.
                self.effects.push(text("wish"));
                self.by_key.insert(text("attempt"), self.effects.len());
                Reply::new(200, json!({}))
            }
            ("GET", ["outside", "effects", attempt]) => match self.by_key.contains_key(*attempt) {
                true => Reply::new(200, json!({})),
                false => Reply::new(404, json!({})),
            },
            ("POST", ["terraform", "effects"]) => {
                self.effects.push(asked.body["wish"].as_str().unwrap_or_default().to_owned());
                Reply::new(200, json!({}))
            }
            _ => Reply::new(404, json!({"message": "Not Found"})),
        }
    }

    fn github(&mut self, method: &str, path: &[&str], body: &Value) -> Reply {
        let run =
            |id: usize, run: &Value| json!({"id": id, "display_title": run["title"], "status": "queued"});
        match (method, path) {
            ("POST", ["workflows", "w.yml", "dispatches"]) => {
                self.effects.push(format!("apply {}", body["inputs"]["size"].as_str().unwrap_or_default()));
                self.runs.push(json!({"title": body["inputs"]["run"]}));
                Reply::new(200, json!({"workflow_run_id": self.runs.len()}))
            }
            ("GET", ["workflows", "w.yml", "runs"]) => {
                let all: Vec<Value> = self.runs.iter().enumerate().map(|(at, it)| run(at + 1, it)).collect();
                Reply::new(200, json!({"total_count": all.len(), "workflow_runs": all}))
            }
            ("GET", ["runs", id]) => match self.is_over(id) {
                true => Reply::new(
                    200,
                    json!({"id": id.parse::<i64>().ok(), "status": "completed", "conclusion": "success"}),
                ),
                false => Reply::new(200, json!({"id": id.parse::<i64>().ok(), "status": "in_progress"})),
            },
            ("GET", ["runs", _, list]) => Reply::new(200, json!({*list: [{"name": "deploy"}]})),
            ("POST", ["runs", _, "cancel"]) => Reply::new(202, json!({})),
            _ => Reply::new(404, Value::Null),
        }
    }

    fn gitlab(&mut self, method: &str, path: &[&str], body: &Value) -> Reply {
        match (method, path) {
            ("POST", ["pipeline"]) => {
                let find = |key: &str| {
                    let all = body["variables"].as_array().into_iter().flatten();
                    all.clone()
                        .find(|it| it["key"] == key)
                        .and_then(|it| it["value"].as_str())
                        .unwrap_or_default()
                };
                let effect = match find("STEERSMAN_OPERATION") {
                    "apply" => format!("apply {}", find("size")),
                    other => other.to_owned(),
                };
                self.effects.push(effect);
                self.runs.push(body["variables"].clone());
                Reply::new(201, json!({"id": self.runs.len(), "status": "created"}))
            }
            ("GET", ["pipelines"]) => {
                let all: Vec<Value> = (1..=self.runs.len()).rev().map(|id| json!({"id": id})).collect();
                Reply::new(200, all.into())
            }
            ("GET", ["pipelines", id, "variables"]) => {
                let at = id.parse::<usize>().unwrap_or(0).wrapping_sub(1);
                self.runs.get(at).map_or(Reply::new(404, Value::Null), |all| Reply::new(200, all.clone()))
            }
            ("GET", ["pipelines", _, "jobs"]) => {
                Reply::new(200, json!([{"name": "deploy", "status": "success"}]))
            }
            ("GET", ["pipelines", id]) => {
                let status = if self.is_over(id) { "success" } else { "running" };
                Reply::new(200, json!({"id": id.parse::<i64>().ok(), "status": status}))
            }
            _ => Reply::new(404, Value::Null),
        }
    }
}
