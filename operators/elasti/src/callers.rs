//! Whose wake-up calls are taken.

use hyper::Request;
use hyper::header::{AUTHORIZATION, HeaderValue};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// For whom the tokens of service accounts are made that are shown to the operator.
pub const AUDIENCE: &str = "elasti-operator";
/// For how long a token that was good is taken for good.
const TRUST: Duration = Duration::from_secs(60);
/// How many good tokens are remembered.
const REMEMBERED: usize = 1024;

/// Whose calls are taken.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Callers {
    /// Nobody's.
    #[default]
    Nobody,
    /// Those with this token in `Authorization: Bearer …`.
    Token(String),
    /// Those with a token of one of these service accounts, as `namespace:name`; the API server
    /// says whose a token is.
    Accounts(Vec<String>),
    /// Everybody's, as KubeElasti does: for resolvers that know no token.
    Anyone,
}

impl Callers {
    /// What the environment says: `ELASTI_OPERATOR_TOKEN` is the one token,
    /// `ELASTI_ANONYMOUS_CALLERS=true` opens the endpoint to everybody, and otherwise the account of
    /// the resolver is let in: `ELASTI_RESOLVER_SERVICE_ACCOUNT`, by default `elasti-resolver` in the
    /// resolver's namespace.
    #[must_use]
    pub fn from_env(get: impl Fn(&str) -> Option<String>, resolver_namespace: &str) -> Self {
        let text =
            |name: &str| get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        if let Some(token) = text("ELASTI_OPERATOR_TOKEN") {
            return Self::Token(token);
        }
        if text("ELASTI_ANONYMOUS_CALLERS").is_some_and(|value| value == "true" || value == "1") {
            return Self::Anyone;
        }
        let account = text("ELASTI_RESOLVER_SERVICE_ACCOUNT").unwrap_or_else(|| "elasti-resolver".to_owned());
        Self::Accounts(vec![format!("{resolver_namespace}:{account}")])
    }
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("Nobody"),
            Self::Token(_) => f.write_str("Token"),
            Self::Accounts(names) => f.debug_tuple("Accounts").field(names).finish(),
            Self::Anyone => f.write_str("Anyone"),
        }
    }
}

/// Why a call is not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It does not say who calls, or says it wrongly.
    Stranger,
    /// Nobody can say who it is at the moment.
    Unsure(String),
}

/// Lets callers in or not.
pub(crate) struct Gate {
    callers: Callers,
    client: Client,
    /// Digests of tokens that were good, and when that was found.
    good: Mutex<HashMap<[u8; 32], Instant>>,
}

impl Gate {
    pub(crate) fn new(callers: Callers, client: Client) -> Self {
        Self { callers, client, good: Mutex::default() }
    }

    pub(crate) async fn pass<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        let given = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let token = given.strip_prefix(b"Bearer ").unwrap_or_default().to_vec();
        match &self.callers {
            Callers::Anyone => Ok(()),
            Callers::Nobody => Err(Refusal::Stranger),
            Callers::Token(expected) if same(&token, expected.as_bytes()) => Ok(()),
            Callers::Token(_) => Err(Refusal::Stranger),
            Callers::Accounts(names) => self.review(&token, names).await,
        }
    }

    async fn review(&self, token: &[u8], names: &[String]) -> Result<(), Refusal> {
        let token =
            std::str::from_utf8(token).ok().filter(|token| !token.is_empty()).ok_or(Refusal::Stranger)?;
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if self.lock().get(&digest).is_some_and(|since| since.elapsed() < TRUST) {
            return Ok(());
        }
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), audiences: Some(vec![AUDIENCE.to_owned()]) },
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await;
        let status = answer.map_err(|error| Refusal::Unsure(error.to_string()))?.status.unwrap_or_default();
        let user = status.user.and_then(|user| user.username).unwrap_or_default();
        let account = user.strip_prefix("system:serviceaccount:").unwrap_or_default();
        // A server that knows of audiences names those that the token is for.
        let meant =
            status.audiences.is_none_or(|all| all.is_empty() || all.iter().any(|one| one == AUDIENCE));
        if status.authenticated != Some(true) || !meant || !names.iter().any(|name| name == account) {
            return Err(Refusal::Stranger);
        }
        let mut good = self.lock();
        good.retain(|_, since| since.elapsed() < TRUST);
        if good.len() < REMEMBERED {
            good.insert(digest, Instant::now());
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Instant>> {
        self.good.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compares in a time that does not tell how much was right.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_of_the_resolver_is_let_in_unless_the_environment_says_otherwise() {
        let with = |name: &'static str, value: &'static str| {
            Callers::from_env(move |asked| (asked == name).then(|| value.to_owned()), "elasti")
        };
        assert_eq!(with("", ""), Callers::Accounts(vec!["elasti:elasti-resolver".into()]));
        assert_eq!(
            with("ELASTI_RESOLVER_SERVICE_ACCOUNT", "gate"),
            Callers::Accounts(vec!["elasti:gate".into()])
        );
        assert_eq!(with("ELASTI_OPERATOR_TOKEN", "secret"), Callers::Token("secret".into()));
        assert_eq!(with("ELASTI_ANONYMOUS_CALLERS", "true"), Callers::Anyone);
        assert_ne!(with("ELASTI_ANONYMOUS_CALLERS", "no"), Callers::Anyone);
        assert_eq!(format!("{:?}", Callers::Token("secret".into())), "Token");
    }
}
