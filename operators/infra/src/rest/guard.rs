//! Who may ask.

use http::{HeaderMap, StatusCode, Uri, header};
use sha2::{Digest, Sha256};

use super::Access;
use super::answer::Refusal;

/// Lets requests pass or refuses them.
pub(super) struct Guard(Access);

impl Guard {
    pub(super) fn new(access: Access) -> Self {
        Self(access)
    }

    /// Whether a request may pass.
    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        match &self.0 {
            Access::Everybody => Ok(()),
            Access::Token(token) => check_token(token, headers),
            Access::Local | Access::Published => check_local(uri, headers),
        }
    }
}

fn check_token(token: &str, headers: &HeaderMap) -> Result<(), Refusal> {
    let given = text(headers, header::AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
    // Digests take the same time to compare, however much of a guess is right.
    let right = given.is_some_and(|given| Sha256::digest(given.trim()) == Sha256::digest(token));
    match right {
        true => Ok(()),
        false => Err(Refusal::new(
            StatusCode::UNAUTHORIZED,
            "Not authenticated: send the header Authorization: Bearer <token>",
        )),
    }
}

/// On loopback everybody on the machine may ask, but no web page: neither one whose name was
/// bent to 127.0.0.1, nor one from elsewhere.
fn check_local(uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    let host = text(headers, "host").or_else(|| uri.authority().map(http::uri::Authority::as_str));
    if !host.is_some_and(is_local) {
        return Err(forbidden(
            "this address answers to localhost, 127.0.0.1 and [::1] only; the header Host says otherwise",
        ));
    }
    if let Some(origin) = text(headers, "origin") {
        let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        if !host.is_some_and(is_local) {
            return Err(forbidden("web pages of other sites may not use this API"));
        }
    }
    match text(headers, "sec-fetch-site") {
        Some("cross-site") => Err(forbidden("web pages of other sites may not use this API")),
        _ => Ok(()),
    }
}

fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) if port.is_empty() || is_port(port) => name,
            _ => return false,
        },
        None => match host.split_once(':') {
            Some((name, port)) if is_port(&format!(":{port}")) => name,
            Some(_) => return false,
            None => host,
        },
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn forbidden(detail: &str) -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(access: Access, headers: &[(&'static str, &'static str)]) -> Option<u16> {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.insert(*name, value.parse().expect("a value"));
        }
        Guard::new(access)
            .check(&Uri::from_static("/health"), &all)
            .err()
            .map(|refusal| refusal.status.as_u16())
    }

    #[test]
    fn on_loopback_programs_may_ask_and_web_pages_may_not() {
        for host in ["localhost:8000", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST", "127.0.0.2"] {
            assert_eq!(check(Access::Local, &[("host", host)]), None, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "10.0.0.1",
            "",
            "[::1",
            "localhost:x",
        ] {
            assert_eq!(check(Access::Local, &[("host", host)]), Some(403), "{host}");
        }
        assert_eq!(check(Access::Local, &[]), Some(403));
        let from = |origin| check(Access::Local, &[("host", "localhost:8000"), ("origin", origin)]);
        assert_eq!(from("http://localhost:8000"), None);
        for origin in ["https://evil.example", "null", "http://localhost.evil.example"] {
            assert_eq!(from(origin), Some(403), "{origin}");
        }
        assert_eq!(
            check(Access::Local, &[("host", "localhost"), ("sec-fetch-site", "cross-site")]),
            Some(403)
        );
    }

    #[test]
    fn elsewhere_a_token_is_asked_for() {
        let access = || Access::Token("s3cret".into());
        assert_eq!(check(access(), &[("host", "infra.example")]), Some(401));
        assert_eq!(check(access(), &[("authorization", "Bearer wrong")]), Some(401));
        assert_eq!(check(access(), &[("authorization", "Bearer s3cret")]), None);
        assert_eq!(check(Access::Everybody, &[("host", "infra.example")]), None);
        assert_eq!(check(Access::Published, &[("host", "infra.example")]), Some(403));
        assert_eq!(check(Access::Published, &[("host", "localhost:8000")]), None);
    }
}
