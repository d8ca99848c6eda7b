//! What is wrong with one field of an object, in the words that clients of Kubernetes know.

use std::fmt::{self, Write as _};

use serde_json::{Number, Value};

/// One complaint about one field.
///
/// Displays as `spec.replicas: Invalid value: -1: must be greater than or equal to 0`.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// Path of the field, for example `spec.containers[0].name`; `<nil>` for the object itself.
    pub field: String,
    /// What sort of complaint it is.
    pub kind: FieldErrorKind,
    /// The value that was found, where it helps to show it.
    pub bad: Option<Value>,
    /// What was expected.
    pub detail: String,
}

/// The sorts of complaint, as in `status.details.causes[].reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldErrorKind {
    /// A value that is referred to is not there.
    NotFound,
    /// A value must be given.
    Required,
    /// A value that must be unique occurs twice.
    Duplicate,
    /// The value is malformed or out of bounds.
    Invalid,
    /// The value is not one of those allowed.
    NotSupported,
    /// The value would be fine elsewhere.
    Forbidden,
    /// Text that is too long.
    TooLong,
    /// Text that is too short.
    TooShort,
    /// A list with too many elements.
    TooMany,
    /// A list with too few elements.
    TooFew,
    /// The value has another type than the schema says.
    TypeInvalid,
    /// Not the client's fault.
    Internal,
}

impl FieldErrorKind {
    /// The machine-readable reason, for example `FieldValueInvalid`.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooShort => "FieldValueTooShort",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    /// The words with which a message begins, for example `Invalid value`.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooShort => "Too short",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::Internal => "Internal error",
        }
    }

    /// Whether messages of this kind show the value that was found.
    const fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::TooShort | Self::Internal)
    }
}

impl FieldError {
    /// A value that is referred to is not there.
    pub fn not_found(field: impl Into<String>, bad: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::NotFound, field, Some(bad.into()), "")
    }

    /// A value must be given.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, None, detail)
    }

    /// A value that must be unique occurs twice.
    pub fn duplicate(field: impl Into<String>, bad: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, Some(bad.into()), "")
    }

    /// The value is malformed or out of bounds.
    pub fn invalid(field: impl Into<String>, bad: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, Some(bad.into()), detail)
    }

    /// The value has another type than the schema says.
    pub fn type_invalid(field: impl Into<String>, bad: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, field, Some(bad.into()), detail)
    }

    /// The value is not one of `allowed`, which are named in the order given.
    pub fn not_supported<S: AsRef<str>>(
        field: impl Into<String>,
        bad: impl Into<Value>,
        allowed: &[S],
    ) -> Self {
        let names: Vec<String> = allowed.iter().map(|value| quote(value.as_ref())).collect();
        let detail =
            if names.is_empty() { String::new() } else { format!("supported values: {}", names.join(", ")) };
        Self::new(FieldErrorKind::NotSupported, field, Some(bad.into()), detail)
    }

    /// The value would be fine elsewhere.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, None, detail)
    }

    /// Text of more than `max` bytes.
    pub fn too_long(field: impl Into<String>, max: u64) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::new(FieldErrorKind::TooLong, field, None, format!("may not be more than {max} {unit}"))
    }

    /// A list of `actual` elements where `max` are allowed.
    pub fn too_many(field: impl Into<String>, actual: u64, max: u64) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {unit}");
        Self::new(FieldErrorKind::TooMany, field, Some(actual.into()), detail)
    }

    /// Not the client's fault.
    pub fn internal(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Internal, field, None, detail)
    }

    fn new(
        kind: FieldErrorKind,
        field: impl Into<String>,
        bad: Option<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self { field: field.into(), kind, bad, detail: detail.into() }
    }

    /// The machine-readable reason, for example `FieldValueInvalid`.
    pub const fn reason(&self) -> &'static str {
        self.kind.reason()
    }

    /// The message without the field, as in `status.details.causes[].message`.
    pub fn body(&self) -> String {
        let mut text = self.kind.text().to_owned();
        if let Some(bad) = self.bad.as_ref().filter(|_| self.kind.shows_value()) {
            text.push_str(": ");
            text.push_str(&show(bad));
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for FieldError {}

/// A value as messages show it: text quoted, numbers plain, the rest as JSON.
fn show(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(number) => show_number(number),
        Value::Bool(flag) => flag.to_string(),
        Value::Null => "null".to_owned(),
        // Angle brackets and ampersands are escaped, as Go's encoder does.
        Value::Array(_) | Value::Object(_) => {
            value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
        }
    }
}

/// A number as Go prints it: whole numbers plain, others with an exponent from a million on and
/// below a ten-thousandth.
pub(super) fn show_number(number: &Number) -> String {
    match number.as_f64().filter(|_| number.is_f64()) {
        Some(float) => show_float(float),
        None => number.to_string(),
    }
}

/// A floating-point number as Go prints it.
pub(super) fn show_float(float: f64) -> String {
    let scientific = format!("{float:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let power: i32 = exponent.parse().unwrap_or_default();
    if !float.is_finite() || (-4..6).contains(&power) {
        return float.to_string();
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", power.abs())
}

/// Text in double quotes, escaped as Go's `%q` does.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            control if (control as u32) < 0x20 || control == '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", control as u32);
            }
            control if control.is_control() => {
                let _ = write!(out, "\\u{:04x}", control as u32);
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_read_as_those_of_kubernetes() {
        for (error, expected) in [
            (
                FieldError::invalid("spec.replicas", -1, "must be greater than or equal to 0"),
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            ),
            (FieldError::required("spec.selector", ""), "spec.selector: Required value"),
            (
                FieldError::required("metadata.name", "name or generateName is required"),
                "metadata.name: Required value: name or generateName is required",
            ),
            (
                FieldError::not_supported("spec.type", "Odd", &["A", "B"]),
                "spec.type: Unsupported value: \"Odd\": supported values: \"A\", \"B\"",
            ),
            (FieldError::forbidden("spec", "field is immutable"), "spec: Forbidden: field is immutable"),
            (FieldError::too_long("a", 63), "a: Too long: may not be more than 63 bytes"),
            (FieldError::too_many("a", 3, 1), "a: Too many: 3: must have at most 1 item"),
            (FieldError::duplicate("a[1]", "x"), "a[1]: Duplicate value: \"x\""),
            (FieldError::not_found("a", "x"), "a: Not found: \"x\""),
            (
                FieldError::invalid("a", json!({"b": "<", "c": [1, true]}), "no"),
                "a: Invalid value: {\"b\":\"\\u003c\",\"c\":[1,true]}: no",
            ),
            (FieldError::invalid("a", 1.5, ""), "a: Invalid value: 1.5"),
            (FieldError::invalid("a", 3.0, ""), "a: Invalid value: 3"),
            (FieldError::invalid("a", 1e22, ""), "a: Invalid value: 1e+22"),
            (FieldError::invalid("a", 1_234_567.5, ""), "a: Invalid value: 1.2345675e+06"),
            (FieldError::invalid("a", 0.00001, ""), "a: Invalid value: 1e-05"),
            (FieldError::invalid("a", 20_000_000_000_i64, ""), "a: Invalid value: 20000000000"),
            (FieldError::invalid("a", "say \"hi\"\n", ""), "a: Invalid value: \"say \\\"hi\\\"\\n\""),
        ] {
            assert_eq!(error.to_string(), expected);
        }
    }
}
