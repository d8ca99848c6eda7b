//! Objects in the versions in which somebody owns fields of them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;

use crate::{
    apply::{Untranslated, Versions},
    engine::{Engine, api_version, convert},
    schema::Ref,
    status::Failure,
    types::{Resource, schema_of_kind},
};

/// The other versions of a request's object.
///
/// Who owns what is decided by pure functions that may need the object in versions that only a webhook can
/// make. They say so, [`Translations::catch_up`] asks the webhook, and they are called again.
#[derive(Debug)]
pub(crate) struct Translations {
    resource: Arc<Resource>,
    known: HashMap<Wish, Value>,
    missing: Mutex<Vec<(Wish, Value)>>,
}

/// An object, as its bytes, and the version in which it is wanted.
type Wish = (String, String);

impl Translations {
    /// Nothing is known yet.
    pub(crate) fn new(resource: &Arc<Resource>) -> Self {
        Self { resource: Arc::clone(resource), known: HashMap::new(), missing: Mutex::default() }
    }

    /// Asks for what was missing; answers whether anything was.
    pub(crate) async fn catch_up(&mut self, engine: &Engine) -> Result<bool, Failure> {
        let missing = std::mem::take(&mut *self.missing.lock().unwrap_or_else(PoisonError::into_inner));
        let Some(webhook) = self.resource.conversion_webhook() else { return Ok(false) };
        let wanted = !missing.is_empty();
        for (wish, object) in missing {
            let converted = engine.ask_to_convert(&self.resource, webhook, vec![object], &wish.1).await?;
            self.known.insert(wish, converted.into_iter().next().unwrap_or_default());
        }
        Ok(wanted)
    }
}

impl Versions for Translations {
    fn translate(&self, object: &Value, to: &str) -> Result<Option<Value>, Untranslated> {
        let resource = &self.resource;
        let Some(versions) = &resource.versions else {
            return Ok(Some(convert::between(resource, object.clone(), to)));
        };
        if !versions.schemas.contains_key(to) {
            return Ok(None);
        }
        if resource.conversion_webhook().is_none() {
            return Ok(Some(convert::between(resource, object.clone(), to)));
        }
        let wish = (object.to_string(), to.to_owned());
        if let Some(known) = self.known.get(&wish) {
            return Ok(Some(known.clone()));
        }
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).push((wish, object.clone()));
        Err(Untranslated)
    }

    fn schema(&self, version: &str) -> Option<Ref> {
        match &self.resource.versions {
            Some(versions) => versions.schemas.get(version).cloned(),
            None if version == api_version(&self.resource) => None,
            None => schema_of_kind(version, &self.resource.kind),
        }
    }
}
