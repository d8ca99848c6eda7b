//! Paths into an object: the part of JSONPath that columns, scale and selectable fields use.

use std::sync::Arc;

use serde_json::{Map, Value};
use thiserror::Error;

/// A parsed path such as `.spec.replicas`, `.spec.ports[0].port`,
/// `.metadata.annotations['a.b/c']` or `.status.conditions[?(@.type=="Ready")].status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// A field by name.
    Field(Arc<str>),
    /// An element by position; negative counts from the end.
    Index(i64),
    /// Every element or every value.
    Every,
    /// The elements whose field at `path` equals, or does not equal, `value`.
    Where { path: Path, equal: Comparison, value: Value },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
}

/// Why a path cannot be understood.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("cannot read the path {path:?}: {problem}; paths look like .spec.replicas or .spec.ports[0].name")]
pub struct PathError {
    path: String,
    problem: String,
}

impl Path {
    /// Reads a path; the leading dot and surrounding braces are optional.
    ///
    /// # Errors
    /// When a bracket is left open, a name is empty, or a filter is not `@.path == value`.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let error = |problem: &str| PathError { path: text.to_owned(), problem: problem.to_owned() };
        let trimmed = text.trim();
        let inner = trimmed.strip_prefix('{').map_or(Ok(trimmed), |rest| {
            rest.strip_suffix('}').ok_or_else(|| error("a brace is left open"))
        })?;
        let mut rest = inner.strip_prefix('$').unwrap_or(inner);
        let mut steps = Vec::new();
        let mut first = true;
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('[') {
                let end = closing_bracket(after).ok_or_else(|| error("a bracket is left open"))?;
                steps.push(parse_bracket(&after[..end]).map_err(|problem| error(&problem))?);
                rest = &after[end + 1..];
            } else {
                let after = match rest.strip_prefix('.') {
                    Some(after) => after,
                    None if first => rest,
                    None => return Err(error("a dot is missing between two names")),
                };
                let (name, after) = take_name(after);
                if name.is_empty() && !after.starts_with('[') {
                    return Err(error("a name is empty"));
                }
                match name.as_str() {
                    "" => {}
                    "*" => steps.push(Step::Every),
                    _ => steps.push(Step::Field(name.into())),
                }
                rest = after;
            }
            first = false;
        }
        Ok(Self { steps })
    }

    /// The first value that the path leads to.
    pub fn get<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.all(object).into_iter().next()
    }

    /// Every value that the path leads to.
    pub fn all<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![object];
        for step in &self.steps {
            found = found.into_iter().flat_map(|value| step.follow(value)).collect();
        }
        found
    }

    /// Sets the value, making the objects on the way.
    ///
    /// Returns whether it could: paths with positions or filters, and objects that hold something
    /// other than an object on the way, cannot be written to.
    pub fn set(&self, object: &mut Value, value: Value) -> bool {
        let mut here = object;
        for step in &self.steps {
            let Step::Field(name) = step else { return false };
            if here.is_null() {
                *here = Value::Object(Map::new());
            }
            let Value::Object(fields) = here else { return false };
            here = fields.entry(&**name).or_insert(Value::Null);
        }
        *here = value;
        true
    }

    /// The names of the fields, where the path consists of nothing else.
    pub fn fields(&self) -> Option<Vec<&str>> {
        self.steps
            .iter()
            .map(|step| match step {
                Step::Field(name) => Some(&**name),
                _ => None,
            })
            .collect()
    }
}

impl Step {
    fn follow<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(fields)) => fields.get(&**name).into_iter().collect(),
            (Self::Index(index), Value::Array(items)) => {
                let position = if *index < 0 { items.len() as i64 + index } else { *index };
                usize::try_from(position).ok().and_then(|at| items.get(at)).into_iter().collect()
            }
            (Self::Every, Value::Array(items)) => items.iter().collect(),
            (Self::Every, Value::Object(fields)) => fields.values().collect(),
            (Self::Where { path, equal, value }, Value::Array(items)) => items
                .iter()
                .filter(|item| (path.get(item) == Some(value)) == (*equal == Comparison::Equal))
                .collect(),
            _ => Vec::new(),
        }
    }
}

/// A name up to the next dot or bracket; a backslash takes the next character as it is.
fn take_name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            '.' | '[' => return (name, &text[at..]),
            other => name.push(other),
        }
    }
    (name, "")
}

/// The position of the bracket that closes the one before `text`.
fn closing_bracket(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            (None, '[' | '(') => depth += 1,
            (None, ')') => depth -= 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn parse_bracket(text: &str) -> Result<Step, String> {
    let text = text.trim();
    if text == "*" {
        return Ok(Step::Every);
    }
    if let Some(name) = unquote(text) {
        return Ok(Step::Field(name.into()));
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        for (sign, equal) in [("==", Comparison::Equal), ("!=", Comparison::Unequal)] {
            let Some((left, right)) = filter.split_once(sign) else { continue };
            let path = left.trim().strip_prefix('@').ok_or("a filter begins with @")?;
            let path = Path::parse(path).map_err(|error| error.problem)?;
            let right = right.trim();
            let value = match unquote(right) {
                Some(text) => Value::from(text),
                None => serde_json::from_str(right)
                    .map_err(|_| format!("{right} is neither quoted text, a number, true nor false"))?,
            };
            return Ok(Step::Where { path, equal, value });
        }
        return Err("only filters with == and != are known".to_owned());
    }
    text.parse().map(Step::Index).map_err(|_| format!("[{text}] is neither a position, a name nor a filter"))
}

fn unquote(text: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_to_the_values_they_name() {
        let object = json!({
            "spec": {"replicas": 3, "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]},
            "metadata": {"annotations": {"a.b/c": "dotted"}},
            "status": {"conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "Odd", "status": "False"},
            ]},
        });
        for (path, expected) in [
            (".spec.replicas", json!([3])),
            ("spec.replicas", json!([3])),
            ("{.spec.replicas}", json!([3])),
            ("$.spec.replicas", json!([3])),
            (".spec.ports[1].port", json!([2])),
            (".spec.ports[-1].port", json!([2])),
            (".spec.ports[*].name", json!(["a", "b"])),
            (".metadata.annotations['a.b/c']", json!(["dotted"])),
            (".metadata.annotations.a\\.b/c", json!(["dotted"])),
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
            (".status.conditions[?(@.type == 'Ready')].status", json!(["True"])),
            (".status.conditions[?(@.type!='Ready')].status", json!(["False"])),
            (".spec.nothing.here", json!([])),
            (".spec.replicas.deeper", json!([])),
            (".spec.ports[7]", json!([])),
        ] {
            let parsed = Path::parse(path).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(json!(parsed.all(&object)), expected, "{path}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused_with_a_reason() {
        for (path, problem) in [
            (".spec.ports[0", "a bracket is left open"),
            (".spec..x", "a name is empty"),
            (".spec[x]", "[x] is neither a position, a name nor a filter"),
            (".a[0]b", "a dot is missing between two names"),
            (".a[?(@.b)]", "only filters with == and != are known"),
            ("{.a", "a brace is left open"),
        ] {
            assert_eq!(Path::parse(path).map_err(|error| error.problem), Err(problem.to_owned()), "{path}");
        }
    }

    #[test]
    fn setting_makes_the_objects_on_the_way() {
        let path = Path::parse(".spec.size.replicas").expect("a path");
        let mut object = json!({"kind": "A"});
        assert!(path.set(&mut object, json!(2)));
        assert_eq!(object, json!({"kind": "A", "spec": {"size": {"replicas": 2}}}));
        assert!(!path.set(&mut json!({"spec": 1}), json!(2)), "a number has no fields");
        let filtered = Path::parse(".a[0]").expect("a path");
        assert!(!filtered.set(&mut json!({}), json!(1)), "a position cannot be made");
    }
}
