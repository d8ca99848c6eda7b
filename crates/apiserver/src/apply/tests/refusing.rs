//! What cannot be applied, and why.

use serde_json::{Value, json};

use super::*;

#[test]
fn what_was_there_before_the_first_apply_belongs_to_its_own_manager() {
    let mut story = Story::new();
    story.live = Some(thing(&json!({"text": "x", "number": 1})));
    story.apply("a", &json!({"text": "x"})).owners(&[
        ("a", "Apply", json!({"f:text": {}})),
        ("before-first-apply", "Update", json!({".": {}, "f:text": {}, "f:number": {}})),
    ]);
    let conflict = story.try_apply("a", &json!({"text": "y"}), Force::No).unwrap_err().to_string();
    assert_eq!(
        conflict,
        r#"Apply failed with 1 conflict: conflict with "before-first-apply" using example.com/v1: .spec.text"#
    );
}

#[test]
fn another_value_for_an_owned_field_is_a_conflict() {
    let cases = [
        (json!({"number": 1}), json!({"number": 2}), ".spec.number"),
        (json!({"map": {"x": "1"}}), json!({"map": {"x": "2"}}), ".spec.map.x"),
        (json!({"atomicMap": {"x": "1"}}), json!({"atomicMap": {"y": "1"}}), ".spec.atomicMap"),
        (json!({"atomicNested": {"a": 1}}), json!({"atomicNested": {"b": 1}}), ".spec.atomicNested"),
        (json!({"list": ["x"]}), json!({"list": ["y"]}), ".spec.list"),
        (
            json!({"items": [{"name": "i", "value": "1"}]}),
            json!({"items": [{"name": "i", "value": "2"}]}),
            r#".spec.items[name="i"].value"#,
        ),
        (
            json!({"ports": [{"port": 80, "name": "a"}]}),
            json!({"ports": [{"port": 80, "protocol": "TCP", "name": "b"}]}),
            r#".spec.ports[port=80,protocol="TCP"].name"#,
        ),
        (json!({"free": {"a": {"b": 1}}}), json!({"free": {"a": {"b": 2}}}), ".spec.free.a.b"),
        (json!({"free": {"l": [1]}}), json!({"free": {"l": [2]}}), ".spec.free.l"),
        (json!({"free": 1}), json!({"free": "x"}), ".spec.free"),
    ];
    for (first, second, field) in cases {
        let mut story = Story::new();
        story.apply("a", &first);
        let before = story.live.clone();
        let Err(ApplyError::Conflicts(conflicts)) = story.try_apply("b", &second, Force::No) else {
            panic!("{second} should conflict");
        };
        assert_eq!(conflicts.0.iter().map(Conflict::field).collect::<Vec<_>>(), [field], "{second}");
        assert_eq!(conflicts.0[0].manager, ManagerId::applier("a", ""));
        assert_eq!(story.live, before);
    }
}

#[test]
fn an_applier_and_an_updater_of_one_name_are_two_managers() {
    let mut story = Story::new();
    story.update("m", &json!({"number": 1}));
    let conflict = story.try_apply("m", &json!({"number": 2}), Force::No).unwrap_err().to_string();
    assert_eq!(
        conflict,
        r#"Apply failed with 1 conflict: conflict with "m" using example.com/v1: .spec.number"#
    );
}

#[test]
fn intents_that_cannot_be_applied_are_refused() {
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut intent = thing(&json!({}));
        change(&mut intent);
        let reset = FieldSet::default();
        apply(None, &intent, &fixture::schema(), &fixture::writer("a", 0, &reset), Force::Yes)
            .unwrap_err()
            .to_string()
    };
    let typed = |reason: &str| {
        format!("failed to create typed patch object (n/a; example.com/v1, Kind=Thing): {reason}")
    };
    type Change = Box<dyn Fn(&mut Value)>;
    let cases: Vec<(Change, String)> = vec![
        (Box::new(|o| o["kind"] = json!("Other")), "invalid object type: example.com/v1, Kind=Other".into()),
        (Box::new(|o| o["apiVersion"] = json!("v1")), "invalid object type: /v1, Kind=Thing".into()),
        (
            Box::new(|o| o["metadata"]["managedFields"] = json!([])),
            "metadata.managedFields must be nil".into(),
        ),
        (Box::new(|o| o["nope"] = json!(1)), typed(".nope: field not declared in schema")),
        (Box::new(|o| o["spec"]["nope"] = json!(1)), typed(".spec.nope: field not declared in schema")),
        (Box::new(|o| o["spec"] = json!(1)), typed(".spec: expected map, got 1")),
        (
            Box::new(|o| o["spec"]["number"] = json!("x")),
            typed(r#".spec.number: expected numeric (int or float), got "x""#),
        ),
        (Box::new(|o| o["spec"]["flag"] = json!(1)), typed(".spec.flag: expected boolean, got 1")),
        (Box::new(|o| o["spec"]["list"] = json!("x")), typed(r#".spec.list: expected list, got "x""#)),
        (Box::new(|o| o["spec"]["list"] = json!([1])), typed(".spec.list[0]: expected string, got 1")),
        (
            Box::new(|o| o["spec"]["set"] = json!(["x", "x"])),
            typed(r#".spec.set: duplicate entries for key [="x"]"#),
        ),
        (
            Box::new(|o| o["spec"]["set"] = json!([null])),
            typed(
                ".spec.set: element 0: associative list without keys has an element that's an explicit null",
            ),
        ),
        (
            Box::new(|o| o["spec"]["items"] = json!([{"name": "i"}, {"name": "i"}])),
            typed(r#".spec.items: duplicate entries for key [name="i"]"#),
        ),
        (
            Box::new(|o| o["spec"]["items"] = json!([{"value": "i"}])),
            typed(
                r#".spec.items: element 0: associative list with keys has an element that omits all key fields ["name"] (and doesn't have default values for any key fields)"#,
            ),
        ),
        (
            Box::new(|o| o["spec"]["items"] = json!([{"name": "i", "nope": 1}])),
            typed(r#".spec.items[name="i"].nope: field not declared in schema"#),
        ),
        (
            Box::new(|o| o["spec"]["items"] = json!(["x"])),
            typed(".spec.items: element 0: associative list with keys may not have non-map elements"),
        ),
        (
            Box::new(|o| o["spec"] = json!({"flag": 1, "number": "x"})),
            typed(
                "errors:\n  .spec.flag: expected boolean, got 1\n  .spec.number: expected numeric (int or float), got \"x\"",
            ),
        ),
    ];
    for (change, expected) in cases {
        assert_eq!(refused(&change), expected);
    }
}

#[test]
fn a_live_object_with_broken_owners_cannot_be_applied_to() {
    let mut live = thing(&json!({}));
    live["metadata"]["managedFields"] = json!([{"operation": "?"}]);
    let reset = FieldSet::default();
    let error = apply(
        Some(&live),
        &thing(&json!({})),
        &fixture::schema(),
        &fixture::writer("a", 0, &reset),
        Force::No,
    );
    assert!(matches!(error, Err(ApplyError::Managed(ManagedError::Operation))));
}

#[test]
fn kubectl_takes_over_what_it_applied_from_the_client() {
    let last_applied = thing(&json!({"number": 1, "text": "x"})).to_string();
    let mut created = thing(&json!({"number": 1, "text": "x", "flag": true}));
    created["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": last_applied});
    let mut story = Story::new();
    story.replace("kubectl-client-side-apply", created);
    let before = story.live.clone();
    assert!(story.try_apply("other", &json!({"number": 2}), Force::No).is_err());
    let conflict = story.try_apply("kubectl", &json!({"number": 2, "flag": false}), Force::No).unwrap_err();
    assert!(
        conflict.to_string().contains("1 conflict:") && conflict.to_string().ends_with(".spec.flag"),
        "{conflict}"
    );
    assert_eq!(story.live, before);
    story.apply("kubectl", &json!({"number": 2})).spec(&json!({"number": 2, "text": "x", "flag": true}));
    let annotation = &story.live.as_ref().unwrap()["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    assert_eq!(annotation.as_str().unwrap(), format!("{}\n", thing(&json!({"number": 2}))));
}
