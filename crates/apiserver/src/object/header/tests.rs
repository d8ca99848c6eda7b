use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn text(value: &Value, name: &str) -> Option<Box<str>> {
    value.get(name).and_then(Value::as_str).map(Box::from)
}

/// The same header, read the slow way.
fn expected(object: &Value) -> Header {
    let metadata = &object["metadata"];
    let mut labels: Vec<Label> = metadata["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name.as_str().into(), value.as_str()?.into())))
        .collect();
    labels.sort();
    Header {
        uid: text(metadata, "uid").unwrap_or_default(),
        generation: metadata["generation"].as_i64().unwrap_or_default(),
        creation_timestamp: text(metadata, "creationTimestamp"),
        deletion_timestamp: text(metadata, "deletionTimestamp"),
        labels: labels.into(),
        owners: (metadata["ownerReferences"].as_array().into_iter().flatten())
            .filter(|owner| owner.is_object())
            .map(|owner| Owner {
                api_version: text(owner, "apiVersion").unwrap_or_default(),
                kind: text(owner, "kind").unwrap_or_default(),
                name: text(owner, "name").unwrap_or_default(),
                uid: text(owner, "uid").unwrap_or_default(),
                controller: owner["controller"].as_bool().unwrap_or_default(),
                block_owner_deletion: owner["blockOwnerDeletion"].as_bool().unwrap_or_default(),
            })
            .collect(),
        finalizers: (metadata["finalizers"].as_array().into_iter().flatten())
            .filter_map(|finalizer| finalizer.as_str().map(Box::from))
            .collect(),
    }
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        // Halves and quarters: others may come back from text a last digit off.
        any::<i32>().prop_map(|number| json!(f64::from(number) / 4.0)),
        ".{0,12}".prop_map(Value::from),
        Just(json!("quote \" brace } bracket ] back \\ slash \\\\\" é \u{1} 🦀")),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((member_name(), inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Names that mean something somewhere turn up everywhere, so that depth is what tells them apart.
fn member_name() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "metadata",
            "uid",
            "labels",
            "name",
            "kind",
            "ownerReferences",
            "finalizers",
            "resourceVersion",
            "controller",
            "generation",
        ])
        .prop_map(String::from),
        ".{0,6}",
    ]
}

fn object() -> impl Strategy<Value = Value> {
    let owner = (any::<bool>(), ".{0,8}", any_json()).prop_map(|(controller, uid, other)| {
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "n", "uid": uid,
               "controller": controller, "blockOwnerDeletion": !controller, "other": other})
    });
    let member = |name: &'static str, typical: BoxedStrategy<Value>| {
        prop_oneof![4 => typical.prop_map(Some), 1 => any_json().prop_map(Some), 2 => Just(None)]
            .prop_map(move |value| (name, value))
    };
    let labels = prop::collection::btree_map(".{0,5}", ".{0,5}", 0..5).prop_map(|labels| json!(labels));
    let known = (
        member("uid", ".{0,9}".prop_map(Value::from).boxed()),
        member("generation", any::<i64>().prop_map(Value::from).boxed()),
        member("creationTimestamp", Just(json!("2026-01-01T00:00:00Z")).boxed()),
        member("deletionTimestamp", Just(json!("2026-01-01T00:00:00Z")).boxed()),
        member("labels", labels.boxed()),
        member("ownerReferences", prop::collection::vec(owner, 0..3).prop_map(Value::from).boxed()),
        member("finalizers", prop::collection::vec(".{0,5}", 0..3).prop_map(|list| json!(list)).boxed()),
        member("resourceVersion", any::<u64>().prop_map(|number| json!(number.to_string())).boxed()),
        member("managedFields", any_json().boxed()),
    );
    (known, any_json(), any_json()).prop_map(|(known, spec, status)| {
        let (a, b, c, d, e, f, g, h, i) = known;
        let metadata: serde_json::Map<String, Value> = [a, b, c, d, e, f, g, h, i]
            .into_iter()
            .filter_map(|(name, value)| value.map(|value| (name.to_owned(), value)))
            .collect();
        json!({"apiVersion": "v1", "kind": "Thing", "metadata": metadata, "spec": spec, "status": status})
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_scanned_header_is_what_a_parser_reads(object in object(), pretty in any::<bool>()) {
        let bytes = if pretty { serde_json::to_vec_pretty(&object) } else { serde_json::to_vec(&object) };
        let bytes = bytes.expect("serialisable");
        let (header, layout) = Header::scan(&bytes).expect("well-formed");
        prop_assert_eq!(header, expected(&object));

        let (head, tail) = layout.around_revision(&bytes);
        let spliced = [head, layout.before_value(), b"77", layout.after_value(), tail].concat();
        let mut wanted = object;
        wanted["metadata"]["resourceVersion"] = json!("77");
        prop_assert_eq!(serde_json::from_slice::<Value>(&spliced).expect("still JSON"), wanted);
    }

    #[test]
    fn no_bytes_make_the_scanner_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = Header::scan(&bytes);
    }

    #[test]
    fn a_cut_object_is_malformed(object in object(), cut in any::<prop::sample::Index>()) {
        let bytes = serde_json::to_vec(&object).expect("serialisable");
        let cut = cut.index(bytes.len());
        let refused = matches!(Header::scan(&bytes[..cut]), Err(HeaderError::Malformed { .. }));
        prop_assert!(refused, "accepted the first {} bytes", cut);
    }
}

#[test]
fn deep_nesting_is_refused_without_recursion() {
    let deep = format!(r#"{{"metadata":{{}},"spec":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(Header::scan(deep.as_bytes()), Err(HeaderError::TooDeep));
}

#[test]
fn an_object_without_metadata_is_refused() {
    assert_eq!(Header::of(br#"{"spec":{}}"#), Err(HeaderError::NoMetadata));
    assert_eq!(Header::of(br#"{"metadata":null}"#), Err(HeaderError::NoMetadata));
    assert!(matches!(Header::of(b"[]"), Err(HeaderError::Malformed { .. })));
    assert!(matches!(Header::of(br#"{"metadata":{}} x"#), Err(HeaderError::Malformed { position: 16 })));
}

#[test]
fn labels_are_found_by_name() {
    let header = Header::of(br#"{"metadata":{"labels":{"b":"2","a":"1"}}}"#).expect("well-formed");
    assert_eq!(header.label("a"), Some("1"));
    assert_eq!(header.label("b"), Some("2"));
    assert_eq!(header.label("c"), None);
}
