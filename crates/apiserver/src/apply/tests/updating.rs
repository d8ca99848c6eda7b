//! What creating, replacing and patching do to who owns an object.

use serde_json::{Value, json};

use super::*;

#[test]
fn an_update_takes_what_it_changes_and_nothing_else() {
    Story::new()
        .apply("a", &json!({"number": 1, "text": "x", "map": {"k": "1", "l": "2"}}))
        .update("u", &json!({"number": 1, "text": "y", "map": {"k": "1", "m": "3"}}))
        .owners(&[
            ("a", "Apply", json!({"f:number": {}, "f:map": {"f:k": {}}})),
            ("u", "Update", json!({"f:text": {}, "f:map": {"f:m": {}}})),
        ]);
}

#[test]
fn a_create_owns_objects_that_were_not_there_before() {
    Story::new()
        .update("u", &json!({"number": 1, "map": {"k": "1"}, "items": [{"name": "i"}], "list": ["x"], "set": ["y"], "nested": {"a": 1}}))
        .owners(&[(
            "u",
            "Update",
            json!({
                ".": {}, "f:number": {}, "f:map": {".": {}, "f:k": {}}, "f:list": {}, "f:set": {".": {}, "v:\"y\"": {}},
                "f:items": {".": {}, "k:{\"name\":\"i\"}": {".": {}, "f:name": {}}}, "f:nested": {".": {}, "f:a": {}},
            }),
        )]);
}

#[test]
fn updates_of_one_manager_share_an_entry() {
    Story::new()
        .update("u", &json!({"number": 1}))
        .update("u", &json!({"number": 1, "text": "x"}))
        .owners(&[("u", "Update", json!({".": {}, "f:number": {}, "f:text": {}}))]);
}

#[test]
fn stored_duplicates_are_owned_together() {
    let duplicates =
        json!({"items": [{"name": "i", "value": "1"}, {"name": "i", "value": "2"}], "number": 1});
    let mut story = Story::new();
    story.update("u", &duplicates).owners(&[(
        "u",
        "Update",
        json!({".": {}, "f:number": {}, "f:items": {".": {}, "k:{\"name\":\"i\"}": {}}}),
    )]);
    story
        .apply("a", &json!({"items": [{"name": "j"}]}))
        .spec(&json!({"items": [{"name": "i", "value": "1"}, {"name": "i", "value": "2"}, {"name": "j"}], "number": 1}));
    story
        .force("a", &json!({"items": [{"name": "i", "value": "3"}]}))
        .spec(&json!({"items": [{"name": "i", "value": "3"}], "number": 1}));
}

#[test]
fn what_the_resource_ignores_is_not_owned() {
    let mut story = Story::new();
    let mut intent = thing(&json!({"number": 1}));
    intent["status"] = json!({"phase": "x"});
    let writer = fixture::writer("a", 0, &story.reset);
    let new = apply(None, &intent, &story.schema, &writer, Force::No).unwrap();
    assert_eq!(entries(&new).unwrap()[0]["fieldsV1"], json!({"f:spec": {"f:number": {}}}));
    story.replace("u", intent);
    assert_eq!(
        story.live.as_ref().and_then(entries).unwrap()[0]["fieldsV1"],
        json!({"f:spec": {".": {}, "f:number": {}}})
    );
}

#[test]
fn a_subresource_is_a_manager_of_its_own_and_cannot_name_owners() {
    let mut story = Story::new();
    story.apply("a", &json!({"number": 1}));
    let reset = FieldSet::of_fields(&["metadata", "spec"]);
    let writer = Writer { subresource: "status", ..fixture::writer("a", 9, &reset) };
    let mut new = story.live.clone().unwrap();
    new["status"] = json!({"phase": "Ready"});
    new["metadata"]["managedFields"] = json!([]);
    track_update(story.live.as_ref(), &mut new, &story.schema, &writer).unwrap();
    let entries = entries(&new).unwrap();
    assert_eq!(entries.as_array().unwrap().len(), 2);
    assert_eq!(entries[1]["subresource"], "status");
    assert_eq!(entries[1]["fieldsV1"], json!({"f:status": {".": {}, "f:phase": {}}}));
    let applied = thing(&Value::Null);
    let new = apply(Some(&new), &applied, &story.schema, &writer, Force::No).unwrap();
    assert_eq!(new["spec"], json!({"number": 1}));
}

#[test]
fn owners_in_an_update_are_taken_as_given() {
    let mut story = Story::new();
    story.apply("a", &json!({"number": 1}));
    let mut new = story.live.clone().unwrap();
    new["metadata"]["managedFields"][0]["manager"] = json!("renamed");
    story.replace("u", new).owners(&[("renamed", "Apply", json!({"f:number": {}}))]);
    let mut broken = story.live.clone().unwrap();
    broken["metadata"]["managedFields"][0]["operation"] = json!("Delete");
    story.replace("u", broken).owners(&[("renamed", "Apply", json!({"f:number": {}}))]);
}

#[test]
fn an_update_without_owners_keeps_those_of_the_live_object() {
    let mut story = Story::new();
    story.apply("a", &json!({"number": 1}));
    story
        .replace("u", thing(&json!({"number": 1, "text": "x"})))
        .owners(&[("a", "Apply", json!({"f:number": {}})), ("u", "Update", json!({"f:text": {}}))]);
}

#[test]
fn an_empty_list_of_owners_forgets_them_until_the_next_apply() {
    let mut story = Story::new();
    story.apply("a", &json!({"number": 1}));
    let mut new = story.live.clone().unwrap();
    new["metadata"]["managedFields"] = json!([]);
    story.replace("u", new).owners(&[]);
    story.update("u", &json!({"number": 2})).owners(&[]);
    story.apply("a", &json!({"number": 2})).owners(&[
        ("a", "Apply", json!({"f:number": {}})),
        ("before-first-apply", "Update", json!({".": {}, "f:number": {}})),
    ]);
}

#[test]
fn entries_of_other_versions_survive() {
    let mut story = Story::new();
    story.apply("a", &json!({"number": 1}));
    let mut new = story.live.clone().unwrap();
    new["metadata"]["managedFields"][0]["apiVersion"] = json!("example.com/v1beta1");
    story.replace("u", new).apply("b", &json!({"text": "x"}));
    let entries = story.live.as_ref().and_then(entries).unwrap();
    assert_eq!(entries[0]["apiVersion"], "example.com/v1beta1");
    assert_eq!(entries[1]["apiVersion"], "example.com/v1");
}

#[test]
fn names_and_what_the_server_writes_are_never_owned() {
    let mut story = Story::new();
    let mut new = thing(&json!({"number": 1}));
    new["metadata"] = json!({
        "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"l": "1"}, "finalizers": ["f"],
    });
    story.replace("u", new);
    assert_eq!(
        story.live.as_ref().and_then(entries).unwrap()[0]["fieldsV1"]["f:metadata"],
        json!({"f:labels": {".": {}, "f:l": {}}, "f:finalizers": {".": {}, "v:\"f\"": {}}})
    );
}

#[test]
fn an_entry_has_the_time_of_its_last_change() {
    let mut story = Story::new();
    story.apply("a", &json!({"number": 1}));
    let time =
        |story: &Story, place: usize| story.live.as_ref().and_then(entries).unwrap()[place]["time"].clone();
    assert_eq!(time(&story, 0), json!("2027-01-15T08:00:01Z"));
    story.apply("a", &json!({"number": 1}));
    assert_eq!(time(&story, 0), json!("2027-01-15T08:00:01Z"));
    story.apply("a", &json!({"number": 2}));
    assert_eq!(time(&story, 0), json!("2027-01-15T08:00:03Z"));
    // Whoever only shares what others own changes nothing, and has no time.
    story.apply("b", &json!({"number": 2}));
    assert_eq!(time(&story, 0), Value::Null);
}

#[test]
fn times_are_kept_when_nothing_else_changed() {
    let mut story = Story::new();
    story.apply("a", &json!({"number": 1}));
    let live = story.live.clone().unwrap();
    let mut same = live.clone();
    same["metadata"]["managedFields"][0]["time"] = json!("2030-01-01T00:00:00Z");
    let mut other = same.clone();
    other["spec"]["number"] = json!(2);
    let expected = other.clone();
    keep_times(&live, &mut same);
    keep_times(&live, &mut other);
    assert_eq!(same, live);
    assert_eq!(other, expected);
}
