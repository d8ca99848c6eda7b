//! Events: what happened to an object, for `kubectl describe`.
//!
//! Reconcilers hand events to a bounded queue and go on; one task sends them. The same event
//! about the same object is sent once and counted after that.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ApiResource, ObjectMeta};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::key::Key;

/// Whether an event is good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Things go their way.
    Normal,
    /// Someone may want to look at it.
    Warning,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Events that wait to be sent; more are dropped, since they must never hold up a reconcile.
const WAITING: usize = 1000;
/// Equal events within this time are counted instead of sent.
const TOGETHER: Duration = Duration::from_secs(600);
/// How many different events are remembered for counting.
const REMEMBERED: usize = 4096;
/// What fits into a name of 253 characters besides the number.
const LONGEST_STEM: usize = 230;
/// Longest note that the API accepts.
const NOTE: usize = 1024;

/// Whom an event is about.
#[derive(Clone, Debug)]
pub struct Subject {
    pub(crate) resource: Arc<ApiResource>,
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
}

impl Subject {
    /// The object of this kind, key and uid.
    pub fn new(resource: ApiResource, key: Key, uid: impl Into<String>) -> Self {
        Self { resource: Arc::new(resource), key, uid: uid.into(), resource_version: String::new() }
    }
}

/// Takes events; cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder(mpsc::Sender<Message>);

#[derive(Debug)]
struct Message {
    subject: Subject,
    source: String,
    r#type: EventType,
    reason: String,
    note: String,
}

/// The task that sends what a [`Recorder`] takes.
pub(crate) struct Sender {
    messages: mpsc::Receiver<Message>,
    client: Client,
    clock: Clock,
    sent: HashMap<Identity, Sent>,
}

type Identity = (String, EventType, String, String);

struct Sent {
    namespace: String,
    name: String,
    count: i32,
    at: Instant,
}

/// A recorder and the task that sends its events.
pub(crate) fn recorder(client: Client, clock: Clock) -> (Recorder, Sender) {
    let (sender, messages) = mpsc::channel(WAITING);
    let sender_task = Sender { messages, client, clock, sent: HashMap::new() };
    (Recorder(sender), sender_task)
}

impl Recorder {
    /// Records an event about an object. Never waits.
    pub fn record(&self, subject: &Subject, source: &str, r#type: EventType, reason: &str, note: String) {
        let message = Message {
            subject: subject.clone(),
            source: source.to_owned(),
            r#type,
            reason: reason.to_owned(),
            note: shorten(note),
        };
        if self.0.try_send(message).is_err() {
            tracing::debug!(key = %subject.key, reason, "too many events wait, one is dropped");
        }
    }
}

impl Sender {
    /// Sends until all recorders are gone.
    pub(crate) async fn run(mut self) {
        while let Some(message) = self.messages.recv().await {
            if let Err(error) = self.send(&message).await {
                let error = crate::Error::from(error);
                tracing::warn!(key = %message.subject.key, reason = message.reason, %error, "an event cannot be written");
            }
        }
    }

    async fn send(&mut self, message: &Message) -> kube::Result<()> {
        let identity =
            (message.subject.uid.clone(), message.r#type, message.reason.clone(), message.note.clone());
        let now = Time((self.clock)());
        if let Some(sent) = self.sent.get_mut(&identity)
            && sent.at.elapsed() < TOGETHER
        {
            let patch = json!({"count": sent.count + 1, "lastTimestamp": now});
            let api: Api<Event> = Api::namespaced(self.client.clone(), &sent.namespace);
            match api.patch(&sent.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(_) => {
                    sent.count += 1;
                    sent.at = Instant::now();
                    return Ok(());
                }
                // Events are cleaned up by the server: then a new one begins.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        let event = message.event(&now);
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let created = api.create(&PostParams::default(), &event).await?;
        if self.sent.len() >= REMEMBERED {
            self.sent.retain(|_, sent| sent.at.elapsed() < TOGETHER);
            if self.sent.len() >= REMEMBERED {
                self.sent.clear();
            }
        }
        self.sent.insert(
            identity,
            Sent { namespace, name: created.metadata.name.unwrap_or_default(), count: 1, at: Instant::now() },
        );
        Ok(())
    }
}

impl Message {
    fn event(&self, now: &Time) -> Event {
        let Subject { resource, key, uid, resource_version } = &self.subject;
        // Events about what has no namespace live in the default one.
        let namespace = key.namespace().unwrap_or("default").to_owned();
        Event {
            metadata: ObjectMeta {
                name: Some(event_name(key.name())),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some(resource.api_version.clone()),
                kind: Some(resource.kind.clone()),
                name: Some(key.name().to_owned()),
                namespace: key.namespace().map(str::to_owned),
                uid: Some(uid.clone()),
                resource_version: Some(resource_version.clone()).filter(|version| !version.is_empty()),
                ..ObjectReference::default()
            },
            reason: Some(self.reason.clone()),
            message: Some(self.note.clone()),
            type_: Some(self.r#type.as_str().to_owned()),
            source: Some(EventSource { component: Some(self.source.clone()), host: None }),
            reporting_component: Some(self.source.clone()),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now.clone()),
            count: Some(1),
            ..Event::default()
        }
    }
}

/// A name of its own for every event. The server refuses a generated name after a dot.
fn event_name(object: &str) -> String {
    let stem: String = object.chars().take(LONGEST_STEM).collect();
    format!("{}.{:016x}", stem.trim_end_matches(['-', '.']), rand::random::<u64>())
}

fn shorten(mut note: String) -> String {
    if note.len() > NOTE {
        let end = (0..=NOTE - 3).rev().find(|at| note.is_char_boundary(*at));
        note.truncate(end.unwrap_or(0));
        note.push_str("...");
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_cut_between_characters() {
        let note = shorten("é".repeat(1000));
        assert!(note.len() <= NOTE);
        assert!(note.ends_with("é..."));
        assert_eq!(shorten("short".to_owned()), "short");
    }
}
