//! The query of a request.

use super::route::{Plus, percent_decode};
use crate::status::Failure;

/// The query's pairs, decoded.
#[derive(Debug, Default, Clone)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query string; pairs that do not decode are refused.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, Failure> {
        let mut pairs = Vec::new();
        for pair in text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decode = |text| percent_decode(text, Plus::Space);
            match (decode(key), decode(value)) {
                (Some(key), Some(value)) => pairs.push((key, value)),
                _ => {
                    return Err(Failure::bad_request(format!(
                        "the query parameter {pair:?} is not properly encoded"
                    )));
                }
            }
        }
        Ok(Self(pairs))
    }

    /// The first value of a parameter, unless it is empty.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.given(key).filter(|value| !value.is_empty())
    }

    /// The first value of a parameter, also when it is empty.
    pub(crate) fn given(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str())
    }

    /// All values of a parameter.
    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(found, _)| found == key).map(|(_, value)| value.as_str())
    }

    /// A whole number.
    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, Failure> {
        self.get(key)
            .map(|text| {
                text.parse().map_err(|_| {
                    Failure::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
                })
            })
            .transpose()
    }

    /// A yes or no; absent is no, present without a value is yes.
    pub(crate) fn flag(&self, key: &str) -> Result<bool, Failure> {
        match self.given(key) {
            None => Ok(false),
            Some("" | "1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
            Some(other) => Err(Failure::bad_request(format!(
                "the query parameter {key} must be true or false, not {other:?}"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_typed() {
        let query =
            Query::parse(Some("labelSelector=a%3Db+c&limit=5&watch&x=&y=1&y=2")).expect("a good query");
        assert_eq!(query.get("labelSelector"), Some("a=b c"));
        assert_eq!(query.number("limit"), Ok(Some(5)));
        assert_eq!(query.flag("watch"), Ok(true));
        assert_eq!((query.get("x"), query.given("x")), (None, Some("")));
        assert_eq!(query.all("y").collect::<Vec<_>>(), ["1", "2"]);
        assert!(Query::parse(Some("limit=abc")).expect("decodes").number("limit").is_err());
        assert!(Query::parse(Some("a=%zz")).is_err());
    }
}
