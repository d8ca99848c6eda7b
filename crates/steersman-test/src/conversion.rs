//! Properties of converters, for free: objects are made up from the definition's own schemas.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};
use steersman::Object;
use steersman::convert::Converter;

/// How many objects of each version are tried.
const CASES: u32 = 256;
/// Below this depth, optional fields are left out.
const DEPTH: usize = 6;

/// Checks a converter with objects made up from the schemas of its definition. For every object of every version:
///
/// - the hub comes back the same from a way through any version;
/// - what a version says, it says again after a way through the hub;
/// - every object arrives in the version that was asked for, with the metadata that it had.
///
/// Objects that the converter refuses, because they make no sense, are left out.
///
/// # Panics
/// With the smallest object that breaks one of these, and when the definition lacks a version of the converter.
pub fn check_conversion<H: Object>(converter: &Converter<H>, definition: &CustomResourceDefinition) {
    let hub = H::api_version(&()).into_owned();
    for from in converter.versions() {
        let objects = objects(definition, &from).unwrap_or_else(|| {
            panic!("the definition has no version {from} with a schema; the converter knows it")
        });
        let config = Config { cases: CASES, max_global_rejects: 16 * CASES, ..Config::default() };
        let checked = TestRunner::new_with_rng(config, fixed_rng()).run(&objects, |object| {
            for to in converter.versions() {
                let Ok(there) = converter.convert(object.clone(), &to) else {
                    return Err(TestCaseError::reject("the converter refuses it"));
                };
                prop_assert_eq!(there["apiVersion"].as_str(), Some(to.as_str()));
                prop_assert_eq!(&there["metadata"]["name"], &object["metadata"]["name"]);
                let back = converter.convert(there.clone(), &from);
                let back = back.map_err(|error| TestCaseError::fail(format!("{there}: {error}")))?;
                if from == hub {
                    prop_assert_eq!(&back, &object, "by way of {}: {}", to, there);
                } else {
                    prop_assert!(says_again(&said(&back), &said(&object)), "{back}\n by way of {there}");
                }
            }
            Ok(())
        });
        if let Err(error) = checked {
            panic!("the conversion of {from} does not hold: {error}");
        }
    }
}

/// Whether an object says all that another does; defaults may have come, and what is empty may have gone.
fn says_again(object: &Value, before: &Value) -> bool {
    match before {
        Value::Object(fields) => fields.iter().all(|(name, value)| match object.get(name) {
            Some(found) => says_again(found, value),
            None => is_empty(value),
        }),
        Value::Array(items) => object.as_array().is_some_and(|found| {
            found.len() == items.len() && found.iter().zip(items).all(|(found, item)| says_again(found, item))
        }),
        other => object == other,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        _ => false,
    }
}

/// All but the metadata.
fn said(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("metadata");
    }
    object
}

/// The same objects in every run.
fn fixed_rng() -> proptest::test_runner::TestRng {
    proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha)
}

/// Objects of a version, by its schema.
fn objects(definition: &CustomResourceDefinition, api_version: &str) -> Option<BoxedStrategy<Value>> {
    let name = api_version.rsplit('/').next()?;
    let version = definition.spec.versions.iter().find(|version| version.name == name)?;
    let schema = serde_json::to_value(version.schema.as_ref()?.open_api_v3_schema.as_ref()?).ok()?;
    let (kind, api_version) = (definition.spec.names.kind.clone(), api_version.to_owned());
    let fields = value(&schema, 0);
    Some(
        (fields, "[a-z]{1,8}")
            .prop_map(move |(mut object, name)| {
                object["apiVersion"] = api_version.as_str().into();
                object["kind"] = kind.as_str().into();
                object["metadata"] = json!({"name": name, "namespace": "default"});
                object
            })
            .boxed(),
    )
}

/// Values that a schema allows.
fn value(schema: &Value, depth: usize) -> BoxedStrategy<Value> {
    if let Some(values) = schema["enum"].as_array().filter(|values| !values.is_empty()) {
        return proptest::sample::select(values.clone()).boxed();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return prop_oneof![(0..100i64).prop_map(Value::from), "[0-9]{1,2}m".prop_map(Value::from)].boxed();
    }
    match schema["type"].as_str() {
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer") => {
            let bound = |name: &str| schema[name].as_f64().map(|bound| bound as i64);
            let low = bound("minimum").unwrap_or(0);
            let high = bound("maximum").unwrap_or(low.saturating_add(1000)).max(low);
            (low..=high).prop_map(Value::from).boxed()
        }
        Some("number") => (0..1000i32).prop_map(|number| Value::from(f64::from(number) / 4.0)).boxed(),
        Some("string") => text(schema),
        Some("array") => array(schema, depth),
        Some("object") => object(schema, depth),
        _ => Just(json!({})).boxed(),
    }
}

fn text(schema: &Value) -> BoxedStrategy<Value> {
    if schema["format"] == "date-time" {
        return Just(json!("2026-01-02T03:04:05Z")).boxed();
    }
    let least = usize::try_from(schema["minLength"].as_u64().unwrap_or(0)).unwrap_or(0);
    let most = schema["maxLength"].as_u64().and_then(|most| usize::try_from(most).ok()).unwrap_or(12);
    let letters =
        proptest::sample::select("abcdefghijklmnopqrstuvwxyz0123456789-./:@".chars().collect::<Vec<char>>());
    proptest::collection::vec(letters, least..=most.min(least + 12).max(least))
        .prop_map(|letters| Value::from(letters.into_iter().collect::<String>()))
        .boxed()
}

fn array(schema: &Value, depth: usize) -> BoxedStrategy<Value> {
    let most = if depth >= DEPTH { 0 } else { 3 };
    let keys: Vec<String> = schema["x-kubernetes-list-map-keys"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|key| key.as_str().map(ToOwned::to_owned))
        .collect();
    proptest::collection::vec(value(&schema["items"], depth + 1), 0..=most)
        .prop_map(move |mut items| {
            // The elements of a map have names of their own.
            let mut seen: Vec<Vec<Value>> = Vec::new();
            items.retain(|item| {
                let name: Vec<Value> = keys.iter().map(|key| item[key].clone()).collect();
                let new = keys.is_empty() || !seen.contains(&name);
                seen.push(name);
                new
            });
            Value::Array(items)
        })
        .boxed()
}

fn object(schema: &Value, depth: usize) -> BoxedStrategy<Value> {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let Some(properties) = schema["properties"].as_object() else {
        return match schema["additionalProperties"].as_object() {
            Some(_) if depth < DEPTH => {
                let values = value(&schema["additionalProperties"], depth + 1);
                proptest::collection::btree_map("[a-z]{1,4}", values, 0..3)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect()))
                    .boxed()
            }
            _ => Just(json!({})).boxed(),
        };
    };
    let mut fields = Just(Map::new()).boxed();
    for (name, schema) in properties {
        let (name, must) = (name.clone(), required.contains(&name.as_str()));
        if !must && depth >= DEPTH {
            continue;
        }
        let given = value(schema, depth + 1);
        let field = if must { given.prop_map(Some).boxed() } else { proptest::option::of(given).boxed() };
        fields = (fields, field)
            .prop_map(move |(mut fields, value)| {
                if let Some(value) = value {
                    fields.insert(name.clone(), value);
                }
                fields
            })
            .boxed();
    }
    fields.prop_map(Value::Object).boxed()
}
