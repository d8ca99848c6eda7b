//! Tables of what applying and updating do to an object and its owners.

use serde_json::{Value, json};

use super::{fixture, *};

/// An object that several managers write, one write after the other.
struct Story {
    schema: Schema,
    reset: FieldSet,
    live: Option<Value>,
    clock: i64,
}

impl Story {
    fn new() -> Self {
        Self { schema: fixture::schema(), reset: FieldSet::of_fields(&["status"]), live: None, clock: 0 }
    }

    fn try_apply(&mut self, manager: &str, spec: &Value, force: Force) -> Result<&Value, ApplyError> {
        self.clock += 1;
        let intent = thing(spec);
        let writer = fixture::writer(manager, self.clock, &self.reset);
        let new = apply(self.live.as_ref(), &intent, &self.schema, &writer, force)?;
        Ok(self.live.insert(new))
    }

    #[track_caller]
    fn apply(&mut self, manager: &str, spec: Value) -> &mut Self {
        self.try_apply(manager, &spec, Force::No).unwrap();
        self
    }

    #[track_caller]
    fn force(&mut self, manager: &str, spec: Value) -> &mut Self {
        self.try_apply(manager, &spec, Force::Yes).unwrap();
        self
    }

    /// Replaces the object, or creates it.
    fn update(&mut self, manager: &str, spec: Value) -> &mut Self {
        let mut new = thing(&spec);
        new["metadata"]["managedFields"] = self.live.as_ref().and_then(entries).cloned().unwrap_or_default();
        self.replace(manager, new)
    }

    fn replace(&mut self, manager: &str, mut new: Value) -> &mut Self {
        self.clock += 1;
        let writer = fixture::writer(manager, self.clock, &self.reset);
        track_update(self.live.as_ref(), &mut new, &self.schema, &writer);
        self.live = Some(new);
        self
    }

    #[track_caller]
    fn spec(&mut self, expected: Value) -> &mut Self {
        let spec = self.live.as_ref().and_then(|live| live.get("spec")).cloned().unwrap_or_default();
        assert_eq!(spec, expected);
        self
    }

    /// What each manager owns below `spec`, in the order of the entries.
    #[track_caller]
    fn owners(&mut self, expected: &[(&str, &str, Value)]) -> &mut Self {
        let entries =
            self.live.as_ref().and_then(entries).and_then(Value::as_array).cloned().unwrap_or_default();
        let found: Vec<Value> = entries
            .iter()
            .map(|entry| json!([entry["manager"], entry["operation"], entry["fieldsV1"]["f:spec"]]))
            .collect();
        let expected: Vec<Value> =
            expected.iter().map(|(name, operation, set)| json!([name, operation, set])).collect();
        assert_eq!(found, expected, "{}", serde_json::to_string_pretty(&found).unwrap());
        self
    }
}

fn thing(spec: &Value) -> Value {
    let mut thing =
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "n"}});
    if !spec.is_null() {
        thing["spec"] = spec.clone();
    }
    thing
}

#[test]
fn applying_to_nothing_makes_the_object() {
    Story::new()
        .apply("a", json!({"number": 1, "nested": {"a": 1}}))
        .spec(json!({"number": 1, "nested": {"a": 1}}))
        .owners(&[("a", "Apply", json!({"f:number": {}, "f:nested": {"f:a": {}}}))]);
}

#[test]
fn every_kind_of_field_is_owned_as_its_type_says() {
    let cases = [
        (json!({"text": "x"}), json!({"f:text": {}})),
        (json!({"either": "50%"}), json!({"f:either": {}})),
        (json!({"nested": {}}), json!({"f:nested": {}})),
        (json!({"nested": {"deep": {"c": "x"}}}), json!({"f:nested": {"f:deep": {"f:c": {}}}})),
        (json!({"atomicNested": {"a": 1}}), json!({"f:atomicNested": {}})),
        (json!({"map": {"x": "1", "y": "2"}}), json!({"f:map": {"f:x": {}, "f:y": {}}})),
        (json!({"atomicMap": {"x": "1"}}), json!({"f:atomicMap": {}})),
        (json!({"mapOfObjects": {"x": {"a": 1}}}), json!({"f:mapOfObjects": {"f:x": {".": {}, "f:a": {}}}})),
        (json!({"list": ["x"]}), json!({"f:list": {}})),
        (json!({"list": []}), json!({"f:list": {}})),
        (json!({"set": ["x", "y"]}), json!({"f:set": {"v:\"x\"": {}, "v:\"y\"": {}}})),
        (json!({"numbers": [1]}), json!({"f:numbers": {"v:1": {}}})),
        (
            json!({"items": [{"name": "x", "value": "1"}]}),
            json!({"f:items": {"k:{\"name\":\"x\"}": {".": {}, "f:name": {}, "f:value": {}}}}),
        ),
        (
            json!({"ports": [{"port": 80}]}),
            json!({"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}),
        ),
        (
            json!({"free": {"a": {"b": 1}, "l": [{"x": 1}]}}),
            json!({"f:free": {"f:a": {".": {}, "f:b": {}}, "f:l": {}}}),
        ),
        (json!({"free": 1}), json!({"f:free": {}})),
        (json!({"free": [1]}), json!({"f:free": {}})),
        (json!({"free": null}), json!({"f:free": {}})),
        (
            json!({"open": {"known": "x", "more": {"a": 1}}}),
            json!({"f:open": {"f:known": {}, "f:more": {".": {}, "f:a": {}}}}),
        ),
        (
            json!({"open": {"sub": {"x": "1", "y": "2"}}}),
            json!({"f:open": {"f:sub": {"f:x": {}, "f:y": {}}}}),
        ),
        (json!({"time": 5}), json!({"f:time": {}})),
        (json!({"text": null}), json!({"f:text": {}})),
        (json!({"map": null}), json!({"f:map": {}})),
    ];
    for (spec, owned) in cases {
        Story::new().apply("a", spec).owners(&[("a", "Apply", owned)]);
    }
}

#[test]
fn an_empty_keyed_list_is_not_owned() {
    Story::new().apply("a", json!({"number": 1, "items": [], "set": []})).owners(&[(
        "a",
        "Apply",
        json!({"f:number": {}}),
    )]);
}

#[test]
fn what_is_applied_no_longer_goes_away() {
    Story::new()
        .apply("a", json!({"number": 1, "text": "x", "map": {"k": "v"}, "nested": {"deep": {"c": "x"}}, "set": ["p", "q"]}))
        .apply("a", json!({"number": 1, "set": ["q"]}))
        .spec(json!({"number": 1, "set": ["q"]}))
        .owners(&[("a", "Apply", json!({"f:number": {}, "f:set": {"v:\"q\"": {}}}))]);
}

#[test]
fn what_others_own_too_stays() {
    Story::new()
        .apply("a", json!({"number": 1, "map": {"x": "1", "y": "2"}, "items": [{"name": "i", "value": "v", "other": "o"}]}))
        .apply("b", json!({"map": {"x": "1"}, "items": [{"name": "i", "value": "v"}]}))
        .apply("a", json!({"number": 1}))
        .spec(json!({"number": 1, "map": {"x": "1"}, "items": [{"name": "i", "value": "v"}]}))
        .owners(&[
            ("b", "Apply", json!({"f:map": {"f:x": {}}, "f:items": {"k:{\"name\":\"i\"}": {".": {}, "f:name": {}, "f:value": {}}}})),
            ("a", "Apply", json!({"f:number": {}})),
        ]);
}

#[test]
fn what_nobody_owns_stays() {
    let mut story = Story::new();
    story.live = Some(thing(&json!({"text": "was here", "map": {"old": "1"}})));
    story
        .apply("a", json!({"map": {"new": "2"}}))
        .spec(json!({"text": "was here", "map": {"old": "1", "new": "2"}}))
        .apply("a", json!({}))
        .spec(json!({"text": "was here", "map": {"old": "1"}}));
}

#[test]
fn what_was_there_before_the_first_apply_belongs_to_its_own_manager() {
    let mut story = Story::new();
    story.live = Some(thing(&json!({"text": "x", "number": 1})));
    story.apply("a", json!({"text": "x"})).owners(&[
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
        story.apply("a", first);
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
fn an_equal_value_is_no_conflict_and_is_owned_by_both() {
    Story::new()
        .apply("a", json!({"number": 1, "either": 5}))
        .apply("b", json!({"number": 1, "either": 5.0}))
        .owners(&[
            ("b", "Apply", json!({"f:number": {}, "f:either": {}})),
            ("a", "Apply", json!({"f:number": {}, "f:either": {}})),
        ]);
}

#[test]
fn force_takes_fields_from_their_owners() {
    Story::new()
        .apply("a", json!({"number": 1, "text": "x"}))
        .update("u", json!({"number": 1, "text": "x", "flag": true}))
        .force("b", json!({"number": 2, "flag": false}))
        .spec(json!({"number": 2, "text": "x", "flag": false}))
        .owners(&[
            ("a", "Apply", json!({"f:text": {}})),
            ("b", "Apply", json!({"f:number": {}, "f:flag": {}})),
        ]);
}

#[test]
fn an_update_takes_what_it_changes_and_nothing_else() {
    Story::new()
        .apply("a", json!({"number": 1, "text": "x", "map": {"k": "1", "l": "2"}}))
        .update("u", json!({"number": 1, "text": "y", "map": {"k": "1", "m": "3"}}))
        .owners(&[
            ("a", "Apply", json!({"f:number": {}, "f:map": {"f:k": {}}})),
            ("u", "Update", json!({"f:text": {}, "f:map": {"f:m": {}}})),
        ]);
}

#[test]
fn a_create_owns_objects_that_were_not_there_before() {
    Story::new()
        .update("u", json!({"number": 1, "map": {"k": "1"}, "items": [{"name": "i"}], "list": ["x"], "set": ["y"], "nested": {"a": 1}}))
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
        .update("u", json!({"number": 1}))
        .update("u", json!({"number": 1, "text": "x"}))
        .owners(&[("u", "Update", json!({".": {}, "f:number": {}, "f:text": {}}))]);
}

#[test]
fn an_applier_and_an_updater_of_one_name_are_two_managers() {
    let mut story = Story::new();
    story.update("m", json!({"number": 1}));
    let conflict = story.try_apply("m", &json!({"number": 2}), Force::No).unwrap_err().to_string();
    assert_eq!(
        conflict,
        r#"Apply failed with 1 conflict: conflict with "m" using example.com/v1: .spec.number"#
    );
}

#[test]
fn applying_the_same_again_gives_the_very_same_object() {
    let spec = json!({"number": 1, "items": [{"name": "i", "value": "v"}], "free": {"a": [1]}});
    let mut story = Story::new();
    story.apply("a", spec.clone());
    let first = story.live.clone();
    story.apply("a", spec);
    assert_eq!(story.live, first);
}

#[test]
fn a_manager_that_applies_nothing_disappears() {
    Story::new()
        .apply("a", json!({"number": 1}))
        .apply("b", json!({"text": "x"}))
        .apply("b", Value::Null)
        .spec(json!({"number": 1}))
        .owners(&[("a", "Apply", json!({"f:number": {}}))]);
}

#[test]
fn elements_keep_the_order_of_whoever_applied_last() {
    let cases: [(&[&str], &[&str], &[&str]); 8] = [
        (&["a", "b", "c"], &["d"], &["a", "b", "c", "d"]),
        (&["a", "b", "c"], &["c", "a"], &["b", "c", "a"]),
        (&["a", "b", "c"], &["b", "d"], &["a", "b", "c", "d"]),
        (&["a", "b", "c"], &["d", "a"], &["d", "a", "b", "c"]),
        (&["a", "b", "c"], &["a", "b", "c"], &["a", "b", "c"]),
        (&["a", "b", "c"], &["c", "b", "a"], &["c", "b", "a"]),
        (&[], &["b", "a"], &["b", "a"]),
        (&["a"], &["x", "a", "y"], &["x", "a", "y"]),
    ];
    for (live, applied, expected) in cases {
        let mut story = Story::new();
        story.apply("a", json!({"set": live}));
        story.apply("b", json!({"set": applied}));
        story.spec(json!({"set": expected}));
    }
}

#[test]
fn elements_of_a_list_are_merged_by_their_keys() {
    Story::new()
        .apply("a", json!({"items": [{"name": "x", "value": "1", "tags": ["p"]}, {"name": "y"}]}))
        .apply(
            "b",
            json!({"items": [{"name": "x", "other": "2", "tags": ["q"], "parts": [{"id": 1, "size": 2}]}]}),
        )
        .spec(json!({"items": [
            {"name": "x", "value": "1", "other": "2", "tags": ["p", "q"], "parts": [{"id": 1, "size": 2}]},
            {"name": "y"},
        ]}))
        .apply("a", json!({"items": [{"name": "y"}]}))
        .spec(json!({"items": [
            {"name": "x", "other": "2", "tags": ["q"], "parts": [{"id": 1, "size": 2}]},
            {"name": "y"},
        ]}));
}

#[test]
fn a_key_with_a_default_names_the_same_element_with_and_without_it() {
    Story::new()
        .apply("a", json!({"ports": [{"port": 53}, {"port": 53, "protocol": "UDP"}]}))
        .apply("b", json!({"ports": [{"port": 53, "protocol": "TCP", "name": "dns"}]}))
        .spec(json!({"ports": [{"port": 53, "protocol": "TCP", "name": "dns"}, {"port": 53, "protocol": "UDP"}]}));
}

#[test]
fn stored_duplicates_are_owned_together() {
    let duplicates =
        json!({"items": [{"name": "i", "value": "1"}, {"name": "i", "value": "2"}], "number": 1});
    let mut story = Story::new();
    story.update("u", duplicates).owners(&[(
        "u",
        "Update",
        json!({".": {}, "f:number": {}, "f:items": {".": {}, "k:{\"name\":\"i\"}": {}}}),
    )]);
    story
        .apply("a", json!({"items": [{"name": "j"}]}))
        .spec(json!({"items": [{"name": "i", "value": "1"}, {"name": "i", "value": "2"}, {"name": "j"}], "number": 1}));
    story
        .force("a", json!({"items": [{"name": "i", "value": "3"}]}))
        .spec(json!({"items": [{"name": "i", "value": "3"}], "number": 1}));
}

#[test]
fn null_in_an_intent_is_a_value_for_leaves_and_nothing_for_objects() {
    Story::new()
        .apply("a", json!({"text": "x", "map": {"k": "v"}}))
        .force("b", json!({"text": null, "map": null}))
        .spec(json!({"text": null, "map": {"k": "v"}}));
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
    story.apply("a", json!({"number": 1}));
    let reset = FieldSet::of_fields(&["metadata", "spec"]);
    let writer = Writer { subresource: "status", ..fixture::writer("a", 9, &reset) };
    let mut new = story.live.clone().unwrap();
    new["status"] = json!({"phase": "Ready"});
    new["metadata"]["managedFields"] = json!([]);
    track_update(story.live.as_ref(), &mut new, &story.schema, &writer);
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
    story.apply("a", json!({"number": 1}));
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
    story.apply("a", json!({"number": 1}));
    story
        .replace("u", thing(&json!({"number": 1, "text": "x"})))
        .owners(&[("a", "Apply", json!({"f:number": {}})), ("u", "Update", json!({"f:text": {}}))]);
}

#[test]
fn an_empty_list_of_owners_forgets_them_until_the_next_apply() {
    let mut story = Story::new();
    story.apply("a", json!({"number": 1}));
    let mut new = story.live.clone().unwrap();
    new["metadata"]["managedFields"] = json!([]);
    story.replace("u", new).owners(&[]);
    story.update("u", json!({"number": 2})).owners(&[]);
    story.apply("a", json!({"number": 2})).owners(&[
        ("a", "Apply", json!({"f:number": {}})),
        ("before-first-apply", "Update", json!({".": {}, "f:number": {}})),
    ]);
}

#[test]
fn entries_of_other_versions_survive() {
    let mut story = Story::new();
    story.apply("a", json!({"number": 1}));
    let mut new = story.live.clone().unwrap();
    new["metadata"]["managedFields"][0]["apiVersion"] = json!("example.com/v1beta1");
    story.replace("u", new).apply("b", json!({"text": "x"}));
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
    story.apply("a", json!({"number": 1}));
    let time =
        |story: &Story, place: usize| story.live.as_ref().and_then(entries).unwrap()[place]["time"].clone();
    assert_eq!(time(&story, 0), json!("2027-01-15T08:00:01Z"));
    story.apply("a", json!({"number": 1}));
    assert_eq!(time(&story, 0), json!("2027-01-15T08:00:01Z"));
    story.apply("a", json!({"number": 2}));
    assert_eq!(time(&story, 0), json!("2027-01-15T08:00:03Z"));
    // Whoever only shares what others own changes nothing, and has no time.
    story.apply("b", json!({"number": 2}));
    assert_eq!(time(&story, 0), Value::Null);
}

#[test]
fn times_are_kept_when_nothing_else_changed() {
    let mut story = Story::new();
    story.apply("a", json!({"number": 1}));
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
    let cases: Vec<(Box<dyn Fn(&mut Value)>, String)> = vec![
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
    story.apply("kubectl", json!({"number": 2})).spec(json!({"number": 2, "text": "x", "flag": true}));
    let annotation = &story.live.as_ref().unwrap()["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    assert_eq!(annotation.as_str().unwrap(), format!("{}\n", thing(&json!({"number": 2}))));
}
