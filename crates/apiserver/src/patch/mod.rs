//! Three of the kinds of PATCH: JSON patch, merge patch and strategic merge patch.
//!
//! All are pure functions from a document and a patch to a new document. Server-side apply,
//! which also knows who wrote what, is [`crate::apply`].

mod json;
mod order;
mod strategic;

use serde_json::{Map, Value};

pub use json::json_patch;
pub use strategic::strategic_patch;

/// Why a patch cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself makes no sense. A 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the document: a test failed, a path leads nowhere. A 422.
    #[error("the server rejected our request due to an error in our request: {0}")]
    Unprocessable(String),
    /// The patch has too many operations. A 413.
    #[error("{0}")]
    TooLarge(String),
}

impl PatchError {
    /// The HTTP status that says so.
    pub fn code(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::Unprocessable(_) => 422,
            Self::TooLarge(_) => 413,
        }
    }
}

/// Applies a JSON merge patch (RFC 7386): fields of the patch replace those of the document,
/// `null` removes them, lists are replaced whole.
pub fn merge_patch(document: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut result = match document {
        Value::Object(document) => document.clone(),
        _ => Map::new(),
    };
    for (key, value) in patch {
        if value.is_null() {
            result.remove(key);
        } else {
            let merged = merge_patch(result.get(key).unwrap_or(&Value::Null), value);
            result.insert(key.clone(), merged);
        }
    }
    Value::Object(result)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn merge_patches_do_as_the_standard_says() {
        let cases = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"e": null}), json!({"a": 1}), json!({"a": 1, "e": null})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ];
        for (document, patch, expected) in cases {
            assert_eq!(merge_patch(&document, &patch), expected, "{document} {patch}");
        }
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![(0..3).prop_map(|n| json!(n)), "[a-c]".prop_map(|s| json!(s)), Just(json!([1]))];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(|map| json!(map))
        })
    }

    /// The merge patch that leads from one document to another.
    fn difference(from: &Value, to: &Value) -> Value {
        let (Value::Object(before), Value::Object(after)) = (from, to) else { return to.clone() };
        let mut patch = Map::new();
        for (key, value) in after {
            match before.get(key) {
                Some(old) if old == value => {}
                Some(old) if old.is_object() == value.is_object() => {
                    patch.insert(key.clone(), difference(old, value));
                }
                _ => {
                    patch.insert(key.clone(), value.clone());
                }
            }
        }
        for key in before.keys().filter(|key| !after.contains_key(*key)) {
            patch.insert(key.clone(), Value::Null);
        }
        Value::Object(patch)
    }

    proptest! {
        #[test]
        fn a_difference_applied_gives_the_other_document(from in document(), to in document()) {
            prop_assert_eq!(merge_patch(&from, &difference(&from, &to)), to);
        }

        #[test]
        fn patching_twice_is_patching_once(document in document(), patch in document()) {
            let once = merge_patch(&document, &patch);
            prop_assert_eq!(merge_patch(&once, &patch), once);
        }
    }
}
