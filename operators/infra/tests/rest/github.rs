//! A stand-in for GitHub.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::answering::Question;

/// A strict GitHub: knows one workflow, names its runs, and takes three questions to finish one.
#[derive(Clone, Default)]
pub(crate) struct GitHub(pub(crate) Arc<Mutex<Vec<(Value, u32)>>>);

impl GitHub {
    pub(crate) fn answer(&self, asked: &Question) -> (u16, Value) {
        let header = |name: &str| {
            asked.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        if header("authorization") != "Bearer ghp_secret" {
            return (401, json!({"message": "Bad credentials"}));
        }
        if header("user-agent").is_empty() || header("accept") != "application/vnd.github+json" {
            return (403, json!({"message": "Request forbidden by administrative rules."}));
        }
        let mut runs = self.0.lock().expect("runs");
        let Some(path) = asked.path.strip_prefix("/repos/acme/infra/actions/") else {
            return (404, json!({"message": "Not Found"}));
        };
        let parts: Vec<&str> = path.split('/').collect();
        match (asked.method.as_str(), parts.as_slice()) {
            ("POST", ["workflows", "database.yml", "dispatches"]) => {
                let inputs = asked.body["inputs"].as_object();
                let texts = inputs.is_some_and(|all| all.len() <= 25 && all.values().all(Value::is_string));
                if !asked.body["ref"].is_string() || !texts {
                    return (422, json!({"message": "Invalid request."}));
                }
                runs.push((asked.body["inputs"].clone(), 0));
                let id = runs.len();
                (
                    200,
                    json!({"workflow_run_id": id, "run_url": "x", "html_url": format!("https://github.test/runs/{id}")}),
                )
            }
            ("GET", ["runs", id]) => match id.parse::<usize>().ok().and_then(|id| runs.get_mut(id - 1)) {
                None => (404, json!({"message": "Not Found"})),
                Some((_, asked)) => {
                    *asked += 1;
                    let (status, conclusion) = match asked {
                        1 => ("queued", Value::Null),
                        2 => ("in_progress", Value::Null),
                        _ => ("completed", json!("success")),
                    };
                    (200, json!({"id": id, "status": status, "conclusion": conclusion}))
                }
            },
            ("GET", ["runs", _, "jobs"]) => (
                200,
                json!({"total_count": 1, "jobs": [{"id": 9, "name": "deploy", "status": "completed",
                "conclusion": "success", "started_at": "2024-01-15T10:30:00Z", "completed_at": "2024-01-15T10:35:00Z", "steps": []}]}),
            ),
            ("GET", ["runs", _, "artifacts"]) => (
                200,
                json!({"total_count": 1, "artifacts": [{"id": 3, "name": "build-output", "size_in_bytes": 1_234_567}]}),
            ),
            ("POST", ["runs", _, "cancel"]) => {
                (409, json!({"message": "Cannot cancel a workflow run that is completed."}))
            }
            _ => (404, json!({"message": "Not Found"})),
        }
    }
}
