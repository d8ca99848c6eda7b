//! What goes wrong between an operator and the API server.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body as HttpBody, Frame};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use steersman::{CancellationToken, Object};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tower::{BoxError, service_fn};

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
    writes: u64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            watches: CancellationToken::new(),
            crash_after: None,
            crashed: CancellationToken::new(),
            writes: 0,
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

    /// Nothing goes wrong any more.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.rules.clear();
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

    async fn pass(&self, client: &Client, request: Request<Body>) -> Result<Response<Faulty>, BoxError> {
        let verb = verb_of(&request);
        let plural = plural_of(request.uri().path());
        let Some((fault, watches)) = self.admit(verb, plural) else {
            return std::future::pending().await;
        };
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
            None => {}
        }
        let end = match verb {
            Verb::Watch => Some(Box::pin(watches.cancelled_owned())),
            Verb::Read | Verb::Write => None,
        };
        let response = client.send(request).await?;
        Ok(response.map(|body| Faulty { body, end }))
    }

    /// What the request meets, and what may end its watch; nothing after a crash.
    fn admit(&self, verb: Verb, plural: &str) -> Option<(Option<Fault>, CancellationToken)> {
        let mut state = self.lock();
        let alive = !state.crashed.is_cancelled();
        alive.then(|| (state.next(verb, plural), state.watches.clone()))
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

impl State {
    /// The fault that this request meets, if any.
    fn next(&mut self, verb: Verb, plural: &str) -> Option<Fault> {
        if verb == Verb::Write {
            self.writes += 1;
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
        })?;
        if let Some(times) = &mut rule.times {
            *times -= 1;
        }
        Some(rule.fault)
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
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": format!("{reason} (a fault of the test)"),
    });
    let mut response = Response::new(Faulty { body: Body::from(status.to_string().into_bytes()), end: None });
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// A body that can be cut off.
struct Faulty {
    body: Body,
    end: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl HttpBody for Faulty {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(end) = &mut self.end
            && end.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(None);
        }
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        frame.map(|frame| frame.map(|frame| frame.map_err(BoxError::from)))
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
