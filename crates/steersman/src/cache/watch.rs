//! Keeps one kind's store the same as the server: list once, then watch, and again from where
//! it broke off.
//!
//! ```text
//!   Listing ──everything──▶ Watching ──ended, failed──▶ Watching (from the last version)
//!      ▲                       │
//!      └───410: too old────────┘
//! ```
//! A list is a watch that begins with everything there is (`sendInitialEvents`), so that no
//! page is ever held in memory; a server that does not know it is asked for pages instead.
//! Every kind has its own loop with its own back-off: one that fails holds up no other.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::Request;
use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderValue};
use kube::Client;
use kube::api::{ListParams, WatchParams};
use kube::client::Body;
use kube::core::request::Request as RequestBuilder;
use kube::core::{ApiResource, Status};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::header::Header;
pub(crate) use super::health::WatchHealth;
use super::lines::Lines;
use super::selection::Form;
use super::store::KindStore;
use crate::jitter::Jitter;
use crate::metrics::WatchMetrics;
use crate::request;

/// The server ends a watch after this long; we notice a dead connection a little later.
const WATCH_SECONDS: u32 = 290;
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 15);
/// A watch that is well has been heard of since then: it ends after half of it at the latest.
pub(super) const STUCK: Duration = Duration::from_secs(2 * (WATCH_SECONDS as u64 + 75));
/// How long an answer may take to begin; a page of a list, to arrive.
const ANSWER: Duration = Duration::from_secs(60);
/// A server that does not know `sendInitialEvents` may ignore it: then the end of the list is
/// never said, and nothing comes for this long.
const PAUSE_IN_LIST: Duration = Duration::from_secs(20);
/// The annotation of the bookmark after the last object of a list.
const LIST_ENDS: &str = "k8s.io/initial-events-end";
const PAGE: u32 = 500;
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The loop of one kind.
pub(crate) struct Watch {
    pub(crate) client: Client,
    pub(crate) store: Arc<KindStore>,
    pub(crate) path: String,
    /// Whether lists may come as events; not once the server has shown that it cannot.
    pub(crate) streams: AtomicBool,
    /// Field managers whose entries are kept.
    pub(crate) managers: Arc<RwLock<BTreeSet<String>>>,
    pub(crate) health: Arc<WatchHealth>,
    pub(crate) metrics: WatchMetrics,
    pub(crate) jitter: Jitter,
}

/// How a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    /// With the first change after a version.
    After,
    /// With everything there is.
    WithEverything,
}

/// Where a watch stands.
enum State {
    Listing,
    Watching { version: String },
}

/// How a step ended, and where to go on.
struct Ended {
    next: State,
    /// Whether anything came from the server: then the next trouble starts with a short pause.
    progress: bool,
    error: Option<kube::Error>,
}

/// One line of a watch.
#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct RawList<'a> {
    metadata: RawListMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawListMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    continue_token: String,
}

impl Watch {
    /// Runs until cancelled.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let mut state = State::Listing;
        let mut failures = 0;
        loop {
            let began = Instant::now();
            let ended = tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                ended = self.step(state) => ended,
            };
            state = ended.next;
            if ended.progress {
                failures = 0;
            }
            // A server that hangs up at once must not be asked again and again.
            let hasty = !ended.progress && began.elapsed() < SHORTEST_PAUSE;
            if ended.error.is_none() && !hasty {
                self.health.set(None);
                continue;
            }
            failures += 1;
            let pause = self.jitter.back_off(SHORTEST_PAUSE, LONGEST_PAUSE, failures);
            if let Some(error) = ended.error {
                let error = crate::Error::from(error);
                tracing::warn!(
                    kind = %self.store.resource.kind, path = %self.path, %error, retry_in = ?pause,
                    "watch failed"
                );
                self.metrics.restarted("error");
                self.health.set(Some(error.to_string()));
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn step(&self, state: State) -> Ended {
        match state {
            State::Listing if self.streams.load(Ordering::Relaxed) => self.list_by_watch().await,
            State::Listing => match self.list_by_pages().await {
                Ok(version) => Ended { next: State::Watching { version }, progress: true, error: None },
                Err(error) => Ended { next: State::Listing, progress: false, error: Some(error) },
            },
            State::Watching { mut version } => {
                let before = version.clone();
                let watched = match self.open(&version, Begin::After).await {
                    Ok(mut lines) => self.follow(&mut lines, &mut version).await,
                    Err(error) => Err(error),
                };
                let progress = version != before;
                self.ended(watched, version, progress)
            }
        }
    }

    /// Where to go on after a watch that stood at `version`.
    fn ended(&self, watched: kube::Result<()>, version: String, progress: bool) -> Ended {
        match watched {
            Ok(()) => Ended { next: State::Watching { version }, progress, error: None },
            Err(error) if request::code(&error) == Some(410) => {
                tracing::debug!(kind = %self.store.resource.kind, "version too old, listing again");
                self.metrics.restarted("expired");
                Ended { next: State::Listing, progress, error: None }
            }
            Err(error) => Ended { next: State::Watching { version }, progress, error: Some(error) },
        }
    }

    /// Lists everything as the beginning of a watch, sweeps what is gone, and watches on.
    async fn list_by_watch(&self) -> Ended {
        let listing = async {
            let mut lines = self.open("", Begin::WithEverything).await?;
            let version = self.take_initial(&mut lines).await?;
            Ok::<_, kube::Error>(version.map(|version| (lines, version)))
        };
        match listing.await {
            Ok(Some((mut lines, mut version))) => {
                let watched = self.follow(&mut lines, &mut version).await;
                self.ended(watched, version, true)
            }
            Ok(None) => self.list_differently("it never said that the list is complete"),
            // What the server does not understand it calls invalid.
            Err(error) if matches!(request::code(&error), Some(400 | 422)) => {
                self.list_differently(&crate::Error::from(error).to_string())
            }
            Err(error) => Ended { next: State::Listing, progress: false, error: Some(error) },
        }
    }

    /// Lists with pages from now on.
    fn list_differently(&self, why: &str) -> Ended {
        tracing::debug!(kind = %self.store.resource.kind, why, "the server does not list by watching");
        self.streams.store(false, Ordering::Relaxed);
        Ended { next: State::Listing, progress: true, error: None }
    }

    /// Takes in everything there is; gives the version of the list, or nothing when its end is
    /// never said.
    async fn take_initial(&self, lines: &mut Lines<Body>) -> kube::Result<Option<String>> {
        self.store.list_started();
        loop {
            let Ok(line) = timeout(PAUSE_IN_LIST, lines.next()).await else {
                return Ok(None);
            };
            let Some(line) = line? else {
                return Err(kube::Error::Service("the list broke off before its end".into()));
            };
            if line.is_empty() {
                continue;
            }
            self.health.heard();
            let event = parse(&line)?;
            let Some(header) = self.scan(event.object) else {
                continue;
            };
            match &*event.r#type {
                "ADDED" | "MODIFIED" => self.store.listed(vec![header]),
                "DELETED" => self.store.deleted(&header),
                "BOOKMARK" if header.annotations().get(LIST_ENDS).is_some_and(|ends| ends == "true") => {
                    let version = header.resource_version().to_owned();
                    self.store.list_finished(&version);
                    self.health.set(None);
                    return Ok(Some(version));
                }
                _ => {}
            }
        }
    }

    /// Lists everything, page by page, and sweeps what is gone.
    async fn list_by_pages(&self) -> kube::Result<String> {
        self.store.list_started();
        let mut params = ListParams::default().limit(PAGE);
        params.label_selector = self.store.selection.labels.as_ref().map(ToString::to_string);
        params.field_selector.clone_from(&self.store.selection.fields);
        loop {
            let request = request::built(self.builder().list(&params))?;
            let page = request::send(&self.client, self.dress(request, "List"));
            let body = in_time(page).await?;
            let page: RawList<'_> = serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?;
            let items = page.items.unwrap_or_default();
            self.store.listed(items.iter().filter_map(|item| self.scan(item)).collect());
            if page.metadata.continue_token.is_empty() {
                let version = page.metadata.resource_version;
                self.store.list_finished(&version);
                self.health.heard();
                return Ok(version);
            }
            params = params.continue_token(&page.metadata.continue_token);
        }
    }

    /// Opens a watch.
    async fn open(&self, version: &str, begin: Begin) -> kube::Result<Lines<Body>> {
        let mut params = WatchParams::default().timeout(WATCH_SECONDS);
        params.send_initial_events = begin == Begin::WithEverything;
        params.label_selector = self.store.selection.labels.as_ref().map(ToString::to_string);
        params.field_selector.clone_from(&self.store.selection.fields);
        let request = request::built(self.builder().watch(&params, version))?;
        let mut request = self.dress(request, "");
        // A compressed stream holds events back.
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let body = in_time(request::open(&self.client, request)).await?;
        // An idle server may have nothing else to say for as long as a watch lasts.
        self.health.heard();
        if begin == Begin::After {
            self.health.set(None);
        }
        Ok(Lines::new(body))
    }

    /// Follows the changes after `version`, which moves along.
    async fn follow(&self, lines: &mut Lines<Body>, version: &mut String) -> kube::Result<()> {
        loop {
            let deadline = Instant::now() + SILENCE;
            let Ok(line) = timeout_at(deadline, lines.next()).await else {
                tracing::warn!(kind = %self.store.resource.kind, "watch is silent, connecting again");
                self.metrics.restarted("silent");
                return Ok(());
            };
            match line? {
                Some(line) if line.is_empty() => {}
                Some(line) => self.event(&line, version)?,
                None => return Ok(()),
            }
        }
    }

    fn event(&self, line: &[u8], version: &mut String) -> kube::Result<()> {
        self.health.heard();
        let event = parse(line)?;
        let Some(header) = self.scan(event.object) else {
            return Ok(());
        };
        if !header.resource_version().is_empty() {
            header.resource_version().clone_into(version);
        }
        match &*event.r#type {
            "ADDED" | "MODIFIED" => self.store.applied(header),
            "DELETED" => self.store.deleted(&header),
            "BOOKMARK" => self.store.bookmark(header.resource_version()),
            other => tracing::debug!(kind = other, "an event of an unknown type is left out"),
        }
        Ok(())
    }

    /// One object that is not as it should be is left out; the others go on.
    fn scan(&self, object: &RawValue) -> Option<Header> {
        let managers = self.managers.read().unwrap_or_else(PoisonError::into_inner);
        match Header::scan(object.get().as_bytes(), &self.store.resource, &managers) {
            Ok(header) => {
                self.health.readable(header.key().as_str());
                Some(header)
            }
            Err(error) => {
                let name = name_of(object);
                tracing::warn!(kind = %self.store.resource.kind, name, %error, "an object cannot be read and is left out");
                self.metrics.quarantined();
                self.health.quarantine(name, error.to_string());
                None
            }
        }
    }

    fn builder(&self) -> RequestBuilder {
        RequestBuilder::new(&self.path)
    }

    fn dress(&self, mut request: Request<Vec<u8>>, list: &str) -> Request<Vec<u8>> {
        if self.store.selection.form == Form::Metadata {
            let accept = format!(
                "application/json;as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1,application/json"
            );
            if let Ok(accept) = HeaderValue::from_str(&accept) {
                request.headers_mut().insert(ACCEPT, accept);
            }
        }
        request
    }
}

/// The path of a kind's objects, in one namespace or in all.
pub(crate) fn collection_path(resource: &ApiResource, namespace: Option<&str>) -> String {
    let base = match resource.group.as_str() {
        "" => format!("/api/{}", resource.version),
        _ => format!("/apis/{}", resource.api_version),
    };
    match namespace {
        Some(namespace) => format!("{base}/namespaces/{namespace}/{}", resource.plural),
        None => format!("{base}/{}", resource.plural),
    }
}

/// A connection that died silently would hold up the watch for ever.
async fn in_time<T>(answer: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    match timeout(ANSWER, answer).await {
        Ok(answer) => answer,
        Err(_) => {
            let late = format!("the server did not answer within {ANSWER:?}");
            Err(kube::Error::Service(late.into()))
        }
    }
}

/// One event; an error when it is one.
fn parse(line: &[u8]) -> kube::Result<RawEvent<'_>> {
    match serde_json::from_slice::<RawEvent<'_>>(line) {
        Ok(event) if event.r#type == "ERROR" => Err(status_of(event.object.get().as_bytes())),
        Ok(event) => Ok(event),
        Err(_) => Err(status_of(line)),
    }
}

/// The name of an object that cannot be read, as far as it can be told.
fn name_of(object: &RawValue) -> String {
    let object: serde_json::Value = serde_json::from_str(object.get()).unwrap_or_default();
    let text = |field: &str| match &object["metadata"][field] {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => String::new(),
        other => other.to_string(),
    };
    crate::Key::new(&text("namespace"), &text("name")).to_string()
}

fn status_of(bytes: &[u8]) -> kube::Error {
    match serde_json::from_slice::<Status>(bytes) {
        Ok(status) => kube::Error::Api(status.boxed()),
        Err(error) => kube::Error::SerdeError(error),
    }
}
