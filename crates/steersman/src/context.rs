//! What a reconciler has at hand.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::core::ApiResource;
use kube::core::request::Request as RequestBuilder;
use serde::Serialize;
use serde_json::{Value, json};

use crate::apply;
use crate::cache::{Cache, View};
use crate::clock::Clock;
use crate::error::Error;
use crate::events::{EventType, Recorder, Subject};
use crate::key::Key;
use crate::metrics::ControllerMetrics;
use crate::object::Object;
use crate::reason::Reasons;
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
        Self { shared, key, reasons, failures, subject, declared: Mutex::default(), misuse: Mutex::default() }
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
        let mut misuse = lock(&self.misuse);
        misuse.get_or_insert_with(|| {
            format!(
                "controller {} reads {}, which it did not declare; add .reads::<{}>() to it",
                self.shared.controller, kind.1, kind.1
            )
        });
        View::new(None)
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
        self.shared.metrics.wrote(&resource.kind, "create");
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
        self.shared.metrics.wrote(&resource.kind, "patch");
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
            let Some(store) = self.shared.cache.store(resource) else {
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

    // === helpers ===

    /// What the reconcile did wrong, if anything.
    pub(crate) fn misuse(&self) -> Option<String> {
        lock(&self.misuse).clone()
    }

    pub(crate) async fn set_finalizers(&self, version: &str, finalizers: &[String]) -> Result<(), Error> {
        let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
        let resource = self.shared.primary.clone();
        let path = self.path(&resource, self.key.namespace());
        let params =
            PatchParams { field_manager: Some(self.shared.field_manager.clone()), ..PatchParams::default() };
        let request = RequestBuilder::new(path).patch(self.key.name(), &params, &Patch::Merge(&patch))?;
        self.shared.metrics.wrote(&resource.kind, "patch");
        let answer = request::send(&self.shared.client, request).await?;
        self.store_written(&answer, &resource);
        Ok(())
    }

    fn prepare<K: Object>(&self, object: &K) -> Result<Value, Error> {
        let value = self.prepare_any(object)?;
        if name_of(&value).is_empty() {
            return Err(Error::terminal(format!(
                "a {} without a name cannot be applied; set metadata.name",
                K::kind(&())
            )));
        }
        Ok(value)
    }

    /// The object as it is sent: cleaned, with its kind and namespace.
    fn prepare_any<K: Object>(&self, object: &K) -> Result<Value, Error> {
        let mut value = serde_json::to_value(object)?;
        apply::clean(&mut value);
        value["apiVersion"] = K::api_version(&()).into();
        value["kind"] = K::kind(&()).into();
        if K::is_namespaced() && namespace_of(&value).is_none() {
            let namespace = self.key.namespace().ok_or_else(|| {
                Error::terminal(format!(
                    "{} {} needs a namespace, and {} {} has none to give; set metadata.namespace",
                    K::kind(&()),
                    name_of(&value),
                    self.shared.primary.kind,
                    self.key
                ))
            })?;
            value["metadata"]["namespace"] = namespace.into();
        }
        Ok(value)
    }

    fn check_ownership<K: Object>(&self, value: &Value) -> Result<(), Error> {
        match self.key.namespace() {
            Some(own) if namespace_of(value) != Some(own) => Err(Error::terminal(format!(
                "{} {} cannot own {} {}: an owner in a namespace owns only what is in the same one; use apply_unowned",
                self.shared.primary.kind,
                self.key,
                K::kind(&()),
                Key::new(namespace_of(value).unwrap_or_default(), name_of(value)),
            ))),
            _ => Ok(()),
        }
    }

    /// After reading what was not declared, writing would act on half of the truth.
    fn check_use(&self) -> Result<(), Error> {
        match self.misuse() {
            Some(misuse) => Err(Error::terminal(misuse)),
            None => Ok(()),
        }
    }

    async fn send_apply<K: Object>(&self, value: Value) -> Result<Arc<K>, Error> {
        self.check_use()?;
        let resource = K::api_resource();
        let key = Key::new(namespace_of(&value).unwrap_or_default(), name_of(&value));
        lock(&self.declared).insert((resource.kind.clone(), key.clone()));
        let manager = &self.shared.field_manager;
        if let Some(store) = self.shared.cache.store(&resource)
            && let Some(known) = store.get(&key)
            && apply::is_settled(&value, &known.header, manager, "")
            && let Some(object) = known.typed::<K>()
        {
            self.shared.metrics.skipped(&resource.kind);
            return Ok(object);
        }
        let params = PatchParams::apply(manager).force();
        let request = RequestBuilder::new(self.path(&resource, key.namespace())).patch(
            key.name(),
            &params,
            &Patch::Apply(&value),
        )?;
        self.shared.metrics.wrote(&resource.kind, "apply");
        let answer = request::send(&self.shared.client, request)
            .await
            .map_err(|error| Error::from(error).context(format!("applying {} {key}", resource.kind)))?;
        self.take::<K>(&answer)
    }

    async fn send_status<S: Serialize>(
        &self,
        resource: &ApiResource,
        key: &Key,
        uid: Option<String>,
        status: &S,
    ) -> Result<(), Error> {
        self.check_use()?;
        let mut value = json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": key.name(), "namespace": key.namespace(), "uid": uid},
            "status": status,
        });
        apply::drop_nulls(&mut value);
        let manager = &self.shared.field_manager;
        if let Some(store) = self.shared.cache.store(resource)
            && let Some(known) = store.get(key)
            && apply::is_settled(&value, &known.header, manager, "status")
        {
            self.shared.metrics.skipped(&resource.kind);
            return Ok(());
        }
        let params = PatchParams::apply(manager).force();
        let request = RequestBuilder::new(self.path(resource, key.namespace())).patch_subresource(
            "status",
            key.name(),
            &params,
            &Patch::Apply(&value),
        )?;
        self.shared.metrics.wrote(&resource.kind, "apply_status");
        let answer = request::send(&self.shared.client, request).await.map_err(|error| {
            Error::from(error).context(format!("applying the status of {} {key}", resource.kind))
        })?;
        self.store_written(&answer, resource);
        Ok(())
    }

    async fn send_delete(
        &self,
        resource: &ApiResource,
        key: &Key,
        uid: Option<String>,
        mut params: DeleteParams,
    ) -> Result<(), Error> {
        self.check_use()?;
        params.preconditions = Some(Preconditions {
            uid: uid.clone(),
            resource_version: params.preconditions.and_then(|conditions| conditions.resource_version),
        });
        let request =
            RequestBuilder::new(self.path(resource, key.namespace())).delete(key.name(), &params)?;
        self.shared.metrics.wrote(&resource.kind, "delete");
        let answer = match request::send(&self.shared.client, request).await {
            Ok(answer) => answer,
            Err(error) if request::code(&error) == Some(404) => {
                self.store_erased(resource, key, uid.as_deref());
                return Ok(());
            }
            Err(error) if is_other_uid(&error) => return Ok(()),
            Err(error) => {
                return Err(Error::from(error).context(format!("deleting {} {key}", resource.kind)));
            }
        };
        match is_gone(&answer) {
            true => self.store_erased(resource, key, uid.as_deref()),
            false => self.store_written(&answer, resource),
        }
        Ok(())
    }

    /// Decodes the answer to a write and puts it into the cache.
    fn take<K: Object>(&self, answer: &Bytes) -> Result<Arc<K>, Error> {
        self.store_written(answer, &K::api_resource());
        Ok(Arc::new(serde_json::from_slice(answer)?))
    }

    fn store_written(&self, bytes: &[u8], resource: &ApiResource) {
        if let Some(store) = self.shared.cache.store(resource)
            && let Ok(header) = self.shared.cache.scan(bytes, resource)
        {
            store.written(header);
        }
    }

    fn store_erased(&self, resource: &ApiResource, key: &Key, uid: Option<&str>) {
        if let Some(store) = self.shared.cache.store(resource)
            && let Some(uid) = uid
        {
            store.erased(key, uid);
        }
    }

    fn path(&self, resource: &ApiResource, namespace: Option<&str>) -> String {
        crate::cache::collection_path(resource, namespace)
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

fn name_of(value: &Value) -> &str {
    value["metadata"]["name"].as_str().unwrap_or_default()
}

fn namespace_of(value: &Value) -> Option<&str> {
    value["metadata"]["namespace"].as_str().filter(|namespace| !namespace.is_empty())
}

fn add_owner(value: &mut Value, owner: &OwnerReference) -> Result<(), Error> {
    let owner = serde_json::to_value(owner)?;
    let owners = &mut value["metadata"]["ownerReferences"];
    match owners.as_array_mut() {
        Some(owners) => {
            if !owners.iter().any(|known| known["uid"] == owner["uid"]) {
                owners.push(owner);
            }
        }
        None => *owners = json!([owner]),
    }
    Ok(())
}

/// Whether the answer to a deletion means that the object is gone. It may also be the object,
/// for good or while it waits for its finalizers or its grace period.
fn is_gone(answer: &[u8]) -> bool {
    let Ok(answer) = serde_json::from_slice::<Value>(answer) else {
        return false;
    };
    let meta = &answer["metadata"];
    let waits = meta["finalizers"].as_array().is_some_and(|all| !all.is_empty())
        || meta["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) > 0;
    answer["kind"] == "Status" || meta["deletionTimestamp"].is_null() || !waits
}

/// The server says that the name belongs to another object.
fn is_other_uid(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 409 && status.message.contains("UID in precondition"),
        _ => false,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
