//! Complaints in the words that users of the first version know.

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use serde_json::Value;

/// How much of a value is quoted.
const QUOTE: usize = 200;

/// A complaint with the path in front, `(root)` at the top.
pub(super) fn located(error: &ValidationError<'_>) -> String {
    let pointer = error.instance_path().to_string();
    let path = match pointer.strip_prefix('/') {
        Some(path) => path.replace('/', ".").replace("~1", "/").replace("~0", "~"),
        None => "(root)".to_owned(),
    };
    format!("{path}: {}", sentence(error))
}

fn sentence(error: &ValidationError<'_>) -> String {
    let it = quote(error.instance());
    match error.kind() {
        Kind::Type { kind } => format!("{it} is not of type {}", types(kind)),
        Kind::Required { property } => format!("{} is a required property", quote(property)),
        Kind::Enum { options } => format!("{it} is not one of {}", quote(options)),
        Kind::Constant { expected_value } => format!("{} was expected", quote(expected_value)),
        Kind::Minimum { limit } => format!("{it} is less than the minimum of {limit}"),
        Kind::Maximum { limit } => format!("{it} is greater than the maximum of {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("{it} is less than or equal to the minimum of {limit}"),
        Kind::ExclusiveMaximum { limit } => {
            format!("{it} is greater than or equal to the maximum of {limit}")
        }
        Kind::MultipleOf { multiple_of } => format!("{it} is not a multiple of {multiple_of}"),
        Kind::MinLength { .. } | Kind::MinItems { .. } => format!("{it} is too short"),
        Kind::MaxLength { .. } | Kind::MaxItems { .. } => format!("{it} is too long"),
        Kind::MinProperties { .. } => format!("{it} does not have enough properties"),
        Kind::MaxProperties { .. } => format!("{it} has too many properties"),
        Kind::UniqueItems => format!("{it} has non-unique elements"),
        Kind::Pattern { pattern } => format!("{it} does not match '{pattern}'"),
        Kind::Format { format } => format!("{it} is not a '{format}'"),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let names: Vec<String> = unexpected.iter().map(|name| format!("'{name}'")).collect();
            let verb = if names.len() == 1 { "was" } else { "were" };
            format!("Additional properties are not allowed ({} {verb} unexpected)", names.join(", "))
        }
        Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => {
            format!("{it} is not valid under any of the given schemas")
        }
        Kind::Not { schema } => format!("{it} should not be valid under {}", quote(schema)),
        _ => shorten(error.to_string()),
    }
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(kind) => format!("'{kind}'"),
        TypeKind::Multiple(kinds) => {
            let mut kinds: Vec<String> = kinds.iter().map(|kind| format!("'{kind}'")).collect();
            // People think of nothing last.
            kinds.sort_by_key(|kind| (kind == "'null'", kind.clone()));
            kinds.join(", ")
        }
    }
}

/// A value as the first version printed it.
fn quote(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    shorten(text)
}

fn shorten(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(QUOTE) {
        text.truncate(end);
        text.push('…');
    }
    text
}

fn write(value: &Value, text: &mut String) {
    if text.len() > QUOTE * 4 {
        return;
    }
    match value {
        Value::Null => text.push_str("None"),
        Value::Bool(true) => text.push_str("True"),
        Value::Bool(false) => text.push_str("False"),
        Value::Number(number) => text.push_str(&number.to_string()),
        Value::String(string) => {
            let mark = if string.contains('\'') && !string.contains('"') { '"' } else { '\'' };
            text.push(mark);
            for letter in string.chars().take(QUOTE + 1) {
                match letter {
                    '\n' => text.push_str("\\n"),
                    '\r' => text.push_str("\\r"),
                    '\t' => text.push_str("\\t"),
                    '\\' => text.push_str("\\\\"),
                    letter if letter == mark => text.extend(['\\', letter]),
                    letter => text.push(letter),
                }
            }
            text.push(mark);
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push_str(", ");
                }
                write(item, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            text.push('{');
            for (index, (name, value)) in fields.iter().enumerate() {
                if index > 0 {
                    text.push_str(", ");
                }
                write(&Value::String(name.clone()), text);
                text.push_str(": ");
                write(value, text);
            }
            text.push('}');
        }
    }
}
