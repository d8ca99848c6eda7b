//! Rules that many kinds share.

use serde_json::Value;

use super::super::{metadata::check_labels, names};
use crate::schema::FieldError;

pub(super) const IMMUTABLE: &str = "field is immutable";
pub(super) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// A text; empty when it is not there.
pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The elements of a list with their paths.
pub(super) fn each<'a>(
    value: &'a Value,
    field: &str,
    path: &str,
) -> impl Iterator<Item = (String, &'a Value)> {
    let path = format!("{path}.{field}");
    let path = path.strip_prefix('.').map_or(path.clone(), ToOwned::to_owned);
    let list = value.get(field).and_then(Value::as_array);
    list.into_iter().flatten().enumerate().map(move |(index, element)| (format!("{path}[{index}]"), element))
}

/// A number that may not be negative.
pub(super) fn not_negative(value: &Value, field: &str, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(number) = value.get(field).and_then(Value::as_i64).filter(|number| *number < 0) {
        errors.push(FieldError::invalid(format!("{path}.{field}"), number, NOT_NEGATIVE));
    }
}

/// One of a few words.
pub(super) fn one_of(value: &Value, field: &str, path: &str, allowed: &[&str], errors: &mut Vec<FieldError>) {
    let found = text(value, field);
    let path = format!("{path}.{field}");
    let path = path.trim_start_matches('.');
    if found.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !allowed.contains(&found) {
        errors.push(FieldError::not_supported(path, found, allowed));
    }
}

/// Something that may not change.
pub(super) fn immutable(new: &Value, old: &Value, field: &str, path: &str, errors: &mut Vec<FieldError>) {
    let (now, before) = (new.get(field), old.get(field));
    if now != before {
        let path = format!("{path}.{field}");
        errors.push(FieldError::invalid(
            path.trim_start_matches('.'),
            now.cloned().unwrap_or_default(),
            IMMUTABLE,
        ));
    }
}

/// A port number.
pub(super) fn port(number: i64, field: &str, errors: &mut Vec<FieldError>) {
    if !(1..=65535).contains(&number) {
        errors.push(FieldError::invalid(field, number, "must be between 1 and 65535, inclusive"));
    }
}

/// A port by number or by name.
pub(super) fn port_or_name(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Number(_) => port(value.as_i64().unwrap_or(0), field, errors),
        Value::String(name) => errors.extend(
            names::port_name(name).into_iter().map(|why| FieldError::invalid(field, name.as_str(), why)),
        ),
        _ => errors.push(FieldError::required(field, "")),
    }
}

/// A number or a percentage; answers its number, where a percentage of nothing is nothing.
pub(super) fn number_or_percent(value: &Value, field: &str, errors: &mut Vec<FieldError>) -> Option<i64> {
    match value {
        Value::Number(number) => {
            let number = number.as_i64().unwrap_or(0);
            if number < 0 {
                errors.push(FieldError::invalid(field, number, NOT_NEGATIVE));
            }
            Some(number)
        }
        Value::String(text) => {
            let percent = text
                .strip_suffix('%')
                .filter(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
            let Some(percent) = percent else {
                errors.push(FieldError::invalid(
                    field,
                    text.as_str(),
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
                ));
                return None;
            };
            percent.parse().ok()
        }
        _ => None,
    }
}

/// A label selector.
pub(super) fn selector(selector: &Value, field: &str, errors: &mut Vec<FieldError>) {
    check_labels(selector.get("matchLabels"), &format!("{field}.matchLabels"), errors);
    for (path, expression) in each(selector, "matchExpressions", field) {
        let values = expression.get("values").and_then(Value::as_array).map_or(0, Vec::len);
        match text(expression, "operator") {
            "In" | "NotIn" if values == 0 => {
                errors.push(FieldError::required(
                    format!("{path}.values"),
                    "must be specified when `operator` is 'In' or 'NotIn'",
                ));
            }
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" if values > 0 => errors.push(FieldError::forbidden(
                format!("{path}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "Exists" | "DoesNotExist" => {}
            other => errors.push(FieldError::invalid(
                format!("{path}.operator"),
                other,
                "not a valid selector operator",
            )),
        }
        let key = text(expression, "key");
        errors.extend(
            names::qualified_name(key)
                .into_iter()
                .map(|why| FieldError::invalid(format!("{path}.key"), key, why)),
        );
    }
}

/// Whether a selector selects everything.
pub(super) fn selects_all(selector: &Value) -> bool {
    let empty = |field: &str| match selector.get(field) {
        None | Some(Value::Null) => true,
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(_) => false,
    };
    empty("matchLabels") && empty("matchExpressions")
}

/// Says that two elements share what must be unique.
pub(super) fn unique<'a>(values: impl Iterator<Item = (String, &'a str)>, errors: &mut Vec<FieldError>) {
    let mut seen = std::collections::HashSet::new();
    for (path, value) in values {
        if !value.is_empty() && !seen.insert(value) {
            errors.push(FieldError::duplicate(path, value));
        }
    }
}
