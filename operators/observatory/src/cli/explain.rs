//! Why a task does not run.

use std::fmt::Write;

use crate::dag::{Graph, check};
use crate::types::{Observatory, ObservatoryStatus, Phase, TaskStatus};

/// Why there is no explanation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// There is no such task.
    #[error("there is no task {task:?}; the tasks are {known}")]
    Unknown {
        /// What was asked for.
        task: String,
        /// What there is.
        known: String,
    },
}

/// Says in sentences where a task stands and what it waits for.
///
/// # Errors
/// When there is no such task.
pub fn explain(workflow: &Observatory, task: &str) -> Result<String, ExplainError> {
    let graph = Graph::new(&workflow.spec.tasks);
    let Some(index) = graph.index(task) else {
        let known: Vec<&str> = workflow.spec.tasks.iter().map(|task| task.name.as_str()).take(50).collect();
        return Err(ExplainError::Unknown { task: task.to_owned(), known: known.join(", ") });
    };
    let nothing = ObservatoryStatus::default();
    let status = workflow.status.as_ref().unwrap_or(&nothing);
    let of = |name: &str| status.tasks.iter().find(|task| task.name == name);
    let own = of(task).cloned().unwrap_or_default();
    let verb = if own.phase.is_over() { "has" } else { "is" };
    let mut out = format!("Task {task} {verb} {}.\n", describe(&own));
    let problems = check(&workflow.spec);
    if !problems.is_empty() {
        out.push_str("The workflow has problems, so nothing starts:\n");
        for problem in problems {
            let _ = writeln!(out, "  {problem}");
        }
        return Ok(out);
    }
    match own.phase {
        Phase::Running | Phase::Succeeded => {}
        Phase::Failed if own.reason.as_deref() == Some("UpstreamFailed") => {
            upstream(workflow, &graph, index, &of, &mut out);
        }
        Phase::Failed => {}
        Phase::Pending => pending(workflow, &graph, index, &own, status, &of, &mut out),
    }
    for attempt in &own.attempts {
        let _ = writeln!(
            out,
            "Attempt {} ended: {}{}.",
            attempt.number + 1,
            attempt.reason.as_deref().unwrap_or("failed"),
            attempt.exit_code.map_or_else(String::new, |code| format!(" (exit code {code})")),
        );
    }
    Ok(out)
}

fn describe(task: &TaskStatus) -> String {
    let mut text = task.phase.as_str().to_lowercase();
    if let Some(reason) = &task.reason {
        let _ = write!(text, " ({reason})");
    }
    if let Some(message) = &task.message {
        let _ = write!(text, ": {message}");
    }
    text
}

/// Follows failures up to where they began.
fn upstream<'a>(
    workflow: &Observatory,
    graph: &Graph,
    task: u32,
    of: &impl Fn(&str) -> Option<&'a TaskStatus>,
    out: &mut String,
) {
    let mut seen = vec![false; graph.len()];
    let mut stack = vec![task];
    while let Some(task) = stack.pop() {
        for &above in graph.dependencies(task) {
            let name = &workflow.spec.tasks[above as usize].name;
            let Some(status) = of(name).filter(|status| status.phase == Phase::Failed) else { continue };
            if std::mem::replace(&mut seen[above as usize], true) {
                continue;
            }
            match status.reason.as_deref() {
                Some("UpstreamFailed") => stack.push(above),
                _ => {
                    let why = status.message.as_deref().unwrap_or("no reason was given");
                    let _ = writeln!(out, "It began with task {name}: {why}.");
                }
            }
        }
    }
}

fn pending<'a>(
    workflow: &Observatory,
    graph: &Graph,
    task: u32,
    own: &TaskStatus,
    status: &ObservatoryStatus,
    of: &impl Fn(&str) -> Option<&'a TaskStatus>,
    out: &mut String,
) {
    if workflow.spec.is_scheduled() && status.last_schedule_time.is_none() {
        let _ = match &status.next_schedule_time {
            Some(next) => writeln!(out, "The workflow is scheduled; its next run is due at {}.", next.0),
            None => writeln!(out, "The workflow is scheduled and has no next run; it may be suspended."),
        };
        return;
    }
    let mut waits = Vec::new();
    for &above in graph.dependencies(task) {
        let name = &workflow.spec.tasks[above as usize].name;
        let phase = of(name).map(|status| status.phase).unwrap_or_default();
        if phase != Phase::Succeeded {
            waits.push(format!("{name} ({})", phase.as_str().to_lowercase()));
        }
    }
    if !waits.is_empty() {
        let _ = writeln!(out, "It waits for {}.", waits.join(", "));
        return;
    }
    if let Some(pod) = &own.pod_name {
        let _ = writeln!(out, "Its pod {pod} exists and its container has not started yet.");
        return;
    }
    if own.reason.as_deref() == Some("Retrying") {
        return;
    }
    if workflow.spec.suspend {
        out.push_str("The workflow is suspended; set spec.suspend to false to go on.\n");
    }
    let busy = status.tasks.iter().filter(|task| !task.phase.is_over() && task.pod_name.is_some()).count();
    if busy >= workflow.spec.concurrency() {
        let _ = writeln!(
            out,
            "{busy} tasks run, and spec.maxConcurrent allows no more than {}; it starts when one of them ends.",
            workflow.spec.concurrency()
        );
    }
    if status.reason.as_deref() == Some("Limited") {
        let why = status.message.as_deref().unwrap_or("all places are taken");
        let _ = writeln!(
            out,
            "It waits for a place: {why}. Workflows of higher spec.priority go first, then those that wait longer."
        );
    }
    if status.phase.is_none() {
        out.push_str("No operator has looked at the workflow yet; is the Observatory operator running?\n");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "what json! makes is handed over")]
    fn workflow(fields: Value, status: Value) -> Observatory {
        let mut spec = json!({"tasks": [
            {"name": "a", "image": "i"},
            {"name": "b", "image": "i", "dependencies": ["a"]},
            {"name": "c", "image": "i", "dependencies": ["b"]},
            {"name": "d", "image": "i"},
        ]});
        if let (Some(spec), Value::Object(fields)) = (spec.as_object_mut(), fields) {
            spec.extend(fields);
        }
        serde_json::from_value(json!({
            "apiVersion": "workflow.seventh-horizon.io/v1alpha1", "kind": "Observatory",
            "metadata": {"name": "w"}, "spec": spec, "status": status,
        }))
        .expect("an Observatory")
    }

    #[test]
    fn a_task_says_what_it_waits_for() {
        let running = json!({"phase": "Running", "tasks": [
            {"name": "a", "phase": "Running", "podName": "w-a"}, {"name": "b", "phase": "Pending"},
            {"name": "d", "phase": "Pending"},
        ]});
        let workflow = workflow(json!({"maxConcurrent": 1}), running);
        assert_eq!(explain(&workflow, "b").as_deref(), Ok("Task b is pending.\nIt waits for a (running).\n"));
        assert_eq!(
            explain(&workflow, "d").as_deref(),
            Ok(
                "Task d is pending.\n1 tasks run, and spec.maxConcurrent allows no more than 1; it starts when one of them ends.\n"
            )
        );
    }

    #[test]
    fn a_failure_is_followed_to_where_it_began() {
        let failed = json!({"phase": "Failed", "tasks": [
            {"name": "a", "phase": "Failed", "reason": "ExitCode", "message": "exit code 3"},
            {"name": "b", "phase": "Failed", "reason": "UpstreamFailed", "message": "task a failed"},
            {"name": "c", "phase": "Failed", "reason": "UpstreamFailed", "message": "task a failed"},
        ]});
        assert_eq!(
            explain(&workflow(json!({}), failed), "c").as_deref(),
            Ok("Task c has failed (UpstreamFailed): task a failed.\nIt began with task a: exit code 3.\n")
        );
    }

    #[test]
    fn an_unknown_task_names_those_that_there_are() {
        let error = explain(&workflow(json!({}), json!({})), "x").expect_err("unknown");
        assert_eq!(error.to_string(), "there is no task \"x\"; the tasks are a, b, c, d");
    }
}
