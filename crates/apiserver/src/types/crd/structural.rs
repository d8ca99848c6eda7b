//! The rules of structural schemas: every field has a type, and what `allOf` and its kin say
//! only narrows what is already described.

use regex::Regex;
use serde_json::{Map, Value, json};

use super::text;
use crate::schema::{self, FieldError, read_root};

/// Where in a schema a node is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// What is wrong with the schema of a version.
pub(super) fn validate(json: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !json.is_object() {
        errors.push(FieldError::invalid(
            path,
            json.clone(),
            "must be an object with the keys of a JSON schema",
        ));
        return errors;
    }
    if json["nullable"] == true {
        errors.push(FieldError::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    node(json, Level::Root, path, &mut errors);
    if errors.is_empty() {
        defaults(json, path, &mut errors);
    }
    if errors.is_empty()
        && let Ok(schema) = read_root(json)
    {
        errors.extend(schema::rules::check_definition(&schema, path));
    }
    errors.sort_by_key(ToString::to_string);
    errors.dedup();
    errors
}

fn node(json: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let Some(keys) = json.as_object() else {
        errors.push(FieldError::invalid(
            path,
            json.clone(),
            "must be an object with the keys of a JSON schema",
        ));
        return;
    };
    let is = |key: &str| keys.get(key) == Some(&Value::Bool(true));
    let at = |key: &str| format!("{path}.{key}");
    let kind = text(keys.get("type"));
    check_keywords(keys, path, errors);
    check_type(keys, kind, level, path, errors);
    if kind == "array" && !keys.contains_key("items") {
        errors.push(FieldError::required(at("items"), "must be specified"));
    }
    match keys.get("items") {
        Some(Value::Array(_)) => {
            errors.push(FieldError::forbidden(at("items"), "items must be a schema object and not an array"));
        }
        Some(items) => node(items, Level::Item, &at("items"), errors),
        None => {}
    }
    for (name, property) in object(keys.get("properties")) {
        if name == "metadata" && (level == Level::Root || is("x-kubernetes-embedded-resource")) {
            check_metadata(property, level, &format!("{path}.properties[metadata]"), errors);
        } else {
            node(property, Level::Field, &format!("{path}.properties[{name}]"), errors);
        }
    }
    if let Some(additional) = keys.get("additionalProperties").filter(|value| **value != Value::Bool(false)) {
        if level == Level::Root {
            errors.push(FieldError::forbidden(at("additionalProperties"), "must not be used at the root"));
        }
        if object(keys.get("properties")).next().is_some() {
            let detail = "additionalProperties and properties are mutual exclusive";
            errors.push(FieldError::forbidden(at("additionalProperties"), detail));
        }
        if additional.is_object() {
            node(additional, Level::Field, &at("additionalProperties"), errors);
        }
    }
    if is("x-kubernetes-int-or-string") {
        for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if is(key) {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                errors.push(FieldError::invalid(at(key), true, detail));
            }
        }
    }
    if is("x-kubernetes-embedded-resource")
        && !is("x-kubernetes-preserve-unknown-fields")
        && object(keys.get("properties")).next().is_none()
    {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                          x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(at("properties"), detail));
    }
    check_lists_and_maps(keys, kind, path, errors);
    check_values(keys, path, errors);
    if level == Level::Root || is("x-kubernetes-embedded-resource") {
        for name in ["kind", "apiVersion"] {
            if let Some(property) = keys.get("properties").and_then(|properties| properties.get(name))
                && property["type"] != "string"
            {
                let path = format!("{path}.properties[{name}].type");
                errors.push(FieldError::invalid(path, property["type"].clone(), "must be string"));
            }
        }
    }
}

fn check_type(keys: &Map<String, Value>, kind: &str, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let is = |key: &str| keys.get(key) == Some(&Value::Bool(true));
    let path = format!("{path}.type");
    let embedded = is("x-kubernetes-embedded-resource");
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() {
            FieldError::required(path, detail)
        } else {
            FieldError::invalid(path, kind, detail)
        });
    } else if kind.is_empty()
        && !is("x-kubernetes-int-or-string")
        && !is("x-kubernetes-preserve-unknown-fields")
    {
        let place = match level {
            Level::Root => "at the root",
            Level::Item => "for specified array items",
            Level::Field => "for specified object fields",
        };
        errors.push(FieldError::required(path, format!("must not be empty {place}")));
    } else if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(path, kind, "must be object at the root"));
    } else if !matches!(kind, "" | "array" | "boolean" | "integer" | "number" | "object" | "string") {
        let known = ["array", "boolean", "integer", "number", "object", "string"];
        errors.push(FieldError::not_supported(path, kind, &known));
    }
}

/// Keywords of JSON schema that custom resources do not have.
fn check_keywords(keys: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    for key in ["$ref", "id", "additionalItems", "patternProperties", "definitions", "dependencies"] {
        if keys.get(key).is_some_and(|value| !value.is_null()) {
            errors.push(FieldError::forbidden(format!("{path}.{key}"), format!("{key} is not supported")));
        }
    }
    if keys.get("uniqueItems") == Some(&Value::Bool(true)) {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(format!("{path}.uniqueItems"), detail));
    }
    if keys.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let path = format!("{path}.x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(path, false, "must be true or undefined"));
    }
}

/// The root's metadata may only restrict names; nothing else of it is up to the definition.
fn check_metadata(json: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    if json["type"] != "object" {
        errors.push(FieldError::invalid(format!("{path}.type"), json["type"].clone(), "must be object"));
    }
    let only_names = object(json.get("properties")).all(|(name, _)| name == "name" || name == "generateName");
    let other =
        object(Some(json)).any(|(key, _)| !matches!(key.as_str(), "type" | "properties" | "description"));
    if level == Level::Root && (!only_names || other) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(path, detail));
    }
}

fn check_lists_and_maps(keys: &Map<String, Value>, kind: &str, path: &str, errors: &mut Vec<FieldError>) {
    let at = |key: &str| format!("{path}.{key}");
    if let Some(map_type) = keys.get("x-kubernetes-map-type").and_then(Value::as_str) {
        if kind != "object" {
            let detail = "must be object if x-kubernetes-map-type is specified";
            errors.push(FieldError::invalid(at("type"), kind, detail));
        }
        if !["atomic", "granular"].contains(&map_type) {
            errors.push(FieldError::not_supported(
                at("x-kubernetes-map-type"),
                map_type,
                &["atomic", "granular"],
            ));
        }
    }
    let list_type = keys.get("x-kubernetes-list-type").and_then(Value::as_str);
    let map_keys: Vec<&str> =
        keys.get("x-kubernetes-list-map-keys").map(super::strings).into_iter().flatten().collect();
    if let Some(list_type) = list_type {
        if kind != "array" {
            let detail = "must be array if x-kubernetes-list-type is specified";
            errors.push(FieldError::invalid(at("type"), kind, detail));
        }
        if !["atomic", "set", "map"].contains(&list_type) {
            let known = ["atomic", "set", "map"];
            errors.push(FieldError::not_supported(at("x-kubernetes-list-type"), list_type, &known));
        }
    }
    let items = keys.get("items").unwrap_or(&Value::Null);
    if list_type == Some("set") {
        if items["type"] == "array"
            && items["x-kubernetes-list-type"] != "atomic"
            && !items["x-kubernetes-list-type"].is_null()
        {
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            errors.push(FieldError::invalid(
                at("items.x-kubernetes-list-type"),
                items["x-kubernetes-list-type"].clone(),
                detail,
            ));
        }
        if items["type"] == "object" && items["x-kubernetes-map-type"] != "atomic" {
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            errors.push(FieldError::invalid(
                at("items.x-kubernetes-map-type"),
                items["x-kubernetes-map-type"].clone(),
                detail,
            ));
        }
    }
    if list_type != Some("map") {
        if !map_keys.is_empty() {
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            errors.push(FieldError::required(at("x-kubernetes-list-type"), detail));
        }
        return;
    }
    if map_keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(at("x-kubernetes-list-map-keys"), detail));
    }
    if items.is_object() && items["type"] != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(at("items.type"), items["type"].clone(), detail));
        return;
    }
    let required: Vec<&str> = super::strings(&items["required"]).collect();
    for (position, key) in map_keys.iter().enumerate() {
        let Some(property) = items["properties"].get(*key) else {
            let detail = "entries must all be names of item properties";
            errors.push(FieldError::invalid(at("x-kubernetes-list-map-keys"), json!(map_keys), detail));
            continue;
        };
        if map_keys[..position].contains(key) {
            let detail = "must not contain duplicate entries";
            errors.push(FieldError::invalid(at("x-kubernetes-list-map-keys"), json!(map_keys), detail));
        }
        if matches!(property["type"].as_str(), Some("object" | "array")) {
            let path = format!("{path}.items.properties[{key}].type");
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.push(FieldError::invalid(path, property["type"].clone(), detail));
        }
        if !required.contains(key) && property["default"].is_null() {
            let path = format!("{path}.items.properties[{key}].default");
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(path, detail));
        }
    }
}

/// `pattern`, and what may stand inside `allOf`, `anyOf`, `oneOf` and `not`.
fn check_values(keys: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(pattern) = keys.get("pattern").and_then(Value::as_str)
        && let Err(error) = Regex::new(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(format!("{path}.pattern"), pattern, detail));
    }
    // The customary way to write int-or-string is the one exception to having no types inside.
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    for key in ["allOf", "anyOf", "oneOf"] {
        if key == "anyOf" && keys.get(key) == Some(&either) {
            continue;
        }
        for (at, nested) in keys.get(key).and_then(Value::as_array).into_iter().flatten().enumerate() {
            if !(key == "allOf" && at == 0 && nested == &json!({"anyOf": either})) {
                check_nested(nested, &format!("{path}.{key}[{at}]"), errors);
            }
        }
    }
    if let Some(nested) = keys.get("not") {
        check_nested(nested, &format!("{path}.not"), errors);
    }
}

fn check_nested(json: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(keys) = json.as_object() else {
        errors.push(FieldError::invalid(
            path,
            json.clone(),
            "must be an object with the keys of a JSON schema",
        ));
        return;
    };
    for (key, rule) in [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        if keys
            .get(key)
            .is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)) && value != "")
        {
            errors.push(FieldError::forbidden(format!("{path}.{key}"), rule));
        }
    }
    check_values(keys, path, errors);
    if let Some(items) = keys.get("items") {
        check_nested(items, &format!("{path}.items"), errors);
    }
    for (name, property) in object(keys.get("properties")) {
        check_nested(property, &format!("{path}.properties[{name}]"), errors);
        if name == "metadata" {
            let detail = "must not be specified in a nested context";
            errors.push(FieldError::forbidden(format!("{path}.properties[metadata]"), detail));
        }
    }
}

/// Every default is what its own schema admits.
fn defaults(json: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(default) = json.get("default").filter(|default| !default.is_null()) {
        // A schema of one field gives the node a place to stand in, and its name to the messages.
        let wrapped = json!({"type": "object", "properties": {"default": without_default(json)}});
        if let Ok(schema) = read_root(&wrapped) {
            let mut value = json!({"default": default});
            let unknown = schema::prune(&mut value, &schema);
            if !unknown.is_empty() {
                let path = format!("{path}.default");
                errors.push(FieldError::invalid(path, default.clone(), "must not have unknown fields"));
            }
            schema::default(&mut value, &schema);
            for mut error in schema::validate(&value, &schema) {
                error.field = format!("{path}.{}", error.field);
                errors.push(error);
            }
        }
    }
    for (name, property) in object(json.get("properties")) {
        defaults(property, &format!("{path}.properties[{name}]"), errors);
    }
    for key in ["items", "additionalProperties"] {
        if json[key].is_object() {
            defaults(&json[key], &format!("{path}.{key}"), errors);
        }
    }
}

fn without_default(json: &Value) -> Value {
    let mut json = json.clone();
    if let Some(keys) = json.as_object_mut() {
        keys.remove("default");
    }
    json
}

fn object(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    value.and_then(Value::as_object).into_iter().flatten()
}
