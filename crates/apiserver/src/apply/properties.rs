//! What holds for every sequence of writes.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{fixture, *};

/// Any value of the test type's `spec`, small enough that writers meet.
///
/// Without empty sets and keyed lists: nobody owns those, so applying one twice leaves what
/// applying it once took away.
fn spec() -> impl Strategy<Value = Value> {
    let word = || prop::sample::select(vec!["x", "y", "z"]);
    let words = move || prop::collection::btree_set(word(), 1..3).prop_map(|words| json!(words));
    let map = move || prop::collection::btree_map(word(), word(), 0..3).prop_map(|map| json!(map));
    let items =
        prop::collection::btree_map(word(), (prop::option::of(word()), words()), 1..3).prop_map(|items| {
            let items = items.into_iter().map(|(name, (value, tags))| {
                let mut item = json!({"name": name, "tags": tags});
                if let Some(value) = value {
                    item["value"] = json!(value);
                }
                item
            });
            items.collect::<Value>()
        });
    let free = prop_oneof![
        (0..2).prop_map(|number| json!(number)),
        words(),
        map(),
        map().prop_map(|inner| json!({"a": inner, "b": [1]})),
    ];
    let fields: Vec<(&str, BoxedStrategy<Value>)> = vec![
        ("number", (0..3).prop_map(|number| json!(number)).boxed()),
        ("text", word().prop_map(|word| json!(word)).boxed()),
        ("map", map().boxed()),
        ("atomicMap", map().boxed()),
        ("list", words().boxed()),
        ("set", words().boxed()),
        ("items", items.boxed()),
        ("free", free.boxed()),
        (
            "nested",
            prop_oneof![Just(json!({})), Just(json!({"a": 1})), Just(json!({"b": 2, "deep": {"c": "x"}}))]
                .boxed(),
        ),
    ];
    let fields: Vec<_> = fields
        .into_iter()
        .map(|(name, value)| {
            prop::option::of(value).prop_map(move |value| value.map(|value| (name.to_owned(), value)))
        })
        .collect();
    fields.prop_map(|fields| Value::Object(fields.into_iter().flatten().collect::<Map<String, Value>>()))
}

#[derive(Debug, Clone)]
enum Step {
    Apply(&'static str, Value),
    Update(&'static str, Value),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (prop::sample::select(vec!["a", "b", "c"]), spec(), any::<bool>()).prop_map(
        |(manager, spec, apply)| {
            if apply { Step::Apply(manager, spec) } else { Step::Update(manager, spec) }
        },
    );
    prop::collection::vec(step, 0..5)
}

fn thing(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec})
}

fn forced(live: Option<&Value>, manager: &str, spec: &Value) -> Value {
    let reset = FieldSet::default();
    apply(live, &thing(spec), &fixture::schema(), &fixture::writer(manager, 0, &reset), Force::Yes).unwrap()
}

fn play(steps: &[Step]) -> Option<Value> {
    let (schema, reset) = (fixture::schema(), FieldSet::default());
    let mut live: Option<Value> = None;
    for step in steps {
        live = Some(match step {
            Step::Apply(manager, spec) => forced(live.as_ref(), manager, spec),
            Step::Update(manager, spec) => {
                let mut new = thing(spec);
                track_update(live.as_ref(), &mut new, &schema, &fixture::writer(manager, 0, &reset)).unwrap();
                new
            }
        });
    }
    live
}

fn owned_by(object: &Value, manager: &str, operation: Operation) -> FieldSet {
    let managed = Managed::decode(entries(object)).unwrap();
    let owned = managed.0.into_iter().find(|(id, _)| id.manager == manager && id.operation == operation);
    owned.map(|(_, owned)| owned.set).unwrap_or_default()
}

/// Lists that are sets or keyed have no order of their own.
fn unordered(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(unordered).collect();
            items.sort_by_key(ToString::to_string);
            Value::Array(items)
        }
        Value::Object(object) => {
            object.iter().map(|(key, value)| (key.clone(), unordered(value))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

/// Objects, lists and `null` that hold nothing, which may stay when what was in them is gone.
fn without_empty(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(object) => {
            let kept: Map<String, Value> =
                object.iter().filter_map(|(key, value)| Some((key.clone(), without_empty(value)?))).collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(items) if items.is_empty() => None,
        other => Some(other.clone()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn applying_twice_is_applying_once(steps in steps(), spec in spec()) {
        let once = forced(play(&steps).as_ref(), "a", &spec);
        let twice = forced(Some(&once), "a", &spec);
        prop_assert_eq!(twice, once);
    }

    #[test]
    fn what_is_applied_is_there(steps in steps(), spec in spec()) {
        let new = forced(play(&steps).as_ref(), "a", &spec);
        let schema = fixture::schema();
        let missing = super::compare::compare(&thing(&spec), &new, &schema);
        prop_assert!(missing.modified.is_empty() && missing.removed.is_empty(), "{missing:?}");
    }

    #[test]
    fn withdrawing_restores_what_was_there(steps in steps(), spec in spec()) {
        let Some(before) = play(&steps) else { return Ok(()) };
        // A newcomer that neither changes nor empties what others own.
        let (schema, reset) = (fixture::schema(), FieldSet::default());
        let writer = fixture::writer("newcomer", 0, &reset);
        let Ok(with) = apply(Some(&before), &thing(&spec), &schema, &writer, Force::No) else { return Ok(()) };
        prop_assume!(super::compare::compare(&before, &with, &schema).modified.is_empty());
        let after = forced(Some(&with), "newcomer", &json!({}));
        let nothing = || json!({});
        prop_assert_eq!(
            unordered(&without_empty(&after["spec"]).unwrap_or_else(nothing)),
            unordered(&without_empty(&before["spec"]).unwrap_or_else(nothing))
        );
    }

    #[test]
    fn two_appliers_that_do_not_conflict_commute(left in spec(), right in spec()) {
        let (schema, reset) = (fixture::schema(), FieldSet::default());
        let one_then = |first: (&str, &Value), second: (&str, &Value)| {
            let live = forced(None, first.0, first.1);
            apply(Some(&live), &thing(second.1), &schema, &fixture::writer(second.0, 0, &reset), Force::No)
        };
        let (Ok(forth), Ok(back)) = (one_then(("a", &left), ("b", &right)), one_then(("b", &right), ("a", &left)))
        else { return Ok(()) };
        prop_assert_eq!(unordered(&forth["spec"]), unordered(&back["spec"]));
        for manager in ["a", "b"] {
            prop_assert_eq!(owned_by(&forth, manager, Operation::Apply), owned_by(&back, manager, Operation::Apply));
        }
    }

    #[test]
    fn an_update_takes_from_others_only_what_it_changed(steps in steps(), spec in spec()) {
        let Some(before) = play(&steps) else { return Ok(()) };
        let (schema, reset) = (fixture::schema(), FieldSet::default());
        let mut after = thing(&spec);
        track_update(Some(&before), &mut after, &schema, &fixture::writer("updater", 0, &reset)).unwrap();
        let change = super::compare::compare(&before, &after, &schema);
        for manager in ["a", "b", "c"] {
            for operation in [Operation::Apply, Operation::Update] {
                let lost = owned_by(&before, manager, operation).difference(&owned_by(&after, manager, operation));
                let unrelated = lost.difference(&change.modified).difference(&change.removed).difference(&change.added);
                prop_assert!(unrelated.is_empty(), "{manager} lost {unrelated}");
            }
        }
    }

    #[test]
    fn nobody_owns_what_is_not_there(steps in steps()) {
        let Some(object) = play(&steps) else { return Ok(()) };
        let schema = fixture::schema();
        let managed = Managed::decode(entries(&object)).unwrap();
        let there = super::fields::with_named_fields(&super::fields::fields(&object, &schema), &schema);
        // A list or map that somebody emptied is owned without being a field.
        let leaves = managed.0.values().fold(FieldSet::default(), |all, owned| all.union(&owned.set)).leaves().difference(&there);
        for path in leaves.paths() {
            let pointer: String = path.iter().map(|element| match element {
                Element::Field(name) => format!("/{name}"),
                _ => "/?".to_owned(),
            }).collect();
            prop_assert!(object.pointer(&pointer).is_some(), "{} is owned but not there: {object}", super::set::path_text(&path));
        }
    }
}
