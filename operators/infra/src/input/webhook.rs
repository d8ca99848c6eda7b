//! Signed webhooks: `POST /api/v1/webhooks/{name}`.
//!
//! Two ways to sign with a shared secret:
//! - `timestamped` (the default): `Steersman-Signature: t=<unix seconds>,v1=<hex>`, an HMAC-SHA256
//!   of `<t>.<body>`. What is older than the window is refused, so that a message that somebody
//!   has recorded is worthless soon.
//! - `github`: `X-Hub-Signature-256: sha256=<hex>`, an HMAC-SHA256 of the body, as GitHub, Gitea and
//!   others send it. It has no time; the same body is taken once, as the same event.

use std::time::Duration;

use http::HeaderMap;
use jiff::Timestamp;
use ring::hmac;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::event::Mapping;
use super::intake::{Intake, IntakeError, Taken};

/// A webhook that others may call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// What both sides know.
    pub secret: String,
    /// How messages are signed.
    #[serde(default)]
    pub scheme: Scheme,
    /// How old, or how much ahead, a timestamped message may be. Five minutes.
    #[serde(default = "five_minutes")]
    pub window_seconds: u64,
    /// Where the event is in a message.
    #[serde(default)]
    pub mapping: Mapping,
}

fn five_minutes() -> u64 {
    300
}

/// How messages are signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// With the time.
    #[default]
    Timestamped,
    /// The body alone, as GitHub does.
    GitHub,
}

/// How a call is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status code.
    pub code: u16,
    /// What is said.
    pub message: String,
}

impl Reply {
    fn new(code: u16, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl Webhook {
    /// Whether this can be used.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn check(&self) -> Result<(), String> {
        if self.secret.len() < 16 {
            return Err("secret must have at least 16 characters".into());
        }
        self.mapping.check()
    }

    /// Answers a call: the effect is written before it is confirmed.
    pub async fn receive(
        &self,
        name: &str,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
        intake: &Intake,
    ) -> Reply {
        let proof = match self.authenticate(headers, body, now) {
            Ok(proof) => proof,
            Err(why) => return Reply::new(401, why),
        };
        let event = match self.mapping.read_bytes(body) {
            Ok(event) => event,
            Err(why) => return Reply::new(422, why),
        };
        // Under `github` nothing but the body is vouched for, so the body is what makes it the same.
        let id = match (self.scheme, &event.id) {
            (Scheme::Timestamped, Some(id)) => id.clone(),
            _ => proof,
        };
        match intake.take(name, &id, &event).await {
            Ok(Taken::Now) => Reply::new(202, "accepted"),
            Ok(Taken::Before) => Reply::new(200, "this event was accepted before"),
            Err(IntakeError::Poison(why)) => Reply::new(422, why),
            Err(IntakeError::Later(why)) => Reply::new(503, why),
        }
    }

    /// What proves where the message is from: unique to what was signed.
    fn authenticate(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<String, String> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.secret.as_bytes());
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let wrong = || "the signature is not right: is the secret the same on both sides?".to_owned();
        match self.scheme {
            Scheme::GitHub => {
                let given = header("x-hub-signature-256").and_then(|value| value.strip_prefix("sha256="));
                let given = given.ok_or("the header X-Hub-Signature-256: sha256=<hex> is missing")?;
                let tag = unhex(given).ok_or_else(wrong)?;
                hmac::verify(&key, body, &tag).map_err(|_| wrong())?;
                Ok(hex(&Sha256::digest(body)))
            }
            Scheme::Timestamped => {
                let given = header("steersman-signature")
                    .ok_or("the header Steersman-Signature: t=<unix seconds>,v1=<hex> is missing")?;
                let part = |name: &str| {
                    given.split(',').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='))
                };
                let (time, tag) = (part("t").unwrap_or_default(), part("v1").unwrap_or_default());
                let tag = unhex(tag).ok_or_else(wrong)?;
                let signed = [time.as_bytes(), b".", body].concat();
                hmac::verify(&key, &signed, &tag).map_err(|_| wrong())?;
                let seconds: i64 = time.parse().map_err(|_| wrong())?;
                let apart = Duration::from_secs(now.as_second().abs_diff(seconds));
                match apart <= Duration::from_secs(self.window_seconds) {
                    true => Ok(hex(&Sha256::digest(&signed))),
                    false => Err(format!(
                        "the message is from {} s ago or ahead, and may be {} s; do the clocks agree?",
                        apart.as_secs(),
                        self.window_seconds
                    )),
                }
            }
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() || !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhook(scheme: Scheme) -> Webhook {
        Webhook {
            secret: "It's a Secret to Everybody".into(),
            scheme,
            window_seconds: 300,
            mapping: Mapping::default(),
        }
    }

    fn with(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::HeaderName::from_static(name), value.parse().expect("a value"))])
    }

    #[test]
    fn githubs_own_example_is_accepted_and_nothing_else() {
        // From GitHub's documentation of webhooks.
        let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let (hook, now) = (webhook(Scheme::GitHub), Timestamp::UNIX_EPOCH);
        assert!(hook.authenticate(&with("x-hub-signature-256", signature), b"Hello, World!", now).is_ok());
        assert!(hook.authenticate(&with("x-hub-signature-256", signature), b"Hello, World?", now).is_err());
        for wrong in ["", "sha256=", "sha256=zz", "sha1=757107ea", &signature[..70]] {
            assert!(
                hook.authenticate(&with("x-hub-signature-256", wrong), b"Hello, World!", now).is_err(),
                "{wrong}"
            );
        }
        assert!(hook.authenticate(&HeaderMap::new(), b"Hello, World!", now).is_err());
    }

    #[test]
    fn a_recorded_message_is_worthless_after_the_window() {
        let hook = webhook(Scheme::Timestamped);
        let key = hmac::Key::new(hmac::HMAC_SHA256, hook.secret.as_bytes());
        let tag = hex(hmac::sign(&key, b"1000.{}").as_ref());
        let headers = with("steersman-signature", &format!("t=1000,v1={tag}"));
        let at = |second| hook.authenticate(&headers, b"{}", Timestamp::from_second(second).expect("a time"));
        assert!(at(1000).is_ok() && at(1300).is_ok() && at(700).is_ok());
        assert!(at(1301).expect_err("too old").contains("may be 300 s"));
        assert!(at(699).is_err());
        let moved = with("steersman-signature", &format!("t=1300,v1={tag}"));
        assert!(hook.authenticate(&moved, b"{}", Timestamp::from_second(1400).expect("a time")).is_err());
    }

    #[test]
    fn a_weak_secret_is_refused() {
        let hook = Webhook { secret: "short".into(), ..webhook(Scheme::GitHub) };
        assert!(hook.check().is_err());
    }
}
