//! `{{ parameters.engine }}` in configured requests.

use serde_json::{Map, Value, json};

use super::{ActionError, Task};

/// What placeholders can name.
#[derive(Clone, Debug)]
pub(super) struct Scope(Value);

impl Scope {
    /// The facts of a task.
    pub(super) fn of(task: &Task) -> Self {
        Self(json!({
            "name": task.name, "namespace": task.namespace, "uid": task.uid,
            "type": task.type_name, "version": task.type_version, "generation": task.generation,
            "attempt": task.attempt, "parameters": task.parameters, "spec": task.parameters,
            "outputs": task.outputs,
        }))
    }

    /// The same with the body of an answer as `response`.
    pub(super) fn with_response(mut self, body: Value) -> Self {
        if let Value::Object(facts) = &mut self.0 {
            facts.insert("response".into(), body);
        }
        self
    }

    /// Fills in a value. A text that is one placeholder becomes what it names, of its type;
    /// within other text the value is printed.
    pub(super) fn fill(&self, value: &Value) -> Result<Value, ActionError> {
        Ok(match value {
            Value::String(text) => match whole(text) {
                Some(path) => self.find(path)?.clone(),
                None => Value::String(self.text(text, ToOwned::to_owned)?),
            },
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect::<Result<_, _>>()?,
            Value::Object(fields) => {
                let filled: Result<Map<String, Value>, ActionError> =
                    fields.iter().map(|(name, value)| Ok((name.clone(), self.fill(value)?))).collect();
                Value::Object(filled?)
            }
            other => other.clone(),
        })
    }

    /// Fills in a URL: values become one segment each, whatever characters they have.
    pub(super) fn url(&self, text: &str) -> Result<String, ActionError> {
        self.text(text, percent)
    }

    /// Fills in a text.
    pub(super) fn text(&self, text: &str, write: impl Fn(&str) -> String) -> Result<String, ActionError> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let Some((path, after)) = after.split_once("}}") else {
                return Err(ActionError::permanent(format!("{text:?} has a {{{{ without its }}}}")));
            };
            filled.push_str(before);
            filled.push_str(&match self.find(path.trim())? {
                Value::String(text) => write(text),
                other => write(&other.to_string()),
            });
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    fn find(&self, path: &str) -> Result<&Value, ActionError> {
        let found = path.split('.').try_fold(&self.0, |value, part| match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            value => value.get(part),
        });
        found.ok_or_else(|| {
            ActionError::permanent(format!(
                "{{{{ {path} }}}} names nothing; there are name, namespace, uid, type, version, generation, attempt, parameters.…, outputs.… and, after a request, response.…"
            ))
        })
    }
}

/// The path, if the text is one placeholder and nothing else.
fn whole(text: &str) -> Option<&str> {
    let path = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    (!path.contains("{{") && !path.contains("}}")).then(|| path.trim())
}

/// A text that says something, or a number as one.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Any value as a text: texts as they are, others as JSON.
pub(super) fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A text as one segment of a URL.
pub(super) fn percent(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => encoded.push(byte.into()),
            // Dots alone would climb; within a name they are harmless.
            b'.' if text.bytes().any(|byte| byte != b'.') => encoded.push('.'),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> Scope {
        Scope(json!({"name": "pg", "parameters": {"size": 5, "path": "../a b", "tags": ["x", "y"]}}))
    }

    #[test]
    fn a_lone_placeholder_keeps_its_type_and_others_are_printed() {
        let template =
            json!({"size": "{{ parameters.size }}", "text": "{{name}}-{{ parameters.tags.1 }}", "n": 1});
        let filled = scope().fill(&template).expect("filled");
        assert_eq!(filled, json!({"size": 5, "text": "pg-y", "n": 1}));
    }

    #[test]
    fn a_value_cannot_leave_its_segment_of_a_url() {
        let url = scope().url("http://x/{{ parameters.path }}/{{name}}").expect("filled");
        assert_eq!(url, "http://x/..%2Fa%20b/pg");
        assert_eq!(percent(".."), "%2E%2E");
    }

    #[test]
    fn what_names_nothing_is_explained() {
        let error = scope().url("{{ parameters.none }}").expect_err("unknown").to_string();
        assert!(error.starts_with("{{ parameters.none }} names nothing"), "{error}");
        assert!(scope().url("{{ name").is_err());
    }
}
