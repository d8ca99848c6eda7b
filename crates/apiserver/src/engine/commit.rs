//! The last step of every write.

use std::{borrow::Cow, sync::Arc};

use serde_json::Value;

use super::{Answer, Call, DryRun, Engine, Outcome, meta::Meta, view};
use crate::{
    object::{Key, Stored},
    status::Failure,
    store::{Operation, Write, WriteError},
    types::Resource,
};

/// Why a write did not happen.
pub(super) enum Refused {
    /// Somebody else wrote in between: try again from what is there now.
    Stale,
    /// There is one already.
    Exists,
    /// It is not there any more.
    Gone,
    /// Anything else.
    Failed(Failure),
}

impl Refused {
    /// The failure that the client sees.
    pub(super) fn into_failure(self, resource: &Resource, name: &str) -> Failure {
        match self {
            Self::Stale => Failure::modified(resource, name),
            Self::Exists => Failure::already_exists(resource, name),
            Self::Gone => Failure::not_found(resource, name),
            Self::Failed(failure) => failure,
        }
    }
}

/// Where an object is kept.
pub(crate) fn key(resource: &Resource, namespace: &str, name: &str) -> Key {
    Key { storage: resource.storage.name.clone(), namespace: namespace.into(), name: name.into() }
}

impl Engine {
    /// Writes an object, or only says what would have been written.
    pub(super) async fn commit(
        &self,
        call: &Call<'_>,
        operation: Operation,
        object: &Value,
    ) -> Result<Answer, Refused> {
        let key = key(call.resource, object.namespace(), object.name());
        if call.dry_run == DryRun::All {
            return self.rehearse(call, &key, &operation, object).await;
        }
        let stored = self.to_storage(call.resource, object).await.map_err(Refused::Failed)?;
        let bytes = super::meta::encode(&stored);
        let write = Write { key, operation, bytes, fence: call.fence.clone() };
        match self.store.write(write).await {
            Ok(stored) => {
                self.shown(call.resource, stored).await.map(Answer::Stored).map_err(Refused::Failed)
            }
            Err(WriteError::Exists) => Err(Refused::Exists),
            Err(WriteError::NotFound) => Err(Refused::Gone),
            Err(WriteError::Conflict { .. }) => Err(Refused::Stale),
            Err(WriteError::Fenced { .. }) => Err(Refused::Failed(
                Failure::conflict(
                    call.resource,
                    object.name(),
                    "the writer's lease is held by somebody else now",
                )
                .with_cause(
                    "Fenced",
                    "the fence of the request does not match the lease",
                    "",
                ),
            )),
            Err(WriteError::Unreachable { .. }) => {
                let verb = match operation {
                    Operation::Create => "create",
                    Operation::Update { .. } => "update",
                    Operation::Delete { .. } => "delete",
                };
                Err(Refused::Failed(Failure::server_timeout(call.resource, verb)))
            }
            Err(other) => Err(Refused::Failed(Failure::internal(other))),
        }
    }

    async fn rehearse(
        &self,
        call: &Call<'_>,
        key: &Key,
        operation: &Operation,
        object: &Value,
    ) -> Result<Answer, Refused> {
        let current = self.store.get(key);
        let object = &self.written_and_read(call.resource, object).await.map_err(Refused::Failed)?;
        match (operation, current) {
            (Operation::Create, Some(_)) => Err(Refused::Exists),
            (Operation::Create, None) => Ok(Answer::Value(object.clone().into_owned())),
            (_, None) => Err(Refused::Gone),
            (Operation::Update { expected } | Operation::Delete { expected }, Some(stored))
                if stored.revision != *expected =>
            {
                Err(Refused::Stale)
            }
            (_, Some(stored)) => {
                let mut object = object.clone().into_owned();
                object.meta_set("resourceVersion", Some(stored.revision.to_string().into()));
                Ok(Answer::Value(object))
            }
        }
    }

    /// An object as it would come back from the store.
    async fn written_and_read<'o>(
        &self,
        resource: &Resource,
        object: &'o Value,
    ) -> Result<Cow<'o, Value>, Failure> {
        if resource.conversion_webhook().is_none() {
            return Ok(Cow::Borrowed(object));
        }
        let stored = self.to_storage(resource, object).await?;
        self.converted(resource, &stored, &super::api_version(resource)).await.map(Cow::Owned)
    }

    /// One object, or why not.
    pub(crate) fn stored(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<Stored>, Failure> {
        self.store.get(&key(resource, namespace, name)).ok_or_else(|| Failure::not_found(resource, name))
    }

    /// `GET` of one object.
    pub(crate) async fn get(&self, call: &Call<'_>) -> Result<Outcome, Failure> {
        if let Some(revision) = call.query.get("resourceVersion").filter(|text| *text != "0") {
            let revision = revision.parse().map_err(|_| {
                Failure::bad_request(format!("the resourceVersion {revision:?} is not a whole number"))
            })?;
            self.fresh(revision).await?;
        }
        let stored = self.stored(call.resource, call.object_namespace(), call.name)?;
        Ok(Outcome::stored(200, self.shown(call.resource, stored).await?))
    }

    /// The tree of an answer.
    pub(crate) fn value_of(&self, resource: &Resource, answer: Answer) -> Value {
        match answer {
            Answer::Stored(stored) => view::value(&self.served.load(), resource, &stored),
            Answer::Value(value) | Answer::Plain(value) => value,
        }
    }
}
