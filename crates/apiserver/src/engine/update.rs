//! `PUT`, and the way that every change of an existing object takes.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Answer, Call, Engine, Outcome,
    commit::Refused,
    create::{Ownership, place},
    meta::Meta,
    scale::scale_of,
};
use crate::{
    admit::{
        self, Body,
        strategy::strategy,
        webhook::{Kind, Verb},
    },
    apply,
    conversion::Translations,
    object::Stored,
    schema::FieldError,
    status::Failure,
    store::Operation,
    types::{Origin, Resource, ScalePaths},
};

/// How often a change is made again from fresh when somebody wrote in between.
pub(super) const RETRIES: usize = 5;

/// Which side of an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side<'a> {
    /// All but its status.
    Main,
    /// Its status only.
    Status,
    /// What another subresource writes, for example `finalize`.
    Other(&'a str),
}

impl<'a> Side<'a> {
    /// From the path's subresource.
    pub(crate) fn of(subresource: &'a str) -> Self {
        match subresource {
            "" => Self::Main,
            "status" => Self::Status,
            other => Self::Other(other),
        }
    }

    /// The name that `managedFields` uses.
    pub(crate) fn name(self) -> &'a str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Other(name) => name,
        }
    }
}

/// An object as somebody wants it.
pub(super) struct Wanted {
    pub(super) object: Value,
    pub(super) ownership: Ownership,
}

/// What of a change webhooks are shown.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shown<'a> {
    /// The object itself.
    Object,
    /// Its scale.
    Scale(&'a ScalePaths),
    /// Nothing: they were asked already.
    Nothing,
}

/// Whether a write may come without a resourceVersion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unconditional {
    /// A patch says what to change, so it may.
    Fine,
    /// A PUT replaces, so it depends on the resource.
    AsTheResourceSays,
}

impl Engine {
    /// `PUT` of an object or of one side of it.
    pub(crate) async fn update(
        &self,
        call: &Call<'_>,
        side: Side<'_>,
        body: Body,
    ) -> Result<Outcome, Failure> {
        let mut object = admit::decode::object(call, body)?;
        place(call, &mut object)?;
        let missing =
            self.store.get(&super::key(call.resource, call.object_namespace(), call.name)).is_none();
        if missing && side == Side::Main && strategy(call.resource).create_on_update {
            object.meta_set("resourceVersion", None);
            object.meta_set("uid", None);
            return self.create_object(call, object, Ownership::Track).await;
        }
        self.change(call, side, Unconditional::AsTheResourceSays, Shown::Object, |_, _| {
            Ok(Wanted { object: object.clone(), ownership: Ownership::Track })
        })
        .await
    }

    /// Changes an object: asks `wanted` what it should be, given what it is, until nobody wrote in between.
    pub(super) async fn change(
        &self,
        call: &Call<'_>,
        side: Side<'_>,
        unconditional: Unconditional,
        shown: Shown<'_>,
        mut wanted: impl FnMut(&Value, &Translations) -> Result<Wanted, Failure> + Send,
    ) -> Result<Outcome, Failure> {
        let resource = call.resource;
        for _ in 0..=RETRIES {
            let stored = self.stored(resource, call.object_namespace(), call.name)?;
            let live = self.live(resource, &stored).await?;
            let mut versions = Translations::new(resource);
            let Wanted { object, ownership } = loop {
                let wanted = wanted(&live, &versions);
                if !versions.catch_up(self).await? {
                    break wanted?;
                }
            };
            let insists = check_preconditions(call, unconditional, &object, &live)?;
            let mut object = object;
            self.adopt(call, side, &mut object, &live, ownership).await?;
            self.mutate_changed(call, side, shown, &mut object, &live).await?;
            let reserved = self.prepare_changed(call, side, &mut object, &live)?;
            self.validate_changed(call, side, shown, &object, &live).await?;
            if object == live && is_in_storage_version(resource, &stored) {
                return Ok(Outcome::stored(200, self.shown(resource, stored).await?));
            }
            match self.commit_change(call, &stored, &object).await {
                Ok(answer) => {
                    reserved.keep(call.dry_run);
                    return Ok(Outcome { code: 200, answer });
                }
                Err(Refused::Stale) if !insists => {}
                Err(refused) => return Err(refused.into_failure(resource, call.name)),
            }
        }
        Err(Failure::modified(resource, call.name))
    }

    /// Lets webhooks change what is about to be written.
    async fn mutate_changed(
        &self,
        call: &Call<'_>,
        side: Side<'_>,
        shown: Shown<'_>,
        object: &mut Value,
        live: &Value,
    ) -> Result<(), Failure> {
        let mut attributes = call.attributes(Verb::Update, side.name());
        match shown {
            Shown::Nothing => Ok(()),
            Shown::Object => self.mutate(call, &attributes, Some(object), Some(live)).await,
            Shown::Scale(paths) => {
                attributes.kind = scale_kind();
                let (mut scale, old) =
                    (scale_of(call.resource, paths, object), scale_of(call.resource, paths, live));
                self.mutate(call, &attributes, Some(&mut scale), Some(&old)).await?;
                super::scale::write(paths, &scale, object)
            }
        }
    }

    /// Asks webhooks about what is about to be written.
    async fn validate_changed(
        &self,
        call: &Call<'_>,
        side: Side<'_>,
        shown: Shown<'_>,
        object: &Value,
        live: &Value,
    ) -> Result<(), Failure> {
        let mut attributes = call.attributes(Verb::Update, side.name());
        match shown {
            Shown::Nothing => Ok(()),
            Shown::Object => self.validate(call, &attributes, Some(object), Some(live)).await,
            Shown::Scale(paths) => {
                attributes.kind = scale_kind();
                let (scale, old) =
                    (scale_of(call.resource, paths, object), scale_of(call.resource, paths, live));
                self.validate(call, &attributes, Some(&scale), Some(&old)).await
            }
        }
    }

    /// Makes a changed object what webhooks see: of the live one's identity, defaulted, owned.
    async fn adopt(
        &self,
        call: &Call<'_>,
        side: Side<'_>,
        object: &mut Value,
        live: &Value,
        ownership: Ownership,
    ) -> Result<(), Failure> {
        for field in ["uid", "creationTimestamp", "generation", "selfLink", "resourceVersion"] {
            object.meta_set(field, live.meta_get(field).cloned());
        }
        // Clients that leave these out mean no harm; others are refused by validation.
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
            if object.meta_get(field).is_none() {
                object.meta_set(field, live.meta_get(field).cloned());
            }
        }
        // What nobody changes stays as it is stored, even without defaults that came later.
        if ownership == Ownership::Track || !apply::is_same(object, live) {
            admit::defaults::apply(call.resource, object);
        }
        if ownership == Ownership::Track {
            self.track(call, side.name(), Some(live), object).await?;
        }
        Ok(())
    }

    /// Fills in what the server says of a changed object, and checks it.
    fn prepare_changed<'e>(
        &'e self,
        call: &Call<'_>,
        side: Side<'_>,
        object: &mut Value,
        live: &Value,
    ) -> Result<admit::addresses::Reserved<'e>, Failure> {
        let resource = call.resource;
        keep_other_side(resource, side, object, live);
        admit::prepare::update(call, side, object, live);
        let reserved = self.addresses.assign(call, object, Some(live))?;
        if strategy(resource).generation
            && !matches!(side, Side::Status | Side::Other("binding"))
            && wants_differ(resource, object, live)
        {
            object.meta_set("generation", Some((live.generation() + 1).into()));
        }
        apply::keep_times(live, object);
        admit::check(call, object, Some(live), side.name(), &self.options)?;
        Ok(reserved)
    }

    /// Writes a changed object; one that only waited for its last finalizer goes.
    async fn commit_change(
        &self,
        call: &Call<'_>,
        stored: &Arc<Stored>,
        object: &Value,
    ) -> Result<Answer, Refused> {
        let expected = stored.revision;
        if super::delete::is_finished(call.resource, object) {
            self.addresses.release(call.resource, object, call.dry_run);
            return self.commit(call, Operation::Delete { expected }, object).await;
        }
        self.commit(call, Operation::Update { expected }, object).await
    }
}

/// Whether stored bytes are of the version in which objects are stored today: others are rewritten by any
/// write, even one that changes nothing.
fn is_in_storage_version(resource: &Resource, stored: &Stored) -> bool {
    resource.origin == Origin::BuiltIn
        || stored
            .bytes
            .starts_with(super::meta::prefix(&resource.kind, &resource.storage.api_version).as_bytes())
}

fn scale_kind() -> Kind {
    Kind::new("autoscaling", "v1", "Scale")
}

/// Whether the object is what the client thinks it is. Answers whether it named a version.
fn check_preconditions(
    call: &Call<'_>,
    unconditional: Unconditional,
    object: &Value,
    live: &Value,
) -> Result<bool, Failure> {
    let resource = call.resource;
    let uid = object.uid();
    if !uid.is_empty() && uid != live.uid() {
        let why =
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", live.uid());
        return Err(Failure::conflict(resource, call.name, &why));
    }
    let version = object.resource_version();
    if version.is_empty() || version == "0" {
        if unconditional == Unconditional::AsTheResourceSays && !strategy(resource).unconditional_update {
            let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
            return Err(Failure::invalid(&resource.group, &resource.plural, call.name, &[error]));
        }
        return Ok(false);
    }
    if version != live.resource_version() {
        return Err(Failure::modified(resource, call.name));
    }
    Ok(unconditional == Unconditional::AsTheResourceSays)
}

/// Takes from the live object what this side does not write.
fn keep_other_side(resource: &Resource, side: Side<'_>, object: &mut Value, live: &Value) {
    let copy = |object: &mut Value, field: &str| match live.get(field) {
        Some(value) => {
            super::meta::object_mut(object).insert(field.to_owned(), value.clone());
        }
        None => {
            super::meta::object_mut(object).remove(field);
        }
    };
    match side {
        Side::Main if resource.has_status() => copy(object, "status"),
        Side::Main | Side::Other(_) => {}
        Side::Status => {
            let fields: Vec<String> = live
                .as_object()
                .into_iter()
                .chain(object.as_object())
                .flat_map(|map| map.keys().cloned())
                .filter(|field| field != "status" && field != "metadata")
                .collect();
            fields.iter().for_each(|field| copy(object, field));
            let kept: &[&str] = match resource.origin {
                Origin::Custom { .. } => &["labels", "annotations", "finalizers", "ownerReferences"],
                Origin::BuiltIn if &*resource.group == "apps" => &["labels", "ownerReferences"],
                Origin::BuiltIn => &["ownerReferences"],
            };
            for field in kept {
                object.meta_set(field, live.meta_get(field).cloned());
            }
        }
    }
}

/// Whether two versions differ in what is wanted, which is all but metadata and a status that is written apart.
fn wants_differ(resource: &Resource, new: &Value, old: &Value) -> bool {
    let apart = resource.has_status();
    let wants = |object: &Value| -> Vec<(String, Value)> {
        object
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, _)| *key != "metadata" && !(apart && *key == "status"))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    wants(new) != wants(old)
}
