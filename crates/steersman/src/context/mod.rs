//! What a reconciler has at hand.

mod send;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::core::ApiResource;
use kube::core::request::Request as RequestBuilder;
use serde::Serialize;

use self::send::{add_owner, name_of, namespace_of};
use crate::apply;
use crate::cache::{Cache, Headers, View};
use crate::clock::Clock;
use crate::error::Error;
use crate::events::{EventType, Recorder, Subject};
use crate::key::Key;
use crate::metrics::ControllerMetrics;
use crate::object::Object;
use crate::reason::Reasons;
use crate::recent::Writes;
use crate::request;

/// Everything that one reconcile may read and write.
///
/// Reads come from the cache and see every write made here before. Owned objects and statuses
/// are written by server-side apply with the operator's field manager; nothing is sent when
/// nothing would change.
pub struct Context {
    shared: Arc<Shared>,
    key: Key,
    reasons: Reasons,
    failures: u32,
    subject: Option<Subject>,
    declared: Mutex<HashSet<(String, Key)>>,
    misuse: Mutex<Option<String>>,
    writes: Writes,
}

/// What all reconciles of one controller share.
pub(crate) struct Shared {
    pub(crate) controller: String,
    pub(crate) field_manager: String,
    pub(crate) client: Client,
    pub(crate) cache: Cache,
    pub(crate) clock: Clock,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: ControllerMetrics,
    pub(crate) primary: ApiResource,
    /// Kinds that the controller declared, by group and kind.
    pub(crate) readable: HashSet<(String, String)>,
    /// Those, and the ones of which it declared only the metadata.
    pub(crate) listed: HashSet<(String, String)>,
    /// Kinds that it owns.
    pub(crate) owned: Vec<ApiResource>,
}

impl Context {
    pub(crate) fn new(
        shared: Arc<Shared>,
        key: Key,
        reasons: Reasons,
        failures: u32,
        subject: Option<Subject>,
    ) -> Self {
        Self {
            shared,
            key,
            reasons,
            failures,
            subject,
            declared: Mutex::default(),
            misuse: Mutex::default(),
            writes: Writes::default(),
        }
    }

    /// A context for work that the reconciler gives to another task and waits for, such as a large
    /// status that is written while it goes on. [`Context::prune`] knows nothing of what is
    /// declared there.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::new(
            Arc::clone(&self.shared),
            self.key.clone(),
            self.reasons.clone(),
            self.failures,
            self.subject.clone(),
        )
        .noting(&self.writes)
    }

    // === about this reconcile ===

    /// The key that is being reconciled.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Why it is reconciled; for people, not for decisions.
    pub fn reasons(&self) -> &Reasons {
        &self.reasons
    }

    /// How many attempts in a row have failed before this one.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The wall time.
    pub fn now(&self) -> Timestamp {
        (self.shared.clock)()
    }

    /// The name under which fields are applied.
    pub fn field_manager(&self) -> &str {
        &self.shared.field_manager
    }

    /// A client for what the context does not offer. Writes through it reach the cache only
    /// with the watch; hand their result to [`Context::remember`] to see it at once.
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// The reference that makes another object owned by the one being reconciled; none when
    /// that one is gone.
    pub fn owner_reference(&self) -> Option<OwnerReference> {
        let subject = self.subject.as_ref()?;
        Some(OwnerReference {
            api_version: self.shared.primary.api_version.clone(),
            kind: self.shared.primary.kind.clone(),
            name: self.key.name().to_owned(),
            uid: subject.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        })
    }

    // === reading ===

    /// The cached objects of a kind that the controller declared with `owns`, `watches` or
    /// `reads`.
    ///
    /// A kind that it did not declare looks empty; the reconcile then makes no more writes and
    /// fails with an error that names the kind.
    pub fn cache<K: Object>(&self) -> View<K> {
        let kind = (K::group(&()).into_owned(), K::kind(&()).into_owned());
        if self.shared.readable.contains(&kind) {
            return self.shared.cache.view();
        }
        self.note_misuse(&kind.1, "reads");
        View::new(None)
    }

    /// The metadata of the cached objects of a kind that the controller declared in any way,
    /// also with `owns_metadata` or `watches_metadata`.
    pub fn metadata<K: Object>(&self) -> Headers {
        let kind = (K::group(&()).into_owned(), K::kind(&()).into_owned());
        if self.shared.listed.contains(&kind) {
            return Headers::new(self.shared.cache.metadata_store(&K::api_resource()));
        }
        self.note_misuse(&kind.1, "reads_metadata");
        Headers::new(None)
    }

    fn note_misuse(&self, kind: &str, remedy: &str) {
        let controller = &self.shared.controller;
        lock(&self.misuse).get_or_insert_with(|| {
            format!(
                "controller {controller} reads {kind}, which it did not declare; add .{remedy}::<{kind}>() to it"
            )
        });
    }

    // === writing ===

    /// Declares that an object owned by the one being reconciled exists and looks like this.
    ///
    /// Sets the owner reference, and the namespace when it is not given. Fields that were
    /// declared earlier and no longer are go away; those of others stay. Returns the object as
    /// it is now.
    ///
    /// # Errors
    /// When the server refuses it, or when the owner may not own it: an owner in a namespace
    /// can own only what is in the same namespace.
    pub async fn apply<K: Object>(&self, object: &K) -> Result<Arc<K>, Error> {
        let owner = self.owner_reference().ok_or_else(|| {
            Error::terminal(format!(
                "{} {} is gone and cannot own anything",
                self.shared.primary.kind, self.key
            ))
        })?;
        let mut value = self.prepare(object)?;
        self.check_ownership::<K>(&value)?;
        add_owner(&mut value, &owner)?;
        self.send_apply(value).await
    }

    /// Declares an object that nobody owns: it stays when the one being reconciled goes.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn apply_unowned<K: Object>(&self, object: &K) -> Result<Arc<K>, Error> {
        let value = self.prepare(object)?;
        self.send_apply(value).await
    }

    /// Declares the status of the object being reconciled.
    ///
    /// # Errors
    /// When the server refuses it, or the object is gone or another by now.
    pub async fn apply_status<S: Serialize + Sync>(&self, status: &S) -> Result<(), Error> {
        let uid = self.subject.as_ref().map(|subject| subject.uid.clone());
        let resource = self.shared.primary.clone();
        self.send_status(&resource, &self.key, uid, status).await
    }

    /// Declares the status of another object.
    ///
    /// # Errors
    /// When the server refuses it, or there is no such object.
    pub async fn apply_status_of<K: Object, S: Serialize + Sync>(
        &self,
        key: &Key,
        status: &S,
    ) -> Result<(), Error> {
        self.send_status(&K::api_resource(), key, None, status).await
    }

    /// Creates an object owned by the one being reconciled, for kinds whose names the server
    /// chooses (`generateName`) or whose fields never change.
    ///
    /// # Errors
    /// When the server refuses it, in particular with code 409 when it exists.
    pub async fn create<K: Object>(&self, object: &K) -> Result<Arc<K>, Error> {
        let mut value = self.prepare_any(object)?;
        if let Some(owner) = self.owner_reference() {
            self.check_ownership::<K>(&value)?;
            add_owner(&mut value, &owner)?;
        }
        self.check_use()?;
        let resource = K::api_resource();
        let path = self.path(&resource, namespace_of(&value));
        let params =
            PostParams { field_manager: Some(self.shared.field_manager.clone()), ..PostParams::default() };
        let body = serde_json::to_vec(&value)?;
        let request = RequestBuilder::new(path).create(&params, body)?;
        self.wrote("create", &resource, &Key::new(namespace_of(&value).unwrap_or_default(), name_of(&value)));
        self.take::<K>(&request::send(&self.shared.client, request).await?)
    }

    /// Patches an object; for the few things that apply cannot say.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn patch<K: Object, P: Serialize + fmt::Debug + Sync>(
        &self,
        key: &Key,
        patch: &Patch<P>,
    ) -> Result<Arc<K>, Error> {
        self.check_use()?;
        let resource = K::api_resource();
        let path = self.path(&resource, key.namespace());
        let params =
            PatchParams { field_manager: Some(self.shared.field_manager.clone()), ..PatchParams::default() };
        let request = RequestBuilder::new(path).patch(key.name(), &params, patch)?;
        self.wrote("patch", &resource, key);
        self.take::<K>(&request::send(&self.shared.client, request).await?)
    }

    /// Deletes an object, and what it owns after it. One that is already gone, or whose name
    /// another object has by now, counts as deleted.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn delete<K: Object>(&self, object: &K) -> Result<(), Error> {
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        self.delete_with(object, params).await
    }

    /// Deletes an object in another way than [`Context::delete`] does; the uid is always
    /// checked.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn delete_with<K: Object>(&self, object: &K, params: DeleteParams) -> Result<(), Error> {
        let uid = object.meta().uid.clone();
        self.send_delete(&K::api_resource(), &Key::of(object), uid, params).await
    }

    /// Deletes the owned objects that this operator applied in an earlier reconcile and that
    /// this one did not declare.
    ///
    /// Call it after everything has been declared. Looks at the kinds that the controller
    /// declared with `owns`, and only at objects that were made with [`Context::apply`].
    ///
    /// # Errors
    /// When the server refuses a deletion.
    pub async fn prune(&self) -> Result<(), Error> {
        let Some(subject) = &self.subject else {
            return Ok(());
        };
        for resource in &self.shared.owned {
            let Some(store) = self.shared.cache.metadata_store(resource) else {
                continue;
            };
            for entry in store.owned_by(&subject.uid) {
                let header = &entry.header;
                let declared = (resource.kind.clone(), header.key().clone());
                if header.deleting
                    || lock(&self.declared).contains(&declared)
                    || !apply::was_applied(header, &self.shared.field_manager)
                {
                    continue;
                }
                let params = DeleteParams {
                    propagation_policy: Some(PropagationPolicy::Background),
                    ..DeleteParams::default()
                };
                let uid = Some(header.uid().to_owned());
                self.send_delete(resource, header.key(), uid, params).await?;
            }
        }
        Ok(())
    }

    /// Counts an object as declared without sending it.
    pub(crate) fn keep<K: Object>(&self, key: Key) {
        lock(&self.declared).insert((K::kind(&()).into_owned(), key));
    }

    /// Puts an object that came back from a write through [`Context::client`] into the cache.
    pub fn remember<K: Object>(&self, object: &K) {
        if let Ok(bytes) = serde_json::to_vec(object) {
            self.store_written(&bytes, &K::api_resource());
        }
    }

    /// Records an event about the object being reconciled. Never waits: events are sent in the
    /// background, and equal ones are counted together.
    pub fn event(&self, r#type: EventType, reason: &str, note: impl Into<String>) {
        if let Some(subject) = &self.subject {
            let source = &self.shared.controller;
            self.shared.recorder.record(subject, source, r#type, reason, note.into());
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("controller", &self.shared.controller)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
