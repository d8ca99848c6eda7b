//! Answers as people read them.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::Value;

/// Types as a table.
pub fn types_table(types: &Value, now: Timestamp) -> String {
    let rows = types.as_array().into_iter().flatten();
    let rows = rows.map(|it| {
        vec![
            text(&it["id"]),
            text(&it["name"]),
            text(&it["version"]),
            text(&it["status"]),
            age(&it["created_at"], now),
        ]
    });
    table(&["ID", "NAME", "VERSION", "STATUS", "AGE"], rows.collect())
}

/// Resources as a table.
pub fn resources_table(resources: &Value, now: Timestamp) -> String {
    let rows = resources.as_array().into_iter().flatten().map(|it| {
        let kind = format!("{}/{}", text(&it["resource_type_name"]), text(&it["resource_type_version"]));
        vec![
            text(&it["id"]),
            kind,
            text(&it["name"]),
            text(&it["action_plugin"]),
            text(&it["status"]),
            format!("{}/{}", text(&it["observed_generation"]), text(&it["generation"])),
            age(&it["created_at"], now),
            text(&it["status_message"]),
        ]
    });
    table(&["ID", "TYPE", "NAME", "PLUGIN", "STATUS", "GENERATION", "AGE", "MESSAGE"], rows.collect())
}

/// Attempts as a table.
pub fn history_table(entries: &Value, now: Timestamp) -> String {
    let rows = entries.as_array().into_iter().flatten().map(|it| {
        let changes =
            ["resources_created", "resources_updated", "resources_deleted"].map(|name| text(&it[name]));
        let seconds = it["duration_seconds"].as_f64().unwrap_or_default();
        vec![
            text(&it["id"]),
            text(&it["generation"]),
            if it["success"] == true { "yes".into() } else { "no".into() },
            text(&it["phase"]),
            text(&it["trigger_reason"]),
            format!("+{} ~{} -{}", changes[0], changes[1], changes[2]),
            format!("{seconds:.1}s"),
            age(&it["reconcile_time"], now),
            text(&it["error_message"]),
        ]
    });
    let titles = ["ID", "GENERATION", "SUCCESS", "PHASE", "REASON", "CHANGES", "TOOK", "AGE", "ERROR"];
    table(&titles, rows.collect())
}

/// A resource in full.
pub fn details(resource: &Value, now: Timestamp) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(out, "{name:<14}{value}");
        }
    };
    line("Id:", text(&resource["id"]));
    line("Name:", text(&resource["name"]));
    let kind =
        format!("{}/{}", text(&resource["resource_type_name"]), text(&resource["resource_type_version"]));
    line("Type:", kind);
    line("Plugin:", text(&resource["action_plugin"]));
    line("Status:", text(&resource["status"]));
    line("Message:", text(&resource["status_message"]));
    let (seen, wanted) = (text(&resource["observed_generation"]), text(&resource["generation"]));
    line("Generation:", format!("{wanted}, {seen} brought about"));
    line("Age:", age(&resource["created_at"], now));
    line("Reconciled:", age(&resource["last_reconcile_time"], now));
    line("Retries:", text(&resource["retry_count"]));
    line("Next attempt:", text(&resource["next_reconcile_time"]));
    for (title, value) in [("Spec:", &resource["spec"]), ("Metadata:", &resource["metadata"])] {
        if value.as_object().is_some_and(|fields| !fields.is_empty()) {
            let text = serde_json::to_string_pretty(value).unwrap_or_default();
            let _ = writeln!(out, "{title}\n  {}", text.replace('\n', "\n  "));
        }
    }
    out
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        // What others wrote must not move the cursor or fake a line.
        Value::String(text) => text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect(),
        other => other.to_string(),
    }
}

/// How long ago a time was, in the largest unit that fits.
fn age(time: &Value, now: Timestamp) -> String {
    let Some(time) = time.as_str().and_then(|time| time.parse::<Timestamp>().ok()) else {
        return String::new();
    };
    let seconds = now.duration_since(time).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn table(titles: &[&str], rows: Vec<Vec<String>>) -> String {
    let titles: Vec<String> = titles.iter().map(|title| (*title).to_owned()).collect();
    let all: Vec<Vec<String>> = std::iter::once(titles).chain(rows).collect();
    let columns = all[0].len();
    let widths: Vec<usize> =
        (0..columns).map(|at| all.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect();
    let mut out = String::new();
    for row in &all {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("   ");
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tables_line_up_and_hold_no_control_characters() {
        let now: Timestamp = "2024-01-15T10:40:00Z".parse().expect("a time");
        let resources = json!([{"id": 12, "name": "production-pg", "resource_type_name": "DatabaseCluster",
            "resource_type_version": "v1", "action_plugin": "http", "status": "failed", "generation": 2,
            "observed_generation": 1, "created_at": "2024-01-15T10:30:00Z", "status_message": "no\u{1b}[2Jluck"}]);
        assert_eq!(
            resources_table(&resources, now),
            "ID   TYPE                 NAME            PLUGIN   STATUS   GENERATION   AGE   MESSAGE\n\
             12   DatabaseCluster/v1   production-pg   http     failed   1/2          10m   no [2Jluck\n"
        );
        assert_eq!(types_table(&json!([]), now), "ID   NAME   VERSION   STATUS   AGE\n");
    }
}
