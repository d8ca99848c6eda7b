//! The `github_actions` plugin against a strict stand-in, where things go wrong.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use steersman_infra::action::github::GitHubActions;
use steersman_infra::action::{Action, ActionError, Progress, Task};

use crate::support::answering::Question;
use crate::support::service::web;
use crate::support::stand_in;
use crate::tasks::{checkpoint, task};

/// What the stand-in knows.
#[derive(Default)]
struct Hub {
    /// Title and status of each run, by number from 1.
    runs: Vec<(String, String)>,
    dispatches: u32,
    cancelled: Vec<String>,
    /// Whether dispatches are answered with the run's number.
    names_runs: bool,
    /// The answer to every request, instead of the right one.
    refusal: Option<(u16, Value)>,
}

impl Hub {
    fn answer(&mut self, asked: &Question) -> (u16, Value) {
        if let Some(refusal) = &self.refusal {
            return refusal.clone();
        }
        let path = asked.path.trim_start_matches("/repos/acme/infra/actions/").to_owned();
        let shown = |(index, (title, status)): (usize, &(String, String))| {
            let conclusion = if status == "completed" { json!("success") } else { Value::Null };
            json!({"id": index + 1, "display_title": title, "name": "Deploy", "status": status, "conclusion": conclusion,
                "event": "workflow_dispatch"})
        };
        match (asked.method.as_str(), path.split('/').collect::<Vec<_>>().as_slice()) {
            ("POST", ["workflows", "deploy.yml", "dispatches"]) => {
                self.dispatches += 1;
                let title = asked.body["inputs"]["run"].as_str().unwrap_or("Deploy").to_owned();
                self.runs.push((format!("run {title}"), "in_progress".into()));
                match self.names_runs {
                    true => (
                        200,
                        json!({"workflow_run_id": self.runs.len(), "html_url": "https://github.test/1"}),
                    ),
                    false => (204, Value::Null),
                }
            }
            ("GET", ["workflows", "deploy.yml", "runs"]) => {
                assert!(asked.query.contains("event=workflow_dispatch"), "{}", asked.query);
                let runs: Vec<Value> = self.runs.iter().enumerate().map(shown).collect();
                (200, json!({"total_count": runs.len(), "workflow_runs": runs}))
            }
            ("GET", ["runs", id]) => {
                let index = id.parse::<usize>().unwrap_or(0).wrapping_sub(1);
                self.runs.get(index).map_or((404, Value::Null), |run| (200, shown((index, run))))
            }
            ("POST", ["runs", id, "cancel"]) => {
                self.cancelled.push((*id).to_owned());
                (202, json!({}))
            }
            ("GET", ["runs", _, list]) => (200, json!({*list: []})),
            _ => (404, json!({"message": "Not Found"})),
        }
    }
}

struct Setting {
    hub: Arc<Mutex<Hub>>,
    plugin: GitHubActions,
    url: String,
}

async fn setting(names_runs: bool) -> Setting {
    let hub = Arc::new(Mutex::new(Hub { names_runs, ..Hub::default() }));
    let server = Arc::clone(&hub);
    let url = stand_in(move |asked| server.lock().expect("the hub").answer(&asked)).await;
    Setting { hub, plugin: GitHubActions::new(web()), url }
}

impl Setting {
    /// A task that began `seconds` ago.
    fn task(&self, seconds: u64, more: &Value) -> Task {
        let config = json!({"api_url": self.url, "token": "t", "owner": "acme", "repo": "infra", "workflow": "deploy.yml"});
        task(seconds, config, more)
    }

    fn hub(&self) -> std::sync::MutexGuard<'_, Hub> {
        self.hub.lock().expect("the hub")
    }
}

fn correlated() -> Value {
    json!({"correlation_input": "run"})
}

#[tokio::test]
async fn a_server_that_does_not_name_runs_is_searched_for_ours() {
    let setting = setting(false).await;
    let task = setting.task(0, &correlated());
    setting.hub().runs.push(("somebody else's".into(), "in_progress".into()));
    let kept = checkpoint(&setting.plugin.apply(&task).await.expect("begun"));
    assert_eq!(kept, json!({}));
    let kept = checkpoint(&setting.plugin.resume(&task, Some(&kept)).await.expect("found"));
    assert_eq!(kept["run_id"], 2);
    setting.hub().runs[1].1 = "completed".into();
    let done = setting.plugin.resume(&task, Some(&kept)).await.expect("an answer");
    assert!(matches!(done, Progress::Done(_)), "{done:?}");
}

#[tokio::test]
async fn after_a_crash_a_run_that_was_begun_is_adopted_and_one_that_was_not_is_begun_once() {
    let setting = setting(true).await;
    let task = setting.task(60, &correlated());
    setting.plugin.apply(&task).await.expect("begun");
    let kept = checkpoint(&setting.plugin.resume(&task, None).await.expect("adopted"));
    assert_eq!((kept["run_id"].as_i64(), setting.hub().dispatches), (Some(1), 1));

    let other = Task { attempt: "attempt-2".into(), ..setting.task(5, &correlated()) };
    let early = setting.plugin.resume(&other, None).await;
    assert!(matches!(early, Err(ActionError::Transient { .. })), "a run may yet appear: {early:?}");
    let other = Task { attempt: "attempt-2".into(), ..setting.task(60, &correlated()) };
    setting.plugin.resume(&other, None).await.expect("begun");
    assert_eq!(setting.hub().dispatches, 2);
}

#[tokio::test]
async fn a_run_that_cannot_be_told_apart_is_never_guessed() {
    let setting = setting(true).await;
    setting.hub().runs.push(("Deploy".into(), "in_progress".into()));
    let task = setting.task(60, &json!({}));
    let error = setting.plugin.resume(&task, None).await.expect_err("unknown");
    assert!(matches!(&error, ActionError::Permanent(why) if why.contains("correlation_input")), "{error}");
    assert_eq!(setting.hub().dispatches, 0);
}

#[tokio::test]
async fn a_run_that_takes_too_long_is_cancelled_and_has_failed() {
    let setting = setting(true).await;
    let task = setting.task(100, &json!({"timeout_seconds": 50}));
    let kept = checkpoint(&setting.plugin.apply(&task).await.expect("begun"));
    let ended = setting.plugin.resume(&task, Some(&kept)).await.expect("an answer");
    assert!(
        matches!(&ended, Progress::Failed { message, .. } if message.contains("took longer than 50 s")),
        "{ended:?}"
    );
    assert_eq!(setting.hub().cancelled, ["1"]);
}

#[tokio::test]
async fn refusals_are_sorted_into_those_that_pass_and_those_that_do_not() {
    let setting = setting(true).await;
    let task = setting.task(0, &json!({}));
    let kinds =
        [(401, "permanent"), (404, "permanent"), (422, "permanent"), (429, "transient"), (502, "unknown")];
    for (code, expected) in kinds {
        setting.hub().refusal = Some((code, json!({"message": "no"})));
        let found = match setting.plugin.apply(&task).await.expect_err("refused") {
            ActionError::Permanent(_) => "permanent",
            ActionError::Transient { .. } => "transient",
            ActionError::Unknown(_) => "unknown",
        };
        assert_eq!(found, expected, "{code}");
    }
    let mut bare = task.clone();
    bare.config.remove("owner");
    let error = setting.plugin.validate(&bare).await.expect_err("incomplete").to_string();
    assert!(error.starts_with("github_actions needs owner: put it into plugin_config"), "{error}");
}

#[tokio::test]
async fn more_inputs_than_github_takes_become_one() {
    let setting = setting(true).await;
    let mut task = setting.task(0, &correlated());
    task.parameters = (0..30).map(|index| (format!("p{index}"), json!(index))).collect();
    setting.plugin.apply(&task).await.expect("begun");
    assert_eq!(setting.hub().runs[0].0, "run attempt-1");
}
