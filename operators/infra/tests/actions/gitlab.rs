//! The `gitlab` plugin against a strict stand-in that keeps state as GitLab does.

use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use steersman_infra::action::gitlab::GitLab;
use steersman_infra::action::{Action, ActionError, Progress, Task};
use steersman_infra::types::Operation;

use crate::support::answering::{Question, Reply, answering};
use crate::support::service::web;
use crate::tasks::{NOW, checkpoint, task};

/// What the stand-in knows.
#[derive(Default)]
struct Lab {
    /// Variables and status of each pipeline, by number from 1.
    pipelines: Vec<(Vec<Value>, String)>,
    created: u32,
    cancelled: Vec<String>,
    /// The answer to every request, instead of the right one.
    refusal: Option<Reply>,
    /// Whether creating works and the answer is an error all the same.
    loses_answers: bool,
}

impl Lab {
    fn shown(&self, id: usize) -> Option<Value> {
        let (_, status) = self.pipelines.get(id.checked_sub(1)?)?;
        Some(json!({"id": id, "iid": id, "project_id": 7, "sha": "a91957a858320c0e17f3a0eca7cfacbff50ea29a",
            "ref": "main", "status": status, "source": "api", "web_url": format!("https://gitlab.test/p/{id}")}))
    }

    /// As the documentation of the API has it, strictly: what GitLab would refuse is refused.
    fn answer(&mut self, asked: &Question) -> Reply {
        if let Some(refusal) = &self.refusal {
            return refusal.clone();
        }
        if asked.headers.get("private-token").is_none_or(|token| token != "glpat-x") {
            return Reply::new(401, json!({"message": "401 Unauthorized"}));
        }
        let Some(path) = asked.path.strip_prefix("/api/v4/projects/acme%2Finfra/") else {
            return Reply::new(404, json!({"message": "404 Project Not Found"}));
        };
        match (asked.method.as_str(), path.split('/').collect::<Vec<_>>().as_slice()) {
            ("POST", ["pipeline"]) => self.create(&asked.body),
            ("GET", ["pipelines"]) => {
                for part in ["ref=main", "source=api", "updated_after=20", "order_by=id"] {
                    assert!(asked.query.contains(part), "{}", asked.query);
                }
                let all: Vec<Value> =
                    (1..=self.pipelines.len()).rev().filter_map(|id| self.shown(id)).collect();
                Reply::new(200, all.into())
            }
            (method, ["pipelines", id, rest @ ..]) => {
                let number: usize = id.parse().unwrap_or(0);
                let Some(shown) = self.shown(number) else {
                    return Reply::new(404, json!({"message": "404 Not found"}));
                };
                match (method, rest) {
                    ("GET", []) => Reply::new(200, shown),
                    ("GET", ["variables"]) => Reply::new(200, self.pipelines[number - 1].0.clone().into()),
                    ("GET", ["jobs"]) => Reply::new(
                        200,
                        json!([{"id": 6, "name": "deploy", "stage": "prod",
                        "status": shown["status"], "started_at": "2026-01-01T00:00:00Z", "finished_at": null,
                        "artifacts": [{"file_type": "archive", "size": 1000, "filename": "artifacts.zip", "file_format": "zip"},
                            {"file_type": "trace", "size": 1500, "filename": "job.log", "file_format": "raw"}]}]),
                    ),
                    ("POST", ["cancel"]) => {
                        self.cancelled.push((*id).to_owned());
                        self.pipelines[number - 1].1 = "canceled".into();
                        Reply::new(200, shown)
                    }
                    _ => Reply::new(405, json!({"error": "405 Not Allowed"})),
                }
            }
            _ => Reply::new(404, json!({"error": "404 Not Found"})),
        }
    }

    fn create(&mut self, body: &Value) -> Reply {
        if body["ref"] != "main" {
            return Reply::new(400, json!({"message": {"base": ["Reference not found"]}}));
        }
        let variables = body["variables"].as_array().cloned().unwrap_or_default();
        for variable in &variables {
            let key = variable["key"].as_str().unwrap_or_default();
            let fine =
                !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if !fine || !variable["value"].is_string() {
                return Reply::new(400, json!({"error": "variables is invalid"}));
            }
        }
        self.created += 1;
        self.pipelines.push((variables, "created".into()));
        match self.loses_answers {
            true => Reply::new(502, json!({"message": "Bad Gateway"})),
            false => Reply::new(201, self.shown(self.pipelines.len()).unwrap_or_default()),
        }
    }
}

struct Setting {
    lab: Arc<Mutex<Lab>>,
    plugin: GitLab,
    url: String,
}

async fn setting() -> Setting {
    let lab: Arc<Mutex<Lab>> = Arc::default();
    let server = Arc::clone(&lab);
    let url = answering(move |asked| server.lock().expect("the lab").answer(&asked)).await;
    Setting { lab, plugin: GitLab::new(web()), url: format!("{url}/api/v4") }
}

impl Setting {
    fn lab(&self) -> MutexGuard<'_, Lab> {
        self.lab.lock().expect("the lab")
    }

    /// A task that began `seconds` ago.
    fn task(&self, seconds: u64, more: &Value) -> Task {
        let config = json!({"api_url": self.url, "token": "glpat-x", "project": "acme/infra"});
        task(seconds, config, more)
    }
}

#[tokio::test]
async fn a_pipeline_is_created_followed_and_its_jobs_and_artifacts_are_outputs() {
    let setting = setting().await;
    let task = setting.task(0, &json!({}));
    setting.plugin.validate(&task).await.expect("complete");
    let kept = checkpoint(&setting.plugin.apply(&task).await.expect("created"));
    assert_eq!(kept["pipeline_id"], 1);
    let variables = json!(setting.lab().pipelines[0].0);
    for (key, value) in [
        ("storage_gb", "5"),
        ("engine", "pg"),
        ("STEERSMAN_RUN", "attempt-1"),
        ("STEERSMAN_OPERATION", "apply"),
    ] {
        assert!(
            variables.as_array().is_some_and(|all| all.contains(&json!({"key": key, "value": value}))),
            "{variables}"
        );
    }
    for status in
        ["waiting_for_resource", "preparing", "pending", "running", "manual", "scheduled", "canceling"]
    {
        setting.lab().pipelines[0].1 = status.into();
        checkpoint(&setting.plugin.resume(&task, Some(&kept)).await.expect("under way"));
    }
    setting.lab().pipelines[0].1 = "success".into();
    let Progress::Done(done) = setting.plugin.resume(&task, Some(&kept)).await.expect("an answer") else {
        panic!("not done");
    };
    assert_eq!(
        done.outputs["artifacts"],
        json!([{"name": "artifacts.zip", "job": "deploy", "size_in_bytes": 1000}])
    );
    assert_eq!(done.outputs["jobs"][0]["name"], "deploy");
    assert_eq!(done.changes.map(|changes| changes.created), Some(1));
    for status in ["failed", "canceled", "skipped"] {
        setting.lab().pipelines[0].1 = status.into();
        let ended = setting.plugin.resume(&task, Some(&kept)).await.expect("an answer");
        assert!(matches!(&ended, Progress::Failed { message, .. } if message.contains(status)), "{ended:?}");
    }
    assert_eq!(setting.lab().created, 1);
}

#[tokio::test]
async fn after_a_crash_a_pipeline_that_was_created_is_adopted_and_one_that_was_not_is_created_once() {
    let setting = setting().await;
    let task = setting.task(60, &json!({}));
    setting.lab().loses_answers = true;
    let lost = setting.plugin.apply(&task).await;
    assert!(matches!(lost, Err(ActionError::Unknown(_))), "{lost:?}");
    setting.lab().loses_answers = false;
    // Others are created at the same time.
    setting
        .lab()
        .pipelines
        .push((vec![json!({"key": "STEERSMAN_RUN", "value": "another"})], "running".into()));
    let kept = checkpoint(&setting.plugin.resume(&task, None).await.expect("adopted"));
    assert_eq!((kept["pipeline_id"].as_i64(), setting.lab().created), (Some(1), 1));

    let early = Task { attempt: "attempt-2".into(), ..setting.task(5, &json!({})) };
    let unknown = setting.plugin.resume(&early, None).await;
    assert!(matches!(unknown, Err(ActionError::Transient { .. })), "it may yet appear: {unknown:?}");
    let late = Task { attempt: "attempt-2".into(), ..setting.task(60, &json!({})) };
    setting.plugin.resume(&late, None).await.expect("created");
    assert_eq!(setting.lab().created, 2);
}

#[tokio::test]
async fn deleting_cancels_what_is_under_way_or_runs_a_pipeline_that_takes_away() {
    let setting = setting().await;
    let task = setting.task(0, &json!({}));
    let kept = checkpoint(&setting.plugin.apply(&task).await.expect("created"));
    setting.plugin.cancel(&task, Some(&kept)).await.expect("cancelled");
    setting.plugin.cancel(&task, None).await.expect("found and cancelled");
    assert_eq!(setting.lab().cancelled, ["1", "1"]);
    let over = json!({"pipeline_id": 1, "status": "success"});
    let gone = Task { operation: Operation::Destroy, last_run: Some(over), ..task.clone() };
    let done = setting.plugin.destroy(&gone).await.expect("an answer");
    assert!(matches!(&done, Progress::Done(done) if done.text == "no pipeline is under way"), "{done:?}");

    let gone = Task {
        operation: Operation::Destroy,
        attempt: "attempt-3".into(),
        ..setting.task(0, &json!({"destroy": "pipeline"}))
    };
    let kept = checkpoint(&setting.plugin.destroy(&gone).await.expect("created"));
    assert!(
        setting.lab().pipelines[1].0.contains(&json!({"key": "STEERSMAN_OPERATION", "value": "destroy"}))
    );
    setting.lab().pipelines[1].1 = "success".into();
    let done = setting.plugin.resume(&gone, Some(&kept)).await.expect("an answer");
    assert!(matches!(&done, Progress::Done(done) if done.outputs.is_empty()), "{done:?}");
}

#[tokio::test]
async fn a_pipeline_that_takes_too_long_is_cancelled_and_has_failed() {
    let setting = setting().await;
    let task = setting.task(100, &json!({"timeout_seconds": 50}));
    let kept = checkpoint(&setting.plugin.apply(&task).await.expect("created"));
    let ended = setting.plugin.resume(&task, Some(&kept)).await.expect("an answer");
    assert!(
        matches!(&ended, Progress::Failed { message, .. } if message.contains("took longer than 50 s")),
        "{ended:?}"
    );
    assert_eq!(setting.lab().cancelled, ["1"]);
}

#[tokio::test]
async fn refusals_are_sorted_and_rate_limits_are_honoured() {
    let setting = setting().await;
    let task = setting.task(0, &json!({}));
    let said = || json!({"message": "no"});
    let cases = [
        (Reply::new(400, said()), "permanent", None),
        (Reply::new(401, said()), "permanent", None),
        (Reply::new(403, said()), "permanent", None),
        (Reply::new(404, said()), "permanent", None),
        (Reply::new(429, said()).with("retry-after", 17), "transient", Some(17)),
        (
            Reply::new(429, said()).with("ratelimit-remaining", 0).with("ratelimit-reset", NOW + 42),
            "transient",
            Some(42),
        ),
        (Reply::new(503, said()), "unknown", None),
    ];
    for (refusal, expected, wait) in cases {
        let code = refusal.code;
        setting.lab().refusal = Some(refusal);
        let (found, after) = match setting.plugin.apply(&task).await.expect_err("refused") {
            ActionError::Permanent(_) => ("permanent", None),
            ActionError::Transient { retry_after, .. } => ("transient", retry_after.map(|it| it.as_secs())),
            ActionError::Unknown(_) => ("unknown", None),
        };
        assert_eq!((found, after), (expected, wait), "{code}");
    }
    let mut bare = task.clone();
    bare.config.remove("project");
    let error = setting.plugin.validate(&bare).await.expect_err("incomplete").to_string();
    assert!(error.starts_with("gitlab needs project: put it into plugin_config"), "{error}");
    let mut bare = task;
    bare.config.remove("token");
    let error = setting.plugin.validate(&bare).await.expect_err("incomplete").to_string();
    assert!(error.starts_with("gitlab needs token"), "{error}");
}
