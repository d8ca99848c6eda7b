//! `metadata.managedFields`: who owns which fields of an object.

use std::{collections::BTreeMap, fmt};

use serde_json::{Map, Value, json};

use super::{path::ElementError, set::FieldSet};

/// Update managers of one object beyond this number are merged, the oldest first.
const MAX_UPDATE_MANAGERS: usize = 10;

/// The manager into which the oldest update managers are merged.
const ANCIENT_CHANGES: &str = "ancient-changes";

/// How a manager came to own its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// It applied them, and withdraws those that it applies no longer.
    Apply,
    /// It created, replaced or patched them.
    Update,
}

impl Operation {
    fn text(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// What tells one entry of managedFields from another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ManagerId {
    /// The field manager's name.
    pub manager: String,
    /// How it writes.
    pub operation: Operation,
    /// The version through which it writes; empty for appliers, who have one entry for all.
    pub api_version: String,
    /// The subresource through which it writes; empty for the object itself.
    pub subresource: String,
}

impl ManagerId {
    /// A manager that applies.
    pub(super) fn applier(manager: &str, subresource: &str) -> Self {
        Self::new(manager, Operation::Apply, "", subresource)
    }

    /// A manager that updates.
    pub(super) fn updater(manager: &str, api_version: &str, subresource: &str) -> Self {
        Self::new(manager, Operation::Update, api_version, subresource)
    }

    fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let manager = if manager.is_empty() { "unknown" } else { manager };
        Self {
            manager: manager.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }
}

/// As conflicts name it: `"kubectl" using apps/v1`.
impl fmt::Display for ManagerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.manager)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        if self.operation == Operation::Update {
            write!(f, " using {}", self.api_version)?;
        }
        Ok(())
    }
}

/// What one manager owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owned {
    /// Its fields.
    pub(super) set: FieldSet,
    /// The version in which the fields are named.
    pub(super) api_version: String,
    /// When it last changed something, as written.
    pub(super) time: Option<String>,
}

impl Owned {
    fn seconds(&self) -> i64 {
        let time = self.time.as_deref().and_then(|time| time.parse::<jiff::Timestamp>().ok());
        time.map_or(0, jiff::Timestamp::as_second)
    }
}

/// Why managedFields cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManagedError {
    /// Not a list of objects.
    #[error("managedFields must be a list of objects")]
    NotAList,
    /// Neither `Apply` nor `Update`.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// No apiVersion.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// Not `FieldsV1`.
    #[error("fieldsType must be `FieldsV1`")]
    FieldsType,
    /// The set of fields does not parse.
    #[error(transparent)]
    Fields(#[from] ElementError),
}

/// Everybody who owns fields of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Managed(pub(super) BTreeMap<ManagerId, Owned>);

impl Managed {
    /// Reads `metadata.managedFields`; absent and `null` mean that nobody owns anything.
    pub(super) fn decode(entries: Option<&Value>) -> Result<Self, ManagedError> {
        let entries = match entries {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err(ManagedError::NotAList),
        };
        let mut managed = BTreeMap::new();
        for entry in entries {
            let entry = entry.as_object().ok_or(ManagedError::NotAList)?;
            let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err(ManagedError::Operation),
            };
            if text("apiVersion").is_empty() {
                return Err(ManagedError::ApiVersion);
            }
            if text("fieldsType") != "FieldsV1" {
                return Err(ManagedError::FieldsType);
            }
            let id = ManagerId {
                manager: text("manager").to_owned(),
                operation,
                api_version: match operation {
                    Operation::Apply => String::new(),
                    Operation::Update => text("apiVersion").to_owned(),
                },
                subresource: text("subresource").to_owned(),
            };
            let set = match entry.get("fieldsV1") {
                None | Some(Value::Null) => FieldSet::default(),
                Some(fields) => FieldSet::decode(fields)?,
            };
            let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
            managed.insert(id, Owned { set, api_version: text("apiVersion").to_owned(), time });
        }
        Ok(Self(managed))
    }

    /// Writes `metadata.managedFields`, appliers first, then by time; nothing if nobody owns anything.
    pub(super) fn encode(&self) -> Option<Value> {
        if self.0.is_empty() {
            return None;
        }
        let mut entries: Vec<(&ManagerId, &Owned)> = self.0.iter().collect();
        entries.sort_by(|(a, a_owned), (b, b_owned)| {
            (a.operation, a_owned.seconds(), &a.manager, &a_owned.api_version, &a.subresource).cmp(&(
                b.operation,
                b_owned.seconds(),
                &b.manager,
                &b_owned.api_version,
                &b.subresource,
            ))
        });
        Some(entries.into_iter().map(|(id, owned)| encode_entry(id, owned)).collect())
    }

    /// Merges the oldest update managers, so that an object that many programs write stays small.
    pub(super) fn cap(&mut self) {
        let mut updaters: Vec<ManagerId> =
            self.0.keys().filter(|id| id.operation == Operation::Update).cloned().collect();
        let mut count = updaters.len();
        updaters.sort_by_key(|id| (self.0[id].seconds(), id.clone()));
        let mut first_of_version: BTreeMap<String, ManagerId> = BTreeMap::new();
        for id in updaters {
            if count <= MAX_UPDATE_MANAGERS {
                break;
            }
            let version = id.api_version.clone();
            let Some(first) = first_of_version.get(&version) else {
                first_of_version.insert(version, id);
                continue;
            };
            let bucket = ManagerId::updater(ANCIENT_CHANGES, &version, "");
            if !self.0.contains_key(&bucket)
                && let Some(owned) = self.0.remove(first)
            {
                self.0.insert(bucket.clone(), owned);
            }
            if let Some(owned) = self.0.remove(&id) {
                let merged = self
                    .0
                    .entry(bucket)
                    .or_insert_with(|| Owned { set: FieldSet::default(), ..owned.clone() });
                merged.set = owned.set.union(&merged.set);
                merged.time = owned.time;
                count -= 1;
            }
        }
    }
}

fn encode_entry(id: &ManagerId, owned: &Owned) -> Value {
    let mut entry = Map::new();
    if !id.manager.is_empty() {
        entry.insert("manager".to_owned(), json!(id.manager));
    }
    entry.insert("operation".to_owned(), json!(id.operation.text()));
    entry.insert("apiVersion".to_owned(), json!(owned.api_version));
    if let Some(time) = &owned.time {
        entry.insert("time".to_owned(), json!(time));
    }
    entry.insert("fieldsType".to_owned(), json!("FieldsV1"));
    entry.insert("fieldsV1".to_owned(), owned.set.encode());
    if !id.subresource.is_empty() {
        entry.insert("subresource".to_owned(), json!(id.subresource));
    }
    Value::Object(entry)
}

/// Whether somebody asks to forget all owners: an empty list, or one empty entry.
pub(super) fn is_reset(entries: Option<&Value>) -> bool {
    match entries {
        Some(Value::Array(entries)) => match entries.as_slice() {
            [] => true,
            [Value::Object(only)] => only.values().all(|value| value.is_null() || value.as_str() == Some("")),
            _ => false,
        },
        _ => false,
    }
}

/// `metadata.managedFields` of an object.
pub(super) fn entries(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Writes `metadata.managedFields` of an object, or takes it out.
pub(super) fn set_entries(object: &mut Value, entries: Option<Value>) {
    let Some(object) = object.as_object_mut() else { return };
    match entries {
        Some(entries) => {
            let metadata = object.entry("metadata").or_insert_with(|| json!({}));
            if metadata.is_null() {
                *metadata = json!({});
            }
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert("managedFields".to_owned(), entries);
            }
        }
        None => {
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, time: &str, field: &str) -> Value {
        json!({
            "manager": manager, "operation": operation, "apiVersion": "v1", "time": time,
            "fieldsType": "FieldsV1", "fieldsV1": {format!("f:{field}"): {}},
        })
    }

    #[test]
    fn entries_survive_decoding_and_come_out_in_order() {
        let early = "2026-01-01T00:00:00Z";
        let late = "2026-01-02T00:00:00Z";
        let sorted = json!([
            entry("b", "Apply", early, "b"),
            entry("a", "Apply", late, "a"),
            entry("y", "Update", early, "y"),
            entry("z", "Update", early, "z"),
            entry("x", "Update", late, "x"),
        ]);
        let mut shuffled = sorted.as_array().unwrap().clone();
        shuffled.reverse();
        let managed = Managed::decode(Some(&Value::Array(shuffled))).unwrap();
        assert_eq!(managed.encode().unwrap(), sorted);
    }

    #[test]
    fn broken_entries_are_refused() {
        let broken = |change: &dyn Fn(&mut Value)| {
            let mut entries = json!([entry("a", "Apply", "2026-01-01T00:00:00Z", "a")]);
            change(&mut entries[0]);
            Managed::decode(Some(&entries)).unwrap_err()
        };
        assert_eq!(broken(&|entry| entry["operation"] = json!("Delete")), ManagedError::Operation);
        assert_eq!(broken(&|entry| entry["apiVersion"] = json!("")), ManagedError::ApiVersion);
        assert_eq!(broken(&|entry| entry["fieldsType"] = json!("FieldsV2")), ManagedError::FieldsType);
        assert!(matches!(broken(&|entry| entry["fieldsV1"] = json!({"x": {}})), ManagedError::Fields(_)));
        assert_eq!(Managed::decode(Some(&json!({}))).unwrap_err(), ManagedError::NotAList);
        assert_eq!(Managed::decode(Some(&json!([1]))).unwrap_err(), ManagedError::NotAList);
    }

    #[test]
    fn an_empty_list_or_entry_asks_to_forget_all_owners() {
        assert!(is_reset(Some(&json!([]))));
        assert!(is_reset(Some(&json!([{}]))));
        assert!(!is_reset(Some(&json!(null))));
        assert!(!is_reset(None));
        assert!(!is_reset(Some(&json!([entry("a", "Apply", "", "a")]))));
    }

    #[test]
    fn the_oldest_of_too_many_updaters_are_merged() {
        let entries: Vec<Value> = (0..12)
            .map(|n| {
                entry(
                    &format!("m{n:02}"),
                    "Update",
                    &format!("2026-01-01T00:00:{n:02}Z"),
                    &format!("a{n:02}"),
                )
            })
            .collect();
        let mut managed = Managed::decode(Some(&Value::Array(entries))).unwrap();
        managed.cap();
        assert_eq!(managed.0.len(), 10);
        let ancient = &managed.0[&ManagerId::updater(ANCIENT_CHANGES, "v1", "")];
        assert_eq!(ancient.set, FieldSet::of_fields(&["a00", "a01", "a02"]));
        assert_eq!(ancient.time.as_deref(), Some("2026-01-01T00:00:02Z"));
    }

    #[test]
    fn appliers_are_never_merged() {
        let entries: Vec<Value> =
            (0..20).map(|n| entry(&format!("m{n:02}"), "Apply", "2026-01-01T00:00:00Z", "a")).collect();
        let mut managed = Managed::decode(Some(&Value::Array(entries))).unwrap();
        managed.cap();
        assert_eq!(managed.0.len(), 20);
    }
}
