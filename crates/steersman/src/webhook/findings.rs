//! What a validator finds.

use std::fmt;

use serde_json::{Value, json};

/// What is wrong with an object, and what its author should know although it is not wrong.
///
/// Problems are worded as Kubernetes words its own: the field, the sort of problem, the value, the reason.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    field: String,
    sort: Sort,
    value: Option<Value>,
    why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Invalid,
    Required,
    Forbidden,
}

impl Findings {
    /// Nothing found.
    pub fn new() -> Self {
        Self::default()
    }

    /// A value that cannot be accepted.
    pub fn invalid(&mut self, field: impl Into<String>, value: impl Into<Value>, why: impl Into<String>) {
        let (field, value, why) = (field.into(), Some(value.into()), why.into());
        self.problems.push(Problem { field, sort: Sort::Invalid, value, why });
    }

    /// Something wrong with a field that is told without its value.
    pub fn wrong(&mut self, field: impl Into<String>, why: impl Into<String>) {
        self.problems.push(Problem {
            field: field.into(),
            sort: Sort::Invalid,
            value: None,
            why: why.into(),
        });
    }

    /// A value that must be given.
    pub fn required(&mut self, field: impl Into<String>, why: impl Into<String>) {
        self.problems.push(Problem {
            field: field.into(),
            sort: Sort::Required,
            value: None,
            why: why.into(),
        });
    }

    /// A value or a change that is fine elsewhere and not here.
    pub fn forbidden(&mut self, field: impl Into<String>, why: impl Into<String>) {
        self.problems.push(Problem {
            field: field.into(),
            sort: Sort::Forbidden,
            value: None,
            why: why.into(),
        });
    }

    /// Something that the author should know; kubectl shows it as a warning.
    pub fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    /// Takes in what another check found.
    pub fn extend(&mut self, other: Findings) {
        self.problems.extend(other.problems);
        self.warnings.extend(other.warnings);
    }

    /// An object that cannot be read as its kind.
    pub(super) fn unreadable(why: &serde_json::Error) -> Self {
        let mut findings = Self::new();
        findings.problems.push(Problem {
            field: "<root>".to_owned(),
            sort: Sort::Invalid,
            value: None,
            why: why.to_string(),
        });
        findings
    }

    /// What is wrong.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// What the author should know.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The `Status` that refuses an object, if anything is wrong with it.
    pub(super) fn refusal(&self, group: &str, kind: &str, name: &str) -> Option<Value> {
        let all = match self.problems.as_slice() {
            [] => return None,
            [one] => one.to_string(),
            many => {
                let texts: Vec<String> = many.iter().map(ToString::to_string).collect();
                format!("[{}]", texts.join(", "))
            }
        };
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let causes: Vec<Value> = self
            .problems
            .iter()
            .map(|problem| {
                json!({"reason": problem.sort.reason(), "message": problem.body(), "field": problem.field})
            })
            .collect();
        Some(json!({
            "status": "Failure", "code": 422, "reason": "Invalid",
            "message": format!("{qualified} \"{name}\" is invalid: {all}"),
            "details": {"name": name, "group": group, "kind": kind, "causes": causes},
        }))
    }
}

impl Problem {
    /// The path of the field, for example `spec.image`.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// All but the field.
    fn body(&self) -> String {
        let sort = self.sort.text();
        match (&self.value, self.why.as_str()) {
            (Some(value), "") => format!("{sort}: {value}"),
            (Some(value), why) => format!("{sort}: {value}: {why}"),
            (None, "") => sort.to_owned(),
            (None, why) => format!("{sort}: {why}"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl Sort {
    fn text(self) -> &'static str {
        match self {
            Self::Invalid => "Invalid value",
            Self::Required => "Required value",
            Self::Forbidden => "Forbidden",
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::Required => "FieldValueRequired",
            Self::Forbidden => "FieldValueForbidden",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_worded_as_kubernetes_words_its_own() {
        let mut findings = Findings::new();
        assert_eq!(findings.refusal("example.com", "WebApp", "x"), None);
        findings.invalid("spec.replicas", -1, "must not be negative");
        let one = findings.refusal("example.com", "WebApp", "x").expect("a refusal");
        assert_eq!(
            one["message"],
            "WebApp.example.com \"x\" is invalid: spec.replicas: Invalid value: -1: must not be negative"
        );
        findings.required("spec.image", "");
        findings.forbidden("spec.port", "may not be changed");
        let all = findings.refusal("", "Pod", "x").expect("a refusal");
        assert_eq!(
            all["message"],
            "Pod \"x\" is invalid: [spec.replicas: Invalid value: -1: must not be negative, \
             spec.image: Required value, spec.port: Forbidden: may not be changed]"
        );
        assert_eq!(all["details"]["causes"][1]["field"], "spec.image");
    }
}
