//! Workflows as text: tables, progress and a timeline.

use std::fmt::Write;

use jiff::Timestamp;
use kube::ResourceExt;

use super::graph::sign;
use crate::types::{Observatory, ObservatoryStatus, Phase, TaskStatus};

/// A table of workflows, one line each.
pub fn table(workflows: &[Observatory], now: Timestamp) -> String {
    let mut rows =
        vec![["NAMESPACE", "NAME", "PHASE", "TASKS", "DURATION", "AGE", "MESSAGE"].map(str::to_owned)];
    for workflow in workflows {
        let nothing = ObservatoryStatus::default();
        let status = workflow.status.as_ref().unwrap_or(&nothing);
        let age = workflow.metadata.creation_timestamp.as_ref().map(|made| seconds(made.0, now));
        rows.push([
            workflow.namespace().unwrap_or_default(),
            workflow.name_any(),
            status.phase().as_str().to_owned(),
            status.progress.clone().unwrap_or_else(|| format!("0/{}", workflow.spec.tasks.len())),
            duration(status, now).map_or_else(|| "-".to_owned(), short),
            age.map_or_else(|| "-".to_owned(), short),
            status.message.clone().unwrap_or_default(),
        ]);
    }
    columns(&rows)
}

/// Everything worth knowing about one workflow.
pub fn details(workflow: &Observatory, now: Timestamp) -> String {
    let nothing = ObservatoryStatus::default();
    let status = workflow.status.as_ref().unwrap_or(&nothing);
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(out, "{:<12}{value}", format!("{name}:"));
        }
    };
    line("Name", workflow.name_any());
    line("Namespace", workflow.namespace().unwrap_or_default());
    let reason = status.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
    line("Phase", format!("{}{reason}", status.phase()));
    line("Message", status.message.clone().unwrap_or_default());
    line("Tasks", status.progress.clone().unwrap_or_default());
    line("Started", status.start_time.as_ref().map(|time| time.0.to_string()).unwrap_or_default());
    line("Ended", status.completion_time.as_ref().map(|time| time.0.to_string()).unwrap_or_default());
    line("Duration", duration(status, now).map(short).unwrap_or_default());
    line("Next run", status.next_schedule_time.as_ref().map(|time| time.0.to_string()).unwrap_or_default());
    line("Active", status.active_runs.join(", "));
    let mut rows = vec![["", "TASK", "PHASE", "ATTEMPT", "DURATION", "POD", "MESSAGE"].map(str::to_owned)];
    for task in &status.tasks {
        let end = task.completion_time.as_ref().map_or(now, |time| time.0);
        rows.push([
            sign(Some(task.phase)).to_string(),
            task.name.clone(),
            task.phase.as_str().to_owned(),
            (task.attempt + 1).to_string(),
            task.start_time.as_ref().map_or_else(|| "-".to_owned(), |start| short(seconds(start.0, end))),
            task.pod_name.clone().unwrap_or_else(|| "-".to_owned()),
            [task.reason.as_deref(), task.message.as_deref()]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(": "),
        ]);
    }
    if rows.len() > 1 {
        out.push('\n');
        out.push_str(&columns(&rows));
    }
    out
}

/// A bar of so many columns that shows how far a workflow has come.
pub fn progress(workflow: &Observatory, width: usize) -> String {
    let nothing = ObservatoryStatus::default();
    let status = workflow.status.as_ref().unwrap_or(&nothing);
    let total = workflow.spec.tasks.len().max(1);
    let count = |phase: Phase| status.tasks.iter().filter(|task| task.phase == phase).count();
    let (done, failed, running) = (count(Phase::Succeeded), count(Phase::Failed), count(Phase::Running));
    let part = |count: usize| count * width / total;
    let (a, b, c) = (part(done), part(done + failed), part(done + failed + running));
    let bar: String = (0..width)
        .map(|column| match column {
            _ if column < a => '█',
            _ if column < b => '✖',
            _ if column < c => '▒',
            _ => '░',
        })
        .collect();
    format!(
        "{} {bar} {done}/{} {}{}",
        sign(Some(status.phase())),
        workflow.spec.tasks.len(),
        status.phase(),
        if failed > 0 { format!(", {failed} failed") } else { String::new() },
    )
}

/// When tasks ran, each on a line of so many columns. Of a workflow with more than so many tasks
/// those are shown that run, then those that failed, then those that started last.
pub fn timeline(workflow: &Observatory, width: usize, most: usize, now: Timestamp) -> String {
    let nothing = ObservatoryStatus::default();
    let status = workflow.status.as_ref().unwrap_or(&nothing);
    let Some(start) =
        status.tasks.iter().filter_map(|task| task.start_time.as_ref()).map(|time| time.0).min()
    else {
        return "nothing has started yet\n".to_owned();
    };
    let end = status.completion_time.as_ref().map_or(now, |time| time.0).max(start);
    let whole = seconds(start, end).max(1);
    let width_seconds = i64::try_from(width).unwrap_or(80).max(1);
    let column =
        |at: Timestamp| usize::try_from(seconds(start, at) * width_seconds / whole).unwrap_or(0).min(width);
    let shown = choose(&status.tasks, most);
    let widest = shown.iter().map(|task| task.name.chars().count()).max().unwrap_or(0).min(40);
    let mut out = String::new();
    for task in &shown {
        let name: String = task.name.chars().take(40).collect();
        let bar = match &task.start_time {
            None => String::new(),
            Some(began) => {
                let until = task.completion_time.as_ref().map_or(end, |time| time.0);
                let (from, to) = (column(began.0), column(until));
                let fill = if task.phase == Phase::Failed { "▓" } else { "█" };
                format!("{}{}", " ".repeat(from), fill.repeat((to - from.min(to)).max(1)))
            }
        };
        let _ = writeln!(out, "{} {name:<widest$} │{bar}", sign(Some(task.phase)));
    }
    let _ = writeln!(out, "  {:<widest$} 0s{:>width$}", "", short(whole));
    if shown.len() < status.tasks.len() {
        let _ = writeln!(out, "  and {} more tasks", status.tasks.len() - shown.len());
    }
    out
}

/// The tasks that are most worth showing, in their order.
fn choose(tasks: &[TaskStatus], most: usize) -> Vec<&TaskStatus> {
    let mut chosen: Vec<(usize, &TaskStatus)> = tasks.iter().enumerate().collect();
    if chosen.len() > most {
        let rank = |phase: Phase| match phase {
            Phase::Running => 0,
            Phase::Failed => 1,
            Phase::Succeeded => 2,
            Phase::Pending => 3,
        };
        chosen.sort_by_key(|(place, task)| {
            let start = task.start_time.as_ref().map(|time| time.0);
            (start.is_none(), rank(task.phase), std::cmp::Reverse(start), *place)
        });
        chosen.truncate(most);
        chosen.sort_by_key(|(place, _)| *place);
    }
    chosen.into_iter().map(|(_, task)| task).collect()
}

fn duration(status: &ObservatoryStatus, now: Timestamp) -> Option<i64> {
    let start = status.start_time.as_ref()?.0;
    Some(seconds(start, status.completion_time.as_ref().map_or(now, |time| time.0)))
}

fn seconds(from: Timestamp, to: Timestamp) -> i64 {
    to.duration_since(from).as_secs().max(0)
}

/// A length of time in the two largest units.
fn short(seconds: i64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{}h", seconds / 86400, seconds % 86400 / 3600),
    }
}

fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample() -> Observatory {
        serde_json::from_value(json!({
            "apiVersion": "workflow.seventh-horizon.io/v1alpha1", "kind": "Observatory",
            "metadata": {"name": "w", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"tasks": [{"name": "a", "image": "i"}, {"name": "b", "image": "i", "dependencies": ["a"]}]},
            "status": {"phase": "Running", "progress": "1/2", "startTime": "2026-01-01T00:00:00Z", "tasks": [
                {"name": "a", "phase": "Succeeded", "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:10Z"},
                {"name": "b", "phase": "Running", "startTime": "2026-01-01T00:00:10Z", "podName": "w-b"},
            ]},
        }))
        .expect("an Observatory")
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:20Z".parse().expect("a timestamp")
    }

    #[test]
    fn a_table_has_one_line_for_each_workflow() {
        assert_eq!(
            table(&[sample()], now()),
            "NAMESPACE  NAME  PHASE    TASKS  DURATION  AGE  MESSAGE\nn          w     Running  1/2    20s       20s\n"
        );
    }

    #[test]
    fn progress_and_timeline_show_what_is_done_and_what_runs() {
        assert_eq!(progress(&sample(), 10), "● █████▒▒▒▒▒ 1/2 Running");
        assert_eq!(timeline(&sample(), 10, 9, now()), "✔ a │█████\n● b │     █████\n    0s       20s\n");
    }

    #[test]
    fn a_timeline_of_many_tasks_shows_those_that_run_or_failed() {
        let mut many = sample();
        let status = many.status.as_mut().expect("a status");
        let done = status.tasks[0].clone();
        let named = |number: usize| TaskStatus { name: format!("d{number}"), ..done.clone() };
        status.tasks.extend((0..100).map(named));
        status.tasks[50].phase = Phase::Failed;
        let text = timeline(&many, 10, 3, now());
        assert!(text.contains("● b") && text.contains("✖ d48"), "{text}");
        assert!(text.ends_with("  and 99 more tasks\n"), "{text}");
        assert_eq!(text.lines().count(), 5, "{text}");
    }

    #[test]
    fn details_list_every_task() {
        let text = details(&sample(), now());
        assert!(text.contains("Phase:      Running\n"), "{text}");
        assert!(text.contains("●  b     Running    1        10s       w-b"), "{text}");
    }
}
