//! Server-side apply, and who owns which field of an object.
//!
//! Every write names a field manager. [`apply`] merges what a manager declares into the live
//! object, takes out what it declared before and does so no longer, and fails where another
//! manager owns a field with another value. [`track_update`] notes for every other write which
//! fields it changed. Both keep their notes in `metadata.managedFields`.
//!
//! ```text
//!   intent ─ validate ─┐
//!   live ──────────────┴─ merge ─ withdraw ─ compare with live ─ conflicts? ─ new object
//!                                   ↑                                └ owners ┘
//!                                 what the manager applied last time
//! ```
//!
//! Everything here is a pure function of JSON and a [`Schema`]: lists know from it what names
//! their elements, and whatever no schema describes is merged field by field, its lists as one
//! value. The results are those of Kubernetes, down to the bytes of `fieldsV1`.

mod atom;
mod compare;
mod conflict;
mod fields;
#[cfg(test)]
mod fixture;
mod last_applied;
mod managed;
mod merge;
mod owners;
mod path;
#[cfg(test)]
mod properties;
mod reconcile;
mod remove;
mod reset;
pub mod scale;
mod set;
#[cfg(test)]
mod tests;
mod validate;
mod versions;
mod zero;

use serde_json::Value;

pub use conflict::{Conflict, Conflicts};
pub use managed::{ManagedError, ManagerId, Operation};
pub use owners::Force;
pub use path::{Element, ElementError, Ordered};
pub use reset::reset_fields;
pub use set::FieldSet;
pub use versions::{OneVersion, Untranslated, Versions};

use self::{
    managed::{Managed, entries, is_reset, set_entries},
    owners::{Refused, Write},
    validate::{Strictness, validate},
};
use crate::schema::Schema;

/// The manager that owns what was there before anybody applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Who writes, through what, and when.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// The field manager; an empty one is noted as `unknown`.
    pub manager: &'a str,
    /// The version of the request: `apps/v1`.
    pub api_version: &'a str,
    /// The kind of the resource: `Deployment`.
    pub kind: &'a str,
    /// The subresource of the request; empty for the object itself.
    pub subresource: &'a str,
    /// Now.
    pub time: jiff::Timestamp,
    /// What the resource, or the subresource, ignores of what is written; see [`reset_fields`].
    pub reset: &'a FieldSet,
    /// The other versions of the kind, for owners that named their fields in one.
    pub versions: &'a dyn Versions,
}

/// Why something cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Others own fields with other values. A 409 with one cause per conflict.
    #[error("{0}")]
    Conflicts(Conflicts),
    /// The intent does not fit the type: a field that is not declared, two list elements with
    /// one key. A 400 here; Kubernetes answers 500 with the same message.
    #[error("{0}")]
    Invalid(String),
    /// The intent is not what may be applied here: of another kind or version, or with
    /// managedFields. A 400.
    #[error("{0}")]
    BadRequest(String),
    /// The live object's managedFields are broken.
    #[error("failed to decode managed fields: {0}")]
    Managed(#[from] ManagedError),
    /// The object is needed in another version; apply again once it is there.
    #[error(transparent)]
    Untranslated(#[from] Untranslated),
}

/// Applies `intent` to the live object, or makes the object that it describes.
///
/// Gives the whole new object with its managedFields, before defaulting and pruning. When nothing
/// changed the result is equal to `live`.
///
/// # Errors
/// [`ApplyError::Conflicts`] unless forced; the others say what is wrong with the intent.
pub fn apply(
    live: Option<&Value>,
    intent: &Value,
    schema: &Schema,
    writer: &Writer<'_>,
    force: Force,
) -> Result<Value, ApplyError> {
    check_intent(intent, schema, writer)?;
    let mut managed = Managed::decode(live.and_then(entries))?;
    let base = match live {
        Some(live) => without_entries(live),
        None => zero::object(schema, writer),
    };
    let write = writer.write(ManagerId::applier(writer.manager, writer.subresource), schema);
    if managed.0.is_empty() {
        let first = ManagerId::updater(BEFORE_FIRST_APPLY, writer.api_version, writer.subresource);
        writer.write(first, schema).update(&zero::object(schema, writer), &base, &mut managed)?;
    }
    let before = managed.clone();
    let mut merged = match write.apply(&base, intent, &mut managed, force) {
        Ok(merged) => merged,
        Err(Refused::Untranslated) => return Err(Untranslated.into()),
        Err(Refused::Conflicts(conflicts)) => {
            let conflicts = last_applied::remaining(conflicts, &base, schema, writer);
            if !conflicts.0.is_empty() {
                return Err(ApplyError::Conflicts(conflicts));
            }
            managed = before;
            write.apply(&base, intent, &mut managed, Force::Yes).map_err(|refused| match refused {
                Refused::Conflicts(conflicts) => ApplyError::Conflicts(conflicts),
                Refused::Untranslated => Untranslated.into(),
            })?
        }
    }
    .unwrap_or(base);
    last_applied::renew(&mut merged, intent, writer);
    set_entries(&mut merged, managed.encode());
    Ok(merged)
}

/// Notes in `new` who owns what after a create (`live` is `None`), replacement or patch.
///
/// `new` is the object as decoded and defaulted, before the server itself adds anything. Owners
/// are taken from `new` where it names them, else from `live`; an empty list in `new` forgets
/// them all, and from then on nothing is noted until somebody applies.
///
/// # Errors
/// When an object is needed in another version first; `new` is then as it was.
pub fn track_update(
    live: Option<&Value>,
    new: &mut Value,
    schema: &Schema,
    writer: &Writer<'_>,
) -> Result<(), Untranslated> {
    let managed = owners_of_update(live, new, writer);
    let given = entries(new).cloned();
    set_entries(new, None);
    let mut managed = match managed {
        Some(managed) => managed,
        None if live.is_some() => return Ok(()),
        None => Managed::default(),
    };
    if validate(new, schema, Strictness::Stored).is_err() {
        return Ok(());
    }
    let old = live.map_or_else(|| zero::object(schema, writer), without_entries);
    let id = ManagerId::updater(writer.manager, writer.api_version, writer.subresource);
    if let Err(untranslated) = writer.write(id, schema).update(&old, new, &mut managed) {
        set_entries(new, given);
        return Err(untranslated);
    }
    managed.cap();
    set_entries(new, managed.encode());
    Ok(())
}

/// Whether two objects differ in nothing but their owners.
pub fn is_same(left: &Value, right: &Value) -> bool {
    let fields = |object: &Value| object.as_object().map_or(0, serde_json::Map::len);
    let same_metadata = |left: &Value, right: &Value| match (left.as_object(), right.as_object()) {
        (Some(left), Some(right)) => {
            let owned = |name: &String| name != "managedFields";
            let count =
                |fields: &serde_json::Map<String, Value>| fields.keys().filter(|name| owned(name)).count();
            count(left) == count(right)
                && left
                    .iter()
                    .filter(|(name, _)| owned(name))
                    .all(|(name, value)| right.get(name) == Some(value))
        }
        _ => left == right,
    };
    fields(left) == fields(right)
        && left.as_object().into_iter().flatten().all(|(name, value)| match right.get(name) {
            Some(other) if name == "metadata" => same_metadata(value, other),
            other => other == Some(value),
        })
}

/// Gives `new` the times of `live` when nothing but times differs, so that a write that changes
/// nothing leaves the very same object.
pub fn keep_times(live: &Value, new: &mut Value) {
    let (Some(Value::Array(old)), Some(Value::Array(now))) = (entries(live), entries(new)) else { return };
    if old == now || old.len() != now.len() {
        return;
    }
    let untimed = |entry: &Value| {
        let mut entry = entry.clone();
        if let Some(entry) = entry.as_object_mut() {
            entry.remove("time");
        }
        entry
    };
    if old.iter().zip(now).any(|(old, now)| untimed(old) != untimed(now)) {
        return;
    }
    if is_same(live, new) {
        set_entries(new, Some(Value::Array(old.clone())));
    }
}

impl<'a> Writer<'a> {
    fn write(&self, id: ManagerId, schema: &'a Schema) -> Write<'a> {
        let (time, reset, versions) = (time_text(self.time), self.reset, self.versions);
        Write { schema, id, api_version: self.api_version, time, reset, versions }
    }
}

fn check_intent(intent: &Value, schema: &Schema, writer: &Writer<'_>) -> Result<(), ApplyError> {
    let text = |field: &str| intent.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if api_version != writer.api_version || kind != writer.kind {
        return Err(ApplyError::BadRequest(format!("invalid object type: {group}/{version}, Kind={kind}")));
    }
    if entries(intent).is_some_and(|entries| !entries.is_null()) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    validate(intent, schema, Strictness::Applied).map_err(|reason| {
        let named = |field: &str| {
            let name =
                intent.get("metadata").and_then(|metadata| metadata.get(field)).and_then(Value::as_str);
            name.unwrap_or_default().to_owned()
        };
        ApplyError::Invalid(format!(
            "failed to create typed patch object ({}/{}; {}, Kind={kind}): {reason}",
            named("namespace"),
            named("name"),
            if group.is_empty() { format!("/{version}") } else { api_version.to_owned() },
        ))
    })
}

/// The owners that an update starts from; `None` when there are none.
fn owners_of_update(live: Option<&Value>, new: &Value, writer: &Writer<'_>) -> Option<Managed> {
    let named = entries(new);
    let managed = if writer.subresource.is_empty() {
        if is_reset(named) {
            return None;
        }
        Managed::decode(named).unwrap_or_default()
    } else {
        Managed::default()
    };
    let managed = if managed.0.is_empty() {
        Managed::decode(live.and_then(entries)).unwrap_or_default()
    } else {
        managed
    };
    (!managed.0.is_empty()).then_some(managed)
}

fn without_entries(object: &Value) -> Value {
    let mut object = object.clone();
    set_entries(&mut object, None);
    object
}

/// Times are written to the second.
fn time_text(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
