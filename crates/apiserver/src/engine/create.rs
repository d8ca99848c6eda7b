//! `POST`.

use rand::Rng as _;
use serde_json::Value;

use super::{
    Call, Engine, Outcome, api_version,
    commit::Refused,
    meta::{Meta, time_text},
};
use crate::{
    admit::{self, Body, strategy::strategy, webhook::Verb},
    apply::{self, Writer},
    conversion::Translations,
    status::Failure,
    store::Operation,
    types::{Origin, Scope},
};

/// Names made from `generateName` are cut to this and get five characters more.
const GENERATED: usize = 58;
/// How often another name is tried when a generated one is taken.
const ATTEMPTS: usize = 8;

/// Who says which fields are whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ownership {
    /// The engine, from what changes.
    Track,
    /// Server-side apply has said it already.
    Applied,
}

impl Engine {
    /// `POST` of a new object.
    pub(crate) async fn create(&self, call: &Call<'_>, body: Body) -> Result<Outcome, Failure> {
        let object = admit::decode::object(call, body)?;
        self.create_object(call, object, Ownership::Track).await
    }

    /// Creates an object that is decoded already.
    pub(super) async fn create_object(
        &self,
        call: &Call<'_>,
        mut object: Value,
        ownership: Ownership,
    ) -> Result<Outcome, Failure> {
        let resource = call.resource;
        place(call, &mut object)?;
        if !object.resource_version().is_empty() {
            return Err(Failure::bad_request("resourceVersion should not be set on objects to be created"));
        }
        self.check_namespace(call, &object)?;
        if &*resource.storage.name == "events" {
            self.expire_events().await;
        }
        self.introduce(call, &mut object, ownership).await?;
        let mut attributes = call.attributes(Verb::Create, "");
        attributes.name = object.name().to_owned();
        self.mutate(call, &attributes, Some(&mut object), None).await?;
        let generated = object.name().is_empty() && !object.meta_text("generateName").is_empty();
        for attempt in 0.. {
            let mut object = object.clone();
            if generated {
                let prefix: String = object.meta_text("generateName").chars().take(GENERATED).collect();
                object.meta_set("name", Some(format!("{prefix}{}", suffix()).into()));
            }
            let reserved = self.complete(call, &mut object)?;
            admit::limit_range::check(self, call, &object)?;
            attributes.name = object.name().to_owned();
            self.validate(call, &attributes, Some(&object), None).await?;
            match self.commit(call, Operation::Create, &object).await {
                Ok(answer) => {
                    reserved.keep(call.dry_run);
                    return Ok(Outcome { code: 201, answer });
                }
                Err(Refused::Exists) if generated && attempt < ATTEMPTS => {}
                Err(refused) => return Err(refused.into_failure(resource, object.name())),
            }
        }
        Err(Failure::already_exists(resource, object.name()))
    }

    /// Makes a new object what webhooks see: without what the server alone says, defaulted, owned.
    async fn introduce(
        &self,
        call: &Call<'_>,
        object: &mut Value,
        ownership: Ownership,
    ) -> Result<(), Failure> {
        for field in
            ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "uid", "creationTimestamp"]
        {
            object.meta_set(field, None);
        }
        // Where the server does not count, the number is whatever a client says.
        if strategy(call.resource).generation {
            object.meta_set("generation", None);
        }
        admit::defaults::apply(call.resource, object);
        if ownership == Ownership::Track {
            self.track(call, "", None, object).await?;
        }
        if call.resource.origin == Origin::BuiltIn && &*call.resource.storage.name == "pods" {
            admit::limit_range::set_defaults(self, object);
            admit::service_account::admit(self, call, object).await?;
        }
        Ok(())
    }

    /// Fills in what the server says of a new object, and checks it.
    fn complete<'e>(
        &'e self,
        call: &Call<'_>,
        object: &mut Value,
    ) -> Result<admit::addresses::Reserved<'e>, Failure> {
        let now = (self.options.clock)();
        object.meta_set("uid", Some(uuid::Uuid::new_v4().to_string().into()));
        object.meta_set("creationTimestamp", Some(time_text(now).into()));
        if strategy(call.resource).generation {
            object.meta_set("generation", Some(1.into()));
        }
        admit::prepare::create(self, call, object)?;
        let reserved = self.addresses.assign(call, object, None)?;
        admit::check(call, object, None, "", &self.options)?;
        Ok(reserved)
    }

    /// Notes who owns which field after a write that is not an apply.
    pub(super) async fn track(
        &self,
        call: &Call<'_>,
        subresource: &str,
        live: Option<&Value>,
        object: &mut Value,
    ) -> Result<(), Failure> {
        let resource = call.resource;
        let api_version = api_version(resource);
        let reset = apply::reset_fields(resource, subresource);
        let time = (self.options.clock)();
        let mut versions = Translations::new(resource);
        loop {
            let writer = Writer {
                manager: &call.manager,
                api_version: &api_version,
                kind: &resource.kind,
                subresource,
                time,
                reset: &reset,
                versions: &versions,
            };
            let tracked = apply::track_update(live, object, &resource.schema, &writer);
            if !versions.catch_up(self).await? {
                return tracked.map_err(Failure::internal);
            }
        }
    }

    /// Objects are only made in namespaces that exist and stay.
    fn check_namespace(&self, call: &Call<'_>, object: &Value) -> Result<(), Failure> {
        if call.resource.scope == Scope::Cluster {
            return Ok(());
        }
        let namespace = object.namespace();
        let key =
            crate::object::Key { storage: "namespaces".into(), namespace: "".into(), name: namespace.into() };
        let Some(stored) = self.store.get(&key) else {
            return Err(Failure::not_found_as("", "namespaces", namespace));
        };
        if stored.header.deletion_timestamp.is_some() {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            return Err(Failure::forbidden(call.resource, object.name(), &why).with_cause(
                "NamespaceTerminating",
                format!("namespace {namespace} is being terminated"),
                "metadata.namespace",
            ));
        }
        Ok(())
    }
}

/// Makes the object's name and namespace agree with the path.
pub(super) fn place(call: &Call<'_>, object: &mut Value) -> Result<(), Failure> {
    match call.resource.scope {
        Scope::Namespaced => {
            let given = object.namespace();
            if given.is_empty() {
                object.meta_set("namespace", Some(call.namespace.into()));
            } else if given != call.namespace {
                return Err(Failure::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
        }
        Scope::Cluster if object.meta_get("namespace").is_some_and(|value| value == "") => {
            object.meta_set("namespace", None);
        }
        Scope::Cluster => {}
    }
    if !call.name.is_empty() {
        let given = object.name();
        if given.is_empty() {
            object.meta_set("name", Some(call.name.into()));
        } else if given != call.name {
            return Err(Failure::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({})",
                call.name
            )));
        }
    }
    Ok(())
}

/// Five characters that make no words.
pub(crate) fn suffix() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut random = rand::rng();
    (0..5).map(|_| char::from(ALPHABET[random.random_range(0..ALPHABET.len())])).collect()
}
