//! The `gitlab` plugin: pipelines.
//!
//! Where the pipeline is comes from the plugin's configuration, or from the parameters:
//! `project` (number or path), `ref` (`main`), `token` (or `trigger_token`), `api_url`
//! (`https://gitlab.com/api/v4`). The parameters become the pipeline's variables, unless
//! `variables` says otherwise. With `"destroy": "pipeline"` a deletion runs a pipeline too;
//! otherwise it cancels one that is under way.
//!
//! Every pipeline gets `STEERSMAN_RUN`, the attempt's id, `STEERSMAN_OPERATION` (`apply` or
//! `destroy`) and `STEERSMAN_RESOURCE`. GitLab tells a pipeline's variables, so that after a crash
//! in between the pipeline of an attempt is found by them; none is ever created twice.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::template::{Scope, percent, printed, text};
use super::web::{Web, WebAnswer};
use super::{Action, ActionError, Answer, Capability, Changes, Completed, Description, Progress, Task};
use crate::types::Operation;

/// How often a pipeline is looked at.
const POLL: Duration = Duration::from_secs(10);
/// How many pipelines are looked through for the one of an attempt.
const CANDIDATES: usize = 100;
/// The variable that carries the attempt's id.
const RUN: &str = "STEERSMAN_RUN";

/// Triggers GitLab pipelines and follows them.
#[derive(Clone, Debug)]
pub struct GitLab {
    web: Web,
}

#[derive(Debug, Deserialize)]
struct Config {
    project: Option<Value>,
    r#ref: Option<String>,
    variables: Option<Map<String, Value>>,
    token: Option<String>,
    trigger_token: Option<String>,
    api_url: Option<String>,
    #[serde(default)]
    destroy: OnDestroy,
    #[serde(default = "hour")]
    timeout_seconds: i64,
    poll_interval_seconds: Option<u64>,
    #[serde(default = "appears")]
    appears_within_seconds: i64,
}

/// What a deletion does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OnDestroy {
    /// Cancels a pipeline that is under way.
    #[default]
    Cancel,
    /// Runs a pipeline that takes away what others have made.
    Pipeline,
}

fn hour() -> i64 {
    3600
}

/// How long a pipeline that was asked for may take to appear in lists.
fn appears() -> i64 {
    30
}

/// What is kept while a pipeline is under way, and of the last one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Checkpoint {
    pipeline_id: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    web_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<String>,
}

impl Checkpoint {
    fn of(pipeline: &Value) -> Option<Self> {
        let pipeline_id = pipeline.get("id").and_then(Value::as_i64)?;
        Some(Self { pipeline_id, web_url: pipeline.get("web_url").and_then(text), status: None })
    }

    fn shown(&self) -> String {
        self.web_url.clone().unwrap_or_else(|| self.pipeline_id.to_string())
    }
}

/// One project, and how to speak to its server.
struct Project<'a> {
    web: &'a Web,
    base: String,
    branch: String,
    headers: HeaderMap,
    config: Config,
    task: &'a Task,
}

impl GitLab {
    /// The plugin, making its requests with `web`.
    pub fn new(web: Web) -> Self {
        Self { web }
    }

    fn project<'a>(&'a self, task: &'a Task) -> Result<Project<'a>, ActionError> {
        let config: Config = serde_json::from_value(Value::Object(task.config.clone())).map_err(|error| {
            ActionError::permanent(format!("the configuration of the gitlab plugin is not right: {error}"))
        })?;
        let project = config.project.as_ref().or_else(|| task.parameters.get("project")).and_then(text);
        let project = project.ok_or_else(|| {
            ActionError::permanent(
                "gitlab needs project: put it into plugin_config, into metadata.action_defaults.gitlab of the type, into the operator's settings, or into spec",
            )
        })?;
        if config.token.is_none() && config.trigger_token.is_none() {
            return Err(ActionError::permanent(
                "gitlab needs token (with the scope api), or trigger_token beside one with the scope read_api: put it into the operator's settings, or set GITLAB_TOKEN",
            ));
        }
        let api = config.api_url.as_deref().unwrap_or("https://gitlab.com/api/v4").trim_end_matches('/');
        let base = format!("{api}/projects/{}", percent(&project));
        let mut headers = HeaderMap::new();
        if let Some(token) = &config.token {
            let mut value = HeaderValue::try_from(token).map_err(|_| {
                ActionError::permanent("the token of gitlab has characters that no token has")
            })?;
            value.set_sensitive(true);
            headers.insert("private-token", value);
        }
        let branch = config.r#ref.clone().or_else(|| text(task.parameters.get("ref")?));
        let branch = branch.unwrap_or_else(|| "main".into());
        Ok(Project { web: &self.web, base, branch, headers, config, task })
    }
}

impl Project<'_> {
    async fn get(&self, path: &str) -> Result<Value, ActionError> {
        let url = format!("{}{path}", self.base);
        let answer = self.web.send(Method::GET, &url, self.headers.clone(), None).await?;
        match answer.status.is_success() {
            true => Ok(answer.body),
            false => Err(self.error(&format!("GET {path}"), &answer)),
        }
    }

    fn error(&self, what: &str, answer: &WebAnswer) -> ActionError {
        answer.error(&format!("GitLab, {what}"), self.task.now)
    }

    /// Asks for a pipeline. The only request here that must never be made twice for one attempt.
    async fn create(&self) -> Result<Progress, ActionError> {
        let variables = self.variables()?;
        let (url, body) = match (&self.config.token, &self.config.trigger_token) {
            (_, Some(trigger)) => (
                format!("{}/trigger/pipeline", self.base),
                json!({"token": trigger, "ref": self.branch, "variables": variables}),
            ),
            _ => {
                let list: Vec<Value> =
                    variables.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
                (format!("{}/pipeline", self.base), json!({"ref": self.branch, "variables": list}))
            }
        };
        let answer = self.web.send(Method::POST, &url, self.headers.clone(), Some(&body)).await?;
        match answer.status.as_u16() {
            200 | 201 => {}
            // It may have been taken all the same.
            500.. => return Err(ActionError::Unknown(self.error("create pipeline", &answer).to_string())),
            _ => return Err(self.error("create pipeline", &answer)),
        }
        let kept = Checkpoint::of(&answer.body).ok_or_else(|| {
            ActionError::Unknown("GitLab, create pipeline: the answer does not name the pipeline".into())
        })?;
        let message = format!("pipeline {} is under way", kept.shown());
        Ok(self.running(&kept, message))
    }

    fn variables(&self) -> Result<Map<String, Value>, ActionError> {
        let task = self.task;
        let given = match &self.config.variables {
            Some(variables) => match Scope::of(task).fill(&Value::Object(variables.clone()))? {
                Value::Object(filled) => filled,
                _ => Map::new(),
            },
            None => {
                let mut all = task.parameters.clone();
                all.retain(|name, _| !["project", "ref"].contains(&name.as_str()));
                all
            }
        };
        let key = |name: &str| -> String {
            name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
        };
        let mut variables: Map<String, Value> =
            given.iter().map(|(name, value)| (key(name), Value::String(printed(value)))).collect();
        let operation = match task.operation {
            Operation::Apply => "apply",
            Operation::Destroy => "destroy",
        };
        variables.insert(RUN.into(), json!(task.attempt));
        variables.insert("STEERSMAN_OPERATION".into(), json!(operation));
        variables.insert("STEERSMAN_RESOURCE".into(), json!(task.name));
        Ok(variables)
    }

    fn running(&self, kept: &Checkpoint, message: String) -> Progress {
        let after = self.config.poll_interval_seconds.map_or(POLL, Duration::from_secs);
        Progress::Running { checkpoint: json!(kept), after, message }
    }

    /// Finds the pipeline of this attempt among those that were created since it began.
    async fn find(&self) -> Result<Option<Checkpoint>, ActionError> {
        // Clocks differ; what is older than a minute before the attempt is certainly not ours.
        let since = Timestamp::from_second(self.task.started_at.as_second() - 60);
        let since = since.unwrap_or(Timestamp::UNIX_EPOCH);
        let source = if self.config.trigger_token.is_some() { "trigger" } else { "api" };
        let path = format!(
            "/pipelines?ref={}&source={source}&updated_after={}&order_by=id&sort=desc&per_page={CANDIDATES}",
            percent(&self.branch),
            percent(&since.to_string())
        );
        let found = self.get(&path).await?;
        for pipeline in found.as_array().into_iter().flatten() {
            let Some(kept) = Checkpoint::of(pipeline) else { continue };
            let variables = self.get(&format!("/pipelines/{}/variables", kept.pipeline_id)).await?;
            let ours = |variable: &Value| {
                variable.get("key").and_then(Value::as_str) == Some(RUN)
                    && variable.get("value").and_then(Value::as_str) == Some(&self.task.attempt)
            };
            if variables.as_array().into_iter().flatten().any(ours) {
                return Ok(Some(kept));
            }
        }
        Ok(None)
    }

    async fn look(&self, kept: Checkpoint) -> Result<Progress, ActionError> {
        let pipeline = self.get(&format!("/pipelines/{}", kept.pipeline_id)).await?;
        let status = pipeline.get("status").and_then(Value::as_str).unwrap_or("unknown").to_owned();
        let kept = Checkpoint::of(&pipeline).unwrap_or(kept);
        let shown = kept.shown();
        let last_run = Some(json!(Checkpoint { status: Some(status.clone()), ..kept.clone() }));
        match status.as_str() {
            "success" => {
                let outputs = match self.task.operation {
                    Operation::Apply => self.outputs(kept.pipeline_id).await?,
                    Operation::Destroy => Map::new(),
                };
                let text = format!("pipeline {shown}: success");
                Ok(Progress::Done(Completed { outputs, changes: Some(self.changes()), text, last_run }))
            }
            "failed" | "canceled" | "skipped" => {
                let failed = self.failed_jobs(kept.pipeline_id).await;
                Ok(Progress::Failed { message: format!("pipeline {shown}: {status}{failed}"), last_run })
            }
            _ if self.is_late(self.config.timeout_seconds) => {
                self.cancel_pipeline(kept.pipeline_id).await?;
                let seconds = self.config.timeout_seconds;
                let message = format!("pipeline {shown} took longer than {seconds} s and was cancelled");
                Ok(Progress::Failed { message, last_run })
            }
            "manual" => {
                Ok(self.running(&kept, format!("pipeline {shown} waits for somebody to start a job")))
            }
            _ => Ok(self.running(&kept, format!("pipeline {shown} is {status}"))),
        }
    }

    /// The names of the jobs that failed, for people; nothing if they cannot be had.
    async fn failed_jobs(&self, id: i64) -> String {
        let Ok(jobs) = self.get(&format!("/pipelines/{id}/jobs?scope[]=failed&per_page=20")).await else {
            return String::new();
        };
        let names: Vec<&str> = jobs
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|job| job.get("name").and_then(Value::as_str))
            .collect();
        if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
    }

    fn is_late(&self, seconds: i64) -> bool {
        self.task.now.duration_since(self.task.started_at).as_secs() > seconds
    }

    /// GitLab does not say what a pipeline changed: the first success makes, later ones change.
    fn changes(&self) -> Changes {
        match (self.task.operation, self.task.outputs.is_empty()) {
            (Operation::Destroy, _) => Changes { deleted: 1, ..Changes::default() },
            (Operation::Apply, true) => Changes { created: 1, ..Changes::default() },
            (Operation::Apply, false) => Changes { updated: 1, ..Changes::default() },
        }
    }

    /// Jobs and artifacts, with the fields that github_actions has too.
    async fn outputs(&self, id: i64) -> Result<Map<String, Value>, ActionError> {
        let jobs = self.get(&format!("/pipelines/{id}/jobs?per_page=100")).await?;
        let jobs = jobs.as_array().cloned().unwrap_or_default();
        let field = |job: &Value, name: &str| job.get(name).cloned().unwrap_or(Value::Null);
        let shown: Vec<Value> = jobs
            .iter()
            .map(|job| {
                json!({"name": field(job, "name"), "stage": field(job, "stage"), "status": field(job, "status"),
                    "started_at": field(job, "started_at"), "completed_at": field(job, "finished_at")})
            })
            .collect();
        let artifacts: Vec<Value> = jobs
            .iter()
            .flat_map(|job| {
                let list = job.get("artifacts").and_then(Value::as_array).cloned().unwrap_or_default();
                let name = field(job, "name");
                // Traces are logs, not artifacts.
                list.into_iter()
                    .filter(|it| it["file_type"] != "trace")
                    .map(move |it| json!({"name": it["filename"], "job": name, "size_in_bytes": it["size"]}))
            })
            .collect();
        Ok(Map::from_iter([("jobs".to_owned(), shown.into()), ("artifacts".to_owned(), artifacts.into())]))
    }

    async fn cancel_pipeline(&self, id: i64) -> Result<(), ActionError> {
        let url = format!("{}/pipelines/{id}/cancel", self.base);
        let answer = self.web.send(Method::POST, &url, self.headers.clone(), None).await?;
        match answer.status.as_u16() {
            // Over already, or not there any more: nothing is left to cancel.
            200..=299 | 404 | 409 => Ok(()),
            _ => Err(self.error("cancel", &answer)),
        }
    }
}

impl Action for GitLab {
    fn describe(&self) -> Description {
        Description::new("gitlab", "1.0.0", [Capability::Cancel])
    }

    fn validate<'a>(&'a self, task: &'a Task) -> Answer<'a, ()> {
        Box::pin(std::future::ready(self.project(task).and_then(|project| project.variables()).map(drop)))
    }

    fn apply<'a>(&'a self, task: &'a Task) -> Answer<'a, Progress> {
        Box::pin(async move { self.project(task)?.create().await })
    }

    fn destroy<'a>(&'a self, task: &'a Task) -> Answer<'a, Progress> {
        Box::pin(async move {
            let project = self.project(task)?;
            if project.config.destroy == OnDestroy::Pipeline {
                return project.create().await;
            }
            let kept = task.last_run.as_ref().and_then(|kept| Checkpoint::deserialize(kept).ok());
            let text = match kept.filter(|kept| kept.status.is_none()) {
                Some(kept) => {
                    project.cancel_pipeline(kept.pipeline_id).await?;
                    format!("pipeline {} was cancelled", kept.shown())
                }
                None => "no pipeline is under way".to_owned(),
            };
            Ok(Progress::Done(Completed { text, ..Completed::default() }))
        })
    }

    fn resume<'a>(&'a self, task: &'a Task, checkpoint: Option<&'a Value>) -> Answer<'a, Progress> {
        Box::pin(async move {
            let project = self.project(task)?;
            if task.operation == Operation::Destroy && project.config.destroy == OnDestroy::Cancel {
                return self.destroy(task).await;
            }
            if let Some(kept) = checkpoint.and_then(|kept| Checkpoint::deserialize(kept).ok()) {
                return project.look(kept).await;
            }
            match project.find().await? {
                Some(kept) => project.look(kept).await,
                // One that was asked for just now may not be in the list yet.
                None if !project.is_late(project.config.appears_within_seconds) => {
                    Err(ActionError::transient("it is not yet known whether the pipeline was created"))
                }
                None => project.create().await,
            }
        })
    }

    fn cancel<'a>(&'a self, task: &'a Task, checkpoint: Option<&'a Value>) -> Answer<'a, ()> {
        Box::pin(async move {
            let project = self.project(task)?;
            let kept = checkpoint.and_then(|kept| Checkpoint::deserialize(kept).ok());
            let kept = match kept {
                Some(kept) => Some(kept),
                None => project.find().await?,
            };
            match kept {
                Some(kept) => project.cancel_pipeline(kept.pipeline_id).await,
                None => Ok(()),
            }
        })
    }
}
