//! The `http` plugin: configured requests to any API.
//!
//! ```json
//! {
//!   "base_url": "https://api.example.com/v1",
//!   "headers": {"Authorization": "Bearer …"},
//!   "apply":   {"method": "PUT", "path": "/clusters/{{ name }}", "body": {"size": "{{ parameters.size }}"}},
//!   "destroy": {"method": "DELETE", "path": "/clusters/{{ name }}"},
//!   "read":    {"path": "/clusters/{{ name }}", "at": "/spec"},
//!   "poll":    {"path": "/operations/{{ response.id }}", "done": {"at": "/state", "in": ["succeeded"]}},
//!   "outputs": {"endpoint": "/endpoint"}
//! }
//! ```
//! Every request of an attempt that changes something carries the same `Idempotency-Key`, so that
//! repeating one after a crash is taken as the same request.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::template::Scope;
use super::web::{Web, WebAnswer};
use super::{
    Action, ActionError, Answer, Capability, Changes, Completed, Description, Drift, Needed, Plan, Progress,
    Task,
};
use crate::types::Operation;

/// The longest time that one answer may take; a worker waits for it. What takes longer is polled.
const LONGEST: u64 = 300;

/// Acts by configured HTTP requests.
#[derive(Clone, Debug)]
pub struct Http {
    web: Web,
}

/// What is configured.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    #[serde(default)]
    base_url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    apply: Call,
    destroy: Option<Call>,
    read: Option<Read>,
    poll: Option<Poll>,
    #[serde(default)]
    outputs: BTreeMap<String, String>,
    /// How long an answer may take.
    timeout_seconds: Option<u64>,
}

/// A request that changes something.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    method: Option<String>,
    path: String,
    body: Option<Value>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Status codes that mean success.
    expect: Option<Vec<u16>>,
}

/// How to see what there is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    path: String,
    /// Where in the answer that is which is compared with the body of `apply`.
    #[serde(default)]
    at: String,
}

/// How to wait for what goes on elsewhere.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Poll {
    path: String,
    done: Condition,
    failed: Option<Condition>,
    #[serde(default = "five")]
    interval_seconds: u64,
    #[serde(default = "hour")]
    timeout_seconds: u64,
}

fn five() -> u64 {
    5
}

fn hour() -> u64 {
    3600
}

/// Holds when what is at a place is one of some values.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Condition {
    at: String,
    r#in: Vec<Value>,
}

impl Condition {
    fn holds(&self, body: &Value) -> bool {
        body.pointer(&self.at).is_some_and(|found| self.r#in.contains(found))
    }
}

/// What is kept while waiting.
#[derive(Debug, Serialize, Deserialize)]
struct Checkpoint {
    response: Value,
}

impl Http {
    /// The plugin, making its requests with `web`.
    pub fn new(web: Web) -> Self {
        Self { web }
    }

    async fn call(&self, config: &Config, task: &Task) -> Result<Progress, ActionError> {
        let (call, usual, expected): (&Call, &str, &[u16]) = match task.operation {
            Operation::Apply => (&config.apply, "PUT", &[200, 201, 202, 204]),
            Operation::Destroy => match &config.destroy {
                Some(destroy) => (destroy, "DELETE", &[200, 202, 204, 404, 410]),
                None => {
                    let text = "no destroy request is configured: nothing was done".to_owned();
                    return Ok(Progress::Done(Completed { text, ..Completed::default() }));
                }
            },
        };
        let scope = Scope::of(task);
        let method = call.method.as_deref().unwrap_or(usual);
        let body = body(call, method, task, &scope)?;
        let answer =
            self.send(config, method, &call.path, &call.headers, body.as_ref(), task, &scope).await?;
        let what = format!("{method} {}", scope.url(&call.path)?);
        let code = answer.status.as_u16();
        if !call.expect.as_deref().unwrap_or(expected).contains(&code) {
            if answer.status.is_redirection() {
                let to = answer.headers.get("location").and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
                return Err(ActionError::permanent(format!(
                    "{what}: HTTP {code} to {to}: redirects are not followed; configure the final address"
                )));
            }
            return Err(match (code, answer.error(&what, task.now)) {
                // A gateway has lost the answer of the server behind it: it may have been done.
                (502 | 504, error) => ActionError::Unknown(error.to_string()),
                (_, error) => error,
            });
        }
        let polled = config.poll.is_some() && task.operation == Operation::Apply;
        Ok(match (&config.poll, polled) {
            (Some(poll), true) => Progress::Running {
                checkpoint: json!(Checkpoint { response: answer.body }),
                after: Duration::from_secs(poll.interval_seconds),
                message: format!("{what}: accepted, waiting"),
            },
            _ => Progress::Done(completed(config, task, &answer.body, format!("{what}: HTTP {code}"))),
        })
    }

    /// Sends a request again of which it is not known whether it arrived. What can be seen to be
    /// done is not; otherwise the key is the same as before, which makes it the same request.
    async fn repeat(&self, config: &Config, task: &Task) -> Result<Progress, ActionError> {
        if let (Some(read), Operation::Apply, None) = (&config.read, task.operation, &config.poll)
            && matches!(self.compare(config, read, task).await?, Comparison::Same)
        {
            let outputs = task.outputs.clone();
            return Ok(Progress::Done(Completed {
                outputs,
                text: "it was done before".into(),
                ..Completed::default()
            }));
        }
        self.call(config, task).await
    }

    async fn poll(
        &self,
        config: &Config,
        poll: &Poll,
        task: &Task,
        kept: Checkpoint,
    ) -> Result<Progress, ActionError> {
        let scope = Scope::of(task).with_response(kept.response.clone());
        let answer = self.send(config, "GET", &poll.path, &BTreeMap::new(), None, task, &scope).await?;
        let what = format!("GET {}", scope.url(&poll.path)?);
        if !answer.status.is_success() {
            return Err(answer.error(&what, task.now));
        }
        if poll.done.holds(&answer.body) {
            return Ok(Progress::Done(completed(config, task, &answer.body, format!("{what}: done"))));
        }
        let failed = poll.failed.as_ref().is_some_and(|failed| failed.holds(&answer.body));
        let waited = task.now.duration_since(task.started_at).as_secs();
        let late = waited > i64::try_from(poll.timeout_seconds).unwrap_or(i64::MAX);
        if failed || late {
            let why = if failed { "failed" } else { "is not done in time" };
            let message = format!("{what}: the action {why}: {}", brief(&answer.body));
            return Ok(Progress::Failed { message, last_run: None });
        }
        Ok(Progress::Running {
            checkpoint: json!(kept),
            after: Duration::from_secs(poll.interval_seconds),
            message: format!("{what}: {}", brief(&answer.body)),
        })
    }

    /// What there is and what should be: nothing there, the same, or what differs.
    async fn compare(&self, config: &Config, read: &Read, task: &Task) -> Result<Comparison, ActionError> {
        let scope = Scope::of(task);
        let answer = self.send(config, "GET", &read.path, &BTreeMap::new(), None, task, &scope).await?;
        if matches!(answer.status.as_u16(), 404 | 410) {
            return Ok(Comparison::Missing);
        }
        let what = format!("GET {}", scope.url(&read.path)?);
        if !answer.status.is_success() {
            return Err(answer.error(&what, task.now));
        }
        let found = answer.body.pointer(&read.at).unwrap_or(&Value::Null);
        let wanted = body(&config.apply, "PUT", task, &scope)?.unwrap_or(Value::Null);
        let mut differences = Vec::new();
        differ("", &wanted, found, &mut differences);
        Ok(match differences.is_empty() {
            true => Comparison::Same,
            false => Comparison::Different(differences.join("; ")),
        })
    }

    #[expect(clippy::too_many_arguments, reason = "one request is made of that many parts")]
    async fn send(
        &self,
        config: &Config,
        method: &str,
        path: &str,
        headers: &BTreeMap<String, String>,
        body: Option<&Value>,
        task: &Task,
        scope: &Scope,
    ) -> Result<WebAnswer, ActionError> {
        let parsed: Method = method
            .to_uppercase()
            .parse()
            .map_err(|_| ActionError::permanent(format!("{method:?} is no HTTP method")))?;
        let path = scope.url(path)?;
        let url = match path.starts_with("http://") || path.starts_with("https://") {
            true => path,
            false => format!("{}/{}", config.base_url.trim_end_matches('/'), path.trim_start_matches('/')),
        };
        let mut fields = HeaderMap::new();
        // What is configured for one address goes to no other.
        let origin = |url: &str| {
            url.parse::<http::Uri>().ok().map(|uri| (uri.scheme().cloned(), uri.authority().cloned()))
        };
        let home = config.base_url.is_empty() || origin(&config.base_url) == origin(&url);
        let shared = config.headers.iter().filter(|_| home);
        for (name, value) in shared.chain(headers) {
            let value = scope.text(value, ToOwned::to_owned)?;
            let pair = (HeaderName::try_from(name), HeaderValue::try_from(value));
            let (Ok(name), Ok(value)) = pair else {
                return Err(ActionError::permanent(format!(
                    "the header {name:?} is not one that can be sent"
                )));
            };
            fields.insert(name, value);
        }
        if parsed != Method::GET
            && let Ok(key) = HeaderValue::try_from(&task.attempt)
        {
            fields.insert("idempotency-key", key);
        }
        let web = match config.timeout_seconds {
            Some(seconds) => &self.web.within(Duration::from_secs(seconds)),
            None => &self.web,
        };
        web.send(parsed, &url, fields, body).await
    }
}

enum Comparison {
    Missing,
    Same,
    Different(String),
}

impl Action for Http {
    fn describe(&self) -> Description {
        Description::new("http", "1.0.0", [Capability::Plan, Capability::DetectDrift])
    }

    fn validate<'a>(&'a self, task: &'a Task) -> Answer<'a, ()> {
        Box::pin(std::future::ready(check(task)))
    }

    fn plan<'a>(&'a self, task: &'a Task) -> Answer<'a, Plan> {
        Box::pin(async move {
            let config = config(task)?;
            let create = Changes { created: 1, ..Changes::default() };
            let update = Changes { updated: 1, ..Changes::default() };
            if task.operation == Operation::Destroy {
                let changes = Changes { deleted: 1, ..Changes::default() };
                return Ok(Plan { needed: Needed::Yes, changes, text: "1 to delete".into() });
            }
            let Some(read) = &config.read else {
                let changes = if task.outputs.is_empty() && task.generation == 1 { create } else { update };
                return Ok(Plan { needed: Needed::Yes, changes, text: "1 to create or update".into() });
            };
            Ok(match self.compare(&config, read, task).await? {
                Comparison::Missing => {
                    Plan { needed: Needed::Yes, changes: create, text: "1 to create".into() }
                }
                Comparison::Same => {
                    Plan { needed: Needed::No, changes: Changes::default(), text: "nothing to change".into() }
                }
                Comparison::Different(what) => {
                    Plan { needed: Needed::Yes, changes: update, text: format!("1 to update: {what}") }
                }
            })
        })
    }

    fn apply<'a>(&'a self, task: &'a Task) -> Answer<'a, Progress> {
        Box::pin(async move { self.call(&config(task)?, task).await })
    }

    fn destroy<'a>(&'a self, task: &'a Task) -> Answer<'a, Progress> {
        Box::pin(async move { self.call(&config(task)?, task).await })
    }

    fn resume<'a>(&'a self, task: &'a Task, checkpoint: Option<&'a Value>) -> Answer<'a, Progress> {
        Box::pin(async move {
            let config = config(task)?;
            let kept = checkpoint.and_then(|kept| Checkpoint::deserialize(kept).ok());
            match (&config.poll, kept) {
                (Some(poll), Some(kept)) => self.poll(&config, poll, task, kept).await,
                _ => self.repeat(&config, task).await,
            }
        })
    }

    fn detect_drift<'a>(&'a self, task: &'a Task) -> Answer<'a, Drift> {
        Box::pin(async move {
            let config = config(task)?;
            let Some(read) = &config.read else {
                return Ok(Drift::None);
            };
            Ok(match self.compare(&config, read, task).await? {
                Comparison::Same => Drift::None,
                Comparison::Missing => Drift::Found("it is gone".into()),
                Comparison::Different(what) => Drift::Found(what),
            })
        })
    }
}

/// Whether the requests can be made of what there is.
fn check(task: &Task) -> Result<(), ActionError> {
    let config = config(task)?;
    if let Some(seconds) = config.timeout_seconds.filter(|seconds| !(1..=LONGEST).contains(seconds)) {
        return Err(ActionError::permanent(format!(
            "timeout_seconds of the http plugin is {seconds}, and should be from 1 to {LONGEST}"
        )));
    }
    let scope = Scope::of(task);
    for call in [Some(&config.apply), config.destroy.as_ref()].into_iter().flatten() {
        scope.url(&call.path)?;
        if config.base_url.is_empty() && !call.path.starts_with("http") {
            return Err(ActionError::permanent(
                "the http plugin needs base_url, or paths that begin with http:// or https://; put it into plugin_config",
            ));
        }
    }
    body(&config.apply, "PUT", task, &scope).map(|_| ())
}

fn config(task: &Task) -> Result<Config, ActionError> {
    serde_json::from_value(Value::Object(task.config.clone())).map_err(|error| {
        ActionError::permanent(format!(
            "the configuration of the http plugin is not complete: {error}; put it into plugin_config, or into metadata.action_defaults.http of the type"
        ))
    })
}

/// The body of a request: as configured, or the parameters where one is usual.
fn body(call: &Call, method: &str, task: &Task, scope: &Scope) -> Result<Option<Value>, ActionError> {
    match &call.body {
        Some(body) => scope.fill(body).map(Some),
        None if matches!(method, "GET" | "DELETE" | "HEAD") => Ok(None),
        None => Ok(Some(Value::Object(task.parameters.clone()))),
    }
}

fn completed(config: &Config, task: &Task, body: &Value, text: String) -> Completed {
    let mut outputs = Map::new();
    if task.operation == Operation::Apply {
        for (name, pointer) in &config.outputs {
            let value = body.pointer(pointer).cloned().or_else(|| task.outputs.get(name).cloned());
            outputs.insert(name.clone(), value.unwrap_or(Value::Null));
        }
    }
    Completed { outputs, changes: None, text, last_run: None }
}

/// Every place where what is wanted is not what is found; what nobody asked for may be there.
fn differ(path: &str, wanted: &Value, found: &Value, differences: &mut Vec<String>) {
    const MANY: usize = 20;
    if differences.len() >= MANY {
        return;
    }
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            for (name, wanted) in wanted {
                let found = found.get(name).unwrap_or(&Value::Null);
                differ(&format!("{path}.{name}"), wanted, found, differences);
            }
        }
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            for (index, (wanted, found)) in wanted.iter().zip(found).enumerate() {
                differ(&format!("{path}.{index}"), wanted, found, differences);
            }
        }
        (Value::Number(wanted), Value::Number(found)) if wanted.as_f64() == found.as_f64() => {}
        (wanted, found) if wanted == found => {}
        (wanted, found) => {
            let path = match path.trim_start_matches('.') {
                "" => "it",
                path => path,
            };
            differences.push(format!("{path} is {} instead of {}", brief(found), brief(wanted)));
        }
    }
}

fn brief(value: &Value) -> String {
    let mut text = value.to_string();
    if let Some((end, _)) = text.char_indices().nth(120) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_is_compared() {
        let mut differences = Vec::new();
        let wanted = json!({"size": 5, "tags": ["a"], "deep": {"x": 1.0}});
        differ("", &wanted, &json!({"size": 5, "tags": ["a"], "deep": {"x": 1}, "id": 7}), &mut differences);
        assert!(differences.is_empty(), "{differences:?}");
        differ("", &wanted, &json!({"size": 6, "tags": [], "deep": {}}), &mut differences);
        assert_eq!(
            differences,
            ["deep.x is null instead of 1.0", "size is 6 instead of 5", "tags is [] instead of [\"a\"]"]
        );
    }
}
