//! What of an answer must be the same.

use serde_json::Value;

/// Fields whose values differ by nature.
const BY_NATURE: [&str; 8] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "time",
    "lastTransitionTime",
    "clusterIP",
    "expirationTimestamp",
];

/// Takes out what differs by nature; that it is there still counts.
pub(crate) fn normalise(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // Written by an admission plugin that needs controllers beside the real server.
            fields.retain(|name, _| name != "serviceAccount" && name != "serviceAccountName");
            for (name, value) in fields.iter_mut() {
                match (name.as_str(), &mut *value) {
                    ("columnDefinitions", Value::Array(columns)) => {
                        columns.iter_mut().for_each(|column| column["description"] = "…".into());
                    }
                    ("cells", Value::Array(cells)) => cells.iter_mut().for_each(hide_age),
                    ("continue", Value::String(token)) if token.is_empty() => continue,
                    ("continue", Value::String(token)) => "…".clone_into(token),
                    (name, Value::String(text)) if BY_NATURE.contains(&name) => "…".clone_into(text),
                    _ => {}
                }
                normalise(value);
                // Entries are in the order of their times, which one server may see in one second; causes of
                // a conflict in no order at all.
                if (name == "managedFields" || name == "causes")
                    && let Some(entries) = value.as_array_mut()
                {
                    entries.sort_by_key(ToString::to_string);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalise),
        Value::String(text) => *text = masked(text),
        _ => {}
    }
}

/// Hides `12s` and the like.
fn hide_age(cell: &mut Value) {
    let is_age =
        |text: &str| text.strip_suffix(['s', 'm']).is_some_and(|number| number.parse::<u32>().is_ok());
    if cell.as_str().is_some_and(is_age) {
        *cell = "…".into();
    }
}

/// Hides uids and addresses within a text.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        if let Some(after) = uid(rest).or_else(|| address(rest)) {
            masked.push('…');
            rest = after;
        } else {
            masked.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    masked
}

/// What follows a uid at the beginning of a text.
fn uid(text: &str) -> Option<&str> {
    let (uid, rest) = text.split_at_checked(36)?;
    let fits = uid.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    fits.then_some(rest)
}

/// What follows the address of a Service at the beginning of a text.
fn address(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("10.96.")?;
    Some(rest.trim_start_matches(|next: char| next.is_ascii_digit() || next == '.'))
}

/// Where two answers differ, field by field.
pub(crate) fn difference(real: &Value, ours: &Value) -> String {
    let mut lines = String::new();
    walk("", real, ours, &mut lines);
    lines
}

fn walk(path: &str, real: &Value, ours: &Value, lines: &mut String) {
    if real == ours {
        return;
    }
    match (real, ours) {
        (Value::Object(left), Value::Object(right)) => {
            let mut names: Vec<&String> = left.keys().chain(right.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let (left, right) = (left.get(name), right.get(name));
                let none = Value::from("(nothing)");
                walk(&format!("{path}/{name}"), left.unwrap_or(&none), right.unwrap_or(&none), lines);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                walk(&format!("{path}/{index}"), left, right, lines);
            }
        }
        _ => lines.push_str(&format!("  {path}\n    real {real}\n    ours {ours}\n")),
    }
}
