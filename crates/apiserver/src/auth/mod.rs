//! Who sends a request, and the certificates and tokens that say so.
//!
//! Roles (RBAC) are not enforced yet: whoever is known may do everything. The place for it is
//! between authentication and the verbs.

mod authority;
mod kubelet;
mod token;

use std::collections::HashMap;

use http::{HeaderMap, header::AUTHORIZATION};
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

pub use authority::{Authority, AuthorityError, Credentials, Identity};

pub(crate) use kubelet::{Unchecked, kubelet_config};

pub(crate) use token::{Claims, ISSUER};

use crate::{server::User, status::Failure};

/// Knows tokens.
#[derive(Debug, Clone, Default)]
pub struct Authenticator {
    tokens: HashMap<String, User>,
    key: Vec<u8>,
}

impl Authenticator {
    /// Knows these fixed tokens, and those that it signs itself with this key.
    pub fn new(tokens: impl IntoIterator<Item = (String, User)>, key: &[u8]) -> Self {
        Self { tokens: tokens.into_iter().collect(), key: key.to_vec() }
    }

    /// Whose token this is, if anybody's.
    pub fn token(&self, token: &str, now: Timestamp) -> Option<User> {
        self.token_for(token, now, &[ISSUER.to_owned()]).map(|(user, _)| user)
    }

    /// Whose token this is, if it is meant for one of these audiences, and for which of them.
    pub(crate) fn token_for(
        &self,
        token: &str,
        now: Timestamp,
        audiences: &[String],
    ) -> Option<(User, Vec<String>)> {
        let fixed = |user: &User| (user.clone(), vec![ISSUER.to_owned()]);
        let (user, mut meant) =
            self.tokens.get(token).map(fixed).or_else(|| token::verify(&self.key, token, now))?;
        meant.retain(|audience| audiences.contains(audience));
        (!meant.is_empty()).then_some((user, meant))
    }

    /// Makes a token for a service account.
    pub(crate) fn issue_token(&self, claims: Claims<'_>, now: Timestamp, expires: Timestamp) -> String {
        token::sign(&self.key, claims, now, expires)
    }
}

/// The token of an `Authorization` header.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// The user of a client certificate that was verified: its common name, and its organizations as groups.
pub(crate) fn certificate_user(certificate: &CertificateDer<'_>) -> Option<User> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let subject = parsed.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?;
    let groups: Vec<String> =
        subject.iter_organization().filter_map(|group| group.as_str().ok()).map(ToOwned::to_owned).collect();
    Some(User::new(name, groups))
}

/// The user that an administrator acts as, when the headers say so.
pub(crate) fn impersonate(user: &User, headers: &HeaderMap) -> Result<Option<User>, Failure> {
    let text = |value: &http::HeaderValue| value.to_str().ok().map(ToOwned::to_owned);
    let groups: Vec<String> = headers.get_all("impersonate-group").iter().filter_map(text).collect();
    let Some(name) = headers.get("impersonate-user").and_then(text).filter(|name| !name.is_empty()) else {
        let any = !groups.is_empty() || headers.contains_key("impersonate-uid");
        return if any {
            Err(Failure::bad_request("requested impersonation without a user: set Impersonate-User"))
        } else {
            Ok(None)
        };
    };
    if !user.groups.iter().any(|group| group == "system:masters") {
        let message = format!(
            "users \"{name}\" is forbidden: User \"{}\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
            user.name
        );
        return Err(Failure::forbidden_path(message));
    }
    Ok(Some(User::new(name, groups)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_administrators_act_as_somebody_else() {
        let mut headers = HeaderMap::new();
        assert_eq!(impersonate(&User::admin(), &headers), Ok(None));
        headers.insert("impersonate-user", "jane".parse().expect("a value"));
        headers.insert("impersonate-group", "devs".parse().expect("a value"));
        let jane = impersonate(&User::admin(), &headers).expect("allowed").expect("a user");
        assert_eq!((jane.name.as_str(), jane.groups[0].as_str()), ("jane", "devs"));
        let nobody = User::new("nobody", Vec::<String>::new());
        assert_eq!(impersonate(&nobody, &headers).map_err(|failure| failure.code), Err(403));
    }
}
