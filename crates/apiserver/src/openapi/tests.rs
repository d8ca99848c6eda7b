use serde_json::json;

use super::*;
use crate::types::crd;

fn with_widget() -> Catalog {
    let mut definition = json!({
        "metadata": {"name": "widgets.g.example.com", "uid": "1", "generation": 1},
        "spec": {
            "group": "g.example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "description": "a widget", "properties": {
                    "spec": {"type": "object", "properties": {
                        "size": {"type": "integer", "minimum": 1, "description": "how big"},
                        "free": {"x-kubernetes-preserve-unknown-fields": true},
                        "port": {"x-kubernetes-int-or-string": true},
                        "maybe": {"type": "string", "nullable": true},
                        "either": {"type": "object", "properties": {"a": {"type": "string"}}, "oneOf": [{"required": ["a"]}]},
                    }},
                }}}}],
        },
    });
    let now = "2026-01-01T00:00:00Z".parse().expect("a time");
    definition["status"] = crd::status_for(&definition, &[], now);
    Catalog::builtin().with_definitions(&[definition])
}

fn parsed(document: &Document) -> Value {
    serde_json::from_slice(&document.bytes).expect("JSON")
}

#[test]
fn the_index_leads_to_every_group_version() {
    let catalog = with_widget();
    let index = index(&catalog);
    for path in ["api/v1", "apis/apps/v1", "apis/batch/v1", "apis/g.example.com/v1"] {
        let url = index["paths"][path]["serverRelativeURL"].as_str().unwrap_or_else(|| panic!("no {path}"));
        let document = v3(&catalog, path, None).expect("a document");
        assert_eq!(url, format!("/openapi/v3/{path}?hash={}", document.hash));
    }
    assert!(v3(&catalog, "apis/nope/v1", None).is_none());
    assert!(v3(&catalog, "apis//v1", None).is_none());
    assert!(v3(&catalog, "", None).is_none());
}

#[test]
fn version_3_tells_what_kubectl_looks_for() {
    let catalog = Catalog::builtin();
    let document = parsed(&v3(&catalog, "apis/apps/v1", None).expect("apps"));
    let kind = json!({"group": "apps", "version": "v1", "kind": "Deployment"});
    let deployment = &document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"];
    assert_eq!(deployment["x-kubernetes-group-version-kind"], json!([kind]));
    let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"], kind);
    assert_eq!(patch["x-kubernetes-action"], "patch");
    let names: Vec<&str> = patch["parameters"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|parameter| parameter["name"].as_str())
        .collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    let container = &document["components"]["schemas"]["io.k8s.api.core.v1.Container"]["properties"];
    assert_eq!(container["ports"]["x-kubernetes-list-map-keys"], json!(["containerPort", "protocol"]));
    assert_eq!(container["ports"]["x-kubernetes-patch-merge-key"], "containerPort");
    let strategy =
        &document["components"]["schemas"]["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["strategy"];
    assert_eq!(strategy["x-kubernetes-patch-strategy"], "retainKeys");
    assert!(strategy["allOf"][0]["$ref"].is_string());
}

#[test]
fn every_reference_leads_somewhere_and_operation_ids_are_unique() {
    fn walk(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(reference)) = fields.get("$ref") {
                    found.push(reference.clone());
                }
                fields.values().for_each(|value| walk(value, found));
            }
            Value::Array(elements) => elements.iter().for_each(|value| walk(value, found)),
            _ => {}
        }
    }
    let catalog = with_widget();
    let mut documents = vec![parsed(&v2_json(&catalog, None))];
    for path in ["api/v1", "apis/apps/v1", "apis/apiextensions.k8s.io/v1", "apis/g.example.com/v1"] {
        documents.push(parsed(&v3(&catalog, path, None).expect("a document")));
    }
    for document in &documents {
        let mut references = Vec::new();
        walk(document, &mut references);
        assert!(!references.is_empty());
        for reference in references {
            let target = document.pointer(reference.trim_start_matches('#'));
            assert!(target.is_some_and(Value::is_object), "{reference} leads nowhere");
        }
        let mut ids: Vec<&str> = document["paths"]
            .as_object()
            .into_iter()
            .flatten()
            .flat_map(|(_, item)| item.as_object().into_iter().flatten())
            .filter_map(|(_, operation)| operation["operationId"].as_str())
            .collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count, "operation ids repeat");
    }
}

#[test]
fn custom_resources_are_published_in_both_versions() {
    let catalog = with_widget();
    let three = parsed(&v3(&catalog, "apis/g.example.com/v1", None).expect("widgets"));
    let widget = &three["components"]["schemas"]["com.example.g.v1.Widget"];
    assert_eq!(widget["x-kubernetes-group-version-kind"][0]["kind"], "Widget");
    let spec = &widget["properties"]["spec"]["properties"];
    assert_eq!(spec["size"]["description"], "how big");
    assert_eq!(spec["size"]["minimum"], 1);
    assert_eq!(spec["port"], json!({"x-kubernetes-int-or-string": true}));
    assert_eq!(spec["free"], json!({"x-kubernetes-preserve-unknown-fields": true}));
    assert_eq!(spec["maybe"], json!({"type": "string", "nullable": true}));
    assert_eq!(spec["either"]["oneOf"], json!([{"required": ["a"]}]));
    let item = &three["paths"]["/apis/g.example.com/v1/namespaces/{namespace}/widgets/{name}"];
    assert!(item["patch"].is_object());
    assert!(item["patch"]["requestBody"]["content"].get("application/strategic-merge-patch+json").is_none());
    assert!(
        three["paths"]["/apis/g.example.com/v1/namespaces/{namespace}/widgets/{name}/status"].is_object()
    );

    let two = parsed(&v2_json(&catalog, None));
    let spec = &two["definitions"]["com.example.g.v1.Widget"]["properties"]["spec"]["properties"];
    assert_eq!(spec["maybe"], json!({}), "version 2 cannot say that null is a value");
    assert!(spec["either"].get("oneOf").is_none());
    assert!(two["definitions"]["io.k8s.api.core.v1.Pod"].is_object());
    assert!(two["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"].is_object());
}

/// Reads one protobuf message: numbers and contents of its length-delimited fields.
fn read(mut bytes: &[u8]) -> Vec<(u32, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let (first, rest) = bytes.split_first().expect("a byte");
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            shift += 7;
            if first & 0x80 == 0 {
                return value;
            }
        }
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let number = u32::try_from(tag >> 3).expect("a field number");
        match tag & 7 {
            0 => {
                varint(&mut bytes);
            }
            1 => bytes = &bytes[8..],
            2 => {
                let length = usize::try_from(varint(&mut bytes)).expect("a length");
                let (content, rest) = bytes.split_at(length);
                fields.push((number, content));
                bytes = rest;
            }
            wire => panic!("wire type {wire} of field {number}"),
        }
    }
    fields
}

fn child(bytes: &[u8], number: u32) -> &[u8] {
    read(bytes)
        .into_iter()
        .find(|(found, _)| *found == number)
        .unwrap_or_else(|| panic!("no field {number}"))
        .1
}

fn named<'a>(bytes: &'a [u8], number: u32, name: &str) -> &'a [u8] {
    let entries = read(bytes).into_iter().filter(|(found, _)| *found == number);
    let entry = entries.map(|(_, entry)| entry).find(|entry| child(entry, 1) == name.as_bytes());
    child(entry.unwrap_or_else(|| panic!("no entry {name}")), 2)
}

#[test]
fn the_protobuf_of_version_2_holds_what_its_json_says() {
    let catalog = with_widget();
    let document = v2_protobuf(&catalog, None);
    assert_eq!(child(&document.bytes, 1), b"2.0");
    let definitions = child(&document.bytes, 9);
    let json = parsed(&v2_json(&catalog, None));
    assert_eq!(
        read(definitions).len(),
        json["definitions"].as_object().map_or(0, Map::len),
        "every definition is there"
    );
    let deployment = named(definitions, 1, "io.k8s.api.apps.v1.Deployment");
    let kind = named(deployment, 31, "x-kubernetes-group-version-kind");
    let yaml: Value = serde_json::from_slice(child(kind, 2)).expect("JSON is YAML too");
    assert_eq!(yaml, json!([{"group": "apps", "version": "v1", "kind": "Deployment"}]));
    let spec = named(child(deployment, 25), 1, "spec");
    assert_eq!(child(spec, 1), b"#/definitions/io.k8s.api.apps.v1.DeploymentSpec");
    let paths = child(&document.bytes, 8);
    let item = named(paths, 2, "/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
    let patch = child(item, 8);
    let query: Vec<&[u8]> = read(patch)
        .into_iter()
        .filter(|(number, _)| *number == 8)
        .filter_map(|(_, parameter)| read(child(parameter, 1)).into_iter().find(|(number, _)| *number == 2))
        .map(|(_, other)| child(child(other, 3), 4))
        .collect();
    assert_eq!(query, [&b"dryRun"[..], b"fieldManager", b"fieldValidation", b"force"]);
}

#[test]
fn types_and_fields_say_what_they_are_for_where_that_is_known() {
    let spec = Description {
        text: "How pods are kept.".to_owned(),
        fields: [("replicas", "How many."), ("template", "Of what.")]
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
            .into(),
    };
    let words: Descriptions = [("io.k8s.api.apps.v1.DeploymentSpec".to_owned(), spec)].into();
    let catalog = Catalog::builtin();
    for document in [
        parsed(&v3(&catalog, "apis/apps/v1", Some(&words)).expect("apps"))["components"]["schemas"].clone(),
        parsed(&v2_json(&catalog, Some(&words)))["definitions"].clone(),
    ] {
        let spec = &document["io.k8s.api.apps.v1.DeploymentSpec"];
        assert_eq!(spec["description"], "How pods are kept.");
        assert_eq!(spec["properties"]["replicas"]["description"], "How many.");
        assert_eq!(spec["properties"]["template"]["description"], "Of what.");
    }
}
