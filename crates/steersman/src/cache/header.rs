//! One scan over an object's bytes: what is worth knowing without decoding it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ApiResource;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::key::Key;

/// An object as bytes, with the few fields that indexes, predicates and garbage collection
/// look at.
///
/// `managedFields` are cut out while scanning, but for the entries of the managers that are
/// asked to be kept: they are two fifths of a typical pod and nearly nobody reads them.
#[derive(Clone, Debug)]
pub struct Header {
    bytes: Bytes,
    key: Key,
    uid: Span,
    resource_version: Span,
    labels: Span,
    annotations: Span,
    owners: Span,
    finalizers: Span,
    managed: Span,
    /// Counts the changes to what the user asked for; kinds without a spec have none.
    pub generation: Option<i64>,
    /// Whether the object is being deleted and waits for its finalizers.
    pub deleting: bool,
}

/// Why bytes are no object.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// Not JSON, or the metadata have another shape.
    #[error("not an object of the Kubernetes API: {0}")]
    Malformed(#[from] serde_json::Error),
    /// More than four gigabytes.
    #[error("an object of {0} bytes is too large")]
    TooLarge(usize),
}

/// A part of the bytes; empty when the field is absent.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

#[derive(Deserialize)]
struct RawObject<'a> {
    #[serde(borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMetadata<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    uid: Option<&'a RawValue>,
    #[serde(borrow)]
    resource_version: Option<&'a RawValue>,
    generation: Option<i64>,
    #[serde(borrow)]
    deletion_timestamp: Option<&'a RawValue>,
    #[serde(borrow)]
    labels: Option<&'a RawValue>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
    #[serde(borrow)]
    owner_references: Option<&'a RawValue>,
    #[serde(borrow)]
    finalizers: Option<&'a RawValue>,
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawManager<'a> {
    #[serde(borrow, default)]
    manager: Cow<'a, str>,
}

impl Header {
    /// Scans the bytes of an object of `resource`, keeping the managed fields of `managers`.
    ///
    /// Items of a list may lack `apiVersion` and `kind`; they get them here, so that what is
    /// kept can be decoded by any type.
    ///
    /// # Errors
    /// When the bytes are not an object.
    pub fn scan(
        input: &[u8],
        resource: &ApiResource,
        managers: &BTreeSet<String>,
    ) -> Result<Self, ScanError> {
        if u32::try_from(input.len() + 1024).is_err() {
            return Err(ScanError::TooLarge(input.len()));
        }
        let raw: RawObject<'_> = serde_json::from_slice(input)?;
        let meta = &raw.metadata;
        let mut edit = Edit::new(input);
        if raw.kind.is_none() {
            edit.prefix =
                format!("\"apiVersion\":\"{}\",\"kind\":\"{}\",", resource.api_version, resource.kind);
        }
        let mut managed = Span::default();
        if let Some(fields) = meta.managed_fields {
            managed = edit.cut_managed_fields(fields, managers)?;
        }
        let span = |value: Option<&RawValue>| value.map(|value| edit.span(value));
        let text = |value: Option<&RawValue>| {
            // Without the quotes: neither uids nor versions hold anything to escape.
            value.filter(|value| value.get().len() >= 2 && value.get().starts_with('"')).map(|value| {
                let span = edit.span(value);
                Span { start: span.start + 1, end: span.end - 1 }
            })
        };
        Ok(Self {
            key: Key::new(&meta.namespace, &meta.name),
            uid: text(meta.uid).unwrap_or_default(),
            resource_version: text(meta.resource_version).unwrap_or_default(),
            labels: span(meta.labels).unwrap_or_default(),
            annotations: span(meta.annotations).unwrap_or_default(),
            owners: span(meta.owner_references).unwrap_or_default(),
            finalizers: span(meta.finalizers).unwrap_or_default(),
            managed,
            generation: meta.generation,
            deleting: meta.deletion_timestamp.is_some(),
            bytes: edit.finish(),
        })
    }

    /// Namespace and name.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The object's uid, empty if it has none yet.
    pub fn uid(&self) -> &str {
        self.text(self.uid)
    }

    /// The version of this state of the object.
    pub fn resource_version(&self) -> &str {
        self.text(self.resource_version)
    }

    /// The labels.
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.parse(self.labels)
    }

    /// The annotations.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        self.parse(self.annotations)
    }

    /// The owners, whether they still exist or not.
    pub fn owners(&self) -> Vec<OwnerReference> {
        self.parse(self.owners)
    }

    /// Who still wants to clean up before the object goes.
    pub fn finalizers(&self) -> Vec<String> {
        self.parse(self.finalizers)
    }

    /// The object as JSON, without the managed fields of others.
    pub fn json(&self) -> &Bytes {
        &self.bytes
    }

    /// The managed fields that were kept, as JSON; empty when there are none.
    pub(crate) fn managed_fields(&self) -> &[u8] {
        self.bytes.get(self.managed.range()).unwrap_or_default()
    }

    fn text(&self, span: Span) -> &str {
        self.bytes.get(span.range()).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    fn parse<T: Default + for<'de> Deserialize<'de>>(&self, span: Span) -> T {
        match self.bytes.get(span.range()) {
            Some(bytes) if !bytes.is_empty() => serde_json::from_slice(bytes).unwrap_or_default(),
            _ => T::default(),
        }
    }
}

/// Two changes to the bytes, and where everything is afterwards.
struct Edit<'a> {
    input: &'a [u8],
    /// Goes in after the opening brace.
    prefix: String,
    cut: Range<usize>,
    replacement: Vec<u8>,
}

impl<'a> Edit<'a> {
    fn new(input: &'a [u8]) -> Self {
        Self { input, prefix: String::new(), cut: 0..0, replacement: Vec::new() }
    }

    /// Drops the entries of managers that nobody asked for, and the field when none is left.
    fn cut_managed_fields(
        &mut self,
        fields: &RawValue,
        managers: &BTreeSet<String>,
    ) -> Result<Span, ScanError> {
        let start = self.offset(fields);
        let end = start + fields.get().len();
        let entries: Vec<&RawValue> = serde_json::from_str(fields.get())?;
        for entry in entries {
            let RawManager { manager } = serde_json::from_str(entry.get())?;
            if managers.contains(&*manager) {
                self.replacement.push(match self.replacement.is_empty() {
                    true => b'[',
                    false => b',',
                });
                self.replacement.extend_from_slice(entry.get().as_bytes());
            }
        }
        if !self.replacement.is_empty() {
            self.replacement.push(b']');
            self.cut = start..end;
            let start = start + self.prefix.len();
            return Ok(Span { start: narrow(start), end: narrow(start + self.replacement.len()) });
        }
        self.cut = with_name_and_comma(self.input, start..end);
        Ok(Span::default())
    }

    fn offset(&self, value: &RawValue) -> usize {
        value.get().as_ptr() as usize - self.input.as_ptr() as usize
    }

    fn span(&self, value: &RawValue) -> Span {
        let mut start = self.offset(value) + self.prefix.len();
        if self.offset(value) >= self.cut.end {
            start = start - self.cut.len() + self.replacement.len();
        }
        Span { start: narrow(start), end: narrow(start + value.get().len()) }
    }

    fn finish(self) -> Bytes {
        let capacity = self.input.len() + self.prefix.len() + self.replacement.len() - self.cut.len();
        let mut bytes = Vec::with_capacity(capacity);
        let mut from = 0;
        if !self.prefix.is_empty() {
            let brace = self.input.iter().position(|byte| *byte == b'{');
            from = brace.map_or(0, |brace| brace + 1);
            bytes.extend_from_slice(&self.input[..from]);
            bytes.extend_from_slice(self.prefix.as_bytes());
        }
        if !self.cut.is_empty() {
            bytes.extend_from_slice(&self.input[from..self.cut.start]);
            bytes.extend_from_slice(&self.replacement);
            from = self.cut.end;
        }
        bytes.extend_from_slice(&self.input[from..]);
        bytes.into()
    }
}

/// Widens the range of a member's value to the whole member with one of its commas.
fn with_name_and_comma(input: &[u8], value: Range<usize>) -> Range<usize> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace();
    let before = |end: usize| input[..end].iter().rposition(|byte| !is_space(byte));
    const NAME: &[u8] = b"\"managedFields\"";
    let Some(name) = input[..value.start].windows(NAME.len()).rposition(|window| window == NAME) else {
        return 0..0;
    };
    if let Some(comma) = before(name).filter(|at| input[*at] == b',') {
        return comma..value.end;
    }
    let after = input[value.end..].iter().position(|byte| !is_space(byte));
    match after.map(|at| value.end + at) {
        Some(at) if input[at] == b',' => name..at + 1,
        _ => name..value.end,
    }
}

/// Lengths were checked at the start of the scan.
fn narrow(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::*;
    use crate::object::Object;

    fn scan(text: &str, managers: &[&str]) -> Header {
        let managers = managers.iter().map(|name| (*name).to_owned()).collect();
        Header::scan(text.as_bytes(), &Pod::api_resource(), &managers).expect("an object")
    }

    fn pod(managed_first: &str, managed_last: &str) -> String {
        format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{{managed_first}"name":"web-0","namespace":"shop","uid":"u-1",
            "resourceVersion":"42","generation":3,"labels":{{"app":"web"}},"ownerReferences":[{{"apiVersion":"apps/v1",
            "kind":"ReplicaSet","name":"web","uid":"u-0","controller":true}}]{managed_last}}},"spec":{{"containers":[]}}}}"#
        )
    }

    const MANAGED: &str = r#""managedFields": [{"manager":"kubelet","fieldsV1":{"f:status":{}}},{"manager":"webapp","operation":"Apply","fieldsV1":{}}]"#;

    #[test]
    fn the_header_names_what_matters() {
        let header = scan(&pod("", ""), &[]);
        assert_eq!(header.key(), &Key::new("shop", "web-0"));
        assert_eq!(header.uid(), "u-1");
        assert_eq!(header.resource_version(), "42");
        assert_eq!(header.generation, Some(3));
        assert!(!header.deleting);
        assert_eq!(header.labels()["app"], "web");
        assert_eq!(header.owners()[0].uid, "u-0");
    }

    #[test]
    fn managed_fields_are_cut_wherever_they_stand() {
        for (first, last) in
            [(format!("{MANAGED} , "), String::new()), (String::new(), format!(",\n {MANAGED}"))]
        {
            let header = scan(&pod(&first, &last), &[]);
            let value: Value = serde_json::from_slice(header.json()).expect("still JSON");
            assert_eq!(value["metadata"].get("managedFields"), None);
            assert_eq!(header.uid(), "u-1");
            assert_eq!(header.labels()["app"], "web");
            assert_eq!(header.owners()[0].name, "web");
            assert_eq!(value["metadata"]["name"], "web-0");
        }
        let alone = scan(&format!(r#"{{"kind":"Pod","metadata":{{{MANAGED}}}}}"#), &[]);
        assert_eq!(alone.json().as_ref(), br#"{"kind":"Pod","metadata":{}}"#);
    }

    #[test]
    fn the_own_managers_entry_stays() {
        for (first, last) in [(format!("{MANAGED},"), String::new()), (String::new(), format!(",{MANAGED}"))]
        {
            let header = scan(&pod(&first, &last), &["webapp"]);
            let kept: Value = serde_json::from_slice(header.managed_fields()).expect("a list");
            assert_eq!(kept, json!([{"manager": "webapp", "operation": "Apply", "fieldsV1": {}}]));
            assert_eq!(header.uid(), "u-1");
            assert_eq!(header.owners()[0].uid, "u-0");
        }
    }

    #[test]
    fn an_item_of_a_list_gets_its_kind() {
        let text = format!(r#" {{"metadata":{{"name":"a",{MANAGED},"uid":"u-9"}}}}"#);
        let header = scan(&text, &["webapp"]);
        let value: Value = serde_json::from_slice(header.json()).expect("JSON");
        assert_eq!(value["kind"], "Pod");
        assert_eq!(value["apiVersion"], "v1");
        assert_eq!(header.uid(), "u-9");
        assert!(header.managed_fields().starts_with(b"[{\"manager\":\"webapp\""));
    }

    #[test]
    fn what_is_no_object_is_an_error_and_no_panic() {
        for text in ["", "null", "[]", "{}", r#"{"metadata":3}"#, "{\"metadata\":{"] {
            let scanned = Header::scan(text.as_bytes(), &Pod::api_resource(), &BTreeSet::new());
            assert!(scanned.is_err(), "{text}");
        }
    }
}
