//! Schemas of resource types: OpenAPI v3 and JSON Schema.
//!
//! ```text
//!   as written ──prepare──▶ JSON Schema, bounded ──compile──▶ Schema ──default──▶ parameters
//!                                                                    ──check────▶ all complaints
//! ```
//! Nothing is ever fetched: a reference must be local.

mod cache;
mod defaults;
mod prepare;
mod wording;

pub(crate) use self::cache::Schemas;
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value};

/// How much memory one regular expression may take. They are matched in linear time.
const PATTERN_BYTES: usize = 1 << 20;
/// How many complaints are listed; more help nobody.
const COMPLAINTS: usize = 100;

/// A schema that is ready to be used.
#[derive(Debug)]
pub struct Schema {
    prepared: Value,
    validator: Validator,
}

/// Why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(pub(crate) String);

impl Schema {
    /// Compiles a schema as a user wrote it.
    ///
    /// # Errors
    /// When it is no schema, refers to something elsewhere, or is larger than we are ready for.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let prepared = prepare::prepare(schema)?;
        let draft = match prepared.get("$schema").and_then(Value::as_str) {
            Some(uri) if uri.contains("2020-12") => Draft::Draft202012,
            Some(uri) if uri.contains("2019-09") => Draft::Draft201909,
            _ => Draft::Draft7,
        };
        let validator = jsonschema::options()
            .with_draft(draft)
            .offline()
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES))
            .build(&prepared)
            .map_err(|error| SchemaError(wording::located(&error)))?;
        Ok(Self { prepared, validator })
    }

    /// Fills in what is missing and has a default.
    pub fn default_into(&self, parameters: &mut Map<String, Value>) {
        defaults::fill(&self.prepared, &self.prepared, parameters, 0);
    }

    /// Everything that is wrong with parameters, in the order of their paths.
    ///
    /// # Errors
    /// One sentence per complaint, with the path in front.
    pub fn check(&self, parameters: &Map<String, Value>) -> Result<(), Vec<String>> {
        let parameters = Value::Object(parameters.clone());
        let mut complaints: Vec<String> = self
            .validator
            .iter_errors(&parameters)
            .take(COMPLAINTS)
            .map(|error| wording::located(&error))
            .collect();
        if complaints.is_empty() {
            return Ok(());
        }
        complaints.sort();
        complaints.dedup();
        Err(complaints)
    }
}

#[cfg(test)]
mod tests;
