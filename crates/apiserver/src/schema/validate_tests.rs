use serde_json::{Value, json};

use super::*;
use crate::schema::read_root;

fn schema(spec: &Value) -> Schema {
    read_root(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": spec}}}}),
    )
    .expect("a schema")
}

fn complaints(schema_of_x: &Value, x: &Value) -> Vec<String> {
    let errors = validate(&json!({"spec": {"x": x}}), &schema(schema_of_x));
    errors.iter().map(ToString::to_string).collect()
}

/// Every keyword: a schema, values it admits, values it refuses.
#[test]
fn every_keyword_tells_good_values_from_bad() {
    let text = json!({"type": "string"});
    let whole = json!({"type": "integer"});
    let cases: Vec<(Value, Vec<Value>, Vec<Value>)> = vec![
        (whole.clone(), vec![json!(0), json!(-5), json!(2.0)], vec![json!("1"), json!(1.5), json!(true)]),
        (text.clone(), vec![json!(""), json!("x")], vec![json!(1), json!(true), json!({}), json!(null)]),
        (json!({"type": "boolean"}), vec![json!(true)], vec![json!("true"), json!(0)]),
        (json!({"type": "number"}), vec![json!(1), json!(1.5)], vec![json!("1")]),
        (
            json!({"type": "array", "items": whole}),
            vec![json!([]), json!([1])],
            vec![json!(["a"]), json!({}), json!(1)],
        ),
        (
            json!({"type": "object", "properties": {"a": text}}),
            vec![json!({}), json!({"a": "b"})],
            vec![json!("x"), json!({"a": 1}), json!([])],
        ),
        (json!({"type": "integer", "minimum": 3}), vec![json!(3)], vec![json!(2)]),
        (json!({"type": "number", "maximum": 3}), vec![json!(3), json!(-1.5)], vec![json!(3.1)]),
        (
            json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 5, "exclusiveMaximum": true}),
            vec![json!(2), json!(4)],
            vec![json!(1), json!(5)],
        ),
        (json!({"type": "integer", "multipleOf": 5}), vec![json!(0), json!(10)], vec![json!(3)]),
        (json!({"type": "number", "multipleOf": 0.1}), vec![json!(0.3)], vec![json!(0.25)]),
        (json!({"type": "string", "minLength": 2}), vec![json!("ab"), json!("żó")], vec![json!("a")]),
        (json!({"type": "string", "maxLength": 3}), vec![json!("abc"), json!("żół")], vec![json!("abcd")]),
        (json!({"type": "string", "pattern": "^a+$"}), vec![json!("aa")], vec![json!("ab"), json!("")]),
        (json!({"type": "string", "enum": ["x", "y"]}), vec![json!("x")], vec![json!("z")]),
        (json!({"type": "array", "items": whole, "minItems": 1}), vec![json!([1])], vec![json!([])]),
        (json!({"type": "array", "items": whole, "maxItems": 1}), vec![json!([1])], vec![json!([1, 2])]),
        (
            json!({"type": "object", "required": ["a"], "properties": {"a": text}}),
            vec![json!({"a": ""})],
            vec![json!({})],
        ),
        (
            json!({"type": "object", "additionalProperties": text, "minProperties": 1}),
            vec![json!({"a": "b"})],
            vec![json!({})],
        ),
        (
            json!({"type": "object", "additionalProperties": text, "maxProperties": 1}),
            vec![json!({})],
            vec![json!({"a": "b", "c": "d"})],
        ),
        (
            json!({"type": "object", "additionalProperties": whole}),
            vec![json!({"a": 1})],
            vec![json!({"a": "x"})],
        ),
        (
            json!({"type": "object", "properties": {"a": text, "b": text}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            vec![json!({"a": "x"})],
            vec![json!({}), json!({"a": "x", "b": "y"})],
        ),
        (
            json!({"type": "object", "properties": {"a": text, "b": text}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            vec![json!({"a": "x", "b": "y"})],
            vec![json!({})],
        ),
        (
            json!({"type": "object", "properties": {"a": whole}, "anyOf": [{"properties": {"a": {"minimum": 3}}}]}),
            vec![json!({"a": 3}), json!({})],
            vec![json!({"a": 1})],
        ),
        (
            json!({"type": "integer", "allOf": [{"minimum": 2}, {"maximum": 4}]}),
            vec![json!(3)],
            vec![json!(1), json!(5)],
        ),
        (json!({"type": "string", "not": {"enum": ["no"]}}), vec![json!("yes")], vec![json!("no")]),
        (json!({"type": "string", "nullable": true}), vec![json!(null), json!("x")], vec![json!(1)]),
        (
            json!({"x-kubernetes-int-or-string": true}),
            vec![json!(1), json!("50%")],
            vec![json!(1.5), json!(true), json!({})],
        ),
        (
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            vec![json!(1), json!("a")],
            vec![json!(true)],
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            vec![json!("2026-01-02T03:04:05Z")],
            vec![json!("yesterday")],
        ),
        (json!({"type": "string", "format": "made-up"}), vec![json!("anything")], vec![]),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
            vec![json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}})],
            vec![
                json!({"kind": "Pod"}),
                json!({"apiVersion": "v1"}),
                json!({"apiVersion": "v1", "kind": "no way"}),
            ],
        ),
        (
            json!({"type": "array", "items": text, "x-kubernetes-list-type": "set"}),
            vec![json!(["a", "b"])],
            vec![json!(["a", "a"])],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"], "items": {"type": "object", "required": ["n"], "properties": {"n": whole}}}),
            vec![json!([{"n": 1}, {"n": 2}])],
            vec![json!([{"n": 1}, {"n": 1}])],
        ),
        (
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            vec![json!(1), json!("a"), json!({"b": []}), json!(null)],
            vec![],
        ),
    ];
    for (schema, good, bad) in cases {
        for value in good {
            assert_eq!(complaints(&schema, &value), Vec::<String>::new(), "{schema} should admit {value}");
        }
        for value in bad {
            let complaints = complaints(&schema, &value);
            assert!(
                complaints.iter().any(|text| text.contains("spec.x")),
                "{schema} should refuse {value}: {complaints:?}"
            );
        }
    }
}

#[test]
fn complaints_have_the_words_of_kubernetes() {
    for (schema, value, expected) in [
        (
            json!({"type": "integer"}),
            json!("1"),
            vec!["spec.x: Invalid value: \"string\": spec.x in body must be of type integer: \"string\""],
        ),
        (
            json!({"type": "integer", "minimum": 0}),
            json!(-1),
            vec!["spec.x: Invalid value: -1: spec.x in body should be greater than or equal to 0"],
        ),
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("c"),
            vec!["spec.x: Unsupported value: \"c\": supported values: \"a\", \"b\""],
        ),
        (
            json!({"type": "string", "pattern": "^a+$"}),
            json!("b"),
            vec!["spec.x: Invalid value: \"b\": spec.x in body should match '^a+$'"],
        ),
        (
            json!({"type": "string", "maxLength": 1}),
            json!("ab"),
            vec!["spec.x: Too long: may not be more than 1 byte"],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "maxItems": 1}),
            json!(["a", "b"]),
            vec!["spec.x: Too many: 2: must have at most 1 item"],
        ),
        (
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}),
            json!({}),
            vec!["spec.x.a: Required value"],
        ),
        (
            json!({"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}),
            json!([{"n": "x"}]),
            vec![
                "spec.x[0].n: Invalid value: \"string\": spec.x[0].n in body must be of type integer: \"string\"",
            ],
        ),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(3_000_000_000_i64),
            vec![
                "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.x",
            ],
        ),
        (
            json!({"type": "number", "maximum": 10_000_000}),
            json!(2e7),
            vec!["spec.x: Invalid value: 2e+07: spec.x in body should be less than or equal to 1e+07"],
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            json!(1),
            vec!["spec.x: Invalid value: \"int64\": spec.x in body must be of type date-time: \"int64\""],
        ),
        (
            json!({"type": "string", "not": {"enum": ["no"]}}),
            json!("no"),
            vec!["<nil>: Invalid value: \"\": \"spec.x\" must not validate the schema (not)"],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
            json!(["a", "b", "a"]),
            vec!["spec.x[2]: Duplicate value: \"a\""],
        ),
    ] {
        assert_eq!(complaints(&schema, &value), expected, "{schema} {value}");
    }
}

#[test]
fn what_did_not_change_is_not_looked_at_again() {
    let schema = read_root(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "x": {"type": "integer", "minimum": 5},
        "y": {"type": "integer"},
        "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "minimum": 5}}}},
    }}}}))
    .expect("a schema");
    let old = json!({"spec": {"x": 1, "y": 1, "l": [{"k": "a", "v": 1}, {"k": "b", "v": 9}]}});
    let moved = json!({"spec": {"x": 1, "y": 2, "l": [{"k": "b", "v": 9}, {"k": "a", "v": 1}]}});
    assert_eq!(validate_update(&moved, &old, &schema), []);
    let worse = json!({"spec": {"x": 2, "y": 1, "l": [{"k": "a", "v": 2}]}});
    let fields: Vec<String> =
        validate_update(&worse, &old, &schema).into_iter().map(|error| error.field).collect();
    assert_eq!(fields, ["spec.l[0].v", "spec.x"]);
}

#[test]
fn a_definition_may_demand_something_of_names() {
    let schema = read_root(&json!({"type": "object", "properties": {
        "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}},
    }}))
    .expect("a schema");
    let object = json!({"metadata": {"name": "abcd", "labels": {"a": "b"}}});
    let texts: Vec<String> = validate(&object, &schema).iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["metadata.name: Too long: may not be more than 3 bytes"]);
}
