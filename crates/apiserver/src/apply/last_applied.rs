//! From client-side to server-side apply: `kubectl apply` notes what it applied in an annotation,
//! and `kubectl apply --server-side` may take those fields over without a conflict.

use serde_json::{Value, json};

use super::{
    Writer,
    compare::compare,
    conflict::Conflicts,
    fields::fields,
    set::FieldSet,
    validate::{Strictness, validate},
};
use crate::schema::Schema;

/// Where `kubectl apply` notes what it applied.
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Only for this manager the annotation counts.
const KUBECTL: &str = "kubectl";

/// All annotations of an object together may have this many bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The conflicts that are left when those with fields that kubectl itself applied before are
/// taken out.
pub(super) fn remaining(
    conflicts: Conflicts,
    live: &Value,
    schema: &Schema,
    writer: &Writer<'_>,
) -> Conflicts {
    if writer.manager != KUBECTL {
        return conflicts;
    }
    let Some(allowed) = applied_before(live, schema, writer) else { return conflicts };
    if conflicts.paths().difference(&allowed).is_empty() {
        return Conflicts(Vec::new());
    }
    Conflicts(conflicts.0.into_iter().filter(|conflict| !allowed.contains(&conflict.path)).collect())
}

/// The fields that kubectl applied before and that are still as it applied them.
fn applied_before(live: &Value, schema: &Schema, writer: &Writer<'_>) -> Option<FieldSet> {
    let applied: Value = serde_json::from_str(annotation(live)?).ok()?;
    if applied.get("apiVersion").and_then(Value::as_str) != Some(writer.api_version) {
        return None;
    }
    validate(&applied, schema, Strictness::Applied).ok()?;
    let changed = compare(&applied, live, schema);
    Some(
        fields(&applied, schema)
            .difference(&changed.modified)
            .difference(&changed.added)
            .difference(&changed.removed),
    )
}

/// Brings the annotation, where there is one, up to what kubectl applies now, so that going back
/// to client-side apply works.
pub(super) fn renew(object: &mut Value, intent: &Value, writer: &Writer<'_>) {
    if writer.manager != KUBECTL || annotation(object).is_none_or(str::is_empty) {
        return;
    }
    let mut applied = intent.clone();
    if let Some(annotations) = annotations_mut(&mut applied) {
        annotations.remove(ANNOTATION);
    }
    let Some(annotations) = annotations_mut(object) else { return };
    annotations.insert(ANNOTATION.to_owned(), json!(format!("{applied}\n")));
    let size: usize =
        annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(ANNOTATION);
    }
}

fn annotation(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()
}

fn annotations_mut(object: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    object.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()
}
