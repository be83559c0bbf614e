//! Tokens: what a permission's holder shows instead of a key, and the emulator's form of a directory's token.
//!
//! ```text
//! type=resource&ver=1.0&sig=<base64 of the signature>;<base64 of "rid:expiry">;
//! ```
//!
//! A permission's token names the permission and when it ends, signed with an account key. What it allows is looked up when it is used
//! ([`crate::grants`]), so that a permission that is changed or deleted is so for all its tokens, at once. It is dated by the machine's clock,
//! as signatures are.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::StatusCode;
use model::clock::Timestamp;
use ring::hmac;
use serde_json::Value;

use crate::auth::{malformed, unauthorized};
use crate::error::{Failure, Result};

/// How long a token is good for where the client names no time, and the limits of what it may name.
pub(crate) const LIFETIME_SECS_DEFAULT: u64 = 3_600;
pub(crate) const LIFETIME_SECS: std::ops::RangeInclusive<u64> = 10..=86_400;

/// A new token for a permission.
pub(crate) fn issue(key: &hmac::Key, permission: &str, expiry: Timestamp) -> String {
    let claim = format!("{permission}:{expiry}");
    let signature = STANDARD.encode(hmac::sign(key, &payload(&claim)));
    format!("type=resource&ver=1.0&sig={signature};{};", STANDARD.encode(claim))
}

/// The rid of the permission whose token this is.
pub(crate) fn check<'k>(
    mut keys: impl Iterator<Item = &'k hmac::Key>,
    token: &str,
    now: Timestamp,
) -> Result<String> {
    let (signature, claim) = token.trim_end_matches(';').split_once(';').ok_or_else(malformed)?;
    let decode = |text: &str| STANDARD.decode(text).map_err(|_| malformed());
    let (signature, claim) = (decode(signature)?, decode(claim)?);
    let claim = String::from_utf8(claim).map_err(|_| malformed())?;
    if !keys.any(|key| hmac::verify(key, &payload(&claim), &signature).is_ok()) {
        return Err(unauthorized(
            "The input authorization token can't serve the request. It was not issued by this account, or with a key that \
             it has no more. Read the permission again for a new token.",
        ));
    }
    let (permission, expiry) = claim.split_once(':').ok_or_else(malformed)?;
    let expiry = Timestamp(expiry.parse().map_err(|_| malformed())?);
    if now >= expiry {
        return Err(Failure::new(
            StatusCode::FORBIDDEN,
            "The authorization token is not valid at the current time: it has expired. Read the permission again for a \
             new token.",
        ));
    }
    Ok(permission.to_owned())
}

/// What is signed: never the same bytes as a request's signature, whose text has lines.
fn payload(claim: &str) -> Vec<u8> {
    [b"permission:", claim.as_bytes()].concat()
}

/// Checks a directory's token in the form of the emulator: a JWT whose third part is an account key.
pub(crate) fn check_directory<'k>(
    mut keys: impl Iterator<Item = &'k str>,
    token: &str,
    now: Timestamp,
) -> Result<()> {
    let parts: Vec<&str> = token.split('.').collect();
    let [_, claims, signature] = parts[..] else { return Err(malformed()) };
    let decode =
        |text: &str| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|_| malformed());
    let signature = decode(signature)?;
    let own = hmac::Key::new(hmac::HMAC_SHA256, b"compare");
    let shown = hmac::sign(&own, &signature);
    // Both are signed, so that the comparison takes the same time whatever they share.
    let known = |key: &str| hmac::verify(&own, key.as_bytes(), shown.as_ref()).is_ok();
    if !keys.any(known) {
        return Err(unauthorized("The directory token does not carry a key of this account."));
    }
    let claims: Value = serde_json::from_slice(&decode(claims)?).map_err(|_| malformed())?;
    let at = |name: &str| claims[name].as_u64().map(Timestamp);
    let expiry = at("exp").ok_or_else(malformed)?;
    if now >= expiry || at("nbf").is_some_and(|start| now.plus(NOT_BEFORE_SKEW_SECS) < start) {
        return Err(unauthorized("The directory token is not valid at the current time."));
    }
    Ok(())
}

/// How far a client's clock may be ahead.
const NOT_BEFORE_SKEW_SECS: u64 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &[u8]) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, text)
    }

    #[test]
    fn a_token_is_good_until_it_expires_and_for_its_permission_only() {
        let (own, other) = (key(b"own"), key(b"other"));
        let token = issue(&own, "AQID", Timestamp(100));
        let token = token.strip_prefix("type=resource&ver=1.0&sig=").unwrap();
        let at = |key, token: &str, now| check([key].into_iter(), token, Timestamp(now));
        assert_eq!(at(&own, token, 99).unwrap(), "AQID");
        assert_eq!(at(&own, token, 100).unwrap_err().status(), StatusCode::FORBIDDEN);
        assert_eq!(at(&other, token, 99).unwrap_err().status(), StatusCode::UNAUTHORIZED);
        let (signature, _) = token.split_once(';').unwrap();
        let forged = format!("{signature};{};", STANDARD.encode("AQID:999"));
        assert_eq!(at(&own, &forged, 99).unwrap_err().status(), StatusCode::UNAUTHORIZED);
        for nonsense in ["", ";", "a;b;", "AAAA", "AAAA;AAAA;"] {
            assert_eq!(at(&own, nonsense, 99).unwrap_err().status(), StatusCode::UNAUTHORIZED);
        }
    }

    #[test]
    fn a_directory_token_carries_a_key_and_a_time() {
        let token = |key: &str, claims: &str| {
            let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
            format!("{}.{}.{}", part("{}"), part(claims), part(key))
        };
        let outcome = |token: String| {
            check_directory(["the key"].into_iter(), &token, Timestamp(1_000)).is_ok()
        };
        assert!(outcome(token("the key", r#"{"nbf":900,"exp":1001}"#)));
        assert!(!outcome(token("a key", r#"{"nbf":900,"exp":1001}"#)));
        assert!(!outcome(token("the key", r#"{"nbf":900,"exp":1000}"#)));
        assert!(!outcome(token("the key", r#"{"nbf":1301,"exp":2000}"#)));
        assert!(!outcome(token("the key", "{}")));
        assert!(!outcome("a.b".into()));
    }
}
