//! The manifests in a source tree are those of its types.

use std::path::Path;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// Checks that `<folder>/<group>_<plural>.yaml` holds this definition.
///
/// # Panics
/// When the file is missing, is no YAML, or says something else; the message says where.
pub fn assert_manifest(folder: impl AsRef<Path>, definition: &CustomResourceDefinition) {
    const REMEDY: &str = "write the manifests again, here with `cargo xtask generate`";
    let name = format!("{}_{}.yaml", definition.spec.group, definition.spec.names.plural);
    let path = folder.as_ref().join(&name);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => panic!("{} cannot be read: {error}; {REMEDY}", path.display()),
    };
    let manifest: Value = match serde_saphyr::from_str(&text) {
        Ok(manifest) => manifest,
        Err(error) => panic!("{} is no YAML: {error}; {REMEDY}", path.display()),
    };
    let expected = serde_json::to_value(definition).unwrap_or_default();
    if let Some(difference) = difference("", &manifest, &expected) {
        panic!("{name} is not up to date: {difference}; {REMEDY}");
    }
}

/// The first place where two values differ.
fn difference(at: &str, found: &Value, expected: &Value) -> Option<String> {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            let names = found.keys().chain(expected.keys().filter(|name| !found.contains_key(*name)));
            names.into_iter().find_map(|name| {
                let at = format!("{at}.{name}");
                let of = |fields: &serde_json::Map<String, Value>| fields.get(name).cloned();
                difference(&at, &of(found).unwrap_or_default(), &of(expected).unwrap_or_default())
            })
        }
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => {
            let mut pairs = found.iter().zip(expected).enumerate();
            pairs
                .find_map(|(index, (found, expected))| difference(&format!("{at}[{index}]"), found, expected))
        }
        // 1 and 1.0 mean the same to every reader.
        (Value::Number(found), Value::Number(expected)) if found.as_f64() == expected.as_f64() => None,
        (found, expected) if found == expected => None,
        (found, expected) => Some(format!("{at} is {found} instead of {expected}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_difference_is_named_with_its_place() {
        let found = json!({"a": [{"b": 1}, {"c": "x"}]});
        assert_eq!(difference("", &found, &json!({"a": [{"b": 1.0}, {"c": "x"}]})), None);
        assert_eq!(
            difference("", &found, &json!({"a": [{"b": 1}, {"c": "y"}]})),
            Some(".a[1].c is \"x\" instead of \"y\"".to_owned())
        );
        assert_eq!(
            difference("", &found, &json!({"a": found["a"], "d": true})),
            Some(".d is null instead of true".to_owned())
        );
    }
}
