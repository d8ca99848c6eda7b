//! How the writes of a reconciler reach the server, and their answers the cache.

use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::ApiResource;
use kube::core::request::Request as RequestBuilder;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Context, lock};
use crate::apply;
use crate::error::Error;
use crate::key::Key;
use crate::object::Object;
use crate::recent::Writes;
use crate::request;

impl Context {
    /// What the reconcile did wrong, if anything.
    pub(crate) fn misuse(&self) -> Option<String> {
        lock(&self.misuse).clone()
    }

    /// Notes what is written in a list that outlives the context.
    pub(crate) fn noting(mut self, writes: &Writes) -> Self {
        self.writes = writes.clone();
        self
    }

    /// Counts a write that is about to be sent.
    pub(super) fn wrote(&self, verb: &str, resource: &ApiResource, key: &Key) {
        self.shared.metrics.wrote(&resource.kind, verb);
        self.writes.add(verb, &resource.kind, key.as_str());
    }

    pub(crate) async fn set_finalizers(&self, version: &str, finalizers: &[String]) -> Result<(), Error> {
        let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
        let resource = self.shared.primary.clone();
        let path = self.path(&resource, self.key.namespace());
        let params =
            PatchParams { field_manager: Some(self.shared.field_manager.clone()), ..PatchParams::default() };
        let request = RequestBuilder::new(path).patch(self.key.name(), &params, &Patch::Merge(&patch))?;
        self.wrote("patch", &resource, &self.key);
        let answer = request::send(&self.shared.client, request).await?;
        self.store_written(&answer, &resource);
        Ok(())
    }

    pub(super) fn prepare<K: Object>(&self, object: &K) -> Result<Value, Error> {
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
    pub(super) fn prepare_any<K: Object>(&self, object: &K) -> Result<Value, Error> {
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

    pub(super) fn check_ownership<K: Object>(&self, value: &Value) -> Result<(), Error> {
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
    pub(super) fn check_use(&self) -> Result<(), Error> {
        match self.misuse() {
            Some(misuse) => Err(Error::terminal(misuse)),
            None => Ok(()),
        }
    }

    pub(super) async fn send_apply<K: Object>(&self, value: Value) -> Result<Arc<K>, Error> {
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
        self.wrote("apply", &resource, &key);
        let answer = request::send(&self.shared.client, request)
            .await
            .map_err(|error| Error::from(error).context(format!("applying {} {key}", resource.kind)))?;
        self.take::<K>(&answer)
    }

    pub(super) async fn send_status<S: Serialize>(
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
        self.wrote("apply_status", resource, key);
        let answer = request::send(&self.shared.client, request).await.map_err(|error| {
            Error::from(error).context(format!("applying the status of {} {key}", resource.kind))
        })?;
        self.store_written(&answer, resource);
        Ok(())
    }

    pub(super) async fn send_delete(
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
        self.wrote("delete", resource, key);
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
    pub(super) fn take<K: Object>(&self, answer: &Bytes) -> Result<Arc<K>, Error> {
        self.store_written(answer, &K::api_resource());
        Ok(Arc::new(serde_json::from_slice(answer)?))
    }

    pub(super) fn store_written(&self, bytes: &[u8], resource: &ApiResource) {
        if let Some(store) = self.shared.cache.store(resource)
            && let Ok(header) = self.shared.cache.scan(bytes, resource)
        {
            store.written(header);
        }
    }

    pub(super) fn store_erased(&self, resource: &ApiResource, key: &Key, uid: Option<&str>) {
        if let Some(store) = self.shared.cache.metadata_store(resource)
            && let Some(uid) = uid
        {
            store.erased(key, uid);
        }
    }

    pub(super) fn path(&self, resource: &ApiResource, namespace: Option<&str>) -> String {
        crate::cache::collection_path(resource, namespace)
    }
}

pub(super) fn name_of(value: &Value) -> &str {
    value["metadata"]["name"].as_str().unwrap_or_default()
}

pub(super) fn namespace_of(value: &Value) -> Option<&str> {
    value["metadata"]["namespace"].as_str().filter(|namespace| !namespace.is_empty())
}

pub(super) fn add_owner(value: &mut Value, owner: &OwnerReference) -> Result<(), Error> {
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
