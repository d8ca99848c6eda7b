//! Taking requests apart, with every complaint at once.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::answer::{Problem, Refusal};
use crate::percent::decode;
use crate::types::DriftInterval;

/// The largest free-form field.
const LARGEST: usize = 1 << 20;

/// The fields of a request's body.
pub(super) struct Fields {
    all: Map<String, Value>,
    problems: Vec<Problem>,
}

impl Fields {
    /// Reads a body.
    pub(super) fn parse(body: &[u8]) -> Result<Self, Refusal> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(all)) => Ok(Self { all, problems: Vec::new() }),
            Ok(other) => Err(Problem::new(
                "model_attributes_type",
                &["body"],
                "Input should be a valid dictionary or object to extract fields from",
                other,
            )
            .into()),
            Err(_) if body.is_empty() => {
                Err(Problem::new("missing", &["body"], "Field required", Value::Null).into())
            }
            Err(error) => {
                let mut problem =
                    Problem::new("json_invalid", &["body"], format!("JSON decode error: {error}"), json!({}));
                let place = match error.is_eof() {
                    true => body.len(),
                    false => offset(body, error.line(), error.column()),
                };
                problem.loc.push(json!(place));
                Err(problem.into())
            }
        }
    }

    /// A text that must be there.
    pub(super) fn text(&mut self, name: &str, longest: usize) -> String {
        if !self.all.contains_key(name) {
            let input = Value::Object(self.all.clone());
            self.problems.push(Problem::new("missing", &["body", name], "Field required", input));
            return String::new();
        }
        match self.optional_text(name, longest) {
            Some(text) if text.is_empty() => {
                self.wrong("string_too_short", name, "String should have at least 1 character");
                text
            }
            Some(text) => text,
            None => {
                if self.all.get(name) == Some(&Value::Null) {
                    self.wrong("string_type", name, "Input should be a valid string");
                }
                String::new()
            }
        }
    }

    /// A text that may be missing or null.
    pub(super) fn optional_text(&mut self, name: &str, longest: usize) -> Option<String> {
        match self.all.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => {
                let text = text.clone();
                if text.chars().count() > longest {
                    self.wrong(
                        "string_too_long",
                        name,
                        format!("String should have at most {longest} characters"),
                    );
                }
                Some(text)
            }
            Some(_) => {
                self.wrong("string_type", name, "Input should be a valid string");
                None
            }
        }
    }

    /// A whole number that may be missing or null.
    pub(super) fn optional_number(&mut self, name: &str) -> Option<i64> {
        match self.all.get(name) {
            None | Some(Value::Null) => None,
            Some(value) => {
                let number = value.as_i64();
                if number.is_none() {
                    self.wrong("int_type", name, "Input should be a valid integer");
                }
                number
            }
        }
    }

    /// An object that may be missing or null.
    pub(super) fn object(&mut self, name: &str) -> Option<Map<String, Value>> {
        match self.all.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::Object(fields)) => {
                let fields = fields.clone();
                if serde_json::to_vec(&fields).is_ok_and(|bytes| bytes.len() > LARGEST) {
                    self.problems.push(Problem::new(
                        "value_error",
                        &["body", name],
                        format!("Value error, {name} exceeds maximum size of 1MB"),
                        Value::Null,
                    ));
                }
                Some(fields)
            }
            Some(_) => {
                self.wrong("dict_type", name, "Input should be a valid dictionary");
                None
            }
        }
    }

    /// The metadata of a type or resource, of which the operator reads some itself.
    pub(super) fn metadata(&mut self) -> Option<Map<String, Value>> {
        let metadata = self.object("metadata")?;
        if let Err(wrong) = DriftInterval::read(&metadata) {
            self.wrong("value_error", "metadata", format!("Value error, {wrong}"));
        }
        Some(metadata)
    }

    /// An object that must be there.
    pub(super) fn required_object(&mut self, name: &str) -> Map<String, Value> {
        match self.all.get(name) {
            None => {
                let input = Value::Object(self.all.clone());
                self.problems.push(Problem::new("missing", &["body", name], "Field required", input));
            }
            Some(Value::Null) => self.wrong("dict_type", name, "Input should be a valid dictionary"),
            Some(_) => {}
        }
        self.object(name).unwrap_or_default()
    }

    /// Adds a complaint about a field.
    pub(super) fn wrong(&mut self, r#type: &'static str, name: &str, message: impl Into<String>) {
        let input = self.all.get(name).cloned().unwrap_or(Value::Null);
        self.problems.push(Problem::new(r#type, &["body", name], message, input));
    }

    /// All complaints, if there are any.
    pub(super) fn finish(self) -> Result<(), Refusal> {
        match self.problems.is_empty() {
            true => Ok(()),
            false => Err(Refusal::fields(&self.problems)),
        }
    }
}

fn offset(body: &[u8], line: usize, column: usize) -> usize {
    let before: usize =
        body.split(|byte| *byte == b'\n').take(line.saturating_sub(1)).map(|line| line.len() + 1).sum();
    before + column.saturating_sub(1)
}

/// The parameters behind the question mark.
pub(super) struct Query(HashMap<String, String>);

impl Query {
    pub(super) fn parse(query: Option<&str>) -> Self {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(&name.replace('+', " ")), decode(&value.replace('+', " ")))
                })
                .collect(),
        )
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Whether a parameter is set to something like yes.
    pub(super) fn is_set(&self, name: &str) -> bool {
        matches!(self.text(name), Some("true" | "1" | "yes"))
    }

    /// How many entries are wanted.
    pub(super) fn limit(&self, usual: u32) -> Result<u32, Refusal> {
        const MOST: i64 = 1000;
        match self.number("limit")? {
            None => Ok(usual),
            Some(limit) if limit < 1 => Err(Problem::new(
                "greater_than_equal",
                &["query", "limit"],
                "Input should be greater than or equal to 1",
                json!(limit.to_string()),
            )
            .into()),
            Some(limit) if limit > MOST => Err(Problem::new(
                "less_than_equal",
                &["query", "limit"],
                format!("Input should be less than or equal to {MOST}"),
                json!(limit.to_string()),
            )
            .into()),
            Some(limit) => Ok(u32::try_from(limit).unwrap_or(usual)),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<i64>, Refusal> {
        self.text(name).map(|text| integer("query", name, text)).transpose()
    }
}

/// A whole number out of a path or query.
pub(super) fn integer(place: &str, name: &str, text: &str) -> Result<i64, Refusal> {
    text.parse().map_err(|_| {
        Problem::new(
            "int_parsing",
            &[place, name],
            "Input should be a valid integer, unable to parse string as an integer",
            json!(text),
        )
        .into()
    })
}
