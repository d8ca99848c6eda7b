//! HTTP requests to the outside world, with bounds.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls_pki_types::CertificateDer;
use rustls_platform_verifier::Verifier;
use serde_json::Value;

use super::ActionError;

/// How much of an answer is read.
const LARGEST: usize = 4 << 20;

/// Whether requests may go to addresses of the machine itself and of private networks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrivateAddresses {
    /// They may not: a resource cannot be used to reach what only the operator can reach.
    #[default]
    Refuse,
    /// They may.
    Allow,
}

/// How requests are made.
#[derive(Clone, Debug)]
pub struct WebOptions {
    /// Whether private addresses may be reached. Refused by default.
    pub private_addresses: PrivateAddresses,
    /// Certificate authorities that are trusted beside the machine's. None.
    pub authorities: Vec<CertificateDer<'static>>,
    /// How long an answer may take. 30 seconds.
    pub timeout: Duration,
}

impl Default for WebOptions {
    fn default() -> Self {
        Self {
            private_addresses: PrivateAddresses::Refuse,
            authorities: Vec::new(),
            timeout: Duration::from_secs(30),
        }
    }
}

/// Makes requests. Never follows redirects.
#[derive(Clone, Debug)]
pub struct Web {
    client: Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>,
    private_addresses: PrivateAddresses,
    timeout: Duration,
}

/// An answer that was read to its end.
#[derive(Clone, Debug)]
pub struct WebAnswer {
    /// Its status code.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body as JSON; as text if it is none, null if there is none.
    pub body: Value,
}

impl Web {
    /// A client.
    ///
    /// # Errors
    /// When the machine's certificate authorities cannot be read.
    pub fn new(options: WebOptions) -> Result<Self, rustls::Error> {
        let mut connector =
            HttpConnector::new_with_resolver(Resolver { private_addresses: options.private_addresses });
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(options.timeout));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Verifier::new_with_extra_roots(options.authorities, Arc::clone(&provider))?;
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(20))
            .build(connector);
        Ok(Self { client, private_addresses: options.private_addresses, timeout: options.timeout })
    }

    /// The same client for answers that may take this long.
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// [`ActionError::Permanent`] when the request can never be made, or the answer is too large to
    /// be read, [`ActionError::Transient`] when no connection came about, [`ActionError::Unknown`]
    /// when the answer is missing.
    pub async fn send(
        &self,
        method: Method,
        url: &str,
        headers: HeaderMap,
        body: Option<&Value>,
    ) -> Result<WebAnswer, ActionError> {
        let uri: Uri =
            url.parse().map_err(|error| ActionError::permanent(format!("{url:?} is no URL: {error}")))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
            return Err(ActionError::permanent(format!(
                "{url:?} must begin with http:// or https:// and a host"
            )));
        }
        self.check_literal(&uri)?;
        let mut request = Request::new(Full::new(match body {
            Some(body) => Bytes::from(body.to_string()),
            None => Bytes::new(),
        }));
        *request.method_mut() = method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        let fields = request.headers_mut();
        fields.entry(header::USER_AGENT).or_insert(header::HeaderValue::from_static("steersman-infra"));
        if body.is_some() {
            fields
                .entry(header::CONTENT_TYPE)
                .or_insert(header::HeaderValue::from_static("application/json"));
        }
        let what = format!("{method} {}", without_query(url));
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|error| {
                let message = format!("{what}: {}", chain(&error));
                match error.is_connect() {
                    true => ActionError::transient(message),
                    false => ActionError::Unknown(message),
                }
            })?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, LARGEST).collect().await.map_err(|error| {
                match error.downcast_ref::<LengthLimitError>() {
                    // Asking again would bring the same.
                    Some(_) => ActionError::permanent(format!(
                        "{what}: HTTP {}: the answer is larger than {} MiB",
                        head.status,
                        LARGEST >> 20
                    )),
                    None => ActionError::Unknown(format!("{what}: the answer broke off: {error}")),
                }
            })?;
            let body = body.to_bytes();
            let body = match body.is_empty() {
                true => Value::Null,
                false => serde_json::from_slice(&body)
                    .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned())),
            };
            Ok(WebAnswer { status: head.status, headers: head.headers, body })
        };
        match tokio::time::timeout(self.timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(ActionError::Unknown(format!("{what}: no answer within {:?}", self.timeout))),
        }
    }

    /// An address instead of a name never meets the resolver.
    fn check_literal(&self, uri: &Uri) -> Result<(), ActionError> {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        match host.parse::<IpAddr>() {
            Ok(address) if self.private_addresses == PrivateAddresses::Refuse && is_private(address) => {
                Err(ActionError::permanent(refusal(host)))
            }
            _ => Ok(()),
        }
    }
}

impl WebAnswer {
    /// How long the other side wants to be left alone: `Retry-After` in seconds or as a date, or
    /// the end of a rate limit.
    pub fn retry_after(&self, now: jiff::Timestamp) -> Option<Duration> {
        let text = |name: &str| Some(self.headers.get(name)?.to_str().ok()?.trim());
        let number = |name: &str| text(name)?.parse::<i64>().ok();
        if let Some(seconds) = number("retry-after") {
            return u64::try_from(seconds).ok().map(Duration::from_secs);
        }
        if let Some(date) = text("retry-after").and_then(|date| jiff::fmt::rfc2822::parse(date).ok()) {
            return Duration::try_from(date.timestamp().duration_since(now)).ok();
        }
        // GitHub's names, and GitLab's.
        ["x-ratelimit", "ratelimit"].iter().find_map(|prefix| {
            let (left, reset) =
                (number(&format!("{prefix}-remaining"))?, number(&format!("{prefix}-reset"))?);
            let wait = u64::try_from(reset - now.as_second()).unwrap_or(0).max(1);
            (left == 0).then(|| Duration::from_secs(wait))
        })
    }

    /// What an answer that is no success means: too much and too early may pass, other refusals
    /// will not.
    pub fn error(&self, what: &str, now: jiff::Timestamp) -> ActionError {
        let mut said = match &self.body {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            body => body
                .get("message")
                .and_then(Value::as_str)
                .map_or_else(|| body.to_string(), ToOwned::to_owned),
        };
        if let Some((end, _)) = said.char_indices().nth(300) {
            said.truncate(end);
        }
        let message =
            format!("{what}: HTTP {}{}{said}", self.status, if said.is_empty() { "" } else { ": " });
        let retry_after = self.retry_after(now);
        match self.status.as_u16() {
            408 | 409 | 425 | 429 | 500..=599 => ActionError::Transient { message, retry_after },
            403 if retry_after.is_some() => ActionError::Transient { message, retry_after },
            _ => ActionError::Permanent(message),
        }
    }
}

fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or(url)
}

fn refusal(host: &str) -> String {
    format!(
        "{host} is an address of this machine or of a private network, which action plugins may not reach; the operator's settings can allow it"
    )
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Whether an address is not one of the public internet.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_private_v4(v4),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped().or_else(|| v6.to_ipv4()) {
            Some(v4) => is_private_v4(v4) || v6.is_loopback() || v6.is_unspecified(),
            None => {
                let first = v6.segments()[0];
                v6.is_multicast() || (first & 0xfe00) == 0xfc00 || (first & 0xffc0) == 0xfe80 || first == 0x64
            }
        },
    }
}

fn is_private_v4(v4: Ipv4Addr) -> bool {
    let [a, b, ..] = v4.octets();
    v4.is_private()
        || v4.is_loopback()
        || v4.is_link_local()
        || v4.is_unspecified()
        || v4.is_broadcast()
        || v4.is_multicast()
        || a == 0
        || (a == 100 && (64..128).contains(&b))
        || a >= 240
}

/// Resolves names, and leaves out addresses that may not be reached. What is checked is what is
/// connected to, so that a name cannot change in between.
#[derive(Clone, Debug)]
struct Resolver {
    private_addresses: PrivateAddresses,
}

type Resolved = std::vec::IntoIter<SocketAddr>;

impl tower_service::Service<Name> for Resolver {
    type Response = Resolved;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Resolved>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let private = self.private_addresses;
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            let allowed: Vec<SocketAddr> = found
                .into_iter()
                .filter(|address| private == PrivateAddresses::Allow || !is_private(address.ip()))
                .collect();
            match allowed.is_empty() {
                true => Err(io::Error::new(io::ErrorKind::PermissionDenied, refusal(&host))),
                false => Ok(allowed.into_iter()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_known_in_all_their_guises() {
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.1",
            "172.16.9.9",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "fe80::1",
            "fd00::1",
        ] {
            assert!(is_private(address.parse().expect("an address")), "{address}");
        }
        for address in ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1"] {
            assert!(!is_private(address.parse().expect("an address")), "{address}");
        }
    }

    #[tokio::test]
    async fn a_private_address_is_refused_before_anything_is_sent() {
        let web = Web::new(WebOptions::default()).expect("a client");
        for url in ["http://127.0.0.1:1/", "http://[::1]:1/", "http://localhost:1/"] {
            let error = web.send(Method::GET, url, HeaderMap::new(), None).await.expect_err("refused");
            assert!(error.to_string().contains("private network"), "{error}");
        }
        let error =
            web.send(Method::GET, "file:///etc/passwd", HeaderMap::new(), None).await.expect_err("refused");
        assert!(matches!(error, ActionError::Permanent(_)), "{error}");
    }
}
