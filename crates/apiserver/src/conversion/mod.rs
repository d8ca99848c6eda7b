//! Objects of custom resources in other versions than the one they are stored in.
//!
//! ```text
//!   stored bytes ─ prune, default ─ webhook ─ prune ─▶ as a request sees them
//!   as a request wrote them ─────── webhook ─ prune ─▶ stored bytes
//! ```
//!
//! Definitions whose versions differ in nothing but their name need none of this: [`engine::convert`] renames
//! them. What a webhook converted for lists and watches is [`kept`], so that a hundred watchers cost one
//! question; reads and writes of single objects always ask.
//!
//! [`engine::convert`]: crate::engine::convert

mod kept;
mod owners;
mod review;

use std::{borrow::Cow, sync::Arc, time::Duration};

use serde_json::Value;

pub(crate) use self::{kept::Kept, owners::Translations};
use self::{kept::Place, review::Question};
use crate::{
    admit::webhook::Callee,
    engine::{Engine, api_version, convert, meta::encode, meta::prefix, view},
    object::Stored,
    schema,
    status::Failure,
    types::{ConversionWebhook, Resource},
};

/// How long a webhook may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Objects of one question.
const MOST_OBJECTS: usize = 250;
/// Bytes of the objects of one question, unless it is about a single one.
const MOST_BYTES: usize = 1024 * 1024;

impl Engine {
    /// An object as a resource shows it, converted just now.
    pub(crate) async fn shown(
        &self,
        resource: &Resource,
        stored: Arc<Stored>,
    ) -> Result<Arc<Stored>, Failure> {
        match resource.conversion_webhook() {
            None => Ok(stored),
            Some(webhook) => match self.settled(resource, &stored) {
                Settled::AsItIs => Ok(stored),
                Settled::Reshaped(value) => with_value(&stored, &value),
                Settled::Other(value) => {
                    let converted =
                        self.ask_to_convert(resource, webhook, vec![value], &api_version(resource)).await?;
                    converted.first().map_or(Ok(Arc::clone(&stored)), |value| with_value(&stored, value))
                }
            },
        }
    }

    /// The tree of an object as a resource shows it, converted just now.
    pub(crate) async fn live(&self, resource: &Resource, stored: &Arc<Stored>) -> Result<Value, Failure> {
        if resource.conversion_webhook().is_none() {
            return Ok(view::value(&self.served.load(), resource, stored));
        }
        let shown = self.shown(resource, Arc::clone(stored)).await?;
        Ok(view::tree(&shown))
    }

    /// Many objects as a resource shows them, converted now or before, with as few questions as possible.
    pub(crate) async fn shown_many(
        &self,
        resource: &Resource,
        mut objects: Vec<Arc<Stored>>,
    ) -> Result<Vec<Arc<Stored>>, Failure> {
        let Some(webhook) = resource.conversion_webhook() else { return Ok(objects) };
        let to = api_version(resource);
        let mut pending = Vec::new();
        for (index, object) in objects.iter_mut().enumerate() {
            match self.settled(resource, object) {
                Settled::AsItIs => {}
                Settled::Reshaped(value) => *object = with_value(object, &value)?,
                Settled::Other(value) => {
                    let cell = self.conversions.cell(Place::new(resource, object), object.bytes.len());
                    match cell.get() {
                        Some(known) => *object = Arc::clone(known),
                        None => pending.push((index, value, cell)),
                    }
                }
            }
        }
        if let [(index, value, cell)] = pending.as_slice() {
            // Whoever else wants the same waits for this answer.
            let stored = Arc::clone(&objects[*index]);
            let converted = cell.get_or_try_init(|| async {
                let answer = self.ask_to_convert(resource, webhook, vec![value.clone()], &to).await?;
                answer.first().map_or(Ok(Arc::clone(&stored)), |value| with_value(&stored, value))
            });
            objects[*index] = Arc::clone(converted.await?);
            return Ok(objects);
        }
        while !pending.is_empty() {
            let next = pending.split_off(portion(pending.iter().map(|(index, ..)| &objects[*index])));
            let (places, values): (Vec<_>, Vec<_>) = std::mem::replace(&mut pending, next)
                .into_iter()
                .map(|(index, value, cell)| ((index, cell), value))
                .unzip();
            let converted = self.ask_to_convert(resource, webhook, values, &to).await?;
            for ((index, cell), value) in places.into_iter().zip(&converted) {
                let object = with_value(&objects[index], value)?;
                // Somebody else may have been faster; both know the same.
                let _ = cell.set(Arc::clone(&object));
                objects[index] = object;
            }
        }
        Ok(objects)
    }

    /// An object as it is stored.
    pub(crate) async fn to_storage<'o>(
        &self,
        resource: &Resource,
        object: &'o Value,
    ) -> Result<Cow<'o, Value>, Failure> {
        let to = &*resource.storage.api_version;
        match resource.conversion_webhook() {
            None => Ok(convert::to_storage(resource, object)),
            Some(_) => self.converted(resource, object, to).await.map(Cow::Owned),
        }
    }

    /// An object in another version of its kind, where a webhook converts it.
    pub(crate) async fn converted(
        &self,
        resource: &Resource,
        object: &Value,
        to: &str,
    ) -> Result<Value, Failure> {
        match resource.conversion_webhook() {
            Some(webhook) if object["apiVersion"] != to => {
                let converted = self.ask_to_convert(resource, webhook, vec![object.clone()], to).await?;
                Ok(converted.into_iter().next().unwrap_or_default())
            }
            _ => Ok(object.clone()),
        }
    }

    /// An object of one resource as another one of the same objects shows it.
    pub(crate) async fn as_shown_by(
        &self,
        resource: &Resource,
        other: &Resource,
        object: &Value,
    ) -> Result<Value, Failure> {
        match resource.conversion_webhook() {
            None => Ok(convert::from_storage(other, convert::to_storage(resource, object).into_owned())),
            Some(_) => self.converted(resource, object, &api_version(other)).await,
        }
    }

    /// Asks the webhook for objects of the kind in another version.
    async fn ask_to_convert(
        &self,
        resource: &Resource,
        webhook: &ConversionWebhook,
        objects: Vec<Value>,
        to: &str,
    ) -> Result<Vec<Value>, Failure> {
        let question = Question::new(webhook, &objects, to).map_err(Failure::unknown)?;
        let callee = Callee::read(&webhook.client_config, TIMEOUT);
        let answer = self.webhooks.ask(&callee, self, &question.body).await;
        let mut converted = question
            .converted(objects, answer.map_err(|error| error.to_string()))
            .map_err(Failure::unknown)?;
        if let Some(schema) = resource.versions.as_ref().and_then(|versions| versions.schemas.get(to)) {
            for object in &mut converted {
                schema::prune(object, schema);
            }
        }
        Ok(converted)
    }

    /// What is to be done with stored bytes before anybody sees them.
    fn settled(&self, resource: &Resource, stored: &Stored) -> Settled {
        let old =
            self.served.load().reshape_before(resource).is_some_and(|revision| stored.revision.0 < revision);
        let shown = api_version(resource);
        let is_shown = stored.bytes.starts_with(prefix(&resource.kind, &shown).as_bytes());
        if is_shown && !old {
            return Settled::AsItIs;
        }
        let mut value = view::tree(stored);
        let own = value["apiVersion"].as_str().unwrap_or_default();
        let schemas = resource.versions.as_ref().map(|versions| &versions.schemas);
        if let Some(schema) = schemas.and_then(|schemas| schemas.get(own)).filter(|_| old) {
            schema::prune(&mut value, schema);
            schema::default(&mut value, schema);
        }
        if is_shown { Settled::Reshaped(value) } else { Settled::Other(value) }
    }
}

/// Stored bytes on their way to a request.
enum Settled {
    /// They are what is shown.
    AsItIs,
    /// They are of the right version, and now of the shape that it has today.
    Reshaped(Value),
    /// They are of another version.
    Other(Value),
}

/// How many of these objects make one question.
fn portion<'a>(objects: impl Iterator<Item = &'a Arc<Stored>>) -> usize {
    let mut bytes = 0;
    let fits = |stored: &&Arc<Stored>| {
        bytes += stored.bytes.len();
        bytes <= MOST_BYTES
    };
    objects.take(MOST_OBJECTS).take_while(fits).count().max(1)
}

/// The same version of an object with other contents.
fn with_value(stored: &Stored, value: &Value) -> Result<Arc<Stored>, Failure> {
    stored.with_bytes(&encode(value)).map(Arc::new).map_err(Failure::internal)
}
