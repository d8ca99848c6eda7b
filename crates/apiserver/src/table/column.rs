//! Columns of built-in kinds, as data.

use jiff::Timestamp;
use serde_json::Value;

use super::human_duration;

/// What the first column of nearly every table means.
pub(super) const NAME: &str = "Name must be unique within a namespace.";

/// A column of a built-in kind.
pub(super) struct BuiltIn {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    /// 0 for the default view, 1 for `-o wide`.
    pub(super) priority: i32,
    pub(super) cell: Cell,
}

/// How a cell is read from the object. Places are JSON pointers.
pub(super) enum Cell {
    /// The text at this place.
    Text(&'static str),
    /// The text at this place, or something else where there is none.
    TextOr(&'static str, &'static str),
    /// The number at this place, or 0.
    Number(&'static str),
    /// How many elements there are.
    Count(&'static str),
    /// The flag at this place, or `false`.
    Flag(&'static str),
    /// How long ago the time at this place was.
    Since(&'static str),
    /// What a function makes of the object.
    Code(fn(&Value) -> Value),
    /// What a function makes of the object and the time.
    Timed(fn(&Value, Timestamp) -> Value),
}

impl BuiltIn {
    pub(super) fn description(&self) -> &'static str {
        match self.name {
            "Name" => NAME,
            "Age" => "How long ago the object was created.",
            _ => "",
        }
    }
}

impl Cell {
    pub(super) fn of(&self, object: &Value, now: Timestamp) -> Value {
        match self {
            Self::Text(place) => text(object, place).into(),
            Self::TextOr(place, or) => match text(object, place) {
                found if found.is_empty() => (*or).into(),
                found => found.into(),
            },
            Self::Number(place) => object.pointer(place).and_then(Value::as_i64).unwrap_or_default().into(),
            Self::Count(place) => match object.pointer(place) {
                Some(Value::Array(elements)) => elements.len().into(),
                Some(Value::Object(fields)) => fields.len().into(),
                _ => 0.into(),
            },
            Self::Flag(place) => object.pointer(place).and_then(Value::as_bool).unwrap_or_default().into(),
            Self::Since(place) => since(object.pointer(place), now).into(),
            Self::Code(code) => code(object),
            Self::Timed(code) => code(object, now),
        }
    }
}

/// A column of the default view.
pub(super) const fn column(name: &'static str, kind: &'static str, cell: Cell) -> BuiltIn {
    BuiltIn { name, kind, priority: 0, cell }
}

/// A column of `-o wide`.
pub(super) const fn wide(name: &'static str, cell: Cell) -> BuiltIn {
    BuiltIn { name, kind: "string", priority: 1, cell }
}

/// The name of the object.
pub(super) const fn name() -> BuiltIn {
    column("Name", "string", Cell::Text("/metadata/name"))
}

/// How long ago the object was created.
pub(super) const fn age() -> BuiltIn {
    column("Age", "string", Cell::Since("/metadata/creationTimestamp"))
}

/// The value at a place as text; numbers and flags are written out, the rest is empty.
pub(super) fn text(object: &Value, place: &str) -> String {
    match object.pointer(place) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Bool(flag)) => flag.to_string(),
        _ => String::new(),
    }
}

/// How long ago a time was.
pub(super) fn since(time: Option<&Value>, now: Timestamp) -> String {
    match time.and_then(Value::as_str).map(str::parse::<Timestamp>) {
        Some(Ok(time)) => human_duration(time, now),
        _ => "<unknown>".to_owned(),
    }
}

/// The elements of the list at a place.
pub(super) fn list<'a>(object: &'a Value, place: &str) -> impl DoubleEndedIterator<Item = &'a Value> + Clone {
    object.pointer(place).and_then(Value::as_array).map_or(&[][..], Vec::as_slice).iter()
}

/// Whether a condition has this status.
pub(super) fn has_condition(object: &Value, kind: &str, status: &str) -> bool {
    list(object, "/status/conditions")
        .any(|condition| condition["type"] == kind && condition["status"] == status)
}

/// At most `most` of the texts, and how many more there are.
pub(super) fn few(texts: &[String], most: usize, separator: &str) -> String {
    if texts.is_empty() {
        return "<none>".to_owned();
    }
    let shown = texts[..texts.len().min(most)].join(separator);
    if texts.len() > most { format!("{shown} + {} more...", texts.len() - most) } else { shown }
}

/// Labels as `a=b,c=d`.
pub(super) fn labels(labels: Option<&Value>) -> String {
    let pairs: Vec<String> = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// A label selector as `a=b,c in (d,e),!f`.
pub(super) fn selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return "<none>".to_owned() };
    let mut parts: Vec<String> = Vec::new();
    if let Some(labels) = selector["matchLabels"].as_object() {
        parts.extend(
            labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())),
        );
    }
    for requirement in list(selector, "/matchExpressions") {
        let key = requirement["key"].as_str().unwrap_or_default();
        let mut values: Vec<&str> = list(requirement, "/values").filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        parts.push(match requirement["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    if parts.is_empty() { "<none>".to_owned() } else { parts.join(",") }
}
