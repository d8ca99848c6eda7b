//! Stories of several writers, told write by write.

mod applying;
mod refusing;
mod updating;

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
    fn apply(&mut self, manager: &str, spec: &Value) -> &mut Self {
        self.try_apply(manager, spec, Force::No).unwrap();
        self
    }

    #[track_caller]
    fn force(&mut self, manager: &str, spec: &Value) -> &mut Self {
        self.try_apply(manager, spec, Force::Yes).unwrap();
        self
    }

    /// Replaces the object, or creates it.
    fn update(&mut self, manager: &str, spec: &Value) -> &mut Self {
        let mut new = thing(spec);
        new["metadata"]["managedFields"] = self.live.as_ref().and_then(entries).cloned().unwrap_or_default();
        self.replace(manager, new)
    }

    fn replace(&mut self, manager: &str, mut new: Value) -> &mut Self {
        self.clock += 1;
        let writer = fixture::writer(manager, self.clock, &self.reset);
        track_update(self.live.as_ref(), &mut new, &self.schema, &writer).unwrap();
        self.live = Some(new);
        self
    }

    #[track_caller]
    fn spec(&mut self, expected: &Value) -> &mut Self {
        let spec = self.live.as_ref().and_then(|live| live.get("spec")).cloned().unwrap_or_default();
        assert_eq!(&spec, expected);
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
