//! What a write does to everybody's fields.

use serde_json::{Value, json};

use super::{
    compare::{Comparison, compare},
    conflict::{Conflict, Conflicts},
    fields::{fields, with_named_fields},
    managed::{Managed, ManagerId, Owned},
    merge::merge,
    path::same,
    reconcile::reconcile,
    remove::remove,
    set::FieldSet,
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
    pub(super) fn update(&self, old: &Value, new: &Value, managed: &mut Managed) {
        self.reconcile(managed);
        let comparison = self.compare(old, new);
        let touched = comparison.modified.union(&comparison.added);
        for owned in managed.0.values_mut() {
            let rest = std::mem::take(&mut owned.set);
            owned.set = rest.difference(&touched).difference(&comparison.removed);
        }
        managed.0.retain(|_, owned| !owned.set.is_empty());
        let mine = touched.difference(&never_owned());
        if mine.is_empty() {
            return;
        }
        let previous = managed.0.remove(&self.id).map(|owned| owned.set).unwrap_or_default();
        managed.0.insert(self.id.clone(), self.owned(mine.union(&previous)));
    }

    /// Merges what somebody applies into `live`. Gives the new object, or `None` when nothing
    /// but owners changed.
    pub(super) fn apply(
        &self,
        live: &Value,
        intent: &Value,
        managed: &mut Managed,
        force: Force,
    ) -> Result<Option<Value>, Conflicts> {
        self.reconcile(managed);
        let merged = merge(Some(live), Some(intent), self.schema).unwrap_or_else(|| json!({}));
        let mine = fields(intent, self.schema).without_subtrees(self.reset);
        let last = managed.0.get(&self.id).cloned();
        let time = last.as_ref().and_then(|last| last.time.clone());
        managed.0.insert(self.id.clone(), Owned { time, ..self.owned(mine) });
        let new = match last {
            // What the intent names as empty stays, even if it lost all its parts.
            Some(last) if !last.set.is_empty() => {
                let rest = self.withdraw(&merged, managed, &last.set);
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
    fn withdraw(&self, merged: &Value, managed: &Managed, last: &FieldSet) -> Value {
        let named = |set: &FieldSet| with_named_fields(set, self.schema);
        let everything = named(&fields(merged, self.schema));
        let last = named(last);
        let without_mine = remove(merged, &last, self.schema);
        let kept = named(&fields(&without_mine, self.schema)).union(&named(&managed.all()));
        let pruned = remove(merged, &everything.clone().difference(&kept), self.schema);
        // Taking a field out takes with it what is below and nobody owns; that is put back
        // unless it was the applier's.
        let pruned_fields = named(&fields(&pruned, self.schema));
        let withdrawn = everything.difference(&pruned_fields).intersection(&last);
        match remove(merged, &withdrawn, self.schema) {
            Value::Null => json!({}),
            rest => rest,
        }
    }

    fn settle_conflicts(
        &self,
        live: &Value,
        new: &Value,
        managed: &mut Managed,
        force: Force,
    ) -> Result<(), Conflicts> {
        let comparison = self.compare(live, new);
        let touched = comparison.modified.union(&comparison.added);
        let others = |id: &&ManagerId| **id != self.id;
        if force == Force::No {
            let conflicts: Vec<Conflict> = managed
                .0
                .keys()
                .filter(others)
                .flat_map(|id| {
                    let paths = managed.0[id].set.intersection(&touched).paths();
                    paths.into_iter().map(|path| Conflict { manager: id.clone(), path })
                })
                .collect();
            if !conflicts.is_empty() {
                return Err(Conflicts(conflicts));
            }
        }
        for (id, owned) in &mut managed.0 {
            if *id != self.id {
                let rest = std::mem::take(&mut owned.set);
                owned.set = rest.difference(&touched).difference(&comparison.removed);
            }
        }
        Ok(())
    }

    fn compare(&self, old: &Value, new: &Value) -> Comparison {
        compare(old, new, self.schema).without_subtrees(self.reset)
    }

    fn reconcile(&self, managed: &mut Managed) {
        for owned in managed.0.values_mut() {
            owned.set = reconcile(std::mem::take(&mut owned.set), self.schema);
        }
    }

    fn owned(&self, set: FieldSet) -> Owned {
        Owned { set, api_version: self.api_version.to_owned(), time: Some(self.time.clone()) }
    }
}
