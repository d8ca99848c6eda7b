//! The `github_actions` plugin: workflow runs.
//!
//! Where the workflow is comes from the plugin's configuration, or from the parameters:
//! `owner`, `repo`, `workflow` (file name or number), `ref` (`main`), `token`, `api_url`. The
//! parameters become the workflow's inputs, unless `inputs` says otherwise.
//!
//! A run is found by the id that GitHub returns when it is asked to (`return_run_details`). Where
//! a server does not return it, and after a crash in between, it is found by the attempt's id in
//! the run's title: give the workflow an input, name it in `correlation_input`, and print it with
//! `run-name`. A run that cannot be told apart is never guessed.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, header};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::template::{Scope, percent, printed, text};
use super::web::{Web, WebAnswer};
use super::{Action, ActionError, Answer, Capability, Changes, Completed, Description, Progress, Task};

/// How many inputs a workflow may have.
const INPUTS: usize = 25;
/// How often a run is looked at.
const POLL: Duration = Duration::from_secs(10);
/// How long a run that GitHub did not name may take to appear.
const APPEARS: i64 = 300;

/// Triggers GitHub Actions workflows and follows their runs.
#[derive(Clone, Debug)]
pub struct GitHubActions {
    web: Web,
}

#[derive(Debug, Deserialize)]
struct Config {
    owner: Option<String>,
    repo: Option<String>,
    workflow: Option<Value>,
    r#ref: Option<String>,
    inputs: Option<Map<String, Value>>,
    token: Option<String>,
    api_url: Option<String>,
    correlation_input: Option<String>,
    #[serde(default = "hour")]
    timeout_seconds: i64,
    poll_interval_seconds: Option<u64>,
    #[serde(default = "appears")]
    appears_within_seconds: i64,
}

fn hour() -> i64 {
    3600
}

/// How long a run may take to appear before it is taken for one that was never asked for.
fn appears() -> i64 {
    30
}

/// What is kept while a run is under way.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Checkpoint {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    html_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    conclusion: Option<String>,
}

/// One workflow, and how to speak to its server.
struct Workflow<'a> {
    web: &'a Web,
    base: String,
    workflow: String,
    headers: HeaderMap,
    config: Config,
    task: &'a Task,
}

impl GitHubActions {
    /// The plugin, making its requests with `web`.
    pub fn new(web: Web) -> Self {
        Self { web }
    }

    fn workflow<'a>(&'a self, task: &'a Task) -> Result<Workflow<'a>, ActionError> {
        let config: Config = serde_json::from_value(Value::Object(task.config.clone())).map_err(|error| {
            ActionError::permanent(format!(
                "the configuration of the github_actions plugin is not right: {error}"
            ))
        })?;
        let find = |name: &str, configured: Option<String>| {
            configured.or_else(|| text(task.parameters.get(name)?)).ok_or_else(|| {
                ActionError::permanent(format!(
                    "github_actions needs {name}: put it into plugin_config, into metadata.action_defaults.github_actions of the type, into the operator's settings, or into spec"
                ))
            })
        };
        let owner = find("owner", config.owner.clone())?;
        let repo = find("repo", config.repo.clone())?;
        let workflow = find("workflow", config.workflow.as_ref().and_then(text))?;
        let api = config.api_url.as_deref().unwrap_or("https://api.github.com").trim_end_matches('/');
        let base = format!("{api}/repos/{}/{}/actions", percent(&owner), percent(&repo));
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/vnd.github+json"));
        headers.insert("x-github-api-version", HeaderValue::from_static("2022-11-28"));
        if let Some(token) = &config.token {
            let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
                ActionError::permanent("the token of github_actions has characters that no token has")
            })?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        Ok(Workflow { web: &self.web, base, workflow: percent(&workflow), headers, config, task })
    }
}

impl Workflow<'_> {
    async fn get(&self, path: &str) -> Result<Value, ActionError> {
        let answer =
            self.web.send(Method::GET, &format!("{}{path}", self.base), self.headers.clone(), None).await?;
        match answer.status.is_success() {
            true => Ok(answer.body),
            false => Err(self.error(&format!("GET {path}"), &answer)),
        }
    }

    fn error(&self, what: &str, answer: &WebAnswer) -> ActionError {
        answer.error(&format!("GitHub, {what}"), self.task.now)
    }

    /// Asks for a run. The only request here that must never be made twice for one attempt.
    async fn dispatch(&self) -> Result<Progress, ActionError> {
        let branch = self.config.r#ref.clone().or_else(|| text(self.task.parameters.get("ref")?));
        let body = json!({
            "ref": branch.unwrap_or_else(|| "main".into()), "inputs": self.inputs()?, "return_run_details": true,
        });
        let url = format!("{}/workflows/{}/dispatches", self.base, self.workflow);
        let answer = self.web.send(Method::POST, &url, self.headers.clone(), Some(&body)).await?;
        match answer.status.as_u16() {
            200 | 201 | 204 => {}
            // It may have been taken all the same.
            500.. => return Err(ActionError::Unknown(self.error("dispatch", &answer).to_string())),
            _ => return Err(self.error("dispatch", &answer)),
        }
        let run_id = answer.body.get("workflow_run_id").and_then(Value::as_i64);
        let html_url = answer.body.get("html_url").and_then(text);
        let message = match (&html_url, run_id) {
            (Some(url), _) => format!("workflow run {url} is under way"),
            (None, Some(id)) => format!("workflow run {id} is under way"),
            (None, None) => "the workflow was triggered; waiting for its run to appear".into(),
        };
        Ok(self.running(&Checkpoint { run_id, html_url, conclusion: None }, message))
    }

    /// The workflow's inputs: texts, at most as many as GitHub takes.
    fn inputs(&self) -> Result<Map<String, Value>, ActionError> {
        let parameters = &self.task.parameters;
        let given = match (&self.config.inputs, parameters.get("inputs")) {
            (Some(inputs), _) => match Scope::of(self.task).fill(&Value::Object(inputs.clone()))? {
                Value::Object(filled) => filled,
                _ => Map::new(),
            },
            (None, Some(Value::Object(inputs))) if self.config.workflow.is_none() => inputs.clone(),
            _ => {
                let mut all = parameters.clone();
                if self.config.workflow.is_none() {
                    all.retain(|name, _| !["owner", "repo", "workflow", "ref"].contains(&name.as_str()));
                }
                all
            }
        };
        let room = INPUTS - usize::from(self.config.correlation_input.is_some());
        let mut inputs: Map<String, Value> = match given.len() <= room {
            true => given.iter().map(|(name, value)| (name.clone(), Value::String(printed(value)))).collect(),
            false => Map::from_iter([("spec".to_owned(), Value::String(Value::Object(given).to_string()))]),
        };
        if let Some(name) = &self.config.correlation_input {
            inputs.insert(name.clone(), Value::String(self.task.attempt.clone()));
        }
        Ok(inputs)
    }

    fn running(&self, checkpoint: &Checkpoint, message: String) -> Progress {
        let after = self.config.poll_interval_seconds.map_or(POLL, Duration::from_secs);
        Progress::Running { checkpoint: json!(checkpoint), after, message }
    }

    /// The runs that may be ours: asked for since the attempt began.
    async fn candidates(&self) -> Result<Vec<Value>, ActionError> {
        // Clocks differ; what is older than a minute before the attempt is certainly not ours.
        let since = self.task.started_at.as_second() - 60;
        let since = Timestamp::from_second(since).unwrap_or(Timestamp::UNIX_EPOCH);
        let created = percent(&format!(">={since}"));
        let path = format!(
            "/workflows/{}/runs?event=workflow_dispatch&created={created}&per_page=100",
            self.workflow
        );
        let answer = self.get(&path).await?;
        Ok(answer.get("workflow_runs").and_then(Value::as_array).cloned().unwrap_or_default())
    }

    /// Finds the run of this attempt among those that GitHub has.
    async fn find(&self) -> Result<Option<Value>, ActionError> {
        let candidates = self.candidates().await?;
        let ours = |run: &&Value| {
            ["display_title", "name"].iter().any(|field| {
                run.get(field).and_then(Value::as_str).is_some_and(|title| title.contains(&self.task.attempt))
            })
        };
        match candidates.iter().find(ours) {
            Some(run) => Ok(Some(run.clone())),
            None if candidates.is_empty() || self.config.correlation_input.is_some() => Ok(None),
            None => Err(ActionError::permanent(
                "it cannot be told whether the workflow was triggered: runs have begun since, and none carries the attempt's id. Look at them, then trigger a reconciliation by hand; to have runs told apart, give the workflow an input, print it with run-name, and name it in correlation_input",
            )),
        }
    }

    async fn look(&self, checkpoint: Checkpoint) -> Result<Progress, ActionError> {
        let Some(id) = checkpoint.run_id else {
            return self.look_for(checkpoint).await;
        };
        let run = self.get(&format!("/runs/{id}")).await?;
        let state = run.get("status").and_then(Value::as_str).unwrap_or_default();
        let html_url = run.get("html_url").and_then(text).or(checkpoint.html_url);
        let kept = Checkpoint { run_id: Some(id), html_url, conclusion: None };
        let shown = kept.html_url.clone().unwrap_or_else(|| id.to_string());
        if state != "completed" {
            if self.is_late(self.config.timeout_seconds) {
                self.cancel_run(id).await?;
                let message = format!(
                    "workflow run {shown} took longer than {} s and was cancelled",
                    self.config.timeout_seconds
                );
                return Ok(Progress::Failed { message, last_run: Some(json!(kept)) });
            }
            return Ok(self.running(&kept, format!("workflow run {shown} is {state}")));
        }
        let conclusion = run.get("conclusion").and_then(Value::as_str).unwrap_or("unknown").to_owned();
        let last_run = Some(json!(Checkpoint { conclusion: Some(conclusion.clone()), ..kept }));
        let text = format!("workflow run {shown}: {conclusion}");
        if conclusion != "success" {
            return Ok(Progress::Failed { message: text, last_run });
        }
        let outputs = self.outputs(id).await?;
        Ok(Progress::Done(Completed { outputs, changes: Some(self.changes()), text, last_run }))
    }

    async fn look_for(&self, checkpoint: Checkpoint) -> Result<Progress, ActionError> {
        match self.find().await? {
            Some(run) => {
                let kept = Checkpoint {
                    run_id: run.get("id").and_then(Value::as_i64),
                    html_url: run.get("html_url").and_then(text),
                    conclusion: None,
                };
                Ok(self.running(&kept, "the workflow's run was found".into()))
            }
            None if self.is_late(APPEARS) => Ok(Progress::Failed {
                message: format!("the workflow was triggered, but no run appeared within {APPEARS} s"),
                last_run: None,
            }),
            None => Ok(self.running(&checkpoint, "waiting for the workflow's run to appear".into())),
        }
    }

    fn is_late(&self, seconds: i64) -> bool {
        self.task.now.duration_since(self.task.started_at).as_secs() > seconds
    }

    /// GitHub does not say what a workflow changed: the first success makes, later ones change.
    fn changes(&self) -> Changes {
        match self.task.outputs.is_empty() {
            true => Changes { created: 1, ..Changes::default() },
            false => Changes { updated: 1, ..Changes::default() },
        }
    }

    async fn outputs(&self, id: i64) -> Result<Map<String, Value>, ActionError> {
        let jobs = self.get(&format!("/runs/{id}/jobs?per_page=100")).await?;
        let artifacts = self.get(&format!("/runs/{id}/artifacts?per_page=100")).await?;
        let pick = |from: &Value, list: &str, fields: &[&str]| -> Value {
            let items = from.get(list).and_then(Value::as_array).into_iter().flatten();
            items
                .map(|item| {
                    let field =
                        |name: &&str| ((*name).to_owned(), item.get(*name).cloned().unwrap_or(Value::Null));
                    Value::Object(fields.iter().map(field).collect())
                })
                .collect::<Vec<Value>>()
                .into()
        };
        Ok(Map::from_iter([
            (
                "jobs".to_owned(),
                pick(&jobs, "jobs", &["name", "status", "conclusion", "started_at", "completed_at"]),
            ),
            ("artifacts".to_owned(), pick(&artifacts, "artifacts", &["name", "size_in_bytes"])),
        ]))
    }

    async fn cancel_run(&self, id: i64) -> Result<(), ActionError> {
        let url = format!("{}/runs/{id}/cancel", self.base);
        let answer = self.web.send(Method::POST, &url, self.headers.clone(), None).await?;
        match answer.status.as_u16() {
            // Over already, or not there any more: nothing is left to cancel.
            200..=299 | 404 | 409 => Ok(()),
            _ => Err(self.error("cancel", &answer)),
        }
    }
}

impl Action for GitHubActions {
    fn describe(&self) -> Description {
        Description::new("github_actions", "1.0.0", [Capability::Cancel])
    }

    fn validate<'a>(&'a self, task: &'a Task) -> Answer<'a, ()> {
        Box::pin(std::future::ready(self.workflow(task).map(|_| ())))
    }

    fn apply<'a>(&'a self, task: &'a Task) -> Answer<'a, Progress> {
        Box::pin(async move { self.workflow(task)?.dispatch().await })
    }

    /// Cancels the last run if it is still under way. What a workflow has made, only a workflow
    /// can take away.
    fn destroy<'a>(&'a self, task: &'a Task) -> Answer<'a, Progress> {
        Box::pin(async move {
            let kept = task.last_run.as_ref().and_then(|kept| Checkpoint::deserialize(kept).ok());
            let text = match kept.filter(|kept| kept.conclusion.is_none()).and_then(|kept| kept.run_id) {
                Some(id) => {
                    self.workflow(task)?.cancel_run(id).await?;
                    format!("workflow run {id} was cancelled")
                }
                None => "no workflow run is under way".to_owned(),
            };
            Ok(Progress::Done(Completed { text, ..Completed::default() }))
        })
    }

    fn resume<'a>(&'a self, task: &'a Task, checkpoint: Option<&'a Value>) -> Answer<'a, Progress> {
        Box::pin(async move {
            if task.operation == crate::types::Operation::Destroy {
                return self.destroy(task).await;
            }
            let workflow = self.workflow(task)?;
            match checkpoint {
                Some(kept) => workflow.look(Checkpoint::deserialize(kept).unwrap_or_default()).await,
                None => match workflow.find().await? {
                    Some(run) => {
                        let run_id = run.get("id").and_then(Value::as_i64);
                        workflow.look(Checkpoint { run_id, ..Checkpoint::default() }).await
                    }
                    // A run takes a moment to appear; one that was asked for just now may yet.
                    None if !workflow.is_late(workflow.config.appears_within_seconds) => {
                        Err(ActionError::transient("it is not yet known whether the workflow was triggered"))
                    }
                    None => workflow.dispatch().await,
                },
            }
        })
    }

    fn cancel<'a>(&'a self, task: &'a Task, checkpoint: Option<&'a Value>) -> Answer<'a, ()> {
        Box::pin(async move {
            let workflow = self.workflow(task)?;
            let kept = checkpoint.and_then(|kept| Checkpoint::deserialize(kept).ok()).unwrap_or_default();
            let id = match kept.run_id {
                Some(id) => Some(id),
                None => workflow.find().await?.and_then(|run| run.get("id").and_then(Value::as_i64)),
            };
            match id {
                Some(id) => workflow.cancel_run(id).await,
                None => Ok(()),
            }
        })
    }
}
