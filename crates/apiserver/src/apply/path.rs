//! One step of a path into an object, as `fieldsV1` writes it.

use std::{cmp::Ordering, fmt, sync::Arc};

use serde_json::Value;

/// One step of a path: which part of an object, a list or a set is meant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    /// A field of an object: `f:replicas`.
    Field(Arc<str>),
    /// The element of a list whose key fields have these values, sorted by name:
    /// `k:{"name":"web"}`.
    Key(Vec<(Arc<str>, Ordered)>),
    /// The element of a set with this value: `v:"a"`.
    Value(Ordered),
    /// The element at this place: `i:0`. Read and written, never made by us.
    Index(i64),
}

/// Why text is not an [`Element`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ElementError {
    /// Of a kind that this version does not know; such elements are skipped.
    #[error("unknown kind of path element in {0:?}")]
    UnknownKind(String),
    /// Not of the form `f:`, `k:`, `v:` or `i:`, or with a body that does not parse.
    #[error("{0:?} is not a path element: expected f:NAME, k:{{KEYS}}, v:VALUE or i:INDEX")]
    Malformed(String),
}

impl Element {
    /// The field of this name.
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// Reads one key of a `fieldsV1` object.
    pub fn decode(text: &str) -> Result<Self, ElementError> {
        let malformed = || ElementError::Malformed(text.to_owned());
        let (kind, body) = text.split_once(':').ok_or_else(malformed)?;
        match kind {
            "f" => Ok(Self::field(body)),
            "v" => {
                serde_json::from_str(body).map(|value| Self::Value(Ordered(value))).map_err(|_| malformed())
            }
            "i" => body.parse().map(Self::Index).map_err(|_| malformed()),
            "k" => {
                let keys: serde_json::Map<String, Value> =
                    serde_json::from_str(body).map_err(|_| malformed())?;
                Ok(Self::keyed(keys.into_iter().map(|(name, value)| (name.into(), value))))
            }
            _ if kind.len() == 1 => Err(ElementError::UnknownKind(text.to_owned())),
            _ => Err(malformed()),
        }
    }

    /// The list element with these key fields.
    pub fn keyed(keys: impl IntoIterator<Item = (Arc<str>, Value)>) -> Self {
        let mut keys: Vec<_> = keys.into_iter().map(|(name, value)| (name, Ordered(value))).collect();
        keys.sort_by(|a, b| a.0.cmp(&b.0));
        Self::Key(keys)
    }

    /// Writes it as a key of a `fieldsV1` object.
    pub fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Value(value) => format!("v:{}", value.json()),
            Self::Index(index) => format!("i:{index}"),
            Self::Key(keys) => {
                let fields: Vec<String> = keys
                    .iter()
                    .map(|(name, value)| format!("{}:{}", text_json(name), value.json()))
                    .collect();
                format!("k:{{{}}}", fields.join(","))
            }
        }
    }
}

/// As conflicts show it: `.spec`, `[name="web"]`, `[="a"]`, `[0]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
            Self::Key(keys) => {
                f.write_str("[")?;
                for (place, (name, value)) in keys.iter().enumerate() {
                    let comma = if place > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={value}")?;
                }
                f.write_str("]")
            }
        }
    }
}

/// A JSON value with a total order: numbers by value, then text, booleans, lists, objects, null.
#[derive(Debug, Clone)]
pub struct Ordered(pub Value);

impl Ordered {
    fn json(&self) -> String {
        escape_html(self.to_string())
    }
}

impl PartialEq for Ordered {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

impl fmt::Display for Ordered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            // Whole numbers are written as such, as Go does.
            Value::Number(number) if number.is_f64() => write!(f, "{}", number.as_f64().unwrap_or_default()),
            other => write!(f, "{other}"),
        }
    }
}

/// Whether two values are the same, numbers compared by value (`1` and `1.0` are equal).
pub(super) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(_), Value::Number(_)) => compare(left, right) == Ordering::Equal,
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, value)| right.get(key).is_some_and(|other| same(value, other)))
        }
        _ => left == right,
    }
}

fn compare(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare_numbers(left, right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            let pairs = left.iter().zip(right).map(|(left, right)| compare(left, right));
            pairs.fold(Ordering::Equal, Ordering::then).then(left.len().cmp(&right.len()))
        }
        (Value::Object(left), Value::Object(right)) => {
            let pairs = left.iter().zip(right).map(|((left_key, left), (right_key, right))| {
                left_key.cmp(right_key).then(compare(left, right))
            });
            pairs.fold(Ordering::Equal, Ordering::then).then(left.len().cmp(&right.len()))
        }
        _ => rank(left).cmp(&rank(right)),
    }
}

fn compare_numbers(left: &serde_json::Number, right: &serde_json::Number) -> Ordering {
    if let (Some(left), Some(right)) = (left.as_i64(), right.as_i64()) {
        return left.cmp(&right);
    }
    let (left, right) = (left.as_f64().unwrap_or_default(), right.as_f64().unwrap_or_default());
    left.total_cmp(&right)
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn text_json(text: &str) -> String {
    escape_html(Value::from(text).to_string())
}

/// Escapes what Go's encoder escapes, so that keys are the same bytes as Kubernetes writes.
fn escape_html(json: String) -> String {
    if !json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return json;
    }
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn elements_are_written_as_kubernetes_writes_them() {
        let cases = [
            (Element::field("replicas"), "f:replicas", ".replicas"),
            (Element::field("app.kubernetes.io/name"), "f:app.kubernetes.io/name", ".app.kubernetes.io/name"),
            (
                Element::keyed([("protocol".into(), json!("TCP")), ("containerPort".into(), json!(80))]),
                r#"k:{"containerPort":80,"protocol":"TCP"}"#,
                r#"[containerPort=80,protocol="TCP"]"#,
            ),
            (Element::Value(Ordered(json!("a<b"))), r#"v:"a\u003cb""#, r#"[="a<b"]"#),
            (Element::Value(Ordered(json!(true))), "v:true", "[=true]"),
            (Element::Value(Ordered(json!(2.0))), "v:2", "[=2]"),
            (Element::Value(Ordered(json!(2.5))), "v:2.5", "[=2.5]"),
            (Element::Index(3), "i:3", "[3]"),
        ];
        for (element, encoded, shown) in cases {
            assert_eq!(element.encode(), encoded);
            assert_eq!(element.to_string(), shown);
            assert_eq!(Element::decode(encoded).unwrap(), element);
        }
    }

    #[test]
    fn text_that_is_no_element_is_refused() {
        for text in ["", "f", "spec", "v:", "v:{", "k:[]", "k:1", "i:x", "ff:a"] {
            assert!(matches!(Element::decode(text), Err(ElementError::Malformed(_))), "{text}");
        }
        assert!(matches!(Element::decode("z:new"), Err(ElementError::UnknownKind(_))));
    }

    #[test]
    fn values_are_ordered_by_kind_and_then_by_value() {
        let sorted = [
            json!(1),
            json!(1.5),
            json!(2),
            json!("a"),
            json!("b"),
            json!(false),
            json!(true),
            json!([1]),
            json!({"a": 1}),
            json!(null),
        ];
        for (place, left) in sorted.iter().enumerate() {
            for (other, right) in sorted.iter().enumerate() {
                assert_eq!(
                    Ordered(left.clone()).cmp(&Ordered(right.clone())),
                    place.cmp(&other),
                    "{left} {right}"
                );
            }
        }
        assert_eq!(Ordered(json!(1)), Ordered(json!(1.0)));
        assert!(same(&json!({"a": [1]}), &json!({"a": [1.0]})));
    }
}
