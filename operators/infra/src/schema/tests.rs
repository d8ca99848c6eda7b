use serde_json::{Map, Value, json};

use super::Schema;

fn database() -> Value {
    json!({
        "type": "object",
        "required": ["engine", "storage_gb"],
        "properties": {
            "engine": {"type": "string", "enum": ["postgres", "mysql"]},
            "storage_gb": {"type": "integer", "minimum": 10},
            "replicas": {"type": "integer", "default": 0},
            "network": {"type": "object", "properties": {"public": {"type": "boolean", "default": false}}}
        }
    })
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().expect("an object")
}

fn complaints(schema: &Value, parameters: &Value) -> Vec<String> {
    let schema = Schema::compile(schema).expect("a schema");
    schema.check(&object(parameters)).err().unwrap_or_default()
}

fn refused(schema: &Value) -> String {
    Schema::compile(schema).expect_err("it should be refused").to_string()
}

#[test]
fn all_complaints_come_at_once_in_known_words() {
    assert_eq!(
        complaints(&database(), &json!({"storage_gb": 5, "replicas": "two", "network": {"public": 1}})),
        [
            "(root): 'engine' is a required property",
            "network.public: 1 is not of type 'boolean'",
            "replicas: 'two' is not of type 'integer'",
            "storage_gb: 5 is less than the minimum of 10",
        ]
    );
    assert_eq!(
        complaints(&database(), &json!({"engine": "oracle", "storage_gb": 10})),
        ["engine: 'oracle' is not one of ['postgres', 'mysql']"]
    );
}

#[test]
fn every_keyword_has_its_words() {
    let cases = [
        (json!({"maximum": 3}), json!(4), "4 is greater than the maximum of 3"),
        (json!({"exclusiveMinimum": 3}), json!(3), "3 is less than or equal to the minimum of 3"),
        (
            json!({"exclusiveMaximum": true, "maximum": 3}),
            json!(3),
            "3 is greater than or equal to the maximum of 3",
        ),
        (json!({"minLength": 2}), json!("a"), "'a' is too short"),
        (json!({"maxItems": 1}), json!([1, 2]), "[1, 2] is too long"),
        (json!({"pattern": "^a$"}), json!("b"), "'b' does not match '^a$'"),
        (json!({"uniqueItems": true}), json!([1, 1]), "[1, 1] has non-unique elements"),
        (json!({"multipleOf": 2}), json!(3), "3 is not a multiple of 2"),
        (json!({"const": null}), json!(true), "None was expected"),
        (
            json!({"anyOf": [{"type": "string"}]}),
            json!({"a": 1}),
            "{'a': 1} is not valid under any of the given schemas",
        ),
        (json!({"format": "ipv4"}), json!("x"), "'x' is not a 'ipv4'"),
        (
            json!({"additionalProperties": false}),
            json!({"b": 1, "c": 2}),
            "Additional properties are not allowed ('b', 'c' were unexpected)",
        ),
        (json!({"type": ["integer", "null"]}), json!("it's"), "\"it's\" is not of type 'integer', 'null'"),
    ];
    for (schema, value, words) in cases {
        let found = complaints(&json!({"properties": {"a": schema}}), &json!({"a": value}));
        assert_eq!(found, [format!("a: {words}")]);
    }
}

#[test]
fn defaults_are_filled_in_where_their_object_is() {
    let schema = Schema::compile(&database()).expect("a schema");
    let mut parameters = object(&json!({"engine": "mysql", "network": {}}));
    schema.default_into(&mut parameters);
    assert_eq!(
        Value::Object(parameters),
        json!({"engine": "mysql", "replicas": 0, "network": {"public": false}})
    );
    let mut parameters = object(&json!({"replicas": null}));
    schema.default_into(&mut parameters);
    assert_eq!(Value::Object(parameters), json!({"replicas": null}), "what is given stays");
}

#[test]
fn defaults_behind_references_and_in_lists_are_found() {
    let schema = json!({
        "definitions": {"disk": {"properties": {"size": {"default": 10}}}},
        "properties": {"disks": {"type": "array", "items": {"$ref": "#/definitions/disk"}}}
    });
    let schema = Schema::compile(&schema).expect("a schema");
    let mut parameters = object(&json!({"disks": [{}, {"size": 3}]}));
    schema.default_into(&mut parameters);
    assert_eq!(Value::Object(parameters), json!({"disks": [{"size": 10}, {"size": 3}]}));
}

#[test]
fn openapi_words_are_understood() {
    let schema = json!({"properties": {
        "a": {"type": "string", "nullable": true, "enum": ["x"]},
        "b": {"x-kubernetes-int-or-string": true},
        "c": {"type": "integer", "format": "int64", "example": 1}
    }});
    assert!(complaints(&schema, &json!({"a": null, "b": "10%", "c": 5})).is_empty());
    assert_eq!(complaints(&schema, &json!({"b": true})), ["b: True is not of type 'integer', 'string'"]);
}

#[test]
fn unknown_fields_are_kept_and_newer_drafts_are_understood() {
    assert!(complaints(&database(), &json!({"engine": "mysql", "storage_gb": 10, "extra": 1})).is_empty());
    let schema = json!({"$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {"a": {"prefixItems": [{"type": "string"}]}}});
    assert_eq!(complaints(&schema, &json!({"a": [1]})), ["a.0: 1 is not of type 'string'"]);
}

#[test]
fn what_is_no_schema_is_refused_with_a_reason() {
    assert_eq!(refused(&json!([])), "a schema must be an object");
    assert!(refused(&json!({"type": "string"})).contains("must be \"object\""));
    assert!(refused(&json!({"type": "objekt"})).contains("must be \"object\""));
    assert!(refused(&json!({"properties": {"a": {"type": "strin"}}})).contains("'strin'"));
    assert!(refused(&json!({"properties": {"a": 5}})).contains("5 is no schema"));
    assert!(!refused(&json!({"properties": {"a": {"pattern": "("}}})).is_empty());
    assert!(!refused(&json!({"required": "engine"})).is_empty());
}

#[test]
fn nothing_is_ever_fetched() {
    for target in ["http://127.0.0.1:1/x.json", "file:///etc/passwd", "other.json"] {
        let schema = json!({"properties": {"a": {"$ref": target}}});
        assert!(refused(&schema).contains("nothing is ever fetched"), "{target}");
    }
    assert!(refused(&json!({"properties": {"a": {"$ref": "#/definitions/none"}}})).contains("leads nowhere"));
}

#[test]
fn hostile_schemas_are_refused() {
    let mut deep = json!({});
    for _ in 0..100 {
        deep = json!({"properties": {"a": deep}});
    }
    assert!(refused(&deep).contains("levels deep"));
    assert!(refused(&json!({"$ref": "#"})).contains("refers to itself"));
    assert!(refused(&json!({"allOf": [{"anyOf": [{"$ref": "#"}]}]})).contains("refers to itself"));
    let mut laughs = json!({"l0": {"type": "object"}});
    for level in 1..30 {
        let below = format!("#/definitions/l{}", level - 1);
        laughs[format!("l{level}")] = json!({"allOf": [{"$ref": below}, {"$ref": below}]});
    }
    let laughs = json!({"definitions": laughs, "properties": {"a": {"$ref": "#/definitions/l29"}}});
    assert!(refused(&laughs).contains("refers to itself so often"));
    let huge_pattern = json!({"properties": {"a": {"pattern": "(a{1000}){1000}"}}});
    assert!(!refused(&huge_pattern).is_empty());
}

#[test]
fn a_schema_may_describe_a_tree() {
    let tree = json!({"properties": {"children": {"type": "array", "items": {"$ref": "#"}}, "n": {"type": "integer", "default": 1}}});
    assert_eq!(
        complaints(&tree, &json!({"children": [{"children": [{"n": "x"}]}]})),
        ["children.0.children.0.n: 'x' is not of type 'integer'"]
    );
}
