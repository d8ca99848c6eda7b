//! From bytes to a JSON tree: JSON and YAML, with the fields that occur twice.

use std::fmt;

use http::{HeaderMap, header::CONTENT_TYPE};
use serde::{
    Deserializer,
    de::{DeserializeSeed, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

use crate::status::Failure;

/// What requests may be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Media {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

impl Media {
    /// Reads the `Content-Type`; JSON when there is none.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Failure> {
        match content_type(headers).as_str() {
            "" | "application/json" => Ok(Self::Json),
            "application/yaml" | "application/x-yaml" | "text/yaml" => Ok(Self::Yaml),
            "application/vnd.kubernetes.protobuf" => Ok(Self::Protobuf),
            _ => Err(Failure::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json, application/yaml, application/vnd.kubernetes.protobuf",
            )),
        }
    }
}

/// The media type without its parameters, in lower case.
pub(crate) fn content_type(headers: &HeaderMap) -> String {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// A tree and the paths of fields that occurred more than once in it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Decoded {
    /// The tree; of fields that occur twice, the last.
    pub(crate) value: Value,
    /// For example `data.k`.
    pub(crate) duplicates: Vec<String>,
}

/// Reads a body of text.
pub(crate) fn decode(media: Media, bytes: &[u8]) -> Result<Decoded, Failure> {
    match media {
        Media::Json => decode_json(bytes),
        Media::Yaml => decode_yaml(bytes),
        Media::Protobuf => Err(Failure::unsupported_media_type(
            "protobuf is not accepted here: send application/json or application/yaml",
        )),
    }
}

fn decode_json(bytes: &[u8]) -> Result<Decoded, Failure> {
    let mut duplicates = Vec::new();
    let mut path = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Tree { path: &mut path, duplicates: &mut duplicates }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| {
            Failure::bad_request(format!("the body of the request is not valid JSON: {error}"))
        })?;
    Ok(Decoded { value, duplicates })
}

fn decode_yaml(bytes: &[u8]) -> Result<Decoded, Failure> {
    let refuse = |why: &dyn fmt::Display| {
        Failure::bad_request(format!("the body of the request is not valid YAML: {why}"))
    };
    let text = std::str::from_utf8(bytes).map_err(|error| refuse(&error))?;
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    let value: Value = serde_saphyr::from_str_with_options(text, options).map_err(|error| refuse(&error))?;
    Ok(Decoded { value, duplicates: Vec::new() })
}

/// Builds a tree and remembers where fields occur twice.
struct Tree<'a> {
    path: &'a mut Vec<Step>,
    duplicates: &'a mut Vec<String>,
}

enum Step {
    Field(String),
    Index(usize),
}

/// A path as messages write it: `spec.containers[0].name`.
fn text_of(path: &[Step], last: &str) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Field(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Step::Index(index) => {
                text.push_str(&format!("[{index}]"));
            }
        }
    }
    if !text.is_empty() {
        text.push('.');
    }
    text.push_str(last);
    text
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            self.path.push(Step::Index(items.len()));
            let item = access.next_element_seed(Tree { path: self.path, duplicates: self.duplicates });
            self.path.pop();
            match item? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                self.duplicates.push(text_of(self.path, &key));
            }
            self.path.push(Step::Field(key));
            let value = access.next_value_seed(Tree { path: self.path, duplicates: self.duplicates });
            let Some(Step::Field(key)) = self.path.pop() else { continue };
            map.insert(key, value?);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_occur_twice_are_named_and_the_last_wins() {
        let decoded =
            decode(Media::Json, br#"{"a":1,"b":{"c":1,"c":2},"d":[{"e":1,"e":3}],"a":4}"#).expect("valid");
        assert_eq!(decoded.value, json!({"a": 4, "b": {"c": 2}, "d": [{"e": 3}]}));
        assert_eq!(decoded.duplicates, ["b.c", "d[0].e", "a"]);
    }

    #[test]
    fn yaml_reads_as_kubernetes_reads_it() {
        let decoded = decode(Media::Yaml, b"a: 0644\nb: [x, 'y']\nc: |\n  line\nd: {e: true}\nf: null\n")
            .expect("valid");
        assert_eq!(
            decoded.value,
            json!({"a": 420, "b": ["x", "y"], "c": "line\n", "d": {"e": true}, "f": null})
        );
    }

    #[test]
    fn hostile_bodies_are_refused() {
        let deep = "[".repeat(100_000);
        let mut bomb = String::from("a: &a [x,x,x,x,x,x,x,x,x]\n");
        for (name, before) in ('b'..='j').zip('a'..='i') {
            bomb.push_str(&format!("{name}: &{name} [{}]\n", vec![format!("*{before}"); 9].join(",")));
        }
        for (media, body) in [
            (Media::Json, "{"),
            (Media::Json, "1e400"),
            (Media::Json, "{} x"),
            (Media::Json, &deep),
            (Media::Yaml, &deep),
            (Media::Yaml, &bomb),
            (Media::Yaml, "a: ["),
        ] {
            assert_eq!(
                decode(media, body.as_bytes()).map_err(|failure| failure.code),
                Err(400),
                "{media:?} {body:.20}"
            );
        }
    }
}
