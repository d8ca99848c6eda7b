use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::schema::{Field, ListKind, Ref, Scalar, Struct};

fn text() -> Schema {
    Schema::of(Shape::Scalar(Scalar::String))
}

fn object(fields: Vec<(&str, Schema, PatchStrategy)>) -> Schema {
    let fields = fields
        .into_iter()
        .map(|(name, schema, patch)| {
            (Arc::from(name), Field { schema: Ref::from(schema), patch, ..Field::default() })
        })
        .collect();
    Schema::of(Shape::Struct(Struct { fields, ..Struct::default() }))
}

fn list(items: Schema) -> Schema {
    Schema::of(Shape::List { items: items.into(), kind: ListKind::Atomic })
}

fn by(key: &str) -> PatchStrategy {
    PatchStrategy { merge: true, key: Some(key.into()), retain_keys: false }
}

fn merged() -> PatchStrategy {
    PatchStrategy { merge: true, ..PatchStrategy::default() }
}

fn replaced() -> PatchStrategy {
    PatchStrategy::default()
}

/// Something like a pod.
fn schema() -> Schema {
    let env = object(vec![("name", text(), replaced()), ("value", text(), replaced())]);
    let container = object(vec![
        ("name", text(), replaced()),
        ("image", text(), replaced()),
        ("args", list(text()), replaced()),
        ("env", list(env), by("name")),
    ]);
    let volume = Schema::of(Shape::Struct(Struct::default()));
    object(vec![
        ("containers", list(container), by("name")),
        ("volumes", list(volume), PatchStrategy { retain_keys: true, ..by("name") }),
        ("finalizers", list(text()), merged()),
        ("tolerations", list(Schema::any()), replaced()),
        ("selector", Schema::of(Shape::Map { values: text().into(), atomic: false }), replaced()),
        (
            "strategy",
            object(vec![("type", text(), replaced())]),
            PatchStrategy { retain_keys: true, ..replaced() },
        ),
    ])
}

#[test]
fn patches_merge_as_their_type_says() {
    let two =
        json!({"containers": [{"name": "a", "image": "a:1", "args": ["1"]}, {"name": "b", "image": "b:1"}]});
    let cases = [
        // fields
        (
            json!({"selector": {"a": "1", "b": "2"}}),
            json!({"selector": {"a": null, "c": "3"}}),
            json!({"selector": {"b": "2", "c": "3"}}),
        ),
        (json!({"selector": {"a": "1"}}), json!({"selector": null}), json!({})),
        (json!({}), json!({"selector": {"a": "1", "b": null}}), json!({"selector": {"a": "1"}})),
        (
            json!({"selector": {"a": "1"}}),
            json!({"selector": {"$patch": "replace", "b": "2"}}),
            json!({"selector": {"b": "2"}}),
        ),
        (json!({"selector": {"a": "1"}}), json!({"selector": {"$patch": "delete"}}), json!({"selector": {}})),
        (
            json!({"selector": {"a": "1"}}),
            json!({"selector": {"$patch": "merge", "b": "2"}}),
            json!({"selector": {"a": "1", "b": "2"}}),
        ),
        (json!({"selector": {"a": "1"}}), json!({"$patch": "replace", "x": 1}), json!({"x": 1})),
        (json!({"x": {"a": 1}}), json!({"x": {"b": 2}}), json!({"x": {"a": 1, "b": 2}})),
        // lists that are replaced
        (
            json!({"tolerations": [{"key": "a"}]}),
            json!({"tolerations": [{"key": "b"}]}),
            json!({"tolerations": [{"key": "b"}]}),
        ),
        (json!({"x": [1]}), json!({"x": [2]}), json!({"x": [2]})),
        // lists that are merged by key
        (
            two.clone(),
            json!({"containers": [{"name": "b", "image": "b:2"}, {"name": "c", "image": "c:1"}]}),
            json!({"containers": [{"name": "a", "image": "a:1", "args": ["1"]}, {"name": "b", "image": "b:2"}, {"name": "c", "image": "c:1"}]}),
        ),
        (
            two.clone(),
            json!({"containers": [{"name": "a", "args": null}]}),
            json!({"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]}),
        ),
        (
            two.clone(),
            json!({"containers": [{"name": "a", "$patch": "delete"}]}),
            json!({"containers": [{"name": "b", "image": "b:1"}]}),
        ),
        (
            two.clone(),
            json!({"containers": [{"$patch": "replace"}, {"name": "only", "image": "o:1"}]}),
            json!({"containers": [{"name": "only", "image": "o:1"}]}),
        ),
        (two.clone(), json!({"containers": []}), two.clone()),
        (
            two.clone(),
            json!({"containers": [{"name": "c"}]}),
            json!({"containers": [{"name": "c"}, {"name": "a", "image": "a:1", "args": ["1"]}, {"name": "b", "image": "b:1"}]}),
        ),
        (
            json!({}),
            json!({"containers": [{"name": "a", "x": null}, {"name": "b", "$patch": "delete"}]}),
            json!({"containers": [{"name": "a"}]}),
        ),
        (
            json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}]}),
            json!({"containers": [{"name": "a", "env": [{"name": "Y", "value": "9"}, {"name": "Z", "value": "3"}]}]}),
            json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "9"}, {"name": "Z", "value": "3"}]}]}),
        ),
        // lists of scalars
        (
            json!({"finalizers": ["a", "b"]}),
            json!({"finalizers": ["c", "a"]}),
            json!({"finalizers": ["c", "a", "b"]}),
        ),
        (
            json!({"finalizers": ["a", "b"]}),
            json!({"$deleteFromPrimitiveList/finalizers": ["a"]}),
            json!({"finalizers": ["b"]}),
        ),
        (
            json!({"finalizers": ["a"]}),
            json!({"$deleteFromPrimitiveList/finalizers": ["a"]}),
            json!({"finalizers": []}),
        ),
        (json!({}), json!({"$deleteFromPrimitiveList/finalizers": ["a"]}), json!({})),
        (
            json!({"finalizers": ["a", "b"]}),
            json!({"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["b"]}),
            json!({"finalizers": ["c", "a"]}),
        ),
        // order
        (
            json!({"finalizers": ["a", "b"]}),
            json!({"$setElementOrder/finalizers": ["b", "a"]}),
            json!({"finalizers": ["b", "a"]}),
        ),
        (
            two.clone(),
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "a", "image": "a:2"}]}),
            json!({"containers": [{"name": "b", "image": "b:1"}, {"name": "a", "image": "a:2", "args": ["1"]}]}),
        ),
        (
            two.clone(),
            json!({"$setElementOrder/containers": [{"name": "a"}, {"name": "c"}, {"name": "b"}], "containers": [{"name": "c", "image": "c:1"}]}),
            json!({"containers": [{"name": "a", "image": "a:1", "args": ["1"]}, {"name": "c", "image": "c:1"}, {"name": "b", "image": "b:1"}]}),
        ),
        (
            two,
            json!({"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a", "$patch": "delete"}]}),
            json!({"containers": [{"name": "b", "image": "b:1"}]}),
        ),
        (json!({}), json!({"$setElementOrder/containers": [{"name": "b"}]}), json!({})),
        (
            json!({"containers": [{"name": "x"}, {"name": "y"}]}),
            json!({"$setElementOrder/containers": [{"name": "p"}, {"name": "q"}], "containers": [{"name": "p"}, {"name": "q"}, {"name": "x", "$patch": "delete"}]}),
            json!({"containers": [{"name": "y"}, {"name": "p"}, {"name": "q"}]}),
        ),
        (
            json!({"containers": [{"name": "x"}, {"name": "y"}]}),
            json!({"$setElementOrder/containers": [{"name": "p"}, {"name": "q"}], "containers": [{"name": "p"}, {"name": "q"}]}),
            json!({"containers": [{"name": "p"}, {"name": "q"}, {"name": "x"}, {"name": "y"}]}),
        ),
        // unions
        (
            json!({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}]}),
            json!({"volumes": [{"$retainKeys": ["name", "configMap"], "name": "v", "configMap": {"name": "c"}}]}),
            json!({"volumes": [{"name": "v", "configMap": {"name": "c"}}, {"name": "w", "emptyDir": {}}]}),
        ),
        (
            json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}),
            json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}),
            json!({"strategy": {"type": "Recreate"}}),
        ),
        (json!({"a": 1}), json!(null), json!({"a": 1})),
    ];
    for (document, patch, expected) in cases {
        assert_eq!(strategic_patch(&document, &patch, &schema()).unwrap(), expected, "{document} {patch}");
    }
}

#[test]
fn wrong_directives_are_malformed() {
    let document = json!({"containers": [{"name": "a"}], "finalizers": ["a"], "selector": {"a": "1"}});
    let cases = [
        (json!([]), "a strategic merge patch is an object"),
        (
            json!({"selector": {"$patch": "frob"}}),
            "unknown patch type: \"frob\": expected replace, delete or merge",
        ),
        (json!({"selector": {"$retainKeys": "x"}}), "invalid patch format of retainKeys"),
        (json!({"selector": {"$retainKeys": ["a"], "b": "1"}}), "invalid patch format of retainKeys"),
        (json!({"$setElementOrder": []}), "invalid patch format of setElementOrder list"),
        (json!({"$setElementOrder/finalizers": 1}), "invalid patch format of setElementOrder list"),
        (json!({"$deleteFromPrimitiveList": ["a"]}), "invalid patch format of primitive list"),
        (json!({"$deleteFromPrimitiveList/finalizers": "a"}), "invalid patch format of primitive list"),
        (
            json!({"containers": [{"image": "x"}]}),
            "map: {\"image\":\"x\"} does not contain declared merge key: name",
        ),
        (
            json!({"containers": [{"$patch": "delete"}]}),
            "map: {\"$patch\":\"delete\"} does not contain declared merge key: name",
        ),
        (json!({"containers": ["x"]}), "expected an object with the merge key name, found \"x\""),
        (json!({"finalizers": [{"a": 1}]}), "cannot merge lists without merge key"),
        (json!({"$setElementOrder/selector": ["a"]}), "selector: expected a list, found {\"a\":\"1\"}"),
        (
            json!({"$setElementOrder/finalizers": ["a", "b"], "finalizers": ["b", "a"]}),
            "The order in patch list:\n[\"b\",\"a\"]\n doesn't match $setElementOrder list:\n[\"a\",\"b\"]\n",
        ),
    ];
    for (patch, reason) in cases {
        let error = strategic_patch(&document, &patch, &schema()).unwrap_err();
        assert_eq!((error.code(), error.to_string().as_str()), (400, reason), "{patch}");
    }
}

mod properties {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    /// Containers by their names; each has an image, some an environment.
    fn containers() -> impl Strategy<Value = Vec<Value>> {
        let env =
            prop::collection::btree_map("[A-C]", "[x-z]", 0..3).prop_map(|env: BTreeMap<String, String>| {
                env.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect::<Vec<_>>()
            });
        prop::collection::btree_map("[a-e]", ("[1-3]", env), 0..5)
            .prop_map(|all| {
                all.into_iter()
                    .map(|(name, (image, env))| json!({"name": name, "image": image, "env": env}))
                    .collect::<Vec<_>>()
            })
            .prop_shuffle()
    }

    fn names(list: &Value) -> Vec<String> {
        let all = list.as_array().into_iter().flatten();
        all.map(|element| element["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn named<'l>(list: &'l Value, name: &str) -> Option<&'l Value> {
        list.as_array()?.iter().find(|element| element["name"] == name)
    }

    fn patched(document: &Value, patch: &Value) -> Value {
        strategic_patch(document, patch, &schema()).expect("a good patch")
    }

    proptest! {
        #[test]
        fn elements_are_merged_by_name_and_others_left_alone(live in containers(), patch in containers()) {
            let (document, patch) = (json!({"containers": live}), json!({"containers": patch}));
            let result = patched(&document, &patch);
            let found = names(&result["containers"]);
            let unique: BTreeSet<&String> = found.iter().collect();
            prop_assert_eq!(unique.len(), found.len(), "a name occurs once");
            let wanted: BTreeSet<String> =
                names(&document["containers"]).into_iter().chain(names(&patch["containers"])).collect();
            prop_assert_eq!(found.iter().cloned().collect::<BTreeSet<_>>(), wanted);
            for name in found {
                let after = named(&result["containers"], &name).expect("found");
                match (named(&document["containers"], &name), named(&patch["containers"], &name)) {
                    (Some(before), None) => prop_assert_eq!(after, before),
                    (_, Some(said)) => {
                        prop_assert_eq!(&after["image"], &said["image"]);
                        for variable in said["env"].as_array().into_iter().flatten() {
                            let name = variable["name"].as_str().unwrap_or_default();
                            prop_assert_eq!(named(&after["env"], name), Some(variable));
                        }
                    }
                    (None, None) => prop_assert!(false, "{name} came from nowhere"),
                }
            }
        }

        #[test]
        fn patching_twice_is_patching_once(live in containers(), patch in containers()) {
            let patch = json!({"containers": patch});
            let once = patched(&json!({"containers": live}), &patch);
            prop_assert_eq!(patched(&once, &patch), once);
        }

        #[test]
        fn a_deleted_element_is_gone_and_nothing_else(live in containers(), name in "[a-e]") {
            let document = json!({"containers": live});
            let result = patched(&document, &json!({"containers": [{"name": name, "$patch": "delete"}]}));
            let left: Vec<String> = names(&document["containers"]).into_iter().filter(|n| *n != name).collect();
            prop_assert_eq!(names(&result["containers"]), left);
        }
    }
}
