//! Keeps one kind's store the same as the server: list once, then watch, and again from where
//! it broke off.
//!
//! ```text
//!   Listing ──all pages──▶ Watching ──ended, failed──▶ Watching (from the last version)
//!      ▲                       │
//!      └───410: too old────────┘
//! ```
//! Every kind has its own loop with its own back-off: one that fails holds up no other.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use http::Request;
use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderValue};
use kube::Client;
use kube::api::{ListParams, WatchParams};
use kube::core::request::Request as RequestBuilder;
use kube::core::{ApiResource, Status};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::header::Header;
use super::lines::Lines;
use super::store::KindStore;
use crate::jitter::Jitter;
use crate::metrics::WatchMetrics;
use crate::request;

/// The server ends a watch after this long; we notice a dead connection a little later.
const WATCH_SECONDS: u32 = 290;
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 15);
/// How long an answer may take to begin; a page of a list, to arrive.
const ANSWER: Duration = Duration::from_secs(60);
const PAGE: u32 = 500;
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How much of each object is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// The whole object.
    Whole,
    /// Only the metadata.
    Metadata,
}

/// The loop of one kind.
pub(crate) struct Watch {
    pub(crate) client: Client,
    pub(crate) store: Arc<KindStore>,
    pub(crate) path: String,
    pub(crate) form: Form,
    /// Field managers whose entries are kept.
    pub(crate) managers: Arc<RwLock<BTreeSet<String>>>,
    pub(crate) health: Arc<WatchHealth>,
    pub(crate) metrics: WatchMetrics,
    pub(crate) jitter: Jitter,
}

/// What the last attempt of a watch came to; people see it when a start takes too long.
#[derive(Debug, Default)]
pub(crate) struct WatchHealth(Mutex<Option<String>>);

impl WatchHealth {
    /// The error that keeps the watch from going on, if there is one.
    pub(crate) fn problem(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, problem: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }
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
            State::Listing => match self.list().await {
                Ok(version) => Ended { next: State::Watching { version }, progress: true, error: None },
                Err(error) => Ended { next: State::Listing, progress: false, error: Some(error) },
            },
            State::Watching { mut version } => {
                let before = version.clone();
                let watched = self.watch(&mut version).await;
                let progress = version != before;
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
        }
    }

    /// Lists everything, page by page, and sweeps what is gone.
    async fn list(&self) -> kube::Result<String> {
        self.store.list_started();
        let mut params = ListParams::default().limit(PAGE);
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
                self.metrics.heard();
                return Ok(version);
            }
            params = params.continue_token(&page.metadata.continue_token);
        }
    }

    /// Follows the changes after `version`, which moves along.
    async fn watch(&self, version: &mut String) -> kube::Result<()> {
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        let request = request::built(self.builder().watch(&params, version))?;
        let mut request = self.dress(request, "");
        // A compressed stream holds events back.
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let body = in_time(request::open(&self.client, request)).await?;
        self.health.set(None);
        let mut lines = Lines::new(body);
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
        self.metrics.heard();
        let Ok(event) = serde_json::from_slice::<RawEvent<'_>>(line) else {
            return Err(status_of(line));
        };
        if event.r#type == "ERROR" {
            return Err(status_of(event.object.get().as_bytes()));
        }
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
            Ok(header) => Some(header),
            Err(error) => {
                tracing::warn!(kind = %self.store.resource.kind, %error, "an object cannot be read and is left out");
                self.metrics.quarantined();
                None
            }
        }
    }

    fn builder(&self) -> RequestBuilder {
        RequestBuilder::new(&self.path)
    }

    fn dress(&self, mut request: Request<Vec<u8>>, list: &str) -> Request<Vec<u8>> {
        if self.form == Form::Metadata {
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

fn status_of(bytes: &[u8]) -> kube::Error {
    match serde_json::from_slice::<Status>(bytes) {
        Ok(status) => kube::Error::Api(status.boxed()),
        Err(error) => kube::Error::SerdeError(error),
    }
}
