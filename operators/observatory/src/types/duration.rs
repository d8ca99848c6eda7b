//! Lengths of time as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A length of time in an object: `90s`, `1h30m`, `500ms`, `2d`.
///
/// What stands in the object is kept as it is, so that a text which no schema refused is
/// reported with the task it belongs to instead of making the whole object unreadable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurationText(pub String);

/// Why a text is no length of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration; write numbers with units, such as 90s, 1h30m or 500ms")]
pub struct DurationError(String);

impl DurationText {
    /// The length of time.
    ///
    /// # Errors
    /// When the text is not a duration.
    pub fn parse(&self) -> Result<Duration, DurationError> {
        parse(&self.0).ok_or_else(|| DurationError(self.0.clone()))
    }

    /// The length of time; none for a text that is not a duration.
    pub fn get(&self) -> Option<Duration> {
        parse(&self.0)
    }
}

impl From<&str> for DurationText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for DurationText {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$",
        })
    }
}

fn parse(text: &str) -> Option<Duration> {
    let mut total = 0f64;
    let mut rest = text;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number = f64::from_str(&rest[..digits]).ok()?;
        rest = &rest[digits..];
        let (unit, seconds) = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)]
            .into_iter()
            .find(|(unit, _)| rest.starts_with(unit))?;
        rest = &rest[unit.len()..];
        total += number * seconds;
    }
    Duration::try_from_secs_f64(total).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_they_are_written() {
        for (text, millis) in [
            ("90s", 90_000),
            ("1h30m", 5_400_000),
            ("500ms", 500),
            ("2d", 172_800_000),
            ("1.5s", 1500),
            ("0s", 0),
        ] {
            assert_eq!(DurationText::from(text).get(), Some(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_duration_says_what_to_write() {
        for text in ["", "10", "s", "1 h", "-5s", "1w", "1..5s", "5sm"] {
            assert!(DurationText::from(text).get().is_none(), "{text}");
        }
        let error = DurationText::from("10").parse().expect_err("no unit");
        assert_eq!(
            error.to_string(),
            "\"10\" is not a duration; write numbers with units, such as 90s, 1h30m or 500ms"
        );
    }
}
