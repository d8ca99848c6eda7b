//! Compiled schemas of the types in use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Schema, SchemaError};
use crate::types::ResourceType;

/// How many are kept; of thousands of types only some are in use at a time.
const KEPT: usize = 256;

/// Schemas by type, compiled when they are first needed and again when they have changed.
#[derive(Debug, Default)]
pub(crate) struct Schemas(Mutex<HashMap<String, Kept>>);

#[derive(Debug)]
struct Kept {
    generation: Option<i64>,
    schema: Arc<Schema>,
}

impl Schemas {
    /// The schema of a type.
    pub(crate) fn of(&self, known: &ResourceType) -> Result<Arc<Schema>, SchemaError> {
        let (Some(uid), generation) = (&known.metadata.uid, known.metadata.generation) else {
            return Schema::compile(&known.spec.schema).map(Arc::new);
        };
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = lock().get(uid).filter(|kept| kept.generation == generation) {
            return Ok(Arc::clone(&kept.schema));
        }
        let schema = Arc::new(Schema::compile(&known.spec.schema)?);
        let mut all = lock();
        if all.len() >= KEPT {
            all.clear();
        }
        all.insert(uid.clone(), Kept { generation, schema: Arc::clone(&schema) });
        Ok(schema)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_changed_type_is_compiled_anew_and_an_unchanged_one_is_not() {
        let schemas = Schemas::default();
        let mut known = ResourceType::default();
        known.metadata.uid = Some("u".into());
        known.metadata.generation = Some(1);
        known.spec.schema = json!({"required": ["a"]});
        let first = schemas.of(&known).expect("a schema");
        assert!(Arc::ptr_eq(&first, &schemas.of(&known).expect("a schema")));
        known.metadata.generation = Some(2);
        known.spec.schema = json!({});
        let second = schemas.of(&known).expect("a schema");
        let nothing = serde_json::Map::new();
        assert!(first.check(&nothing).is_err() && second.check(&nothing).is_ok());
        for number in 0..KEPT * 2 {
            known.metadata.uid = Some(number.to_string());
            schemas.of(&known).expect("a schema");
        }
        assert!(schemas.0.lock().expect("schemas").len() <= KEPT);
    }
}
