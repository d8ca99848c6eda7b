//! What a write does to everybody's fields.

use serde_json::{Value, json};

use std::{borrow::Cow, collections::BTreeMap};

use super::{
    conflict::{Conflict, Conflicts},
    fields::{fields, with_named_fields},
    managed::{Managed, ManagerId, Owned},
    merge::merge,
    path::same,
    reconcile::reconcile,
    remove::remove,
    set::FieldSet,
    versions::{Comparisons, SchemaAt, Untranslated, Versions},
};
use crate::schema::Schema;

/// Whether an applier takes fields that others own with another value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// It does, and they lose them.
    Yes,
    /// It does not; the write fails and names them.
    No,
}

/// One write, and what is needed to judge it.
pub(super) struct Write<'a> {
    pub(super) schema: &'a Schema,
    /// Who writes.
    pub(super) id: ManagerId,
    /// Through which version.
    pub(super) api_version: &'a str,
    /// When.
    pub(super) time: String,
    /// What the resource, or the subresource, ignores of what is written.
    pub(super) reset: &'a FieldSet,
    /// The other versions of the kind.
    pub(super) versions: &'a dyn Versions,
}

/// Why nothing was applied.
#[derive(Debug)]
pub(super) enum Refused {
    Conflicts(Conflicts),
    Untranslated,
}

impl From<Untranslated> for Refused {
    fn from(_: Untranslated) -> Self {
        Self::Untranslated
    }
}

/// Fields that nobody ever owns: what names an object, and what the server writes itself.
fn never_owned() -> FieldSet {
    FieldSet::of_fields(&[
        "apiVersion",
        "kind",
        "metadata",
        "metadata.name",
        "metadata.namespace",
        "metadata.creationTimestamp",
        "metadata.selfLink",
        "metadata.uid",
        "metadata.clusterName",
        "metadata.generation",
        "metadata.managedFields",
        "metadata.resourceVersion",
    ])
}

impl Write<'_> {
    /// A create, replacement or patch from `old` to `new`: the writer owns what changed, others
    /// lose it.
    pub(super) fn update(&self, old: &Value, new: &Value, managed: &mut Managed) -> Result<(), Untranslated> {
        self.reconcile(managed);
        let mut comparisons = Comparisons::new(self, old, new);
        let mut rest = Managed::default();
        for (id, mut owned) in std::mem::take(&mut managed.0) {
            if let Some(comparison) = comparisons.at(&owned.api_version)? {
                owned.set = comparison.untouched(owned.set);
                if !owned.set.is_empty() {
                    rest.0.insert(id, owned);
                }
            }
        }
        *managed = rest;
        let Some(comparison) = comparisons.at(self.api_version)? else { return Ok(()) };
        let mine = comparison.modified.clone().union(&comparison.added).difference(&never_owned());
        if mine.is_empty() {
            return Ok(());
        }
        let previous = managed.0.remove(&self.id).map(|owned| owned.set).unwrap_or_default();
        managed.0.insert(self.id.clone(), self.owned(mine.union(&previous)));
        Ok(())
    }

    /// Merges what somebody applies into `live`. Gives the new object, or `None` when nothing
    /// but owners changed.
    pub(super) fn apply(
        &self,
        live: &Value,
        intent: &Value,
        managed: &mut Managed,
        force: Force,
    ) -> Result<Option<Value>, Refused> {
        self.reconcile(managed);
        let merged = merge(Some(live), Some(intent), self.schema).unwrap_or_else(|| json!({}));
        let mine = fields(intent, self.schema).without_subtrees(self.reset);
        let last = managed.0.get(&self.id).cloned();
        let time = last.as_ref().and_then(|last| last.time.clone());
        managed.0.insert(self.id.clone(), Owned { time, ..self.owned(mine) });
        let new = match last {
            // What the intent names as empty stays, even if it lost all its parts.
            Some(last) if !last.set.is_empty() => {
                let rest = self.withdraw(&merged, managed, &last)?;
                merge(Some(&rest), Some(intent), self.schema).unwrap_or(rest)
            }
            _ => merged,
        };
        self.settle_conflicts(live, &new, managed, force)?;
        if let Some(owned) = managed.0.get_mut(&self.id) {
            owned.set = std::mem::take(&mut owned.set).difference(&never_owned());
        }
        managed.0.retain(|_, owned| !owned.set.is_empty());
        if same(live, &new) {
            return Ok(None);
        }
        if let Some(owned) = managed.0.get_mut(&self.id) {
            owned.time = Some(self.time.clone());
        }
        Ok(Some(new))
    }

    /// Takes out what the applier owned, applies no longer, and nobody else owns.
    ///
    /// Each owner's fields are looked for in the version in which it named them: first that of the applier's
    /// last time, since taking fields out there may leave what no other version can say.
    fn withdraw(&self, merged: &Value, managed: &Managed, last: &Owned) -> Result<Value, Untranslated> {
        let Some(whole) = self.view(merged, &last.api_version)? else { return Ok(merged.clone()) };
        let schema_at = self.schema_at(&last.api_version);
        let schema = schema_at.get(self.schema);
        let mine = with_named_fields(&last.set, schema);
        let pruned = not_null(remove(&whole, &mine, schema));
        let pruned = self.keep_owned(&whole, pruned, managed, &last.api_version)?;
        let Some(pruned) = self.view(&pruned, &last.api_version)? else { return Ok(merged.clone()) };
        // Taking a field out takes with it what is below and nobody owns; that is put back
        // unless it was the applier's.
        let named = |object: &Value| with_named_fields(&fields(object, schema), schema);
        let withdrawn = named(&whole).difference(&named(&pruned)).intersection(&mine);
        let rest = not_null(remove(&whole, &withdrawn, schema));
        Ok(self.view(&rest, self.api_version)?.map_or_else(|| merged.clone(), Cow::into_owned))
    }

    /// Puts back what others own.
    fn keep_owned(
        &self,
        whole: &Value,
        pruned: Value,
        managed: &Managed,
        first: &str,
    ) -> Result<Value, Untranslated> {
        let mut by_version: BTreeMap<(bool, &str), FieldSet> = BTreeMap::new();
        for owned in managed.0.values() {
            let version = owned.api_version.as_str();
            let all = by_version.entry((version != first, version)).or_default();
            *all = std::mem::take(all).union(&owned.set);
        }
        let (mut whole, mut pruned) = (whole.clone(), pruned);
        for ((_, version), owned) in by_version {
            let (Some(there), Some(rest)) = (self.view(&whole, version)?, self.view(&pruned, version)?)
            else {
                continue;
            };
            let schema_at = self.schema_at(version);
            let schema = schema_at.get(self.schema);
            let named = |set: &FieldSet| with_named_fields(set, schema);
            let kept = named(&fields(&rest, schema)).union(&named(&owned));
            let kept = not_null(remove(&there, &named(&fields(&there, schema)).difference(&kept), schema));
            let there = there.into_owned();
            (whole, pruned) = (there, kept);
        }
        Ok(pruned)
    }

    fn settle_conflicts(
        &self,
        live: &Value,
        new: &Value,
        managed: &mut Managed,
        force: Force,
    ) -> Result<(), Refused> {
        let mut comparisons = Comparisons::new(self, live, new);
        let mut conflicts = Vec::new();
        let mut rest = Managed::default();
        for (id, mut owned) in std::mem::take(&mut managed.0) {
            if id != self.id {
                let Some(comparison) = comparisons.at(&owned.api_version)? else { continue };
                let touched = comparison.modified.clone().union(&comparison.added);
                let paths = owned.set.intersection(&touched).paths();
                conflicts.extend(paths.into_iter().map(|path| Conflict { manager: id.clone(), path }));
                owned.set = comparison.untouched(owned.set);
            }
            rest.0.insert(id, owned);
        }
        if force == Force::No && !conflicts.is_empty() {
            return Err(Refused::Conflicts(Conflicts(conflicts)));
        }
        *managed = rest;
        Ok(())
    }

    fn reconcile(&self, managed: &mut Managed) {
        for owned in managed.0.values_mut() {
            let schema = self.schema_at(&owned.api_version);
            owned.set = reconcile(std::mem::take(&mut owned.set), schema.get(self.schema));
        }
    }

    /// The object in another version; nothing where nobody knows the version.
    pub(super) fn view<'o>(
        &self,
        object: &'o Value,
        version: &str,
    ) -> Result<Option<Cow<'o, Value>>, Untranslated> {
        if object["apiVersion"] == version {
            return Ok(Some(Cow::Borrowed(object)));
        }
        Ok(self.versions.translate(object, version)?.map(Cow::Owned))
    }

    /// The type of a version.
    pub(super) fn schema_at(&self, version: &str) -> SchemaAt {
        SchemaAt((version != self.api_version).then(|| self.versions.schema(version)).flatten())
    }

    fn owned(&self, set: FieldSet) -> Owned {
        Owned { set, api_version: self.api_version.to_owned(), time: Some(self.time.clone()) }
    }
}

/// An object that lost everything is empty.
fn not_null(value: Value) -> Value {
    if value.is_null() { json!({}) } else { value }
}
