//! What applying does to an object and to who owns it.

use serde_json::{Value, json};

use super::*;

#[test]
fn applying_to_nothing_makes_the_object() {
    Story::new()
        .apply("a", &json!({"number": 1, "nested": {"a": 1}}))
        .spec(&json!({"number": 1, "nested": {"a": 1}}))
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
        Story::new().apply("a", &spec).owners(&[("a", "Apply", owned)]);
    }
}

#[test]
fn an_empty_keyed_list_is_not_owned() {
    Story::new().apply("a", &json!({"number": 1, "items": [], "set": []})).owners(&[(
        "a",
        "Apply",
        json!({"f:number": {}}),
    )]);
}

#[test]
fn what_is_applied_no_longer_goes_away() {
    Story::new()
        .apply("a", &json!({"number": 1, "text": "x", "map": {"k": "v"}, "nested": {"deep": {"c": "x"}}, "set": ["p", "q"]}))
        .apply("a", &json!({"number": 1, "set": ["q"]}))
        .spec(&json!({"number": 1, "set": ["q"]}))
        .owners(&[("a", "Apply", json!({"f:number": {}, "f:set": {"v:\"q\"": {}}}))]);
}

#[test]
fn what_others_own_too_stays() {
    Story::new()
        .apply("a", &json!({"number": 1, "map": {"x": "1", "y": "2"}, "items": [{"name": "i", "value": "v", "other": "o"}]}))
        .apply("b", &json!({"map": {"x": "1"}, "items": [{"name": "i", "value": "v"}]}))
        .apply("a", &json!({"number": 1}))
        .spec(&json!({"number": 1, "map": {"x": "1"}, "items": [{"name": "i", "value": "v"}]}))
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
        .apply("a", &json!({"map": {"new": "2"}}))
        .spec(&json!({"text": "was here", "map": {"old": "1", "new": "2"}}))
        .apply("a", &json!({}))
        .spec(&json!({"text": "was here", "map": {"old": "1"}}));
}

#[test]
fn an_equal_value_is_no_conflict_and_is_owned_by_both() {
    Story::new()
        .apply("a", &json!({"number": 1, "either": 5}))
        .apply("b", &json!({"number": 1, "either": 5.0}))
        .owners(&[
            ("b", "Apply", json!({"f:number": {}, "f:either": {}})),
            ("a", "Apply", json!({"f:number": {}, "f:either": {}})),
        ]);
}

#[test]
fn force_takes_fields_from_their_owners() {
    Story::new()
        .apply("a", &json!({"number": 1, "text": "x"}))
        .update("u", &json!({"number": 1, "text": "x", "flag": true}))
        .force("b", &json!({"number": 2, "flag": false}))
        .spec(&json!({"number": 2, "text": "x", "flag": false}))
        .owners(&[
            ("a", "Apply", json!({"f:text": {}})),
            ("b", "Apply", json!({"f:number": {}, "f:flag": {}})),
        ]);
}

#[test]
fn applying_the_same_again_gives_the_very_same_object() {
    let spec = json!({"number": 1, "items": [{"name": "i", "value": "v"}], "free": {"a": [1]}});
    let mut story = Story::new();
    story.apply("a", &spec);
    let first = story.live.clone();
    story.apply("a", &spec);
    assert_eq!(story.live, first);
}

#[test]
fn a_manager_that_applies_nothing_disappears() {
    Story::new()
        .apply("a", &json!({"number": 1}))
        .apply("b", &json!({"text": "x"}))
        .apply("b", &Value::Null)
        .spec(&json!({"number": 1}))
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
        story.apply("a", &json!({"set": live}));
        story.apply("b", &json!({"set": applied}));
        story.spec(&json!({"set": expected}));
    }
}

#[test]
fn elements_of_a_list_are_merged_by_their_keys() {
    Story::new()
        .apply("a", &json!({"items": [{"name": "x", "value": "1", "tags": ["p"]}, {"name": "y"}]}))
        .apply(
            "b",
            &json!({"items": [{"name": "x", "other": "2", "tags": ["q"], "parts": [{"id": 1, "size": 2}]}]}),
        )
        .spec(&json!({"items": [
            {"name": "x", "value": "1", "other": "2", "tags": ["p", "q"], "parts": [{"id": 1, "size": 2}]},
            {"name": "y"},
        ]}))
        .apply("a", &json!({"items": [{"name": "y"}]}))
        .spec(&json!({"items": [
            {"name": "x", "other": "2", "tags": ["q"], "parts": [{"id": 1, "size": 2}]},
            {"name": "y"},
        ]}));
}

#[test]
fn a_key_with_a_default_names_the_same_element_with_and_without_it() {
    Story::new()
        .apply("a", &json!({"ports": [{"port": 53}, {"port": 53, "protocol": "UDP"}]}))
        .apply("b", &json!({"ports": [{"port": 53, "protocol": "TCP", "name": "dns"}]}))
        .spec(&json!({"ports": [{"port": 53, "protocol": "TCP", "name": "dns"}, {"port": 53, "protocol": "UDP"}]}));
}

#[test]
fn null_in_an_intent_is_a_value_for_leaves_and_nothing_for_objects() {
    Story::new()
        .apply("a", &json!({"text": "x", "map": {"k": "v"}}))
        .force("b", &json!({"text": null, "map": null}))
        .spec(&json!({"text": null, "map": {"k": "v"}}));
}
