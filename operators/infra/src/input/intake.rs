//! Makes events take effect, each once however often it is delivered.
//!
//! Which events a resource has seen is written into the resource itself, in the same write as
//! their effect. Of a resource that was deleted by an event a tombstone is kept, so that neither
//! the deletion nor anything before it takes effect again on a later one of the same name.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::{Client, ResourceExt};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use steersman::Clock;

use super::event::{Event, Wish};
use crate::action::Registry;
use crate::ids::{Ids, Numbered};
use crate::schema::Schema;
use crate::types::{
    DriftInterval, ID, Resource, ResourceSpec, ResourceType, TRIGGER, USUAL_PLUGIN, object_name,
    type_object_name,
};

/// The annotation with the events that a resource has seen, newest last.
pub const SEEN: &str = "infra.steersman.io/seen-events";
/// The ConfigMap with the tombstones.
pub const TOMBSTONES: &str = "infra-input-tombstones";
/// How many events a resource remembers.
const MEMORY: usize = 64;
/// How many tombstones are kept.
const GRAVES: usize = 500;
/// How often a write that met another is repeated.
const ATTEMPTS: usize = 8;

/// Makes events take effect.
pub struct Intake {
    resources: Api<Resource>,
    types: Api<ResourceType>,
    tombstones: Api<ConfigMap>,
    ids: Ids,
    plugins: Registry,
    clock: Clock,
}

/// How an event fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It has taken effect.
    Now,
    /// It had taken effect before.
    Before,
}

/// Why an event has not taken effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IntakeError {
    /// It never will.
    #[error("{0}")]
    Poison(String),
    /// It may later.
    #[error("{0}")]
    Later(String),
}

impl From<kube::Error> for IntakeError {
    fn from(error: kube::Error) -> Self {
        match &error {
            // The server understood it and said no.
            kube::Error::Api(status) if matches!(status.code, 400 | 413 | 422) => {
                Self::Poison(status.message.clone())
            }
            _ => Self::Later(error.to_string()),
        }
    }
}

/// What is left of a resource that an event deleted.
#[derive(Debug, Serialize, Deserialize)]
struct Tombstone {
    deletion: String,
    uid: Option<String>,
    seen: Vec<String>,
    at: Timestamp,
}

impl Intake {
    /// Takes events for resources in a namespace.
    pub fn new(client: &Client, namespace: &str, plugins: Registry, clock: Clock) -> Self {
        Self {
            resources: Api::namespaced(client.clone(), namespace),
            types: Api::all(client.clone()),
            tombstones: Api::namespaced(client.clone(), namespace),
            ids: Ids::new(client.clone(), namespace),
            plugins,
            clock,
        }
    }

    /// Makes an event of an input take effect, unless it has before.
    ///
    /// # Errors
    /// When it cannot, now or ever.
    pub async fn take(&self, input: &str, id: &str, event: &Event) -> Result<Taken, IntakeError> {
        let digest = Sha256::digest(format!("{input}/{id}"));
        let mark: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            let taken = match event.wish {
                Wish::Apply => self.apply(&mark, event).await,
                Wish::Reconcile => self.reconcile(&mark, event).await,
                Wish::Delete => self.delete(&mark, event).await,
            };
            match taken {
                // Somebody else wrote at the same time: look again.
                Err(Failure::Conflict(why)) => last = why,
                Err(Failure::Error(error)) => return Err(error),
                Ok(taken) => return Ok(taken),
            }
        }
        Err(IntakeError::Later(format!("others write {} all the time: {last}", event.name)))
    }

    async fn apply(&self, mark: &str, event: &Event) -> Result<Taken, Failure> {
        let name = object_name(&event.resource_type_name, &event.name);
        let found = self.find(&name, event).await?;
        let seen = match &found {
            Some(resource) => seen(resource),
            None => self.tombstone(&name).await?.map(|grave| grave.seen).unwrap_or_default(),
        };
        if seen.iter().any(|known| known == mark) {
            return Ok(Taken::Before);
        }
        let parameters = self.checked(event).await?;
        DriftInterval::read(&event.metadata).map_err(IntakeError::Poison)?;
        let plugin = event.action_plugin.clone();
        match found {
            None => {
                let action_plugin = plugin.unwrap_or_else(|| USUAL_PLUGIN.to_owned());
                self.check_plugin(&action_plugin)?;
                let spec = ResourceSpec {
                    type_name: event.resource_type_name.clone(),
                    type_version: event.resource_type_version.clone(),
                    action_plugin,
                    parameters,
                    plugin_config: event.plugin_config.clone(),
                    metadata: event.metadata.clone(),
                };
                let mut resource = Resource::new(&name, spec);
                let id = self.ids.next(Numbered::Resources).await;
                let id = id.map_err(|error| IntakeError::Later(error.to_string()))?;
                resource.labels_mut().insert(ID.to_owned(), id.to_string());
                resource.finalizers_mut().push(crate::FINALIZER.to_owned());
                remember(&mut resource, seen, mark);
                self.resources.create(&PostParams::default(), &resource).await?;
            }
            Some(resource) if resource.metadata.deletion_timestamp.is_some() => {
                return Err(IntakeError::Later(format!("{name} is being deleted")).into());
            }
            Some(mut resource) => {
                if let Some(plugin) = plugin {
                    self.check_plugin(&plugin)?;
                    resource.spec.action_plugin = plugin;
                }
                resource.spec.type_version.clone_from(&event.resource_type_version);
                resource.spec.parameters = parameters;
                resource.spec.plugin_config.clone_from(&event.plugin_config);
                resource.spec.metadata.clone_from(&event.metadata);
                remember(&mut resource, seen, mark);
                self.resources.replace(&name, &PostParams::default(), &resource).await?;
            }
        }
        Ok(Taken::Now)
    }

    async fn reconcile(&self, mark: &str, event: &Event) -> Result<Taken, Failure> {
        let name = object_name(&event.resource_type_name, &event.name);
        let Some(mut resource) = self.find(&name, event).await? else {
            return Err(IntakeError::Poison(format!("there is no resource {name} to reconcile")).into());
        };
        let seen = seen(&resource);
        if seen.iter().any(|known| known == mark) {
            return Ok(Taken::Before);
        }
        resource.annotations_mut().insert(TRIGGER.to_owned(), format!("{}/{mark}", (self.clock)()));
        remember(&mut resource, seen, mark);
        self.resources.replace(&name, &PostParams::default(), &resource).await?;
        Ok(Taken::Now)
    }

    /// First the tombstone, then the deletion: whoever comes after a crash in between finds which
    /// resource was meant.
    async fn delete(&self, mark: &str, event: &Event) -> Result<Taken, Failure> {
        let name = object_name(&event.resource_type_name, &event.name);
        let (found, grave) = (self.find(&name, event).await?, self.tombstone(&name).await?);
        let uid = found.as_ref().and_then(ResourceExt::uid);
        let meant = grave.as_ref().filter(|grave| grave.deletion == mark).map(|grave| grave.uid.clone());
        let before = match (&found, &grave) {
            (Some(resource), _) => seen(resource),
            (None, Some(grave)) => grave.seen.clone(),
            (None, None) => Vec::new(),
        };
        if meant.is_none() {
            if before.iter().any(|known| known == mark) {
                return Ok(Taken::Before);
            }
            let mut seen = before;
            seen.push(mark.to_owned());
            let at = (self.clock)();
            self.bury(&name, Tombstone { deletion: mark.to_owned(), uid: uid.clone(), seen, at }).await?;
        }
        let taken = if meant.is_some() { Taken::Before } else { Taken::Now };
        let target = meant.unwrap_or_else(|| uid.clone());
        if uid.is_none() || target != uid {
            return Ok(taken);
        }
        let preconditions = Some(Preconditions { uid, ..Preconditions::default() });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match self.resources.delete(&name, &params).await {
            Ok(_) => Ok(taken),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(taken),
            Err(error) => Err(error.into()),
        }
    }

    async fn find(&self, name: &str, event: &Event) -> Result<Option<Resource>, Failure> {
        let found = self.resources.get_opt(name).await?;
        match found {
            Some(other) if other.spec.type_name != event.resource_type_name => {
                Err(IntakeError::Poison(format!("{name} is a resource of the type {}", other.spec.type_name))
                    .into())
            }
            found => Ok(found),
        }
    }

    fn check_plugin(&self, name: &str) -> Result<(), Failure> {
        match self.plugins.get(name) {
            Some(_) => Ok(()),
            None => Err(IntakeError::Poison(self.plugins.unknown(name)).into()),
        }
    }

    async fn checked(&self, event: &Event) -> Result<serde_json::Map<String, serde_json::Value>, Failure> {
        let (name, version) = (&event.resource_type_name, &event.resource_type_version);
        let known = self.types.get_opt(&type_object_name(name, version)).await?;
        let known = known.filter(|known| known.spec.name == *name && known.spec.version == *version);
        let poison = |why: String| Failure::from(IntakeError::Poison(why));
        let known = known.ok_or_else(|| poison(format!("Resource type {name}/{version} not found")))?;
        let schema = Schema::compile(&known.spec.schema)
            .map_err(|error| poison(format!("the schema of the resource type cannot be used: {error}")))?;
        let mut parameters = event.spec.clone();
        schema.default_into(&mut parameters);
        match schema.check(&parameters) {
            Ok(()) => Ok(parameters),
            Err(complaints) => Err(poison(format!("Spec validation failed: {}", complaints.join("; ")))),
        }
    }

    async fn tombstone(&self, name: &str) -> Result<Option<Tombstone>, Failure> {
        let graves = self.tombstones.get_opt(TOMBSTONES).await?;
        let grave = graves.and_then(|graves| graves.data?.remove(name));
        Ok(grave.and_then(|text| serde_json::from_str(&text).ok()))
    }

    async fn bury(&self, name: &str, grave: Tombstone) -> Result<(), Failure> {
        let text = serde_json::to_string(&grave).map_err(|error| IntakeError::Later(error.to_string()))?;
        match self.tombstones.get_opt(TOMBSTONES).await? {
            None => {
                let mut graves = ConfigMap {
                    data: Some(BTreeMap::from([(name.to_owned(), text)])),
                    ..ConfigMap::default()
                };
                graves.metadata.name = Some(TOMBSTONES.to_owned());
                self.tombstones.create(&PostParams::default(), &graves).await?;
            }
            Some(mut graves) => {
                let data = graves.data.get_or_insert_default();
                data.insert(name.to_owned(), text);
                while data.len() > GRAVES {
                    let age =
                        |text: &String| serde_json::from_str::<Tombstone>(text).map(|grave| grave.at).ok();
                    let oldest = data.iter().min_by_key(|(_, text)| age(text)).map(|(name, _)| name.clone());
                    oldest.and_then(|oldest| data.remove(&oldest));
                }
                self.tombstones.replace(TOMBSTONES, &PostParams::default(), &graves).await?;
            }
        }
        Ok(())
    }
}

/// Why one try had no effect.
enum Failure {
    Conflict(String),
    Error(IntakeError),
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 409 => Self::Conflict(status.message.clone()),
            _ => Self::Error(error.into()),
        }
    }
}

impl From<IntakeError> for Failure {
    fn from(error: IntakeError) -> Self {
        Self::Error(error)
    }
}

fn seen(resource: &Resource) -> Vec<String> {
    let seen = resource.annotations().get(SEEN);
    seen.map(|all| all.split_whitespace().map(ToOwned::to_owned).collect()).unwrap_or_default()
}

fn remember(resource: &mut Resource, mut seen: Vec<String>, mark: &str) {
    seen.push(mark.to_owned());
    let known = seen.split_off(seen.len().saturating_sub(MEMORY));
    resource.annotations_mut().insert(SEEN.to_owned(), known.join(" "));
    resource.metadata.managed_fields = None;
}
