//! Errors and panics, told to a Sentry server.
//!
//! What is logged as an error and what panics is put into a queue and sent by a thread of its own, as
//! the envelopes that every version of Sentry since 2020 takes. When the queue is full or the server asks
//! for peace, reports are dropped: telling of trouble must never be trouble.

use crate::dial;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::fmt;
use std::panic::PanicHookInfo;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer};

/// Reports that may wait to be sent.
const QUEUE: usize = 128;
/// How long sending one may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the end waits for what is still to be sent.
const FLUSH: Duration = Duration::from_secs(2);
/// Texts are cut to this many characters.
const LONGEST: usize = 4096;

/// Where reports go, as `https://key@host/project`.
#[derive(Clone, PartialEq, Eq)]
struct Dsn {
    url: String,
    key: String,
}

/// Why an address of a Sentry server cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SentryError {
    /// It is not of the form that Sentry gives out.
    #[error("SENTRY_DSN is not like https://key@sentry.example.com/1")]
    Dsn,
    /// There is no TLS or no thread to be had.
    #[error("reports to Sentry cannot be sent: {0}")]
    Start(String),
}

impl Dsn {
    fn parse(text: &str) -> Result<Self, SentryError> {
        let (scheme, rest) = text.split_once("://").ok_or(SentryError::Dsn)?;
        let (user, rest) = rest.split_once('@').ok_or(SentryError::Dsn)?;
        let (place, project) = rest.trim_end_matches('/').rsplit_once('/').ok_or(SentryError::Dsn)?;
        let key = user.split(':').next().unwrap_or_default();
        let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !matches!(scheme, "http" | "https") || !plain(key) || !plain(project) || place.is_empty() {
            return Err(SentryError::Dsn);
        }
        let (host, path) = place.split_once('/').unwrap_or((place, ""));
        let prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
        let url = format!("{scheme}://{host}{prefix}/api/{project}/envelope/");
        url.parse::<Uri>().map_err(|_| SentryError::Dsn)?;
        Ok(Self { url, key: key.to_owned() })
    }
}

/// Tells a Sentry server of errors and panics. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Sentry(Arc<Inner>);

struct Inner {
    sender: SyncSender<Message>,
    environment: Option<String>,
    program: String,
}

enum Message {
    Report(Value),
    /// Answered when everything before it is sent.
    Flush(SyncSender<()>),
}

impl Sentry {
    /// As `SENTRY_DSN` and `SENTRY_ENVIRONMENT` say; none without the first.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub fn from_env(
        get: impl Fn(&str) -> Option<String>,
        program: &str,
    ) -> Result<Option<Self>, SentryError> {
        let text =
            |name: &str| get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let Some(dsn) = text("SENTRY_DSN") else { return Ok(None) };
        let dsn = Dsn::parse(&dsn)?;
        let (sender, receiver) = sync_channel(QUEUE);
        let post = Post::new(dsn)?;
        std::thread::Builder::new()
            .name("sentry".into())
            .spawn(move || post.run(&receiver))
            .map_err(|error| SentryError::Start(error.to_string()))?;
        let environment = text("SENTRY_ENVIRONMENT");
        Ok(Some(Self(Arc::new(Inner { sender, environment, program: program.to_owned() }))))
    }

    /// What hears of everything that is logged as an error.
    #[must_use]
    pub fn layer(&self) -> SentryLayer {
        SentryLayer(self.clone())
    }

    /// Hears of panics from now on, before whoever did so until now.
    pub fn hear_panics(&self) {
        let (sentry, before) = (self.clone(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            let payload = info.payload();
            let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let exception = json!({"values": [{"type": "panic",
                "value": cut(&text.unwrap_or_else(|| "a panic without words".into())),
                "mechanism": {"type": "panic", "handled": false}}]});
            sentry.report("fatal", json!({"exception": exception, "culprit": place}));
            before(info);
        }));
    }

    /// Waits a moment for what is still to be sent.
    pub fn flush(&self) {
        let (sender, sent) = sync_channel(1);
        if self.0.sender.try_send(Message::Flush(sender)).is_ok() {
            let _ = sent.recv_timeout(FLUSH);
        }
    }

    fn report(&self, level: &str, mut event: Value) {
        if let Value::Object(fields) = &mut event {
            fields.insert("event_id".into(), event_id().into());
            fields.insert("timestamp".into(), Timestamp::now().to_string().into());
            fields.insert("platform".into(), "native".into());
            fields.insert("level".into(), level.into());
            fields.insert("release".into(), concat!("steersman@", env!("CARGO_PKG_VERSION")).into());
            fields.insert("server_name".into(), std::env::var("POD_NAME").unwrap_or_default().into());
            fields.insert("tags".into(), json!({"program": self.0.program}));
            if let Some(environment) = &self.0.environment {
                fields.insert("environment".into(), environment.clone().into());
            }
        }
        if let Err(TrySendError::Disconnected(_)) = self.0.sender.try_send(Message::Report(event)) {
            // Nobody sends any more: the program ends.
        }
    }
}

impl fmt::Debug for Sentry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sentry")
    }
}

/// Hears of everything that is logged as an error.
#[derive(Debug)]
pub struct SentryLayer(Sentry);

impl<S: tracing::Subscriber> Layer<S> for SentryLayer {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        // What it takes to send a report is not itself reported.
        if *metadata.level() != tracing::Level::ERROR || metadata.target().starts_with("hyper") {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = fields.message.unwrap_or_else(|| metadata.name().to_owned());
        let report =
            json!({"logger": metadata.target(), "message": {"formatted": message}, "extra": fields.others});
        self.0.report("error", report);
    }
}

#[derive(Default)]
struct Fields {
    message: Option<String>,
    others: Map<String, Value>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field.name(), &format!("{value:?}"));
    }
}

impl Fields {
    fn set(&mut self, name: &str, value: &str) {
        match name {
            "message" => self.message = Some(cut(value)),
            _ => {
                self.others.insert(name.to_owned(), cut(value).into());
            }
        }
    }
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

/// Thirty-two hexadecimal digits that nobody had before.
fn event_id() -> String {
    use sha2::{Digest, Sha256};
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let seed = format!("{} {} {count}", Timestamp::now().as_nanosecond(), std::process::id());
    Sha256::digest(seed.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Sends reports, one after the other, on a thread of its own.
struct Post {
    dsn: Dsn,
    client: Client<hyper_rustls::HttpsConnector<dial::Connector>, Full<Bytes>>,
    runtime: tokio::runtime::Runtime,
    /// Until when the server wants to hear nothing.
    quiet: Mutex<Option<Instant>>,
}

impl Post {
    fn new(dsn: Dsn) -> Result<Self, SentryError> {
        let start = |error: &dyn fmt::Display| SentryError::Start(error.to_string());
        let connector = dial::https(None, PATIENCE).map_err(|error| start(&error))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| start(&error))?;
        let client = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
        Ok(Self { dsn, client, runtime, quiet: Mutex::default() })
    }

    fn run(self, messages: &Receiver<Message>) {
        loop {
            match messages.recv_timeout(Duration::from_secs(3600)) {
                Ok(Message::Report(event)) => self.send(&event),
                Ok(Message::Flush(sent)) => {
                    let _ = sent.try_send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn send(&self, event: &Value) {
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        if quiet.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let auth = format!(
            "Sentry sentry_version=7, sentry_client=steersman/{}, sentry_key={}",
            env!("CARGO_PKG_VERSION"),
            self.dsn.key
        );
        let request = Request::post(&self.dsn.url)
            .header("content-type", "application/x-sentry-envelope")
            .header("x-sentry-auth", auth)
            .body(Full::new(Bytes::from(envelope(event))));
        let Ok(request) = request else { return };
        let answer = self
            .runtime
            .block_on(async { tokio::time::timeout(PATIENCE, self.client.request(request)).await });
        match answer {
            Ok(Ok(response)) if response.status() == StatusCode::TOO_MANY_REQUESTS => {
                let seconds =
                    response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
                *quiet = Some(Instant::now() + Duration::from_secs(seconds.unwrap_or(60)));
            }
            Ok(Ok(response)) if response.status().is_success() => {}
            Ok(Ok(response)) => tracing::debug!(status = %response.status(), "Sentry refused a report"),
            Ok(Err(error)) => tracing::debug!(%error, "Sentry cannot be reached"),
            Err(_) => tracing::debug!("Sentry did not answer"),
        }
    }
}

/// One event as an envelope: three lines of JSON.
fn envelope(event: &Value) -> String {
    let body = event.to_string();
    let head = json!({"event_id": event["event_id"], "sent_at": Timestamp::now().to_string()});
    let item = json!({"type": "event", "content_type": "application/json", "length": body.len()});
    format!("{head}\n{item}\n{body}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_sentry_are_understood() {
        for (text, url) in [
            ("https://abc@o1.ingest.sentry.io/42", "https://o1.ingest.sentry.io/api/42/envelope/"),
            ("http://abc:secret@127.0.0.1:9000/1", "http://127.0.0.1:9000/api/1/envelope/"),
            ("https://abc@example.com/sentry/7/", "https://example.com/sentry/api/7/envelope/"),
        ] {
            let dsn = Dsn::parse(text).map(|dsn| (dsn.url, dsn.key));
            assert_eq!(dsn, Ok((url.to_owned(), "abc".to_owned())));
        }
        for text in
            ["", "https://example.com/1", "ftp://a@b/1", "https://a@b", "https://@b/1", "https://a@b/x y"]
        {
            assert_eq!(Dsn::parse(text).map(|dsn| dsn.url), Err(SentryError::Dsn), "{text}");
        }
    }

    #[test]
    fn an_envelope_is_three_lines_and_says_how_long_its_event_is() {
        let event = json!({"event_id": event_id(), "message": {"formatted": "no\nbreak"}});
        let text = envelope(&event);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        let item: Value = serde_json::from_str(lines[1]).expect("JSON");
        assert_eq!(item["length"].as_u64(), u64::try_from(lines[2].len()).ok());
        assert_ne!(event_id(), event_id());
        assert_eq!(event_id().len(), 32);
    }
}
