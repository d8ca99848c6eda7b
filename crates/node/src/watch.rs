//! Following a kind of objects: list, then watch, for as long as it takes.

use std::fmt::Debug;
use std::time::Duration;

use futures::TryStreamExt;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

/// A change of the objects that are followed.
#[derive(Debug)]
pub(crate) enum Change<K> {
    /// These are all there are; others are gone.
    All(Vec<K>),
    /// This one is new or changed.
    Set(Box<K>),
    /// This one is gone.
    Gone(Box<K>),
}

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(10);
const PAGE: u32 = 500;

/// Sends changes until the receiver is dropped. Nothing is lost when the connection is: what
/// happened meanwhile comes with the next list.
pub(crate) async fn follow<K>(api: Api<K>, fields: Option<String>, changes: mpsc::Sender<Change<K>>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    let mut delay = FIRST;
    let kind = K::kind(&K::DynamicType::default()).into_owned();
    loop {
        let ended = match list(&api, fields.as_deref()).await {
            Ok((objects, revision)) => {
                delay = FIRST;
                if changes.send(Change::All(objects)).await.is_err() {
                    return;
                }
                watch(&api, fields.as_deref(), revision, &changes).await
            }
            Err(error) => Err(error),
        };
        match ended {
            Ok(End::Expired) => continue,
            Ok(End::Unwanted) => return,
            Err(error) => tracing::debug!(kind, %error, "watch interrupted"),
        }
        let pause = delay.mul_f64(rand::random_range(0.5..1.0));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = changes.closed() => return,
        }
        delay = (delay * 2).min(LONGEST);
    }
}

enum End {
    /// The server no longer knows the revision: list again.
    Expired,
    /// Nobody listens any more.
    Unwanted,
}

async fn list<K>(api: &Api<K>, fields: Option<&str>) -> Result<(Vec<K>, String), kube::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = ListParams::default().limit(PAGE);
    params.field_selector = fields.map(str::to_string);
    let mut objects = Vec::new();
    loop {
        let page = api.list(&params).await?;
        objects.extend(page.items);
        let revision = page.metadata.resource_version.unwrap_or_default();
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok((objects, revision)),
        }
    }
}

async fn watch<K>(
    api: &Api<K>,
    fields: Option<&str>,
    mut revision: String,
    changes: &mpsc::Sender<Change<K>>,
) -> Result<End, kube::Error>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    let params = WatchParams { field_selector: fields.map(str::to_string), ..WatchParams::default() };
    loop {
        let stream = api.watch(&params, &revision).await?;
        let mut stream = std::pin::pin!(stream);
        loop {
            let event = tokio::select! {
                event = stream.try_next() => event?,
                () = changes.closed() => return Ok(End::Unwanted),
            };
            let change = match event {
                // The server ends every watch after some minutes; the next one goes on from here.
                None => break,
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    revision = object.resource_version().unwrap_or(revision);
                    Change::Set(Box::new(object))
                }
                Some(WatchEvent::Deleted(object)) => {
                    revision = object.resource_version().unwrap_or(revision);
                    Change::Gone(Box::new(object))
                }
                Some(WatchEvent::Bookmark(bookmark)) => {
                    revision = bookmark.metadata.resource_version;
                    continue;
                }
                Some(WatchEvent::Error(status)) if status.code == 410 => return Ok(End::Expired),
                Some(WatchEvent::Error(status)) => return Err(kube::Error::Api(status)),
            };
            if changes.send(change).await.is_err() {
                return Ok(End::Unwanted);
            }
        }
    }
}
