//! The `github_actions` plugin against GitHub's own description of its API: every request is one
//! that the description allows, and the answers are GitHub's own examples.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use steersman_infra::action::github::GitHubActions;
use steersman_infra::action::web::{PrivateAddresses, Web, WebOptions};
use steersman_infra::action::{Action, ActionError, Progress, Task};
use steersman_infra::types::Operation;
use xtask::parts::{github_api, or_skip};

use crate::support::answering::{Question, Reply, answering};

/// A server made of the description alone.
struct Described {
    document: Value,
    /// The operations that were asked for.
    asked: BTreeSet<String>,
    /// Requests that the description does not allow.
    complaints: Vec<String>,
}

impl Described {
    /// What a reference in the document stands for.
    fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#')) {
            Some(pointer) => self.resolve(self.document.pointer(pointer).unwrap_or(&Value::Null)),
            None => value,
        }
    }

    fn operation(&self, asked: &Question) -> Option<(String, &Value)> {
        let parts: Vec<&str> = asked.path.split('/').collect();
        let paths = self.document["paths"].as_object()?;
        let fits = |path: &str| {
            let known: Vec<&str> = path.split('/').collect();
            known.len() == parts.len()
                && known.iter().zip(&parts).all(|(known, part)| known.starts_with('{') || known == part)
        };
        // A path without placeholders goes before one with them.
        let (path, methods) =
            paths.iter().filter(|(path, _)| fits(path)).min_by_key(|(path, _)| path.matches('{').count())?;
        let method = asked.method.as_str().to_lowercase();
        Some((format!("{method} {path}"), methods.get(&method)?))
    }

    fn answer(&mut self, asked: &Question) -> Reply {
        let Some((name, operation)) = self.operation(asked) else {
            self.complaints.push(format!("there is no {} {}", asked.method, asked.path));
            return Reply::new(404, Value::Null);
        };
        let operation = operation.clone();
        let mut complaints = Vec::new();
        let parameters: Vec<&Value> =
            operation["parameters"].as_array().into_iter().flatten().map(|it| self.resolve(it)).collect();
        for pair in asked.query.split('&').filter(|pair| !pair.is_empty()) {
            let field = pair.split('=').next().unwrap_or_default();
            if !parameters.iter().any(|it| it["in"] == "query" && it["name"] == field) {
                complaints.push(format!("{name} has no parameter {field}"));
            }
        }
        if let Some(schema) = operation.pointer("/requestBody/content/application~1json/schema") {
            // The body may refer to any part of the document.
            let mut root = schema.as_object().cloned().unwrap_or_default();
            root.insert("components".into(), self.document["components"].clone());
            let validator = jsonschema::validator_for(&Value::Object(root)).expect("a schema");
            complaints.extend(validator.iter_errors(&asked.body).map(|error| format!("{name}: {error}")));
        }
        let reply = self.example(&operation);
        self.complaints.extend(complaints);
        self.asked.insert(name);
        reply
    }

    /// The first success that is described, with its example.
    fn example(&self, operation: &Value) -> Reply {
        let responses = operation["responses"].as_object().cloned().unwrap_or_default();
        let (code, response) = responses.iter().find(|(code, _)| code.starts_with('2')).expect("a success");
        let content =
            self.resolve(response).pointer("/content/application~1json").cloned().unwrap_or_default();
        let example = content["examples"].as_object().and_then(|all| all.values().next().cloned());
        let example = example.map(|example| self.resolve(&example)["value"].clone()).unwrap_or_default();
        Reply::new(code.parse().expect("a code"), example)
    }
}

fn task(url: &str) -> Task {
    let now = Timestamp::from_second(1_800_000_000).expect("a time");
    let config = json!({"api_url": url, "token": "t", "owner": "octocat", "repo": "hello-world",
        "workflow": "deploy.yml", "correlation_input": "run"});
    Task {
        attempt: "attempt-1".into(),
        started_at: now,
        operation: Operation::Apply,
        name: "pg".into(),
        namespace: "default".into(),
        uid: "u".into(),
        type_name: "T".into(),
        type_version: "v1".into(),
        generation: 1,
        // The most that GitHub takes, with the one that tells runs apart.
        parameters: (0..24).map(|index| (format!("p{index}"), json!({"nested": index}))).collect(),
        config: config.as_object().cloned().unwrap_or_default(),
        last_run: None,
        outputs: Map::new(),
        now,
    }
}

#[tokio::test]
async fn every_request_is_one_that_githubs_description_allows() {
    let Some(path) = or_skip(github_api()) else {
        return;
    };
    let document: Value =
        serde_json::from_slice(&std::fs::read(path).expect("the description")).expect("JSON");
    let server = Described { document, asked: BTreeSet::new(), complaints: Vec::new() };
    let server = Arc::new(Mutex::new(server));
    let shared = Arc::clone(&server);
    let url = answering(move |asked| shared.lock().expect("the server").answer(&asked)).await;
    let options = WebOptions { private_addresses: PrivateAddresses::Allow, ..WebOptions::default() };
    let plugin = GitHubActions::new(Web::new(options).expect("a client"));
    let task = task(&url);

    let begun = plugin.apply(&task).await.expect("GitHub's own answer is understood");
    let Progress::Running { checkpoint, .. } = begun else {
        panic!("not running: {begun:?}");
    };
    assert!(checkpoint["run_id"].is_i64(), "{checkpoint}");
    // GitHub's example of a run is queued.
    let looked = plugin.resume(&task, Some(&checkpoint)).await.expect("an answer");
    assert!(matches!(looked, Progress::Running { .. }), "{looked:?}");
    // Its list of runs has none of ours.
    let searched = plugin.resume(&task, None).await;
    assert!(matches!(searched, Err(ActionError::Transient { .. })), "{searched:?}");
    plugin.cancel(&task, Some(&checkpoint)).await.expect("cancelled");

    let server = server.lock().expect("the server");
    assert_eq!(server.complaints, Vec::<String>::new());
    let base = "/repos/{owner}/{repo}/actions";
    let expected = [
        format!("get {base}/runs/{{run_id}}"),
        format!("get {base}/workflows/{{workflow_id}}/runs"),
        format!("post {base}/runs/{{run_id}}/cancel"),
        format!("post {base}/workflows/{{workflow_id}}/dispatches"),
    ];
    assert_eq!(server.asked.iter().cloned().collect::<Vec<_>>(), expected);
}
