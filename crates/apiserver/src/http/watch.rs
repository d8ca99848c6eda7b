//! `watch=true`: a stream of events.

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::stream;
use http::Response;
use rand::Rng as _;
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{
    Body,
    negotiate::{Encoding, Format, MetaVersion, View},
    respond,
};
use crate::{
    engine::{
        Call, Engine, Filter, api_version,
        meta::Meta,
        view::{self, Lens},
    },
    object::{Change, Revision, Stored},
    status::Failure,
    table::{self, IncludeObject},
    types::Resource,
    watch::{Event, Subscription},
};

/// How often a quiet watch learns how far it is.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// The last bookmark comes this long before the end.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// Watches without a time of their own end after half an hour to an hour.
const DEFAULT_TIMEOUT: std::ops::Range<u64> = 1800..3600;
/// Events that are there already are sent together up to this size.
const CHUNK: usize = 64 * 1024;

/// Answers a watch.
pub(super) async fn answer(
    engine: &Arc<Engine>,
    call: &Call<'_>,
    format: Format,
    closing: &CancellationToken,
) -> Result<Response<Body>, Failure> {
    let start = Start::parse(call)?;
    let filter = Filter::parse(call)?;
    let shape = match format.view {
        View::Whole => Shape::Whole,
        View::Metadata(version) => Shape::Metadata(version),
        View::Table(version) => {
            Shape::Table { version, include: respond::include(call.query)?, columns: true }
        }
    };
    if format.encoding == Encoding::Yaml {
        return Err(Failure::not_acceptable());
    }
    let storage = &*call.resource.storage.name;
    let namespace = (!call.object_namespace().is_empty()).then(|| call.object_namespace());
    let mut watcher = Watcher {
        engine: Arc::clone(engine),
        resource: Arc::clone(call.resource),
        lens: Lens::new(&engine.served.load(), call.resource),
        filter,
        shape,
        bookmarks: call.query.flag("allowWatchBookmarks")?,
        events: None,
        out: BytesMut::new(),
        ends: Instant::now() + timeout(call)?,
        next_bookmark: Instant::now() + BOOKMARKS,
        ended: false,
        closing: closing.clone(),
        closed: Box::pin(closing.clone().cancelled_owned()),
        alarm: Box::pin(sleep_until(Instant::now())),
    };
    let from = match start {
        Start::WithWhatThereIs { not_older } => {
            engine.fresh(not_older.0).await?;
            let snapshot = engine.store.list(storage, namespace);
            if call.resource.conversion_webhook().is_some() {
                let objects = engine.shown_many(call.resource, snapshot.iter().cloned().collect()).await?;
                watcher.initial(objects.iter(), snapshot.revision);
            } else {
                watcher.initial(snapshot.iter(), snapshot.revision);
            }
            snapshot.revision
        }
        Start::FromNow => engine.store.revision(),
        Start::After(revision) => revision,
    };
    match engine.store.watch(storage, namespace, from.min(engine.store.revision())) {
        Ok(events) => watcher.events = Some(events),
        Err(expired) => watcher.expire(&expired.to_string()),
    }
    let chunks =
        stream::unfold(
            watcher,
            |mut watcher| async move { watcher.next().await.map(|chunk| (chunk, watcher)) },
        );
    Ok(respond::with_type(200, "application/json", Body::stream(chunks)))
}

fn timeout(call: &Call<'_>) -> Result<Duration, Failure> {
    let seconds = call
        .query
        .number("timeoutSeconds")?
        .and_then(|seconds| u64::try_from(seconds).ok())
        .filter(|seconds| *seconds > 0);
    Ok(Duration::from_secs(
        seconds.unwrap_or_else(|| rand::rng().random_range(DEFAULT_TIMEOUT)).min(24 * 3600),
    ))
}

/// Where a watch begins.
enum Start {
    /// With what there is, at least as new as a version.
    WithWhatThereIs { not_older: Revision },
    /// With what happens from now on.
    FromNow,
    /// With what happened after a version.
    After(Revision),
}

impl Start {
    fn parse(call: &Call<'_>) -> Result<Self, Failure> {
        let version = call.query.get("resourceVersion");
        let matching = call.query.get("resourceVersionMatch");
        let invalid = |field: &str, why: &str| {
            let error = crate::schema::FieldError::forbidden(field, why);
            Failure::invalid("meta.k8s.io", "ListOptions", "", &[error])
        };
        let parsed = match version {
            None | Some("0") => None,
            Some(text) => Some(Revision(text.parse().map_err(|_| {
                let error =
                    crate::schema::FieldError::invalid("resourceVersion", text, "must be a whole number");
                Failure::invalid("meta.k8s.io", "ListOptions", "", &[error])
            })?)),
        };
        if call.query.given("sendInitialEvents").is_some() {
            let initial = call.query.flag("sendInitialEvents")?;
            if matching != Some("NotOlderThan") {
                return Err(invalid(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
            }
            return Ok(match (initial, parsed) {
                (true, not_older) => Self::WithWhatThereIs { not_older: not_older.unwrap_or_default() },
                (false, Some(revision)) => Self::After(revision),
                (false, None) => Self::FromNow,
            });
        }
        if matching.is_some() {
            return Err(invalid(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        Ok(parsed.map_or(Self::WithWhatThereIs { not_older: Revision::default() }, Self::After))
    }
}

enum Shape {
    Whole,
    Metadata(MetaVersion),
    Table {
        version: MetaVersion,
        include: IncludeObject,
        /// Columns are defined in the first event only.
        columns: bool,
    },
}

/// What a bookmark marks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// That what there was has been told.
    InitialEnd,
    /// How far the watch is.
    Progress,
}

/// One watch: writes events into `out`, which is sent when there is nothing more to write.
struct Watcher {
    engine: Arc<Engine>,
    resource: Arc<Resource>,
    lens: Lens,
    filter: Filter,
    shape: Shape,
    bookmarks: bool,
    events: Option<Subscription>,
    out: BytesMut,
    ends: Instant,
    next_bookmark: Instant,
    ended: bool,
    closing: CancellationToken,
    /// These two stay from one event to the next: to wait for them anew each time costs more than an event.
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    alarm: Pin<Box<Sleep>>,
}

impl Watcher {
    /// The next bytes to send; nothing at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !self.out.is_empty() {
                return Some(self.out.split().freeze());
            }
            if self.ended {
                return None;
            }
            let bookmark = self
                .next_bookmark
                .min(self.ends.checked_sub(LAST_BOOKMARK).unwrap_or(self.ends).max(Instant::now()));
            let alarm = if self.bookmarks { bookmark.min(self.ends) } else { self.ends };
            if self.alarm.deadline() != alarm {
                self.alarm.as_mut().reset(alarm);
            }
            let events = self.events.as_mut()?;
            tokio::select! {
                biased;
                () = self.closed.as_mut() => self.ended = true,
                event = events.next() => match event {
                    None => self.ended = true,
                    Some(Err(lagged)) => self.expire(&lagged.to_string()),
                    Some(Ok(event)) => self.take(event).await,
                },
                () = self.alarm.as_mut() => {
                    if Instant::now() >= self.ends {
                        self.ended = true;
                        continue;
                    }
                    let progress = events.progress();
                    self.bookmark(progress, Mark::Progress);
                    // Once within the last seconds there is no further one.
                    self.next_bookmark = if Instant::now() + LAST_BOOKMARK >= self.ends {
                        self.bookmarks = false;
                        self.ends
                    } else {
                        Instant::now() + BOOKMARKS
                    };
                }
            }
        }
    }

    /// Writes an event and those that are there already.
    async fn take(&mut self, event: Arc<Event>) {
        self.translated(event).await;
        while self.out.len() < CHUNK
            && !self.ended
            && let Some(next) = self.events.as_mut().and_then(Subscription::try_next)
        {
            match next {
                Ok(event) => self.translated(event).await,
                Err(lagged) => return self.expire(&lagged.to_string()),
            }
        }
    }

    /// Writes an event once its objects are in the version of the watch.
    async fn translated(&mut self, event: Arc<Event>) {
        if self.resource.conversion_webhook().is_none() {
            return self.event(&event);
        }
        let engine = Arc::clone(&self.engine);
        let objects = std::iter::once(&event.object).chain(&event.previous).cloned().collect();
        let shown = tokio::select! {
            () = self.closing.cancelled() => {
                self.ended = true;
                return;
            }
            shown = engine.shown_many(&self.resource, objects) => shown,
        };
        match shown.map(|objects| objects.into_iter()) {
            Ok(mut objects) => {
                if let Some(object) = objects.next() {
                    self.event(&Event { kind: event.kind, object, previous: objects.next() });
                }
            }
            Err(failure) => {
                self.frame("ERROR", failure.to_value().to_string().as_bytes());
                self.ended = true;
            }
        }
    }

    fn event(&mut self, event: &Event) {
        let now = event.kind != Change::Deleted && self.filter.matches(&self.resource, &event.object);
        let before =
            event.previous.as_ref().is_some_and(|previous| self.filter.matches(&self.resource, previous));
        match (before, now) {
            (false, true) => self.object("ADDED", &event.object),
            (true, true) => self.object("MODIFIED", &event.object),
            (true, false) if event.kind == Change::Deleted => self.object("DELETED", &event.object),
            (true, false) => {
                // It left the selection: clients get what they knew, at the version at which it left.
                if let Some(previous) = &event.previous {
                    let mut value = self.lens.value(&self.resource, previous);
                    value.meta_set("resourceVersion", Some(event.object.revision.to_string().into()));
                    self.tree("DELETED", value);
                }
            }
            (false, false) => {}
        }
    }

    /// Writes an object, in its own frame where that says the same.
    fn object(&mut self, kind: &str, stored: &Stored) {
        match &self.shape {
            Shape::Whole if self.lens.is_clear(stored) && is_framed_as(kind, stored) => {
                self.out.extend_from_slice(stored.frame());
            }
            Shape::Whole => {
                let bytes = self.lens.bytes(&self.resource, stored);
                self.frame(kind, &bytes);
            }
            _ => {
                let value = self.lens.value(&self.resource, stored);
                self.tree(kind, value);
            }
        }
    }

    fn tree(&mut self, kind: &str, value: Value) {
        let shown = match &mut self.shape {
            Shape::Whole => value,
            Shape::Metadata(version) => view::metadata_only(&value, *version),
            Shape::Table { version, include, columns } => {
                let mut table =
                    table::render(&self.resource, &[&value], *include, (self.engine.options.clock)());
                table["apiVersion"] = version.api_version().into();
                table["metadata"] = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
                if !std::mem::take(columns) {
                    table["columnDefinitions"] = json!([]);
                }
                table
            }
        };
        self.frame(kind, shown.to_string().as_bytes());
    }

    fn frame(&mut self, kind: &str, object: &[u8]) {
        self.out.reserve(object.len() + 48);
        self.out.extend_from_slice(b"{\"type\":\"");
        self.out.extend_from_slice(kind.as_bytes());
        self.out.extend_from_slice(b"\",\"object\":");
        self.out.extend_from_slice(object);
        self.out.extend_from_slice(b"}\n");
    }

    /// Writes what there is as if it were new.
    fn initial<'a>(&mut self, objects: impl Iterator<Item = &'a Arc<Stored>>, revision: Revision) {
        for stored in objects {
            if self.filter.matches(&self.resource, stored) {
                self.object("ADDED", stored);
            }
        }
        if self.bookmarks {
            self.bookmark(revision, Mark::InitialEnd);
        }
    }

    /// Tells how far the watch is.
    fn bookmark(&mut self, revision: Revision, mark: Mark) {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if mark == Mark::InitialEnd {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match &self.shape {
            Shape::Table { version, .. } => json!({
                "kind": "Table", "apiVersion": version.api_version(), "metadata": {"resourceVersion": revision.to_string()},
                "columnDefinitions": [],
                "rows": [{"cells": [], "object": {"kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": metadata}}],
            }),
            Shape::Metadata(version) => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": metadata})
            }
            Shape::Whole => {
                json!({"kind": &*self.resource.kind, "apiVersion": api_version(&self.resource), "metadata": metadata})
            }
        };
        self.frame("BOOKMARK", object.to_string().as_bytes());
    }

    /// Ends the watch: the client must list again.
    fn expire(&mut self, why: &str) {
        let status = Failure::expired(format!("too old resource version: {why}")).to_value();
        self.frame("ERROR", status.to_string().as_bytes());
        self.ended = true;
    }
}

/// Whether an object's own frame says that this happened to it.
fn is_framed_as(kind: &str, stored: &Stored) -> bool {
    stored.frame().strip_prefix(b"{\"type\":\"").is_some_and(|rest| rest.starts_with(kind.as_bytes()))
}
