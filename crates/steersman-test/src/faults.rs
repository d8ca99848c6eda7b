//! What goes wrong between an operator and the API server.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body as HttpBody, Frame};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use steersman::{CancellationToken, Object};
use tokio::time::Sleep;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tower::{BoxError, service_fn};

use crate::storm::{Dice, Storm};

/// How many writes are remembered by name.
const REMEMBERED: usize = 20;

/// Faults to inject. All of them touch operators only, never the test's own client.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    rules: Vec<Rule>,
    /// Cancelled to end all open watches.
    watches: CancellationToken,
    /// Writes until the crash.
    crash_after: Option<u32>,
    crashed: CancellationToken,
    storm: Option<Dice>,
    watch_lists: WatchLists,
    writes: u64,
    last_writes: VecDeque<String>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            watches: CancellationToken::new(),
            crash_after: None,
            crashed: CancellationToken::new(),
            storm: None,
            watch_lists: WatchLists::default(),
            writes: 0,
            last_writes: VecDeque::new(),
        }
    }
}

#[derive(Debug)]
struct Rule {
    verb: Verb,
    /// Any kind if empty.
    plural: String,
    fault: Fault,
    /// How often it still happens; for ever if none.
    times: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Read,
    Watch,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The server never sees the request.
    Refuse(u16, &'static str),
    /// The server does what was asked, and the answer is lost.
    LoseAnswer,
    /// The server does what was asked, and the client never goes on.
    Crash,
    /// The watch opens, and its first event says that the version is too old.
    ExpiredEvent,
    /// The watch opens, and nothing is ever heard on it.
    Silence,
}

/// What the server makes of a watch that is to begin with everything there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WatchLists {
    #[default]
    Served,
    Refused,
    Ignored,
}

impl Faults {
    /// Ends all open watches, as a restarted server or a broken connection would.
    pub fn drop_watches(&self) {
        let mut state = self.lock();
        state.watches.cancel();
        state.watches = CancellationToken::new();
    }

    /// Ends all open watches, and has the next watch of this kind told that its version is too
    /// old.
    pub fn expire_watches<K: Object>(&self) {
        self.rule::<K>(Verb::Watch, Fault::Refuse(410, "Expired"), Some(1));
        self.drop_watches();
    }

    /// Ends all open watches, and has the next watch of this kind told so by its first event,
    /// which is how most servers say it.
    pub fn expire_watches_by_event<K: Object>(&self) {
        self.rule::<K>(Verb::Watch, Fault::ExpiredEvent, Some(1));
        self.drop_watches();
    }

    /// Ends all open watches, and nothing is heard on the next one of this kind, as if a
    /// firewall had forgotten the connection.
    pub fn silence_watch<K: Object>(&self) {
        self.rule::<K>(Verb::Watch, Fault::Silence, Some(1));
        self.drop_watches();
    }

    /// The server is one that refuses watches that begin with a list, until [`Faults::clear`].
    pub fn refuse_watch_lists(&self) {
        self.lock().watch_lists = WatchLists::Refused;
    }

    /// The server is one that does not know watches that begin with a list, and does as if
    /// nothing had been said of it, until [`Faults::clear`].
    pub fn ignore_watch_lists(&self) {
        self.lock().watch_lists = WatchLists::Ignored;
    }

    /// Forbids to watch a kind, until [`Faults::clear`].
    pub fn refuse_watches<K: Object>(&self) {
        self.rule::<K>(Verb::Watch, Fault::Refuse(403, "Forbidden"), None);
        self.drop_watches();
    }

    /// Forbids to list or get a kind, until [`Faults::clear`].
    pub fn refuse_reads<K: Object>(&self) {
        self.rule::<K>(Verb::Read, Fault::Refuse(403, "Forbidden"), None);
    }

    /// The next write to this kind meets a conflict.
    pub fn conflict_once<K: Object>(&self) {
        self.rule::<K>(Verb::Write, Fault::Refuse(409, "Conflict"), Some(1));
    }

    /// The next `times` writes fail before the server sees them.
    pub fn fail_before(&self, times: u32) {
        self.any(Verb::Write, Fault::Refuse(500, "InternalError"), times);
    }

    /// The next `times` writes take effect, but their answers are lost.
    pub fn fail_after_write(&self, times: u32) {
        self.any(Verb::Write, Fault::LoseAnswer, times);
    }

    /// The write after `writes` others takes effect, and then the operator hangs as if its
    /// process had died: [`Faults::crashed`] tells when. Kill it, [`Faults::clear`], and start
    /// it again.
    pub fn crash_after(&self, writes: u32) {
        self.lock().crash_after = Some(writes);
    }

    /// Waits for the crash.
    pub async fn crashed(&self) {
        let crashed = self.lock().crashed.clone();
        crashed.cancelled().await;
    }

    /// Whether the crash has happened.
    pub fn has_crashed(&self) -> bool {
        self.lock().crashed.is_cancelled()
    }

    /// How many writes operators have sent so far.
    pub fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// The last writes of operators, such as `PATCH /api/v1/namespaces/default/secrets/a`.
    pub fn last_writes(&self) -> Vec<String> {
        self.lock().last_writes.iter().cloned().collect()
    }

    /// Lets faults happen by chance, until [`Faults::clear`].
    pub fn storm(&self, storm: Storm) {
        self.lock().storm = Some(Dice::new(storm));
    }

    /// Nothing goes wrong any more.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.rules.clear();
        state.storm = None;
        state.watch_lists = WatchLists::Served;
        state.crash_after = None;
        state.crashed = CancellationToken::new();
    }

    /// A client through which the faults happen.
    pub fn between(&self, client: &Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let (faults, client) = (self.clone(), client.clone());
        let service = service_fn(move |request: Request<Body>| {
            let (faults, client) = (faults.clone(), client.clone());
            async move { faults.pass(&client, request).await }
        });
        Client::new(service, namespace)
    }

    async fn pass(&self, client: &Client, mut request: Request<Body>) -> Result<Response<Faulty>, BoxError> {
        let verb = verb_of(&request);
        if begins_with_list(&request) && self.lock().watch_lists == WatchLists::Ignored {
            forget_list(&mut request);
        }
        let Some(Admitted { fault, watches, delay }) = self.admit(verb, &request) else {
            return std::future::pending().await;
        };
        // Even the shortest sleep lets a tick of the clock pass.
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        match fault {
            Some(Fault::Refuse(code, reason)) => return Ok(refusal(code, reason)),
            Some(Fault::LoseAnswer) => {
                client.send(request).await?;
                let broken = std::io::Error::new(
                    std::io::ErrorKind::ConnectionReset,
                    "the connection broke after the write (a fault of the test)",
                );
                return Err(broken.into());
            }
            Some(Fault::Crash) => {
                client.send(request).await?;
                self.lock().crashed.cancel();
                return std::future::pending().await;
            }
            Some(Fault::ExpiredEvent) => return Ok(expired_event()),
            Some(Fault::Silence) => {
                let silence = Interference { silent: true, ..Interference::new(self.clone(), watches) };
                return Ok(Response::new(Faulty { body: Body::empty(), interference: Some(silence) }));
            }
            None => {}
        }
        let interference = match verb {
            Verb::Watch => Some(Interference::new(self.clone(), watches)),
            Verb::Read | Verb::Write => None,
        };
        let response = client.send(request).await?;
        Ok(response.map(|body| Faulty { body, interference }))
    }

    /// What the request meets; nothing after a crash.
    fn admit(&self, verb: Verb, request: &Request<Body>) -> Option<Admitted> {
        let mut state = self.lock();
        if state.crashed.is_cancelled() {
            return None;
        }
        let path = request.uri().path();
        if verb == Verb::Write {
            state.writes += 1;
            if state.last_writes.len() == REMEMBERED {
                state.last_writes.pop_front();
            }
            state.last_writes.push_back(format!("{} {path}", request.method()));
        }
        // A watch that begins with everything there is reads as a list does.
        let lists = begins_with_list(request);
        if lists && state.watch_lists == WatchLists::Refused {
            let fault = Some(Fault::Refuse(422, "Invalid"));
            return Some(Admitted { fault, watches: state.watches.clone(), delay: Duration::ZERO });
        }
        let mut fault = state.next(verb, plural_of(path));
        if fault.is_none() && lists {
            fault = state.next(Verb::Read, plural_of(path));
        }
        let delay = state.storm.as_mut().map_or(Duration::ZERO, Dice::delay);
        Some(Admitted { fault, watches: state.watches.clone(), delay })
    }

    /// What becomes of the next event of a watch.
    fn turn(&self) -> Turn {
        let mut state = self.lock();
        let Some(dice) = &mut state.storm else {
            return Turn::default();
        };
        Turn {
            delay: dice.delay(),
            twice: dice.falls(dice.storm.duplicate),
            last: dice.falls(dice.storm.cut),
        }
    }

    fn rule<K: Object>(&self, verb: Verb, fault: Fault, times: Option<u32>) {
        let plural = K::plural(&()).into_owned();
        self.lock().rules.push(Rule { verb, plural, fault, times });
    }

    fn any(&self, verb: Verb, fault: Fault, times: u32) {
        self.lock().rules.push(Rule { verb, plural: String::new(), fault, times: Some(times) });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a request meets on its way.
struct Admitted {
    fault: Option<Fault>,
    /// Ends its watch.
    watches: CancellationToken,
    delay: Duration,
}

/// What becomes of one event.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    delay: Duration,
    twice: bool,
    /// The watch ends after it.
    last: bool,
}

impl State {
    /// The fault that this request meets, if any.
    fn next(&mut self, verb: Verb, plural: &str) -> Option<Fault> {
        if verb == Verb::Write {
            match &mut self.crash_after {
                Some(0) => {
                    self.crash_after = None;
                    return Some(Fault::Crash);
                }
                Some(left) => *left -= 1,
                None => {}
            }
        }
        let rule = self.rules.iter_mut().find(|rule| {
            rule.verb == verb && (rule.plural.is_empty() || rule.plural == plural) && rule.times != Some(0)
        });
        match rule {
            Some(rule) => {
                if let Some(times) = &mut rule.times {
                    *times -= 1;
                }
                Some(rule.fault)
            }
            None => self.storm.as_mut().and_then(|dice| chance(dice, verb)),
        }
    }
}

fn chance(dice: &mut Dice, verb: Verb) -> Option<Fault> {
    let storm = dice.storm;
    if dice.falls(storm.fail) {
        return Some(Fault::Refuse(500, "InternalError"));
    }
    if dice.falls(storm.too_many) {
        return Some(Fault::Refuse(429, "TooManyRequests"));
    }
    match verb {
        Verb::Write if dice.falls(storm.conflict) => Some(Fault::Refuse(409, "Conflict")),
        Verb::Write if dice.falls(storm.lose_answer) => Some(Fault::LoseAnswer),
        Verb::Watch if dice.falls(storm.expire) => Some(Fault::Refuse(410, "Expired")),
        Verb::Read | Verb::Watch | Verb::Write => None,
    }
}

fn verb_of(request: &Request<Body>) -> Verb {
    let query = request.uri().query().unwrap_or_default();
    let watch = query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch"));
    match *request.method() {
        Method::GET if watch => Verb::Watch,
        Method::GET | Method::HEAD | Method::OPTIONS => Verb::Read,
        _ => Verb::Write,
    }
}

fn begins_with_list(request: &Request<Body>) -> bool {
    request.uri().query().is_some_and(|query| query.contains("sendInitialEvents=true"))
}

/// Makes a request what it is to a server that does not know `sendInitialEvents`.
fn forget_list(request: &mut Request<Body>) {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let known: Vec<&str> = query
        .split('&')
        .filter(|pair| !pair.starts_with("sendInitialEvents=") && !pair.starts_with("resourceVersionMatch="))
        .collect();
    if let Ok(uri) = format!("{path}?{}", known.join("&")).parse() {
        *request.uri_mut() = uri;
    }
}

/// The resource in a path such as `/apis/apps/v1/namespaces/default/deployments/web`.
fn plural_of(path: &str) -> &str {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let rest = match parts.first() {
        Some(&"api") => parts.get(2..),
        Some(&"apis") => parts.get(3..),
        _ => None,
    };
    match rest.unwrap_or_default() {
        ["namespaces", _, plural, ..] => plural,
        [plural, ..] => plural,
        [] => "",
    }
}

fn refusal(code: u16, reason: &'static str) -> Response<Faulty> {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": format!("{reason} (a fault of the test)"),
    });
    if code == 429 {
        status["details"] = json!({"retryAfterSeconds": 1});
    }
    let body = Body::from(status.to_string().into_bytes());
    let mut response = Response::new(Faulty { body, interference: None });
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

fn expired_event() -> Response<Faulty> {
    let event = json!({"type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired",
        "message": "too old resource version (a fault of the test)"}});
    let body = Body::from(format!("{event}\n").into_bytes());
    Response::new(Faulty { body, interference: None })
}

/// A body that can be cut off, held up and repeated.
struct Faulty {
    body: Body,
    interference: Option<Interference>,
}

/// An event, what becomes of it, and until when it is held up.
type Held = (Frame<Bytes>, Turn, Option<Pin<Box<Sleep>>>);

/// What happens to the events of one watch.
struct Interference {
    faults: Faults,
    end: Pin<Box<WaitForCancellationFutureOwned>>,
    /// An event that is held up, and what becomes of it.
    held: Option<Held>,
    /// An event that comes a second time.
    again: Option<Frame<Bytes>>,
    over: bool,
    /// Nothing comes any more.
    silent: bool,
}

impl Interference {
    fn new(faults: Faults, watches: CancellationToken) -> Self {
        let end = Box::pin(watches.cancelled_owned());
        Self { faults, end, held: None, again: None, over: false, silent: false }
    }

    /// Lets an event that was held up go on.
    fn release(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        if let Some((_, _, Some(sleep))) = &mut self.held
            && sleep.as_mut().poll(cx).is_pending()
        {
            return Poll::Pending;
        }
        let Some((frame, turn, _)) = self.held.take() else {
            return Poll::Ready(self.again.take());
        };
        self.over = turn.last;
        // Half a line must not come twice.
        if turn.twice
            && let Some(data) = frame.data_ref().filter(|data| data.ends_with(b"\n"))
        {
            self.again = Some(Frame::data(data.clone()));
        }
        Poll::Ready(Some(frame))
    }
}

impl HttpBody for Faulty {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Faulty { body, interference } = &mut *self;
        let Some(interference) = interference else {
            let frame = Pin::new(body).poll_frame(cx);
            return frame.map(|frame| frame.map(|frame| frame.map_err(BoxError::from)));
        };
        if interference.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        if interference.silent {
            return Poll::Pending;
        }
        loop {
            match interference.release(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(frame)) => return Poll::Ready(Some(Ok(frame))),
                Poll::Ready(None) if interference.over => return Poll::Ready(None),
                Poll::Ready(None) => {}
            }
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
                Poll::Ready(Some(Ok(frame))) => {
                    let turn = interference.faults.turn();
                    let sleep = (!turn.delay.is_zero()).then(|| Box::pin(tokio::time::sleep(turn.delay)));
                    interference.held = Some((frame, turn, sleep));
                }
            }
        }
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resource_is_found_in_every_path() {
        for (path, plural) in [
            ("/api/v1/pods", "pods"),
            ("/api/v1/namespaces/default/pods/web/status", "pods"),
            ("/api/v1/namespaces", "namespaces"),
            ("/api/v1/namespaces/default", "namespaces"),
            ("/apis/apps/v1/namespaces/default/deployments", "deployments"),
            ("/apis/example.com/v1/webapps", "webapps"),
            ("/version", ""),
        ] {
            assert_eq!(plural_of(path), plural, "{path}");
        }
    }
}
