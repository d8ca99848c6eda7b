//! Built-in objects in protobuf, as client-go and newer kubectl send them.
//!
//! A body is four bytes of magic and an envelope that names the type; what is inside is read with
//! the numbers of the table. Fields that the table does not know are skipped, as Kubernetes does.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Number, Value};
use thiserror::Error;

use super::builtin;
use crate::schema::{Field, Ref, Scalar, Schema, Shape, Struct};

/// The media type of such bodies.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What every body begins with.
const MAGIC: &[u8] = b"k8s\0";
/// How deep messages may be nested.
const DEPTH: usize = 100;
/// The second at which Go's zero time is.
const ZERO_TIME: i64 = -62_135_596_800;

/// Why a protobuf body cannot be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ProtobufError {
    /// The body does not begin as protobuf bodies of Kubernetes do.
    #[error("the body is not protobuf as Kubernetes writes it: it must begin with the bytes 'k8s' and 0")]
    Magic,
    /// The type is not built in; custom resources have no protobuf.
    #[error("{kind:?} of {api_version:?} has no protobuf; send it as application/json")]
    UnknownKind {
        /// `apiVersion` of the envelope.
        api_version: String,
        /// `kind` of the envelope.
        kind: String,
    },
    /// The bytes break off, or are not what their type says.
    #[error("the protobuf of {at} is broken: {problem}")]
    Broken {
        /// The type that was being read.
        at: String,
        /// What is wrong.
        problem: &'static str,
    },
}

/// Reads a body into the JSON that it stands for.
///
/// # Errors
/// When it is no such body, is of a type that is not built in, or is broken.
pub fn decode(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = bytes.strip_prefix(MAGIC).ok_or(ProtobufError::Magic)?;
    let broken = |problem| ProtobufError::Broken { at: "the envelope".to_owned(), problem };
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), None);
    for entry in Entries(envelope) {
        match entry.map_err(broken)? {
            (1, Wire::Bytes(meta)) => {
                for entry in Entries(meta) {
                    match entry.map_err(broken)? {
                        (1, Wire::Bytes(text)) => api_version = utf8(text).map_err(broken)?,
                        (2, Wire::Bytes(text)) => kind = utf8(text).map_err(broken)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = Some(bytes),
            (3 | 4, Wire::Bytes(text)) if !text.is_empty() && text != MEDIA_TYPE.as_bytes() => {
                return Err(broken("its content is in another encoding"));
            }
            _ => {}
        }
    }
    let raw = raw.ok_or_else(|| broken("it holds no object"))?;
    let Some(schema) = builtin::schema_of_kind(&api_version, &kind) else {
        return Err(ProtobufError::UnknownKind { api_version, kind });
    };
    let mut object = Map::new();
    object.insert("apiVersion".into(), api_version.into());
    object.insert("kind".into(), kind.clone().into());
    let mut value = Value::Object(object);
    read_into(&mut value, raw, &schema, DEPTH)
        .map_err(|problem| ProtobufError::Broken { at: kind, problem })?;
    Ok(value)
}

/// Reads a message into an object that may already hold some of it.
fn read_into(value: &mut Value, bytes: &[u8], schema: &Schema, depth: usize) -> Result<(), &'static str> {
    let Shape::Struct(known) = &schema.shape else { return Err("a message stands where none belongs") };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Some(fields) = value.as_object_mut() else { return Ok(()) };
    read_fields(fields, bytes, schema, known, 0, depth)
}

/// Reads the fields of a message; `inside` is the number of an inlined message, those of the ones
/// around it above it, or 0.
fn read_fields(
    fields: &mut Map<String, Value>,
    bytes: &[u8],
    schema: &Schema,
    known: &Struct,
    inside: u32,
    depth: usize,
) -> Result<(), &'static str> {
    let depth = depth.checked_sub(1).ok_or("messages are nested too deeply")?;
    for entry in Entries(bytes) {
        let (number, wire) = entry?;
        if number == 0 || number >= 1 << Field::INLINED_SHIFT {
            return Err("a field number is out of range");
        }
        let wanted = inside << Field::INLINED_SHIFT | number;
        if let Some((name, field)) = known.fields.iter().find(|(_, field)| field.number == wanted) {
            let special = unions(schema, name);
            read_field(fields.entry(&**name).or_insert(Value::Null), &wire, &field.schema, special, depth)?;
            continue;
        }
        let Wire::Bytes(inner) = wire else { continue };
        let within = inside << Field::NESTED_SHIFT | number;
        let is_inlined = known.fields.values().any(|field| {
            let place = field.number >> Field::INLINED_SHIFT;
            place == within || place >> Field::NESTED_SHIFT == within
        });
        if is_inlined {
            read_fields(fields, inner, schema, known, within, depth)?;
        }
    }
    Ok(())
}

/// Unions in the schema of schemas, which JSON shows without their wrapper.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Union {
    /// Plain JSON in a message of one field.
    Json,
    /// A flag (1) or a schema (2).
    SchemaOrFlag,
    /// A schema (1) or several (2).
    SchemaOrList,
}

fn unions(schema: &Schema, field: &str) -> Union {
    match field {
        "additionalProperties" | "additionalItems" if is_schema_of_schemas(schema) => Union::SchemaOrFlag,
        "items" if is_schema_of_schemas(schema) => Union::SchemaOrList,
        _ => Union::Json,
    }
}

fn is_schema_of_schemas(schema: &Schema) -> bool {
    schema.name.as_deref().is_some_and(|name| name.ends_with(".JSONSchemaProps"))
}

/// Reads one occurrence of a field.
fn read_field(
    value: &mut Value,
    wire: &Wire<'_>,
    schema: &Ref,
    union: Union,
    depth: usize,
) -> Result<(), &'static str> {
    match (&schema.shape, wire) {
        (Shape::List { items, .. }, wire) => {
            if !value.is_array() {
                *value = Value::Array(Vec::new());
            }
            let Some(elements) = value.as_array_mut() else { return Ok(()) };
            if let (Shape::Scalar(scalar @ (Scalar::Int32 | Scalar::Int64)), Wire::Bytes(packed)) =
                (&items.shape, wire)
            {
                let mut rest = *packed;
                while !rest.is_empty() {
                    elements.push(read_scalar(&Wire::Varint(varint(&mut rest)?), *scalar)?);
                }
                return Ok(());
            }
            let mut element = Value::Null;
            read_field(&mut element, wire, items, union, depth)?;
            elements.push(element);
        }
        (Shape::Map { values, .. }, Wire::Bytes(entry)) => {
            if !value.is_object() {
                *value = Value::Object(Map::new());
            }
            let (mut key, mut content) = (String::new(), Value::Null);
            for part in Entries(entry) {
                match part? {
                    (1, Wire::Bytes(text)) => key = utf8(text)?,
                    (2, wire) => read_map_value(&mut content, &wire, values, depth)?,
                    _ => {}
                }
            }
            if let Some(fields) = value.as_object_mut() {
                fields.insert(key, content);
            }
        }
        (Shape::Struct(_), Wire::Bytes(bytes)) => read_into(value, bytes, schema, depth)?,
        (Shape::Any, Wire::Bytes(bytes)) => *value = read_any(bytes, union, depth)?,
        (Shape::Scalar(scalar), wire) => *value = read_scalar(wire, *scalar)?,
        _ => return Err("a field has another wire type than its type says"),
    }
    Ok(())
}

/// Lists inside maps are wrapped into a message of their own.
fn read_map_value(
    value: &mut Value,
    wire: &Wire<'_>,
    schema: &Ref,
    depth: usize,
) -> Result<(), &'static str> {
    let (Shape::List { .. }, Wire::Bytes(wrapper)) = (&schema.shape, wire) else {
        return read_field(value, wire, schema, Union::Json, depth);
    };
    *value = Value::Array(Vec::new());
    for entry in Entries(wrapper) {
        if let (1, wire) = entry? {
            read_field(value, &wire, schema, Union::Json, depth)?;
        }
    }
    Ok(())
}

fn read_any(bytes: &[u8], union: Union, depth: usize) -> Result<Value, &'static str> {
    let mut list = Vec::new();
    let schema = || {
        builtin::definition("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
            .unwrap_or_default()
    };
    let mut found = Value::Null;
    for entry in Entries(bytes) {
        match (union, entry?) {
            (Union::Json, (1, Wire::Bytes(json))) => {
                found = serde_json::from_slice(json).map_err(|_| "a field that holds JSON does not")?;
            }
            (Union::SchemaOrFlag, (1, Wire::Varint(flag))) if found.is_null() => {
                found = Value::Bool(flag != 0);
            }
            (Union::SchemaOrFlag, (2, Wire::Bytes(inner)))
            | (Union::SchemaOrList, (1, Wire::Bytes(inner))) => {
                found = Value::Null;
                read_into(&mut found, inner, &schema(), depth)?;
            }
            (Union::SchemaOrList, (2, Wire::Bytes(inner))) => {
                let mut element = Value::Null;
                read_into(&mut element, inner, &schema(), depth)?;
                list.push(element);
            }
            _ => {}
        }
    }
    Ok(if list.is_empty() { found } else { list.into() })
}

fn read_scalar(wire: &Wire<'_>, scalar: Scalar) -> Result<Value, &'static str> {
    Ok(match (scalar, wire) {
        (Scalar::String, Wire::Bytes(text)) => utf8(text)?.into(),
        (Scalar::Bytes, Wire::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        // Negative numbers are written as their two's complement in 64 bits.
        (Scalar::Int32 | Scalar::Int64, Wire::Varint(number)) => number.cast_signed().into(),
        (Scalar::Boolean, Wire::Varint(flag)) => (*flag != 0).into(),
        (Scalar::Number, Wire::Double(number)) => {
            Number::from_f64(*number).map_or(Value::Null, Value::Number)
        }
        (Scalar::Quantity, Wire::Bytes(message)) => {
            let mut text = Value::from("0");
            for entry in Entries(message) {
                if let (1, Wire::Bytes(bytes)) = entry? {
                    text = utf8(bytes)?.into();
                }
            }
            text
        }
        (Scalar::IntOrString, Wire::Bytes(message)) => {
            let (mut is_text, mut number, mut text) = (false, 0, String::new());
            for entry in Entries(message) {
                match entry? {
                    (1, Wire::Varint(kind)) => is_text = kind == 1,
                    (2, Wire::Varint(value)) => number = value.cast_signed(),
                    (3, Wire::Bytes(bytes)) => text = utf8(bytes)?,
                    _ => {}
                }
            }
            if is_text { text.into() } else { number.into() }
        }
        (Scalar::Time | Scalar::MicroTime, Wire::Bytes(message)) => read_time(message, scalar)?,
        _ => return Err("a field has another wire type than its type says"),
    })
}

fn read_time(message: &[u8], scalar: Scalar) -> Result<Value, &'static str> {
    if message.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    for entry in Entries(message) {
        match entry? {
            (1, Wire::Varint(value)) => seconds = value.cast_signed(),
            (2, Wire::Varint(value)) => nanos = value.cast_signed(),
            _ => {}
        }
    }
    if seconds == ZERO_TIME {
        return Ok(Value::Null);
    }
    let nanos = i32::try_from(nanos).map_err(|_| "a time has too many nanoseconds")?;
    let time = jiff::Timestamp::new(seconds, nanos).map_err(|_| "a time is out of range")?;
    let format = if scalar == Scalar::Time { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S.%6fZ" };
    Ok(time.strftime(format).to_string().into())
}

fn utf8(bytes: &[u8]) -> Result<String, &'static str> {
    std::str::from_utf8(bytes).map(ToOwned::to_owned).map_err(|_| "a text is not UTF-8")
}

/// The content of one field, by wire type.
enum Wire<'a> {
    Varint(u64),
    Double(f64),
    Bytes(&'a [u8]),
    /// Four bytes; no type of Kubernetes has them.
    Fixed32,
}

/// The fields of a message, in the order in which they were written.
struct Entries<'a>(&'a [u8]);

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(u32, Wire<'a>), &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let entry = self.read();
        if entry.is_err() {
            self.0 = &[];
        }
        Some(entry)
    }
}

impl<'a> Entries<'a> {
    fn read(&mut self) -> Result<(u32, Wire<'a>), &'static str> {
        let tag = varint(&mut self.0)?;
        let number = u32::try_from(tag >> 3).map_err(|_| "a field number is out of range")?;
        let wire = match tag & 7 {
            0 => Wire::Varint(varint(&mut self.0)?),
            1 => Wire::Double(f64::from_le_bytes(self.take(8)?.try_into().map_err(|_| "it breaks off")?)),
            2 => {
                let length = usize::try_from(varint(&mut self.0)?).map_err(|_| "a length is out of range")?;
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Wire::Fixed32
            }
            _ => return Err("a wire type is not known"),
        };
        Ok((number, wire))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or("it breaks off")?;
        self.0 = rest;
        Ok(taken)
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64, &'static str> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or("it breaks off")?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number is too long")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2, u8::try_from(content.len()).expect("a short field")];
        bytes.extend_from_slice(content);
        bytes
    }

    fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &meta), field(2, raw)].concat()
    }

    #[test]
    fn a_config_map_reads_as_its_json() {
        let entry = [field(1, b"k"), field(2, b"v")].concat();
        let raw = [field(1, &[field(1, b"a"), field(8, b"")].concat()), field(2, &entry)].concat();
        assert_eq!(
            decode(&body("v1", "ConfigMap", &raw)),
            Ok(json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a", "creationTimestamp": null}, "data": {"k": "v"},
            }))
        );
    }

    #[test]
    fn options_of_a_deletion_are_read_as_client_go_sends_them() {
        let bytes = b"k8s\0\n\x13\n\x02v1\x12\rDeleteOptions\x12\x0b\x12\t\n\x07another\x1a\0\"\0";
        assert_eq!(
            decode(bytes),
            Ok(json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "another"}}))
        );
    }

    #[test]
    fn messages_inlined_in_inlined_ones_find_their_place() {
        let inner =
            [field(1, b"CREATE"), field(2, &[field(1, b"apps"), field(3, b"pods")].concat())].concat();
        let rule = [field(1, b"web"), field(2, &inner)].concat();
        let policy = field(2, &field(2, &field(3, &rule)));
        let read = decode(&body("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", &policy));
        let rules = read.map(|policy| policy["spec"]["matchConstraints"]["resourceRules"].clone());
        let expected = json!({
            "resourceNames": ["web"], "operations": ["CREATE"], "apiGroups": ["apps"], "resources": ["pods"],
        });
        assert_eq!(rules, Ok(json!([expected])));
    }

    #[test]
    fn inlined_messages_numbers_times_and_quantities_find_their_place() {
        // A volume: its name, and around emptyDir the message that JSON does not show.
        let quantity = field(1, b"1Gi");
        let volume = [field(1, b"v"), field(2, &field(2, &field(2, &quantity)))].concat();
        // A container port, in a container, beside a probe with a port that is text.
        let port = [vec![3 << 3, 80], field(4, b"TCP")].concat();
        let target = [vec![1 << 3, 1], field(3, b"http")].concat();
        let probe = field(1, &field(2, &field(2, &target)));
        let container = [field(1, b"c"), field(6, &port), field(10, &probe)].concat();
        let pod = field(2, &[field(1, &volume), field(2, &container)].concat());
        assert_eq!(
            decode(&body("v1", "Pod", &pod)),
            Ok(json!({
                "apiVersion": "v1", "kind": "Pod", "spec": {
                    "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
                    "containers": [{
                        "name": "c", "ports": [{"containerPort": 80, "protocol": "TCP"}],
                        "livenessProbe": {"httpGet": {"port": "http"}},
                    }],
                },
            }))
        );
        let minus_one = [vec![1 << 3], vec![0xff; 9], vec![1]].concat();
        let lease = field(2, &[field(1, b"me"), minus_one, field(4, &[1 << 3, 60])].concat());
        let read = decode(&body("coordination.k8s.io/v1", "Lease", &lease));
        assert!(read.is_err(), "a number stands where text belongs");
        let lease = field(2, &[field(1, b"me"), field(4, &[1 << 3, 60, 2 << 3, 0])].concat());
        assert_eq!(
            decode(&body("coordination.k8s.io/v1", "Lease", &lease)).map(|lease| lease["spec"].clone()),
            Ok(json!({"holderIdentity": "me", "renewTime": "1970-01-01T00:01:00.000000Z"}))
        );
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_a_reason() {
        assert_eq!(decode(b"{}"), Err(ProtobufError::Magic));
        assert!(matches!(
            decode(&body("g.example.com/v1", "Widget", b"")),
            Err(ProtobufError::UnknownKind { .. })
        ));
        let error = decode(&body("v1", "ConfigMap", &[2 << 3 | 2, 9, 1])).expect_err("it breaks off");
        assert_eq!(error.to_string(), "the protobuf of ConfigMap is broken: it breaks off");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(raw in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&raw);
            let _ = decode(&[MAGIC, &raw[..]].concat());
            for kind in ["Pod", "ConfigMap", "Service"] {
                let short = &raw[..raw.len().min(120)];
                let _ = decode(&body("v1", kind, short));
            }
        }
    }
}
