//! Bodies in protobuf, which newer clients send for built-in types.
//!
//! Nothing is generated for it: the numbers of fields are part of the types' table. The JSON that comes
//! out still holds zero values, which are dropped when the object is brought into its canonical form.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use crate::{
    schema::{Field, Ref, Scalar, Schema, Shape},
    status::Failure,
    types::{Catalog, definition},
};

/// How every such body begins.
const MAGIC: &[u8] = b"k8s\0";
/// Messages may not nest deeper than this.
const DEPTH: usize = 100;

/// Reads a body: an envelope that names the type, and the object.
pub(crate) fn decode(catalog: &Catalog, bytes: &[u8]) -> Result<Value, Failure> {
    let bad = |why: &str| Failure::bad_request(format!("the body of the request is not a valid protobuf message of Kubernetes: {why}"));
    let envelope = bytes.strip_prefix(MAGIC).ok_or_else(|| bad("it does not begin with k8s\\0"))?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), None);
    for field in Fields(envelope) {
        let (number, wire) = field.ok_or_else(|| bad("its envelope is broken"))?;
        match (number, wire) {
            (1, Wire::Bytes(meta)) => {
                for field in Fields(meta) {
                    match field.ok_or_else(|| bad("its type is broken"))? {
                        (1, Wire::Bytes(text)) => api_version = String::from_utf8_lossy(text).into_owned(),
                        (2, Wire::Bytes(text)) => kind = String::from_utf8_lossy(text).into_owned(),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = Some(bytes),
            (3 | 4, Wire::Bytes(text)) if !text.is_empty() && text != b"application/vnd.kubernetes.protobuf" => {
                return Err(bad("its content is in another encoding"));
            }
            _ => {}
        }
    }
    let raw = raw.ok_or_else(|| bad("it holds no object"))?;
    let schema = schema_of(catalog, &api_version, &kind).ok_or_else(|| {
        Failure::unsupported_media_type(format!(
            "{api_version} {kind:?} cannot be read as protobuf: send application/json or application/yaml"
        ))
    })?;
    let mut object = message(raw, &schema, DEPTH).ok_or_else(|| bad(&format!("it is no {kind}")))?;
    object.insert("apiVersion".into(), api_version.into());
    object.insert("kind".into(), kind.into());
    Ok(Value::Object(object))
}

/// The type of a body: a resource's, or that of one of the bodies that subresources take.
fn schema_of(catalog: &Catalog, api_version: &str, kind: &str) -> Option<Ref> {
    if kind == "DeleteOptions" {
        return definition("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    // Schemas in definitions have unions that protobuf writes in ways of its own.
    if group == "apiextensions.k8s.io" {
        return None;
    }
    if let Some(resource) = catalog.find_kind(group, version, kind) {
        return (resource.origin == crate::types::Origin::BuiltIn).then(|| resource.schema.clone());
    }
    let package = if group.is_empty() { "core" } else { group.split('.').next()? };
    definition(&format!("io.k8s.api.{package}.{version}.{kind}"))
}

/// A message with known fields.
fn message(bytes: &[u8], schema: &Schema, depth: usize) -> Option<Map<String, Value>> {
    let mut map = Map::new();
    fill(&mut map, bytes, schema, 0, depth.checked_sub(1)?)?;
    Some(map)
}

/// Reads the fields of a message into an object. Fields of messages that JSON shows inline have the number
/// of their message above their own.
fn fill(map: &mut Map<String, Value>, bytes: &[u8], schema: &Schema, inside: u32, depth: usize) -> Option<()> {
    let Shape::Struct(shape) = &schema.shape else { return None };
    for field in Fields(bytes) {
        let (number, wire) = field?;
        let full = (inside << Field::INLINED_SHIFT) | number;
        if let Some((name, field)) = shape.fields.iter().find(|(_, field)| field.number == full) {
            read(map, name, &wire, &field.schema, depth)?;
        } else if inside == 0
            && let Wire::Bytes(inner) = wire
            && shape.fields.values().any(|field| field.number >> Field::INLINED_SHIFT == number)
        {
            fill(map, inner, schema, number, depth)?;
        }
    }
    Some(())
}

/// Reads one occurrence of a field.
fn read(map: &mut Map<String, Value>, name: &str, wire: &Wire<'_>, schema: &Schema, depth: usize) -> Option<()> {
    match &schema.shape {
        Shape::List { items, .. } => {
            let element = value(wire, items, depth)?;
            map.entry(name).or_insert_with(|| json!([])).as_array_mut()?.push(element);
        }
        Shape::Map { values, .. } => {
            let Wire::Bytes(entry) = wire else { return None };
            let (mut key, mut found) = (String::new(), None);
            for field in Fields(entry) {
                match field? {
                    (1, Wire::Bytes(text)) => key = String::from_utf8(text.to_vec()).ok()?,
                    (2, wire) => found = Some(value(&wire, values, depth)?),
                    _ => {}
                }
            }
            let found = found.unwrap_or_else(|| json!(""));
            map.entry(name).or_insert_with(|| json!({})).as_object_mut()?.insert(key, found);
        }
        _ => {
            map.insert(name.to_owned(), value(wire, schema, depth)?);
        }
    }
    Some(())
}

fn value(wire: &Wire<'_>, schema: &Schema, depth: usize) -> Option<Value> {
    match (&schema.shape, wire) {
        (Shape::Struct(_), Wire::Bytes(bytes)) => message(bytes, schema, depth).map(Value::Object),
        // A list as a value of a map has a message of its own around it.
        (Shape::List { items, .. }, Wire::Bytes(bytes)) => {
            let mut list = Vec::new();
            for field in Fields(bytes) {
                if let (1, wire) = field? {
                    list.push(value(&wire, items, depth.checked_sub(1)?)?);
                }
            }
            Some(Value::Array(list))
        }
        // Free-form JSON is kept as its text.
        (Shape::Any | Shape::Map { .. }, Wire::Bytes(bytes)) => {
            let mut raw = None;
            for field in Fields(bytes) {
                if let (1, Wire::Bytes(text)) = field? {
                    raw = Some(text);
                }
            }
            raw.map_or(Some(Value::Null), |text| serde_json::from_slice(text).ok())
        }
        (Shape::Scalar(scalar), wire) => self::scalar(wire, *scalar),
        _ => None,
    }
}

#[expect(clippy::cast_possible_wrap, reason = "protobuf writes negative numbers as their two's complement")]
fn scalar(wire: &Wire<'_>, scalar: Scalar) -> Option<Value> {
    Some(match (scalar, wire) {
        (Scalar::String, Wire::Bytes(bytes)) => String::from_utf8(bytes.to_vec()).ok()?.into(),
        (Scalar::Bytes, Wire::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        (Scalar::Int32 | Scalar::Int64, Wire::Number(number)) => (*number as i64).into(),
        (Scalar::Boolean, Wire::Number(number)) => (*number != 0).into(),
        (Scalar::Number, Wire::Fixed(bits)) => f64::from_bits(*bits).into(),
        (Scalar::IntOrString, Wire::Bytes(bytes)) => {
            let (mut is_text, mut number, mut text) = (false, 0, String::new());
            for field in Fields(bytes) {
                match field? {
                    (1, Wire::Number(kind)) => is_text = kind == 1,
                    (2, Wire::Number(found)) => number = found as i64,
                    (3, Wire::Bytes(found)) => text = String::from_utf8(found.to_vec()).ok()?,
                    _ => {}
                }
            }
            if is_text { text.into() } else { number.into() }
        }
        (Scalar::Quantity, Wire::Bytes(bytes)) => {
            let mut text = String::from("0");
            for field in Fields(bytes) {
                if let (1, Wire::Bytes(found)) = field? {
                    text = String::from_utf8(found.to_vec()).ok()?;
                }
            }
            text.into()
        }
        (Scalar::Time | Scalar::MicroTime, Wire::Bytes(bytes)) => {
            let (mut seconds, mut nanos) = (0, 0);
            for field in Fields(bytes) {
                match field? {
                    (1, Wire::Number(found)) => seconds = found as i64,
                    (2, Wire::Number(found)) => nanos = i32::try_from(found).ok()?,
                    _ => {}
                }
            }
            if (seconds, nanos) == (0, 0) {
                return Some(Value::Null);
            }
            jiff::Timestamp::new(seconds, nanos).ok()?.to_string().into()
        }
        _ => return None,
    })
}

/// What stands behind the number of a field.
enum Wire<'a> {
    Number(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message; `None` within when it is broken, and then no more.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u32, Wire<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u32, Wire<'a>)> {
        let tag = self.number()?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0)?;
        let wire = match tag & 7 {
            0 => Wire::Number(self.number()?),
            1 => Wire::Fixed(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.number()?).ok()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Fixed(u64::from(u32::from_le_bytes(self.take(4)?.try_into().ok()?))),
            _ => return None,
        };
        Some((number, wire))
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).expect("short");
        [&[number << 3 | 2, length], bytes].concat()
    }

    fn envelope(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
        let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &meta), &field(2, object)].concat()
    }

    #[test]
    fn a_secret_is_read_by_the_numbers_of_its_fields() {
        let metadata = [field(1, b"a"), field(11, &[field(1, b"k"), field(2, b"v")].concat()), field(8, b"")].concat();
        let object = [field(1, &metadata), field(2, &[field(1, b"x"), field(2, &[0xff, 0])].concat()), vec![5 << 3, 1]].concat();
        let decoded = decode(&Catalog::builtin(), &envelope("v1", "Secret", &object)).expect("a secret");
        assert_eq!(
            decoded,
            json!({
                "apiVersion": "v1", "kind": "Secret", "immutable": true, "data": {"x": "/wA="},
                "metadata": {"name": "a", "labels": {"k": "v"}, "creationTimestamp": null},
            })
        );
    }

    #[test]
    fn inlined_messages_are_read_as_json_shows_them() {
        // spec { containers { name, livenessProbe { handler { httpGet { path, port: 80 } }, periodSeconds: 5 } }, volumes { name, source { emptyDir {} } } }
        let port = field(2, &[1 << 3, 0, 2 << 3, 80]);
        let handler = field(1, &field(2, &[field(1, b"/x"), port].concat()));
        let probe = [handler, vec![4 << 3, 5]].concat();
        let container = [field(1, b"c"), field(10, &probe)].concat();
        let volume = [field(1, b"v"), field(2, &field(2, b""))].concat();
        let spec = [field(1, &volume), field(2, &container)].concat();
        let decoded = decode(&Catalog::builtin(), &envelope("v1", "Pod", &field(2, &spec))).expect("a pod");
        assert_eq!(
            decoded["spec"],
            json!({
                "volumes": [{"name": "v", "emptyDir": {}}],
                "containers": [{"name": "c", "livenessProbe": {"httpGet": {"path": "/x", "port": 80}, "periodSeconds": 5}}],
            })
        );
    }

    #[test]
    fn broken_messages_are_refused() {
        for bytes in [&b"nope"[..], MAGIC, b"k8s\0\xff\xff\xff", &envelope("v1", "Pod", b"\x12\x05x")] {
            assert_eq!(decode(&Catalog::builtin(), bytes).map_err(|failure| failure.code), Err(400));
        }
        assert_eq!(decode(&Catalog::builtin(), &envelope("example.com/v1", "Odd", b"")).map_err(|failure| failure.code), Err(415));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&Catalog::builtin(), &envelope("apps/v1", "Deployment", &bytes[..bytes.len().min(120)]));
            let _ = decode(&Catalog::builtin(), &[MAGIC, &bytes].concat());
        }
    }
}
