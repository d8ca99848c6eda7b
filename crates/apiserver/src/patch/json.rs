//! JSON patch (RFC 6902), with the liberties that Kubernetes takes: a missing field may be
//! replaced and copied, a missing value is `null`, and places in a list count from its end when
//! negative.

use serde_json::{Map, Value};

use super::PatchError;

/// More operations than this are refused.
const MAX_OPERATIONS: usize = 10_000;

/// What copies in one patch may add up to, in values, so that a small patch cannot make a
/// document that fills the memory.
const MAX_COPIED: usize = 1_000_000;

/// Applies the operations of a JSON patch one after the other, all or none.
///
/// # Errors
/// [`PatchError::Malformed`] if the patch is not a list of operations, [`PatchError::TooLarge`]
/// if there are more than 10,000, [`PatchError::Unprocessable`] if one cannot be carried out.
pub fn json_patch(document: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let malformed =
        |reason: &dyn std::fmt::Display| PatchError::Malformed(format!("error decoding patch: {reason}"));
    let patch: Value = serde_json::from_slice(patch).map_err(|error| malformed(&error))?;
    let operations = match &patch {
        Value::Null => return Ok(document.clone()),
        Value::Array(operations) => operations,
        _ => return Err(malformed(&"a JSON patch is a list of operations")),
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let operations: Vec<Operation<'_>> = operations
        .iter()
        .map(|operation| match operation {
            Value::Object(fields) => Operation::of(fields),
            _ => Err("an operation of a JSON patch is an object".to_owned()),
        })
        .collect::<Result<_, _>>()
        .map_err(|reason| malformed(&reason))?;
    let mut patched = Patched { document: document.clone(), copied: 0 };
    for operation in &operations {
        patched.run(operation).map_err(|reason| {
            PatchError::Unprocessable(format!("{} {:?}: {reason}", operation.verb, operation.path))
        })?;
    }
    Ok(patched.document)
}

/// One operation as it was sent.
struct Operation<'a> {
    verb: &'a str,
    path: &'a str,
    from: &'a str,
    value: Option<&'a Value>,
}

impl<'a> Operation<'a> {
    fn of(fields: &'a Map<String, Value>) -> Result<Self, String> {
        let text = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(text)) => Ok(text.as_str()),
            Some(_) => Err(format!("{name} is not text")),
        };
        Ok(Self { verb: text("op")?, path: text("path")?, from: text("from")?, value: fields.get("value") })
    }
}

struct Patched {
    document: Value,
    copied: usize,
}

impl Patched {
    fn run(&mut self, operation: &Operation<'_>) -> Result<(), String> {
        let value = || operation.value.cloned().unwrap_or_default();
        match operation.verb {
            "add" => add(&mut self.document, operation.path, value()),
            "remove" => remove(&mut self.document, operation.path).map(|_| ()),
            "replace" => self.replace(operation.path, value()),
            "test" => self.test(operation.path, operation.value.unwrap_or(&Value::Null)),
            "move" => {
                let moved = remove(&mut self.document, operation.from)?;
                add(&mut self.document, operation.path, moved)
            }
            "copy" => {
                let copied = get(&self.document, operation.from)?.cloned().unwrap_or_default();
                self.copied += size(&copied);
                if self.copied > MAX_COPIED {
                    return Err("the copies in this patch are too large together".to_owned());
                }
                add(&mut self.document, operation.path, copied)
            }
            "" => {
                Err("the operation is missing: expected add, remove, replace, test, move or copy".to_owned())
            }
            _ => Err("unknown operation: expected add, remove, replace, test, move or copy".to_owned()),
        }
    }

    fn replace(&mut self, path: &str, value: Value) -> Result<(), String> {
        if path.is_empty() {
            self.document = value;
            return Ok(());
        }
        let (parent, key) = parent_mut(&mut self.document, path)?;
        match parent {
            Value::Object(object) => {
                object.insert(key, value);
            }
            Value::Array(items) => {
                let place = place_of(&key, items.len())?;
                *items.get_mut(place).ok_or_else(|| no_place(&key, place))? = value;
            }
            _ => return Err(NO_CONTAINER.to_owned()),
        }
        Ok(())
    }

    fn test(&self, path: &str, expected: &Value) -> Result<(), String> {
        let found = get(&self.document, path)?.unwrap_or(&Value::Null);
        if found == expected {
            Ok(())
        } else {
            Err(format!("test failed: expected {expected}, found {found}"))
        }
    }
}

const NO_CONTAINER: &str = "the value above it is neither an object nor a list";

fn get<'v>(document: &'v Value, path: &str) -> Result<Option<&'v Value>, String> {
    if path.is_empty() {
        return Ok(Some(document));
    }
    let (above, key) = split(path)?;
    let mut value = document;
    for step in above {
        value = child(value, &step)?.ok_or_else(|| format!("nothing is at {step:?} on the way"))?;
    }
    child(value, &key)
}

fn child<'v>(value: &'v Value, key: &str) -> Result<Option<&'v Value>, String> {
    match value {
        Value::Object(object) => Ok(object.get(key)),
        Value::Array(items) => {
            let place = place_of(key, items.len())?;
            items.get(place).map(Some).ok_or_else(|| no_place(key, items.len()))
        }
        _ => Err(NO_CONTAINER.to_owned()),
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let (parent, key) = parent_mut(document, path)?;
    match parent {
        Value::Object(object) => {
            object.insert(key, value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            // The place after the last element is where an element can be added too.
            let place = place_of(&key, items.len() + 1)?;
            if place > items.len() {
                return Err(no_place(&key, items.len()));
            }
            items.insert(place, value);
        }
        _ => return Err(NO_CONTAINER.to_owned()),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str) -> Result<Value, String> {
    let (parent, key) = parent_mut(document, path)?;
    match parent {
        Value::Object(object) => object.remove(&key).ok_or_else(|| "nothing is there".to_owned()),
        Value::Array(items) => {
            let place = place_of(&key, items.len())?;
            if place >= items.len() {
                return Err(no_place(&key, items.len()));
            }
            Ok(items.remove(place))
        }
        _ => Err(NO_CONTAINER.to_owned()),
    }
}

/// What holds the value at this path, and the last step to it.
fn parent_mut<'v>(document: &'v mut Value, path: &str) -> Result<(&'v mut Value, String), String> {
    let (above, key) = split(path)?;
    let mut value = document;
    for step in above {
        value = match value {
            Value::Object(object) => object.get_mut(&step),
            Value::Array(items) => {
                let place = place_of(&step, items.len())?;
                items.get_mut(place)
            }
            _ => None,
        }
        .ok_or_else(|| format!("nothing is at {step:?} on the way"))?;
    }
    Ok((value, key))
}

/// The steps of a JSON pointer, the last apart.
fn split(path: &str) -> Result<(Vec<String>, String), String> {
    let rest = path.strip_prefix('/').ok_or("the path does not begin with a slash")?;
    let mut steps: Vec<String> =
        rest.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
    let last = steps.pop().unwrap_or_default();
    Ok((steps, last))
}

/// A place in a list of this length; negative ones count from the end.
fn place_of(key: &str, length: usize) -> Result<usize, String> {
    let place: i64 = key.parse().map_err(|_| format!("{key:?} is not a place in a list"))?;
    if place >= 0 {
        return usize::try_from(place).map_err(|_| no_place(key, length));
    }
    let from_end = usize::try_from(place.unsigned_abs()).map_err(|_| no_place(key, length))?;
    length.checked_sub(from_end).ok_or_else(|| no_place(key, length))
}

fn no_place(key: &str, length: usize) -> String {
    format!("the list has {length} elements and no place {key}")
}

fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(object) => 1 + object.values().map(size).sum::<usize>(),
        Value::String(text) => 1 + text.len() / 16,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(document: &Value, patch: &Value) -> Result<Value, PatchError> {
        json_patch(document, patch.to_string().as_bytes())
    }

    #[test]
    fn operations_do_as_the_standard_says() {
        let cases = [
            (json!({"a": 1}), json!([]), json!({"a": 1})),
            (json!({"a": 1}), json!(null), json!({"a": 1})),
            (json!({"a": 1}), json!([{"op": "add", "path": "/b", "value": 2}]), json!({"a": 1, "b": 2})),
            (json!({"a": 1}), json!([{"op": "add", "path": "/a", "value": 2}]), json!({"a": 2})),
            (
                json!({"a": [1, 3]}),
                json!([{"op": "add", "path": "/a/1", "value": 2}]),
                json!({"a": [1, 2, 3]}),
            ),
            (json!({"a": [1]}), json!([{"op": "add", "path": "/a/-", "value": 2}]), json!({"a": [1, 2]})),
            (json!({"a": [1]}), json!([{"op": "add", "path": "/a/1", "value": 2}]), json!({"a": [1, 2]})),
            (json!({"a": []}), json!([{"op": "add", "path": "/a/0", "value": 2}]), json!({"a": [2]})),
            (json!({"a": 1, "b": 2}), json!([{"op": "remove", "path": "/a"}]), json!({"b": 2})),
            (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/0"}]), json!({"a": [2]})),
            (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/-1"}]), json!({"a": [1]})),
            (
                json!({"a": 1}),
                json!([{"op": "replace", "path": "/a", "value": {"b": 2}}]),
                json!({"a": {"b": 2}}),
            ),
            (json!({"a": 1}), json!([{"op": "replace", "path": "/b", "value": 2}]), json!({"a": 1, "b": 2})),
            (
                json!({"a": [1, 2]}),
                json!([{"op": "replace", "path": "/a/1", "value": 3}]),
                json!({"a": [1, 3]}),
            ),
            (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": {"b": 2}}]), json!({"b": 2})),
            (json!({"a": 1}), json!([{"op": "move", "from": "/a", "path": "/b"}]), json!({"b": 1})),
            (
                json!({"a": {"x": 1}}),
                json!([{"op": "copy", "from": "/a", "path": "/b"}]),
                json!({"a": {"x": 1}, "b": {"x": 1}}),
            ),
            (
                json!({"a": 1}),
                json!([{"op": "copy", "from": "/no", "path": "/b"}]),
                json!({"a": 1, "b": null}),
            ),
            (json!({"a": 1}), json!([{"op": "add", "path": "/b"}]), json!({"a": 1, "b": null})),
            (
                json!({"a/b": 1, "c~d": 2}),
                json!([{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/c~0d"}]),
                json!({}),
            ),
            (
                json!({"a": {"b": 1}}),
                json!([{"op": "test", "path": "/a", "value": {"b": 1}}]),
                json!({"a": {"b": 1}}),
            ),
            (json!({"a": 1}), json!([{"op": "test", "path": "/no", "value": null}]), json!({"a": 1})),
            (json!({"": 1}), json!([{"op": "remove", "path": "/"}]), json!({})),
        ];
        for (document, patch, expected) in cases {
            assert_eq!(run(&document, &patch).unwrap(), expected, "{document} {patch}");
        }
    }

    #[test]
    fn what_does_not_fit_the_document_is_unprocessable() {
        let document = json!({"a": {"x": 1}, "l": [1, 2], "s": "text"});
        let cases = [
            json!({"op": "remove", "path": "/no"}),
            json!({"op": "remove", "path": "/no/no"}),
            json!({"op": "remove", "path": ""}),
            json!({"op": "remove", "path": "/l/2"}),
            json!({"op": "remove", "path": "/l/-3"}),
            json!({"op": "remove", "path": "/l/x"}),
            json!({"op": "remove", "path": "/l/99999999999999999999"}),
            json!({"op": "add", "path": "/no/x", "value": 1}),
            json!({"op": "add", "path": "/l/5", "value": 1}),
            json!({"op": "add", "path": "/s/x", "value": 1}),
            json!({"op": "add", "path": "a", "value": 1}),
            json!({"op": "add", "path": "", "value": 1}),
            json!({"op": "replace", "path": "/no/x", "value": 1}),
            json!({"op": "replace", "path": "/l/2", "value": 1}),
            json!({"op": "test", "path": "/a/x", "value": 2}),
            json!({"op": "test", "path": "/no/x", "value": null}),
            json!({"op": "test", "path": "/l/7", "value": 1}),
            json!({"op": "move", "from": "/no", "path": "/b"}),
            json!({"op": "copy", "path": "b"}),
            json!({"op": "frob", "path": "/a"}),
            json!({"path": "/a"}),
        ];
        for operation in cases {
            let error = run(&document, &json!([operation])).unwrap_err();
            assert_eq!(error.code(), 422, "{operation}: {error}");
        }
        let error = run(&document, &json!([{"op": "test", "path": "/a/x", "value": 2}])).unwrap_err();
        assert!(error.to_string().ends_with(r#"test "/a/x": test failed: expected 2, found 1"#), "{error}");
    }

    #[test]
    fn what_is_no_patch_is_malformed() {
        for patch in ["{}", "nope", "[1]", "\"x\"", "[{\"op\": 1}]", "[{\"path\": {}}]", "", "[", "[[]]"] {
            assert_eq!(json_patch(&json!({}), patch.as_bytes()).unwrap_err().code(), 400, "{patch}");
        }
    }

    #[test]
    fn too_many_operations_are_refused() {
        let many: Value = (0..=MAX_OPERATIONS).map(|_| json!({"op": "test", "path": "/a"})).collect();
        assert_eq!(run(&json!({}), &many).unwrap_err().code(), 413);
    }

    #[test]
    fn copies_cannot_fill_the_memory() {
        let doubling: Value = (0..60)
            .flat_map(|_| {
                [
                    json!({"op": "copy", "from": "/a", "path": "/b/-"}),
                    json!({"op": "copy", "from": "/b", "path": "/a"}),
                ]
            })
            .collect();
        assert_eq!(run(&json!({"a": [1], "b": []}), &doubling).unwrap_err().code(), 422);
    }
}
