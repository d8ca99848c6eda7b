//! Tokens of service accounts: signed with a key that never leaves the server.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::server::User;

/// Who signs tokens, and for whom they are unless they say otherwise.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Whose token it is, and for whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claims<'c> {
    pub(crate) namespace: &'c str,
    pub(crate) account: &'c str,
    /// Of the service account.
    pub(crate) uid: &'c str,
    /// Who may take it for proof.
    pub(crate) audiences: &'c [String],
}

/// A token that says who its holder is until it expires.
pub(super) fn sign(key: &[u8], claims: Claims<'_>, now: Timestamp, expires: Timestamp) -> String {
    let Claims { namespace, account, uid, audiences } = claims;
    let header = json!({"alg": "HS256", "typ": "JWT"});
    let claims = json!({
        "iss": ISSUER, "aud": audiences, "sub": format!("system:serviceaccount:{namespace}:{account}"),
        "iat": now.as_second(), "nbf": now.as_second(), "exp": expires.as_second(),
        "jti": uuid::Uuid::new_v4().to_string(),
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": account, "uid": uid}},
    });
    let signed = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header.to_string()),
        URL_SAFE_NO_PAD.encode(claims.to_string())
    );
    let signature = URL_SAFE_NO_PAD.encode(authenticate(key, signed.as_bytes()));
    format!("{signed}.{signature}")
}

/// Whose token this is and for whom; nobody's when it is not ours, was changed, or has expired.
pub(super) fn verify(key: &[u8], token: &str, now: Timestamp) -> Option<(User, Vec<String>)> {
    if key.is_empty() {
        return None;
    }
    let (signed, signature) = token.rsplit_once('.')?;
    let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
    let expected = authenticate(key, signed.as_bytes());
    let same = signature.len() == expected.len()
        && signature.iter().zip(expected).fold(0, |seen, (a, b)| seen | (a ^ b)) == 0;
    if !same {
        return None;
    }
    let (_, claims) = signed.split_once('.')?;
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    if claims["exp"].as_i64()? <= now.as_second() || claims["iss"] != ISSUER {
        return None;
    }
    let name = claims["sub"].as_str()?;
    let namespace = name.strip_prefix("system:serviceaccount:")?.split(':').next()?;
    let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    let audiences = claims["aud"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Some((User::new(name, groups), audiences.map(ToOwned::to_owned).collect()))
}

/// HMAC with SHA-256 (RFC 2104).
fn authenticate(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0u8; 64];
    if key.len() > block.len() {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_authenticated_as_the_standard_says() {
        // RFC 4231, test cases 2 and 6.
        let hex = |bytes: [u8; 32]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(
            hex(authenticate(b"Jefe", b"what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hex(authenticate(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn a_token_is_good_until_it_expires_or_is_changed() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let audiences = ["one".to_owned()];
        let claims = Claims { namespace: "a", account: "robot", uid: "u", audiences: &audiences };
        let token = sign(b"key", claims, at(100), at(200));
        let (user, found) = verify(b"key", &token, at(150)).expect("good");
        assert_eq!(found, audiences);
        assert_eq!(user.name, "system:serviceaccount:a:robot");
        assert!(user.groups.contains(&"system:serviceaccounts:a".to_owned()));
        assert_eq!(verify(b"key", &token, at(200)), None);
        assert_eq!(verify(b"other", &token, at(150)), None);
        assert_eq!(verify(b"", &token, at(150)), None);
        assert_eq!(verify(b"key", &token.replace('.', ".e"), at(150)), None);
        assert_eq!(verify(b"key", "garbage", at(150)), None);
    }
}
