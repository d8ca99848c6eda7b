//! Events that tell users what happens to a pod.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use tokio::sync::mpsc;

use crate::options::Clock;

/// Whether something is as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    Normal,
    Warning,
}

/// Takes events from anywhere in the node; a full queue drops them, because they are only told.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    queue: mpsc::Sender<Told>,
}

#[derive(Debug)]
struct Told {
    object: ObjectReference,
    severity: Severity,
    reason: String,
    message: String,
}

/// How many different events are remembered to be counted.
const REMEMBERED: usize = 512;

impl Recorder {
    /// A recorder and the task that writes what it takes.
    pub(crate) fn new(
        client: kube::Client,
        node: String,
        clock: Clock,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (queue, receiver) = mpsc::channel(256);
        (Recorder { queue }, write(client, node, clock, receiver))
    }

    /// Tells something about a pod.
    pub(crate) fn tell(&self, pod: &Pod, severity: Severity, reason: &str, message: String) {
        let object = ObjectReference {
            api_version: Some("v1".to_string()),
            kind: Some("Pod".to_string()),
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        };
        let told = Told { object, severity, reason: reason.to_string(), message };
        if let Err(error) = self.queue.try_send(told) {
            tracing::debug!(%error, "an event was dropped");
        }
    }
}

async fn write(client: kube::Client, node: String, clock: Clock, mut receiver: mpsc::Receiver<Told>) {
    let mut known: HashMap<(Option<String>, String, String), (String, i32)> = HashMap::new();
    while let Some(told) = receiver.recv().await {
        let namespace = told.object.namespace.clone().unwrap_or_else(|| "default".to_string());
        let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
        let now = Time(clock());
        let key = (told.object.uid.clone(), told.reason.clone(), told.message.clone());
        if let Some((name, count)) = known.get_mut(&key) {
            let patch = serde_json::json!({"count": *count + 1, "lastTimestamp": now});
            let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
            if patched.is_ok() {
                *count += 1;
                continue;
            }
            known.remove(&key);
        }
        let event = new_event(told, &namespace, &node, now);
        match api.create(&PostParams::default(), &event).await {
            Ok(created) => {
                if known.len() >= REMEMBERED {
                    known.clear();
                }
                known.insert(key, (created.metadata.name.unwrap_or_default(), 1));
            }
            Err(error) => tracing::debug!(%error, "an event was not written"),
        }
    }
}

fn new_event(told: Told, namespace: &str, node: &str, now: Time) -> Event {
    let name = told.object.name.clone().unwrap_or_default();
    let suffix: u64 = rand::random();
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{suffix:016x}", name.get(..200).unwrap_or(&name))),
            namespace: Some(namespace.to_string()),
            ..ObjectMeta::default()
        },
        involved_object: told.object,
        type_: Some(
            match told.severity {
                Severity::Normal => "Normal",
                Severity::Warning => "Warning",
            }
            .to_string(),
        ),
        reason: Some(told.reason),
        message: Some(told.message),
        source: Some(EventSource { component: Some("kubelet".to_string()), host: Some(node.to_string()) }),
        reporting_component: Some("kubelet".to_string()),
        reporting_instance: Some(node.to_string()),
        count: Some(1),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        ..Event::default()
    }
}
