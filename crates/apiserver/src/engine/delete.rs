//! `DELETE`: grace periods, finalizers, propagation, preconditions.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    Answer, Call, DryRun, Engine, Outcome,
    call::{dry_run, options_failure},
    commit::Refused,
    meta::{Meta, object_mut, time_text},
    update::RETRIES,
    view,
};
use crate::{
    admit::strategy::strategy,
    http::Query,
    object::Key,
    schema::FieldError,
    status::{self, Failure},
    store::Operation,
    types::Resource,
};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// Keeps a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// What becomes of the objects that an object owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They go after it.
    Background,
    /// It goes after them.
    Foreground,
    /// They stay.
    Orphan,
}

impl Propagation {
    fn name(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// How something is to be deleted.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    grace: Option<i64>,
    propagation: Option<Propagation>,
    legacy_orphan: Option<bool>,
    uid: Option<String>,
    resource_version: Option<String>,
    /// `dryRun` of the body.
    pub(crate) dry_run: Option<DryRun>,
}

impl DeleteOptions {
    /// Reads the body, or the query when there is no body.
    pub(crate) fn parse(body: Option<&Value>, query: &Query) -> Result<Self, Failure> {
        let Some(body) = body else { return Self::from_query(query) };
        if !body.is_object() {
            return Err(Failure::bad_request("the body of a DELETE must be DeleteOptions"));
        }
        let kind = body["kind"].as_str().unwrap_or("DeleteOptions");
        if kind != "DeleteOptions" {
            return Err(Failure::bad_request(format!("expected DeleteOptions in the body, found {kind}")));
        }
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(ToOwned::to_owned);
        let wrong = |field: &str| Failure::bad_request(format!("DeleteOptions: {field} has the wrong type"));
        let grace = match &body["gracePeriodSeconds"] {
            Value::Null => None,
            value => Some(value.as_i64().ok_or_else(|| wrong("gracePeriodSeconds"))?),
        };
        let orphan = match &body["orphanDependents"] {
            Value::Null => None,
            value => Some(value.as_bool().ok_or_else(|| wrong("orphanDependents"))?),
        };
        let dry = body["dryRun"]
            .as_array()
            .map(|list| dry_run(list.iter().filter_map(Value::as_str)))
            .transpose()?;
        Self {
            grace,
            propagation: text(&body["propagationPolicy"]).map(|text| propagation(&text)).transpose()?,
            legacy_orphan: orphan,
            uid: text(&body["preconditions"]["uid"]),
            resource_version: text(&body["preconditions"]["resourceVersion"]),
            dry_run: dry,
        }
        .checked()
    }

    fn from_query(query: &Query) -> Result<Self, Failure> {
        let orphan = query.given("orphanDependents").map(|_| query.flag("orphanDependents")).transpose()?;
        Self {
            grace: query.number("gracePeriodSeconds")?,
            propagation: query.get("propagationPolicy").map(propagation).transpose()?,
            legacy_orphan: orphan,
            ..Self::default()
        }
        .checked()
    }

    fn checked(mut self) -> Result<Self, Failure> {
        if self.legacy_orphan.is_some() && self.propagation.is_some() {
            let error = FieldError::invalid(
                "propagationPolicy",
                self.propagation.map_or(Value::Null, |policy| policy.name().into()),
                "orphanDependents and deletionPropagation cannot be both set",
            );
            return Err(options_failure("DeleteOptions", &error));
        }
        if let Some(orphan) = self.legacy_orphan {
            self.propagation = Some(if orphan { Propagation::Orphan } else { Propagation::Background });
        }
        if self.grace.is_some_and(|grace| grace < 0) {
            self.grace = Some(1);
        }
        Ok(self)
    }

    /// What webhooks are told of it.
    fn to_value(&self) -> Value {
        let mut value = json!({});
        if let Some(grace) = self.grace {
            value["gracePeriodSeconds"] = grace.into();
        }
        if let Some(propagation) = self.propagation {
            value["propagationPolicy"] = propagation.name().into();
        }
        for (field, text) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
            if let Some(text) = text {
                value["preconditions"][field] = text.as_str().into();
            }
        }
        value
    }

    fn check(&self, resource: &Resource, object: &Value) -> Result<(), Failure> {
        for (what, wanted, found, guess) in [
            ("UID", &self.uid, object.uid(), "deleted and then recreated"),
            ("ResourceVersion", &self.resource_version, object.resource_version(), "modified"),
        ] {
            if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != found) {
                let why = format!(
                    "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object might have been {guess}"
                );
                return Err(Failure::precondition(resource, object.name(), &why));
            }
        }
        Ok(())
    }
}

fn propagation(text: &str) -> Result<Propagation, Failure> {
    match text {
        "Background" => Ok(Propagation::Background),
        "Foreground" => Ok(Propagation::Foreground),
        "Orphan" => Ok(Propagation::Orphan),
        other => {
            let error = FieldError::not_supported(
                "propagationPolicy",
                other,
                &["Foreground", "Background", "Orphan", "nil"],
            );
            Err(options_failure("DeleteOptions", &error))
        }
    }
}

/// What a deletion comes down to.
enum Step {
    /// The object goes now; this is its last state.
    Remove(Value),
    /// The object stays for a while, in this state.
    Mark(Value),
    /// It is marked already.
    Nothing,
}

impl Engine {
    /// `DELETE` of one object.
    pub(crate) async fn delete(&self, call: &Call<'_>, options: &DeleteOptions) -> Result<Outcome, Failure> {
        let key = super::key(call.resource, call.object_namespace(), call.name);
        self.delete_key(call, &key, options).await
    }

    /// Deletes one object, wherever it is.
    pub(crate) async fn delete_key(
        &self,
        call: &Call<'_>,
        key: &Key,
        options: &DeleteOptions,
    ) -> Result<Outcome, Failure> {
        let resource = call.resource;
        let name: &str = &key.name;
        if &*resource.storage.name == "namespaces"
            && matches!(name, "default" | "kube-system" | "kube-public")
        {
            return Err(Failure::forbidden(resource, name, "this namespace may not be deleted"));
        }
        for _ in 0..=RETRIES {
            let stored = self.store.get(key).ok_or_else(|| Failure::not_found(resource, name))?;
            let live = self.live(resource, &stored).await?;
            options.check(resource, &live)?;
            self.admit_deletion(call, options.to_value(), &live).await?;
            let expected = stored.revision;
            let written = match step(resource, &live, options, (self.options.clock)()) {
                Step::Nothing => return Ok(Outcome::stored(200, self.shown(resource, stored).await?)),
                Step::Mark(object) => self.commit(call, Operation::Update { expected }, &object).await,
                Step::Remove(object) => {
                    let removed = self.commit(call, Operation::Delete { expected }, &object).await;
                    if removed.is_ok() {
                        self.addresses.release(resource, &object, call.dry_run);
                    }
                    match removed {
                        Ok(_) if !strategy(resource).returns_deleted => {
                            return Ok(Outcome::plain(200, status::deleted(resource, name, live.uid())));
                        }
                        other => other,
                    }
                }
            };
            match written {
                Ok(answer) => return Ok(Outcome { code: 200, answer }),
                Err(Refused::Stale) => {}
                Err(refused) => return Err(refused.into_failure(resource, name)),
            }
        }
        Err(Failure::modified(resource, name))
    }

    /// `DELETE` of a collection: everything that the selectors name, one after the other.
    pub(crate) async fn delete_collection(
        &self,
        call: &Call<'_>,
        options: &DeleteOptions,
    ) -> Result<Outcome, Failure> {
        let listed = self.list(call).await?;
        for stored in &listed.objects {
            match self.delete_key(call, &stored.key, options).await {
                Ok(_) => {}
                Err(failure) if failure.code == 404 => {}
                Err(failure) => return Err(failure),
            }
        }
        let lens = view::Lens::new(&self.served.load(), call.resource);
        let bytes = super::Rendering::new(call.resource, lens, listed).whole();
        let list = serde_json::from_slice(&bytes).map_err(Failure::internal)?;
        Ok(Outcome { code: 200, answer: Answer::Plain(list) })
    }
}

/// Decides what becomes of an object that is to go.
fn step(resource: &Resource, live: &Value, options: &DeleteOptions, now: Timestamp) -> Step {
    let mut object = live.clone();
    let before = live.finalizers();
    let mut finalizers = before.clone();
    if &*resource.storage.name == "apiextensions.k8s.io/customresourcedefinitions" && !live.is_deleting() {
        finalizers.push(CLEANUP.to_owned());
        finalizers.dedup();
    }
    match options.propagation {
        None => {}
        Some(policy) => {
            let wanted = match policy {
                Propagation::Background => None,
                Propagation::Foreground => Some(FOREGROUND),
                Propagation::Orphan => Some(ORPHAN),
            };
            finalizers.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
            finalizers.extend(wanted.map(ToOwned::to_owned));
        }
    }
    let grace = grace(resource, live, options);
    let namespace_stays = &*resource.storage.name == "namespaces"
        && live["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    if live.is_deleting() {
        let current = live.meta_get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
        if grace < current {
            mark(&mut object, grace, now, current);
            if grace == 0 && finalizers.is_empty() && !namespace_stays {
                return Step::Remove(object);
            }
            object.set_finalizers(finalizers);
            return Step::Mark(object);
        }
        if grace == 0 && current == 0 && finalizers.is_empty() && !namespace_stays {
            return Step::Remove(object);
        }
        if finalizers != before {
            object.set_finalizers(finalizers);
            return Step::Mark(object);
        }
        return Step::Nothing;
    }
    if grace == 0 && finalizers.is_empty() && !namespace_stays {
        return Step::Remove(object);
    }
    object.set_finalizers(finalizers);
    mark(&mut object, grace, now, 0);
    if object.generation() > 0 {
        let generation = object.generation() + 1;
        object.meta_set("generation", Some(generation.into()));
    }
    if &*resource.storage.name == "namespaces" {
        let status = object_mut(&mut object).entry("status").or_insert_with(super::meta::empty);
        object_mut(status).insert("phase".into(), "Terminating".into());
    }
    Step::Mark(object)
}

/// Writes when the object is to be gone. A period that is shortened counts from when it began.
fn mark(object: &mut Value, grace: i64, now: Timestamp, previous: i64) {
    let began = object
        .meta_text("deletionTimestamp")
        .parse::<Timestamp>()
        .ok()
        .and_then(|ends| ends.checked_sub(SignedDuration::from_secs(previous)).ok())
        .unwrap_or(now);
    let ends = began.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
    object.meta_set("deletionTimestamp", Some(time_text(ends).into()));
    if object["kind"] != "Namespace" {
        object.meta_set("deletionGracePeriodSeconds", Some(grace.into()));
    }
}

/// How long the object may still work. Only pods take time, and only when somebody runs them.
fn grace(resource: &Resource, live: &Value, options: &DeleteOptions) -> i64 {
    if &*resource.storage.name != "pods" {
        return 0;
    }
    let scheduled = live["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let ended = matches!(live["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !scheduled || ended {
        return 0;
    }
    let own = if live.is_deleting() {
        &live["metadata"]["deletionGracePeriodSeconds"]
    } else {
        &live["spec"]["terminationGracePeriodSeconds"]
    };
    options.grace.unwrap_or_else(|| own.as_i64().unwrap_or(30)).max(0)
}

/// Whether a changed object only waited for its last finalizer.
pub(super) fn is_finished(resource: &Resource, object: &Value) -> bool {
    if !object.is_deleting() || !object.finalizers().is_empty() {
        return false;
    }
    let grace = object.meta_get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    let namespace_stays = &*resource.storage.name == "namespaces"
        && object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    grace == 0 && !namespace_stays
}
