use serde_json::{Value, json};

use super::*;
use crate::types::{Catalog, Subresource, crd};

fn definition(group: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}"), "uid": "1", "generation": 1},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {"x": {"type": "integer"}}}},
            }}}],
        },
    });
    change(&mut definition);
    definition
}

fn with_x(x: Value) -> Value {
    definition("g.example.com", |definition| {
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
            ["x"] = x;
    })
}

#[test]
fn a_good_definition_has_no_complaints() {
    let mut definition = definition("g.example.com", |definition| {
        definition["spec"]["names"] = json!({"plural": "widgets", "kind": "Widget"});
    });
    crd::default_definition(&mut definition);
    assert_eq!(validate_definition(&definition), []);
    assert_eq!(definition["spec"]["names"]["singular"], "widget");
    assert_eq!(definition["spec"]["names"]["listKind"], "WidgetList");
    assert_eq!(definition["spec"]["conversion"]["strategy"], "None");
}

#[test]
fn bad_definitions_are_refused_at_the_field_that_is_wrong() {
    let at = |path: &str, value: Value| {
        definition("g.example.com", |definition| {
            *definition.pointer_mut(path).expect("a field") = value;
        })
    };
    let x = "spec.validation.openAPIV3Schema.properties[spec].properties[x]";
    for (definition, field) in [
        (at("/metadata/name", json!("wrong.g.example.com")), "metadata.name".to_owned()),
        (definition("nodots", |_| {}), "spec.group".to_owned()),
        (at("/spec/scope", json!("Nope")), "spec.scope".to_owned()),
        (at("/spec/names/kind", json!("")), "spec.names.kind".to_owned()),
        (at("/spec/names/plural", json!("Widgets")), "spec.names.plural".to_owned()),
        (at("/spec/names/listKind", json!("Widget")), "spec.names.listKind".to_owned()),
        (at("/spec/versions/0/schema", json!(null)), "spec.versions[0].schema.openAPIV3Schema".to_owned()),
        (at("/spec/versions/0/storage", json!(false)), "spec.versions".to_owned()),
        (at("/spec/versions", json!([])), "spec.versions".to_owned()),
        (at("/spec/versions/0/name", json!("V1")), "spec.versions[0].name".to_owned()),
        (
            at(
                "/spec/versions/0/schema/openAPIV3Schema",
                json!({"type": "array", "items": {"type": "string"}}),
            ),
            "spec.validation.openAPIV3Schema.type".to_owned(),
        ),
        (with_x(json!({"description": "no type"})), format!("{x}.type")),
        (with_x(json!({"type": "object", "$ref": "#/foo"})), format!("{x}.$ref")),
        (
            with_x(
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
            ),
            format!("{x}.additionalProperties"),
        ),
        (
            with_x(json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true})),
            format!("{x}.uniqueItems"),
        ),
        (with_x(json!({"type": "array"})), format!("{x}.items")),
        (
            with_x(
                json!({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object", "properties": {"a": {"type": "string"}}}}),
            ),
            format!("{x}.x-kubernetes-list-map-keys"),
        ),
        (with_x(json!({"type": "integer", "default": "text"})), format!("{x}.default")),
        (with_x(json!({"type": "integer", "minimum": 5, "default": 1})), format!("{x}.default")),
        (with_x(json!({"type": "object", "properties": {}, "default": {"odd": 1}})), format!("{x}.default")),
        (
            with_x(json!({"type": "object", "anyOf": [{"type": "object", "properties": {"a": {}}}]})),
            format!("{x}.anyOf[0].type"),
        ),
        (with_x(json!({"type": "string", "pattern": "("})), format!("{x}.pattern")),
        (
            with_x(json!({"type": "integer", "x-kubernetes-validations": [{"rule": ""}]})),
            format!("{x}.x-kubernetes-validations[0].rule"),
        ),
        (
            definition("g.example.com", |definition| {
                definition["spec"]["versions"][0]["subresources"] =
                    json!({"scale": {"specReplicasPath": "spec.n", "statusReplicasPath": ".status.n"}});
            }),
            "spec.versions[0].subresources.scale.specReplicasPath".to_owned(),
        ),
        (
            definition("g.example.com", |definition| {
                definition["spec"]["versions"][0]["additionalPrinterColumns"] =
                    json!([{"name": "A", "type": "odd", "jsonPath": ".spec.a"}]);
            }),
            "spec.versions[0].additionalPrinterColumns[0].type".to_owned(),
        ),
    ] {
        let errors = validate_definition(&definition);
        assert!(errors.iter().any(|error| error.field == field), "{field}: {errors:?}");
    }
}

#[test]
fn common_forms_are_structural() {
    for x in [
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "string", "default": "a", "enum": ["a", "b"]}),
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}}}}),
        json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}),
    ] {
        assert_eq!(validate_definition(&with_x(x.clone())), [], "{x}");
    }
}

#[test]
fn a_stored_version_may_not_go_and_identity_may_not_change() {
    let old = definition("g.example.com", |definition| {
        definition["status"] = json!({"storedVersions": ["v1", "v2"]});
    });
    let errors = validate_definition_update(&old, &old);
    assert_eq!(errors[0].field, "status.storedVersions[1]");
    let mut changed = old.clone();
    changed["spec"]["names"]["plural"] = json!("gadgets");
    let errors = validate_definition_update(&changed, &old);
    assert!(
        errors.iter().any(|error| error.field == "spec.names.plural" && error.detail == "field is immutable")
    );
}

#[test]
fn names_are_accepted_unless_another_definition_holds_them() {
    let now = "2026-01-02T03:04:05Z".parse().expect("a time");
    let mut first = definition("g.example.com", |_| {});
    first["status"] = crd::status_for(&first, &[], now);
    assert!(crd::is_established(&first));
    assert_eq!(first["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(first["status"]["acceptedNames"]["kind"], "Widget");
    let later = "2026-01-03T00:00:00Z".parse().expect("a time");
    assert_eq!(
        crd::status_for(&first, std::slice::from_ref(&first), later),
        first["status"],
        "nothing changes twice"
    );

    let second = definition("g.example.com", |definition| {
        definition["metadata"]["name"] = json!("others.g.example.com");
        definition["spec"]["names"] =
            json!({"plural": "others", "singular": "other", "kind": "Widget", "listKind": "OtherList"});
    });
    let status = crd::status_for(&second, std::slice::from_ref(&first), now);
    assert_eq!(status["conditions"][0]["type"], "NamesAccepted");
    assert_eq!(status["conditions"][0]["status"], "False");
    assert_eq!(status["conditions"][0]["reason"], "KindConflict");
    assert_eq!(status["conditions"][1]["status"], "False");
}

#[test]
fn an_established_definition_is_in_the_catalog_until_it_goes() {
    let now = "2026-01-02T03:04:05Z".parse().expect("a time");
    let mut definition = definition("g.example.com", |definition| {
        let schema = definition["spec"]["versions"][0]["schema"].clone();
        definition["spec"]["versions"] = json!([
            {"name": "v1alpha1", "served": true, "storage": true, "schema": schema},
            {"name": "v1", "served": true, "storage": false, "schema": schema,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
                "selectableFields": [{"jsonPath": ".spec.x"}]},
            {"name": "v0", "served": false, "storage": false, "schema": schema},
        ]);
    });
    let builtin = Catalog::builtin();
    assert!(
        builtin.with_definitions(std::slice::from_ref(&definition)).group("g.example.com").is_none(),
        "not yet"
    );
    definition["status"] = crd::status_for(&definition, &[], now);
    let catalog = builtin.with_definitions(std::slice::from_ref(&definition));
    assert_ne!(catalog.hash(), builtin.hash());
    let group = catalog.group("g.example.com").expect("the group");
    assert_eq!(group.versions.iter().map(|version| &*version.name).collect::<Vec<_>>(), ["v1", "v1alpha1"]);
    let widgets = catalog.find("g.example.com", "v1", "widgets").expect("widgets");
    assert_eq!(&*widgets.storage.api_version, "g.example.com/v1alpha1");
    assert_eq!(&*widgets.columns[0].name, "Age");
    assert!(widgets.has_status());
    assert!(matches!(widgets.subresource("scale"), Some(Subresource::Scale(_))));
    assert_eq!(widgets.field("spec.x", &json!({"spec": {"x": 3}})).as_deref(), Some("3"));
    assert_eq!(widgets.field("spec.y", &json!({})), None);
    assert!(catalog.find_kind("g.example.com", "v1", "Widget").is_some());
    let again = catalog.with_definitions(std::slice::from_ref(&definition));
    let same = again.find("g.example.com", "v1", "widgets").expect("widgets");
    assert!(std::sync::Arc::ptr_eq(widgets, same), "what did not change is used again");
    assert!(catalog.with_definitions(&[]).group("g.example.com").is_none());
}
