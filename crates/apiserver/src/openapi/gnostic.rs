//! Swagger 2.0 in the protobuf of gnostic, which kubectl before 1.27 insists on.
//!
//! Only what our documents contain is written; the field numbers are those of gnostic's
//! `openapi.v2` messages.

use serde_json::Value;

/// Encodes a Swagger 2.0 document.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, &document["swagger"]);
    out.message(2, |info| {
        info.text(1, &document["info"]["title"]);
        info.text(2, &document["info"]["version"]);
    });
    out.message(8, |paths| {
        for (name, item) in fields(&document["paths"]) {
            paths.named(2, name, |out| path_item(item, out));
        }
    });
    out.message(9, |definitions| {
        for (name, value) in fields(&document["definitions"]) {
            definitions.named(1, name, |out| schema(value, out));
        }
    });
    out.bytes
}

fn path_item(item: &Value, out: &mut Message) {
    for (method, number) in [("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("patch", 8)] {
        if let Some(operation) = item.get(method) {
            out.message(number, |out| self::operation(operation, out));
        }
    }
    for parameter in elements(&item["parameters"]) {
        out.message(9, |out| self::parameter(parameter, out));
    }
}

fn operation(operation: &Value, out: &mut Message) {
    out.texts(1, &operation["tags"]);
    out.text(3, &operation["description"]);
    out.text(5, &operation["operationId"]);
    out.texts(6, &operation["produces"]);
    out.texts(7, &operation["consumes"]);
    for parameter in elements(&operation["parameters"]) {
        out.message(8, |out| self::parameter(parameter, out));
    }
    out.message(9, |responses| {
        for (code, response) in fields(&operation["responses"]) {
            responses.named(1, code, |value| {
                value.message(1, |out| {
                    out.text(1, &response["description"]);
                    if let Some(value) = response.get("schema") {
                        out.message(2, |item| item.message(1, |out| schema(value, out)));
                    }
                });
            });
        }
    });
    out.texts(10, &operation["schemes"]);
    extensions(13, operation, out);
}

/// A ParametersItem: a parameter in the body, in the query or in the path.
fn parameter(parameter: &Value, out: &mut Message) {
    out.message(1, |out| match parameter["in"].as_str() {
        Some("body") => out.message(1, |body| {
            body.text(2, &parameter["name"]);
            body.text(3, &parameter["in"]);
            body.flag(4, &parameter["required"]);
            body.message(5, |out| schema(&parameter["schema"], out));
        }),
        Some("path") => out.message(2, |other| {
            other.message(4, |path| {
                path.flag(1, &parameter["required"]);
                path.text(2, &parameter["in"]);
                path.text(4, &parameter["name"]);
                path.text(5, &parameter["type"]);
                path.flag(19, &parameter["uniqueItems"]);
            });
        }),
        _ => out.message(2, |other| {
            other.message(3, |query| {
                query.flag(1, &parameter["required"]);
                query.text(2, &parameter["in"]);
                query.text(4, &parameter["name"]);
                query.text(6, &parameter["type"]);
                query.flag(20, &parameter["uniqueItems"]);
            });
        }),
    });
}

fn schema(value: &Value, out: &mut Message) {
    out.text(1, &value["$ref"]);
    out.text(2, &value["format"]);
    out.text(4, &value["description"]);
    if let Some(default) = value.get("default") {
        out.message(5, |out| any(default, out));
    }
    out.double(6, &value["multipleOf"]);
    out.double(7, &value["maximum"]);
    out.flag(8, &value["exclusiveMaximum"]);
    out.double(9, &value["minimum"]);
    out.flag(10, &value["exclusiveMinimum"]);
    out.whole(11, &value["maxLength"]);
    out.whole(12, &value["minLength"]);
    out.text(13, &value["pattern"]);
    out.whole(14, &value["maxItems"]);
    out.whole(15, &value["minItems"]);
    out.flag(16, &value["uniqueItems"]);
    out.whole(17, &value["maxProperties"]);
    out.whole(18, &value["minProperties"]);
    out.texts(19, &value["required"]);
    for allowed in elements(&value["enum"]) {
        out.message(20, |out| any(allowed, out));
    }
    if let Some(additional) = value.get("additionalProperties") {
        out.message(21, |item| match additional {
            Value::Bool(_) => item.flag(2, additional),
            _ => item.message(1, |out| schema(additional, out)),
        });
    }
    if value["type"].is_string() {
        out.message(22, |kind| kind.text(1, &value["type"]));
    }
    if let Some(items) = value.get("items") {
        out.message(23, |out| out.message(1, |out| schema(items, out)));
    }
    if let Some(properties) = value.get("properties") {
        out.message(25, |out| {
            for (name, property) in fields(properties) {
                out.named(1, name, |out| schema(property, out));
            }
        });
    }
    extensions(31, value, out);
}

/// The keys that begin with `x-`, with their values as YAML; JSON is YAML too.
fn extensions(number: u32, value: &Value, out: &mut Message) {
    for (name, value) in fields(value).filter(|(name, _)| name.starts_with("x-")) {
        out.named(number, name, |out| any(value, out));
    }
}

fn any(value: &Value, out: &mut Message) {
    let mut text = value.to_string();
    text.push('\n');
    out.delimited(2, text.as_bytes());
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn elements(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A protobuf message being written.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn tag(&mut self, number: u32, wire: u64) {
        self.varint(u64::from(number) << 3 | wire);
    }

    fn delimited(&mut self, number: u32, bytes: &[u8]) {
        self.tag(number, 2);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    fn message(&mut self, number: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.delimited(number, &inner.bytes);
    }

    /// An entry of a map: a message of a name and a message.
    fn named(&mut self, number: u32, name: &str, write: impl FnOnce(&mut Self)) {
        self.message(number, |entry| {
            entry.delimited(1, name.as_bytes());
            entry.message(2, write);
        });
    }

    fn text(&mut self, number: u32, value: &Value) {
        if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
            self.delimited(number, text.as_bytes());
        }
    }

    fn texts(&mut self, number: u32, value: &Value) {
        for text in elements(value).filter_map(Value::as_str) {
            self.delimited(number, text.as_bytes());
        }
    }

    fn flag(&mut self, number: u32, value: &Value) {
        if value == &Value::Bool(true) {
            self.tag(number, 0);
            self.varint(1);
        }
    }

    fn whole(&mut self, number: u32, value: &Value) {
        if let Some(whole) = value.as_u64().filter(|whole| *whole != 0) {
            self.tag(number, 0);
            self.varint(whole);
        }
    }

    fn double(&mut self, number: u32, value: &Value) {
        if let Some(double) = value.as_f64().filter(|double| *double != 0.0) {
            self.tag(number, 1);
            self.bytes.extend_from_slice(&double.to_le_bytes());
        }
    }
}
