//! Label and field selectors.

use std::fmt::Write as _;

use serde_json::Value;

/// A conjunction of requirements on labels; empty selects everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    Absent,
    Greater,
    Less,
}

impl LabelSelector {
    /// Reads the text form, for example `app=web,tier in (a, b),!canary`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { rest: text };
        let mut requirements = Vec::new();
        parser.skip_space();
        while !parser.rest.is_empty() {
            requirements
                .push(parser.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?);
            parser.skip_space();
            match parser.rest.strip_prefix(',') {
                Some(rest) if !rest.trim().is_empty() => {
                    parser.rest = rest;
                    parser.skip_space();
                }
                Some(_) => return Err("found '', expected: identifier after ','".to_owned()),
                None if parser.rest.is_empty() => break,
                None => {
                    return Err(format!(
                        "unable to parse requirement: found '{}', expected: ',' or 'end of string'",
                        parser.rest
                    ));
                }
            }
        }
        Ok(Self(requirements))
    }

    /// Whether these labels are selected.
    pub(crate) fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| {
            let found = label(&requirement.key);
            let listed = |value: &str| requirement.values.iter().any(|wanted| wanted == value);
            let compare = |wanted: fn(i64, i64) -> bool| {
                let number = |text: &str| text.parse::<i64>().ok();
                match (
                    found.and_then(number),
                    requirement.values.first().map(String::as_str).and_then(number),
                ) {
                    (Some(found), Some(bound)) => wanted(found, bound),
                    _ => false,
                }
            };
            match requirement.operator {
                Operator::In => found.is_some_and(listed),
                Operator::NotIn => !found.is_some_and(listed),
                Operator::Exists => found.is_some(),
                Operator::Absent => found.is_none(),
                Operator::Greater => compare(|a, b| a > b),
                Operator::Less => compare(|a, b| a < b),
            }
        })
    }

    /// Whether it selects everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A `LabelSelector` object (`matchLabels`, `matchExpressions`) in text form, as `/scale` shows it.
pub(crate) fn selector_text(selector: &Value) -> String {
    let mut parts: Vec<(String, String)> = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        parts.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let mut values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let mut text = String::new();
        let _ = match expression["operator"].as_str().unwrap_or_default() {
            "In" => write!(text, "{key} in ({})", values.join(",")),
            "NotIn" => write!(text, "{key} notin ({})", values.join(",")),
            "DoesNotExist" => write!(text, "!{key}"),
            _ => write!(text, "{key}"),
        };
        parts.push((key.to_owned(), text));
    }
    parts.sort_by(|a, b| a.0.cmp(&b.0));
    parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

/// Whether a `LabelSelector` object selects these labels; one that is broken selects nothing.
pub(crate) fn object_matches(selector: &Value, labels: &Value) -> bool {
    LabelSelector::parse(&selector_text(selector))
        .is_ok_and(|selector| selector.matches(|key| labels.get(key)?.as_str()))
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// A key, a value or a word such as `in`.
    fn word(&mut self) -> &'a str {
        self.skip_space();
        let end = self
            .rest
            .find([',', '(', ')', '=', '!', '<', '>', ' ', '\t', '\r', '\n'])
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip_space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        if self.take("!") {
            let key = self.key()?;
            return Ok(Requirement { key, operator: Operator::Absent, values: Vec::new() });
        }
        let key = self.key()?;
        self.skip_space();
        if self.rest.is_empty() || self.rest.starts_with(',') {
            return Ok(Requirement { key, operator: Operator::Exists, values: Vec::new() });
        }
        for (token, operator) in [
            ("==", Operator::In),
            ("=", Operator::In),
            ("!=", Operator::NotIn),
            (">", Operator::Greater),
            ("<", Operator::Less),
        ] {
            if self.take(token) {
                let value = self.word().to_owned();
                check_value(&value)?;
                if matches!(operator, Operator::Greater | Operator::Less) && value.parse::<i64>().is_err() {
                    return Err(format!(
                        "values[0][{key}]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
                    ));
                }
                return Ok(Requirement { key, operator, values: vec![value] });
            }
        }
        let operator = match self.word() {
            "in" => Operator::In,
            "notin" => Operator::NotIn,
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        if !self.take("(") {
            return Err(format!("found '{}', expected: '('", self.rest));
        }
        let mut values = Vec::new();
        loop {
            let value = self.word().to_owned();
            check_value(&value)?;
            values.push(value);
            if self.take(")") {
                break;
            }
            if !self.take(",") {
                return Err(format!("found '{}', expected: ',', ')' or identifier", self.rest));
            }
        }
        values.sort_unstable();
        values.dedup();
        Ok(Requirement { key, operator, values })
    }

    fn key(&mut self) -> Result<String, String> {
        let key = self.word();
        if key.is_empty() {
            return Err(format!("found '{}', expected: identifier", self.rest));
        }
        match crate::admit::names::qualified_name(key).first() {
            None => Ok(key.to_owned()),
            Some(why) => Err(format!("key: Invalid value: \"{key}\": {why}")),
        }
    }
}

fn check_value(value: &str) -> Result<(), String> {
    match crate::admit::names::label_value(value).first() {
        None => Ok(()),
        Some(why) => Err(format!("values[0]: Invalid value: \"{value}\": {why}")),
    }
}

/// A conjunction of requirements on fields; empty selects everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FieldSelector(Vec<FieldRequirement>);

/// One requirement of a [`FieldSelector`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FieldRequirement {
    /// Path of the field, for example `spec.nodeName`.
    pub(crate) field: String,
    /// The value it must or must not have.
    pub(crate) value: String,
    /// Whether it must have the value.
    pub(crate) comparison: Comparison,
}

/// How a field is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// `=` and `==`
    Equal,
    /// `!=`
    NotEqual,
}

impl FieldSelector {
    /// Reads the text form, for example `metadata.name=a,status.phase!=Running`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for term in split_terms(text).into_iter().filter(|term| !term.is_empty()) {
            let bad = || format!("invalid selector: '{text}'; can't understand '{term}'");
            let position = term.find('=').ok_or_else(bad)?;
            let (field, comparison) = match term[..position].strip_suffix('!') {
                Some(field) => (field, Comparison::NotEqual),
                None => (&term[..position], Comparison::Equal),
            };
            let rest = &term[position + 1..];
            let rest =
                if comparison == Comparison::Equal { rest.strip_prefix('=').unwrap_or(rest) } else { rest };
            if field.is_empty() {
                return Err(bad());
            }
            requirements.push(FieldRequirement {
                field: field.to_owned(),
                value: unescape(rest).ok_or_else(bad)?,
                comparison,
            });
        }
        Ok(Self(requirements))
    }

    /// The requirements.
    pub(crate) fn requirements(&self) -> &[FieldRequirement] {
        &self.0
    }

    /// Whether it selects everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FieldRequirement {
    /// Whether a field of this value is selected; an absent field is empty text.
    pub(crate) fn accepts(&self, found: &str) -> bool {
        (found == self.value) == (self.comparison == Comparison::Equal)
    }
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn unescape(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                _ => return None,
            },
            ',' | '=' => return None,
            other => out.push(other),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let selector = LabelSelector::parse(selector).expect("a selector");
        selector.matches(|key| labels.iter().find(|(found, _)| *found == key).map(|(_, value)| *value))
    }

    #[test]
    fn labels_are_selected_as_the_text_says() {
        let labels = [("app", "web"), ("tier", "b"), ("n", "5")];
        for (selector, expected) in [
            ("", true),
            ("app=web", true),
            ("app == web , tier!=a", true),
            ("app in (api, web)", true),
            ("app notin (api,web)", false),
            ("nope notin (x)", true),
            ("app,!nope", true),
            ("!app", false),
            ("n>4,n<6", true),
            ("n>5", false),
            ("nope=", false),
            ("nope!=x", true),
            ("example.com/x", false),
        ] {
            assert_eq!(matches(selector, &labels), expected, "{selector}");
        }
    }

    #[test]
    fn broken_label_selectors_are_refused() {
        for selector in
            ["a in (", "a in b", "=b", "a=b,", "a b", "a in (b", "a>x", "-a", "a=b c", "a=_", "a(b)"]
        {
            assert!(LabelSelector::parse(selector).is_err(), "{selector}");
        }
    }

    #[test]
    fn fields_are_selected_as_the_text_says() {
        let object = |field: &str| if field == "spec.nodeName" { "n1".to_owned() } else { String::new() };
        for (selector, expected) in [
            ("spec.nodeName=n1", true),
            ("spec.nodeName==n1,status.phase!=Running", true),
            ("spec.nodeName=", false),
            ("status.phase=", true),
            ("", true),
        ] {
            let selector = FieldSelector::parse(selector).expect("a selector");
            let selected = selector
                .requirements()
                .iter()
                .all(|requirement| requirement.accepts(&object(&requirement.field)));
            assert_eq!(selected, expected, "{selector:?}");
        }
        assert!(FieldSelector::parse("a").is_err());
        assert_eq!(
            FieldSelector::parse("metadata.name=a\\,b").expect("a selector").requirements()[0].value,
            "a,b"
        );
    }

    #[test]
    fn selector_objects_are_written_as_text() {
        let selector = serde_json::json!({"matchLabels": {"b": "1", "a": "2"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["y", "x"]}, {"key": "d", "operator": "Exists"}]});
        assert_eq!(selector_text(&selector), "a=2,b=1,c in (x,y),d");
        assert!(object_matches(&selector, &serde_json::json!({"a": "2", "b": "1", "c": "x", "d": ""})));
        assert!(!object_matches(&selector, &serde_json::json!({"a": "2", "b": "1", "c": "z", "d": ""})));
    }
}
