//! Strategic merge patch: a merge patch that knows from the type which lists are merged, and by
//! which key, with directives for what a plain merge cannot say.
//!
//! | directive | meaning |
//! |---|---|
//! | `$patch: replace` | this object, or the list it stands in, replaces the live one |
//! | `$patch: delete` | this object is emptied, this list element deleted |
//! | `$patch: merge` | what happens anyway |
//! | `$deleteFromPrimitiveList/F` | these values leave the list `F` |
//! | `$setElementOrder/F` | the list `F` gets this order |
//! | `$retainKeys` | all other fields of this object are cleared |

use serde_json::{Map, Value};

use super::{
    PatchError,
    order::{Identity, arrange},
};
use crate::schema::{PatchStrategy, Schema, Shape, Unknown};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";

/// Applies a strategic merge patch to a document of this type.
///
/// # Errors
/// [`PatchError::Malformed`] if the patch is not an object or one of its directives is not used
/// as it must be.
pub fn strategic_patch(document: &Value, patch: &Value, schema: &Schema) -> Result<Value, PatchError> {
    let patch = match patch {
        Value::Null => return Ok(document.clone()),
        Value::Object(patch) => patch,
        _ => return Err(malformed("a strategic merge patch is an object")),
    };
    let document = document.as_object().cloned().unwrap_or_default();
    merge_maps(document, patch, schema).map(Value::Object)
}

type Object = Map<String, Value>;

fn merge_maps(mut live: Object, patch: &Object, schema: &Schema) -> Result<Object, PatchError> {
    match patch.get(PATCH).map(directive).transpose()? {
        Some(Directive::Replace) => {
            let mut replacement = patch.clone();
            replacement.remove(PATCH);
            return Ok(replacement);
        }
        Some(Directive::Delete) => return Ok(Object::new()),
        Some(Directive::Merge) | None => {}
    }
    if let Some(keys) = patch.get(RETAIN_KEYS) {
        retain_keys(&mut live, patch, keys)?;
    }
    let mut ordered = Vec::new();
    for (key, order) in patch.iter().filter(|(key, _)| key.starts_with(SET_ELEMENT_ORDER)) {
        let field = named_by(key, SET_ELEMENT_ORDER).ok_or_else(|| malformed(BAD_ORDER))?;
        let order = order.as_array().ok_or_else(|| malformed(BAD_ORDER))?;
        merge_in_order(&mut live, patch, field, order, schema)?;
        ordered.push(field);
    }
    for (key, value) in patch {
        if key == PATCH || key == RETAIN_KEYS || key.starts_with(SET_ELEMENT_ORDER) {
            continue;
        }
        if key.starts_with(DELETE_FROM_LIST) {
            let field = named_by(key, DELETE_FROM_LIST).ok_or_else(|| malformed(BAD_PRIMITIVE))?;
            let gone = value.as_array().ok_or_else(|| malformed(BAD_PRIMITIVE))?;
            if let Some(Value::Array(items)) = live.get_mut(field) {
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if ordered.contains(&key.as_str()) {
            continue;
        }
        merge_field(&mut live, key, value, schema)?;
    }
    Ok(live)
}

fn merge_field(live: &mut Object, key: &str, value: &Value, schema: &Schema) -> Result<(), PatchError> {
    let (child, strategy) = field(schema, key);
    let merged = match (live.remove(key), value) {
        (_, Value::Null) => None,
        (Some(Value::Object(live)), Value::Object(patch)) => {
            Some(Value::Object(merge_maps(live, patch, child)?))
        }
        (Some(Value::Array(live)), Value::Array(patch)) if strategy.merge => {
            Some(Value::Array(merge_lists(live, patch, strategy, child)?))
        }
        (Some(Value::Array(_)), Value::Array(_)) => Some(value.clone()),
        (_, value) => plain(value),
    };
    if let Some(merged) = merged {
        live.insert(key.to_owned(), merged);
    }
    Ok(())
}

/// Merges a list and puts it into the order that the patch asks for.
fn merge_in_order(
    live: &mut Object,
    patch: &Object,
    key: &str,
    order: &[Value],
    schema: &Schema,
) -> Result<(), PatchError> {
    let (child, strategy) = field(schema, key);
    let before = list_at(live, key)?.cloned();
    let patched = list_at(patch, key)?;
    let identity = identity(strategy);
    if let Some(patched) = patched {
        check_order(patched, order, identity)?;
    }
    let merged = match (&before, patched) {
        (None, None) => return Ok(()),
        (Some(before), None) => before.clone(),
        (None, Some(patched)) => patched.iter().filter_map(plain).collect(),
        (Some(before), Some(patched)) if strategy.merge => {
            merge_lists(before.clone(), patched, strategy, child)?
        }
        (Some(_), Some(patched)) => patched.clone(),
    };
    let places = places(before.unwrap_or_default(), patched, &merged, identity);
    live.insert(key.to_owned(), Value::Array(arrange(merged, order, &places, identity)));
    Ok(())
}

/// Where elements stood before they were put into order: new ones take the places that deleted
/// ones left at the end.
fn places(
    before: Vec<Value>,
    patch: Option<&Vec<Value>>,
    merged: &[Value],
    identity: Identity<'_>,
) -> Vec<Value> {
    let replaced = patch
        .into_iter()
        .flatten()
        .any(|element| element.get(PATCH).is_some_and(|directive| directive == "replace"));
    if replaced {
        return before;
    }
    let places = before.len();
    let new = merged.iter().filter(|element| identity.position(&before, element).is_none()).cloned();
    let stay: Vec<Value> =
        before.iter().filter(|element| identity.position(merged, element).is_some()).cloned().collect();
    stay.into_iter().chain(new).take(places).collect()
}

fn merge_lists(
    mut live: Vec<Value>,
    patch: &[Value],
    strategy: &PatchStrategy,
    list: &Schema,
) -> Result<Vec<Value>, PatchError> {
    let objects = live.iter().chain(patch).any(Value::is_object);
    if !objects {
        let before = live.clone();
        live.extend_from_slice(patch);
        return Ok(arrange(distinct(live), patch, &before, Identity::Whole));
    }
    let Some(key) = &strategy.key else {
        return Err(malformed("cannot merge lists without merge key"));
    };
    let Shape::List { items, .. } = &list.shape else {
        return Err(malformed("cannot merge lists of unknown type"));
    };
    let identity = Identity::Key(key);
    let mut named = Vec::new();
    let mut replace = false;
    for element in patch {
        let Value::Object(object) = element else {
            return Err(malformed(&format!("expected an object with the merge key {key}, found {element}")));
        };
        match object.get(PATCH).map(directive).transpose()? {
            None | Some(Directive::Merge) => named.push(element.clone()),
            Some(Directive::Replace) => replace = true,
            Some(Directive::Delete) => {
                let gone = object.get(&**key).ok_or_else(|| no_merge_key(element, key))?;
                live.retain(|element| element.get(&**key) != Some(gone));
            }
        }
    }
    if replace {
        return Ok(named.iter().filter_map(plain).collect());
    }
    let before = live.clone();
    for element in &named {
        let Value::Object(patch) = element else { continue };
        if identity.of(element).is_none() {
            return Err(no_merge_key(element, key));
        }
        match identity.position(&live, element) {
            Some(place) => {
                let old = live[place].as_object().cloned().unwrap_or_default();
                live[place] = Value::Object(merge_maps(old, patch, items)?);
            }
            None => live.extend(plain(element)),
        }
    }
    Ok(arrange(live, &named, &before, identity))
}

/// Clears the fields that the patch does not name, so that one member of a union can take the
/// place of another.
fn retain_keys(live: &mut Object, patch: &Object, keys: &Value) -> Result<(), PatchError> {
    let bad = || malformed("invalid patch format of retainKeys");
    let keys = keys.as_array().ok_or_else(bad)?;
    let retained = |key: &str| keys.iter().any(|kept| kept.as_str() == Some(key));
    let unnamed = patch.iter().any(|(key, value)| {
        !value.is_null()
            && !key.starts_with(SET_ELEMENT_ORDER)
            && !key.starts_with(DELETE_FROM_LIST)
            && key != RETAIN_KEYS
            && !retained(key)
    });
    if unnamed {
        return Err(bad());
    }
    live.retain(|key, _| retained(key));
    Ok(())
}

/// Elements of a patch must come in the order that it asks for.
fn check_order(patch: &[Value], order: &[Value], identity: Identity<'_>) -> Result<(), PatchError> {
    if order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for element in patch.iter().filter(|element| element.get(PATCH).is_none()) {
        let wanted = identity.of(element);
        if !rest.any(|other| identity.of(other) == wanted) {
            return Err(malformed(&format!(
                "The order in patch list:\n{}\n doesn't match {SET_ELEMENT_ORDER} list:\n{}\n",
                Value::from(patch.to_vec()),
                Value::from(order.to_vec()),
            )));
        }
    }
    Ok(())
}

/// A value of the patch that meets nothing it could be merged with: without nulls and without
/// whatever carries a directive.
fn plain(value: &Value) -> Option<Value> {
    match value {
        Value::Object(object) if object.contains_key(PATCH) => None,
        Value::Object(object) => Some(Value::Object(
            object
                .iter()
                .filter(|(key, value)| !value.is_null() && !is_directive(key))
                .filter_map(|(key, value)| Some((key.clone(), plain(value)?)))
                .collect(),
        )),
        Value::Array(items) => Some(Value::Array(items.iter().filter_map(plain).collect())),
        other => Some(other.clone()),
    }
}

fn is_directive(key: &str) -> bool {
    key == RETAIN_KEYS || key.starts_with(SET_ELEMENT_ORDER) || key.starts_with(DELETE_FROM_LIST)
}

/// The type of a field and how it is patched.
fn field<'a>(schema: &'a Schema, key: &str) -> (&'a Schema, &'a PatchStrategy) {
    static ANY: Schema = Schema::any();
    static PLAIN: PatchStrategy = PatchStrategy { merge: false, key: None, retain_keys: false };
    match &schema.shape {
        Shape::Struct(object) => match (object.fields.get(key), &object.unknown) {
            (Some(field), _) => (&field.schema, &field.patch),
            (None, Unknown::Typed(values)) => (values, &PLAIN),
            (None, _) => (&ANY, &PLAIN),
        },
        Shape::Map { values, .. } => (values, &PLAIN),
        _ => (&ANY, &PLAIN),
    }
}

fn identity(strategy: &PatchStrategy) -> Identity<'_> {
    strategy.key.as_deref().map_or(Identity::Whole, Identity::Key)
}

fn list_at<'o>(object: &'o Object, key: &str) -> Result<Option<&'o Vec<Value>>, PatchError> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(malformed(&format!("{key}: expected a list, found {other}"))),
    }
}

fn named_by<'k>(key: &'k str, prefix: &str) -> Option<&'k str> {
    key.strip_prefix(prefix)?.strip_prefix('/').filter(|field| !field.is_empty())
}

fn distinct(items: Vec<Value>) -> Vec<Value> {
    let mut seen = Vec::with_capacity(items.len());
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

#[derive(Clone, Copy)]
enum Directive {
    Replace,
    Delete,
    Merge,
}

fn directive(value: &Value) -> Result<Directive, PatchError> {
    match value.as_str() {
        Some("replace") => Ok(Directive::Replace),
        Some("delete") => Ok(Directive::Delete),
        Some("merge") => Ok(Directive::Merge),
        _ => Err(malformed(&format!("unknown patch type: {value}: expected replace, delete or merge"))),
    }
}

const BAD_ORDER: &str = "invalid patch format of setElementOrder list";
const BAD_PRIMITIVE: &str = "invalid patch format of primitive list";

fn malformed(reason: &str) -> PatchError {
    PatchError::Malformed(reason.to_owned())
}

fn no_merge_key(element: &Value, key: &str) -> PatchError {
    malformed(&format!("map: {element} does not contain declared merge key: {key}"))
}

#[cfg(test)]
#[path = "strategic_tests.rs"]
mod tests;
