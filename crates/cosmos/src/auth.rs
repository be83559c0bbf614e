//! Who may: signatures with the account's keys, and the bearer form for operators.
//!
//! A client signs verb, resource type, resource link and date with HMAC-SHA256 (wire document, section 1). Clients differ
//! in how they write links with unusual characters, so the decoded link is tried first, then the path as it was sent.
//! Signatures and bearer keys are compared in constant time.
//!
//! The date is compared with the machine's clock, never with the virtual one: a client whose test has moved Sidereal's
//! clock by ninety days still signs with its own. Tokens of permissions and of a directory are in [`tokens`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, StatusCode};
use model::clock::Timestamp;
use model::resource::DatabaseRid;
use ring::hmac;

use crate::date::{self, HttpDate};
use crate::error::{Failure, Result};
use crate::headers;
use crate::path::unescape;
use crate::tokens;

/// The key of Microsoft's emulator, which every tutorial and connection string for local work has.
pub const WELL_KNOWN_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// How long a signature is good for after its date.
const LIFETIME_SECS: u64 = 900;

/// How far a client's clock may be off.
const SKEW_SECS: u64 = 900;

/// The longest authorization headers: of a key, and of the token of a permission or directory.
const HEADER_MAX: usize = 1024;
const TOKEN_HEADER_MAX: usize = 16 << 10;

/// What a request's credentials allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everything.
    Full,
    /// Reads and queries.
    ReadOnly,
}

/// Whose request it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// One who has an account key.
    Key(Access),
    /// One who has the token of the permission with this rid.
    Permission(String),
    /// One whom a directory vouches for: data, but no definitions.
    Directory,
}

/// The account's keys.
pub struct Keys {
    keys: Vec<Key>,
    well_known: bool,
    /// Whether the emulator's form of directory tokens is accepted.
    directory: bool,
}

struct Key {
    hmac: hmac::Key,
    /// The key's own text: directory tokens of the emulator carry it.
    text: String,
    /// The key's own text, signed with it: what a bearer must sign to.
    own: hmac::Tag,
    access: Access,
}

/// A key that is not base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadKey;

impl std::fmt::Display for BadKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an account key must be base64, 16 bytes or more (make one with: openssl rand -base64 64)")
    }
}

impl std::error::Error for BadKey {}

impl Keys {
    /// An account with one key, which may do everything.
    pub fn new(primary: &str) -> std::result::Result<Self, BadKey> {
        Self { keys: Vec::new(), well_known: false, directory: false }.with(primary, Access::Full)
    }

    /// The same with one more key.
    pub fn with(mut self, key: &str, access: Access) -> std::result::Result<Self, BadKey> {
        let key = key.trim();
        let bytes = STANDARD.decode(key).ok().filter(|bytes| bytes.len() >= 16).ok_or(BadKey)?;
        let hmac = hmac::Key::new(hmac::HMAC_SHA256, &bytes);
        let own = hmac::sign(&hmac, key.as_bytes());
        self.keys.push(Key { hmac, text: key.to_owned(), own, access });
        self.well_known |= key == WELL_KNOWN_KEY;
        Ok(self)
    }

    /// The same, and directory tokens (AAD) in the emulator's form are accepted.
    pub fn with_directory(mut self) -> Self {
        self.directory = true;
        self
    }

    /// Whether one of the keys is the one that everybody knows.
    pub fn has_well_known(&self) -> bool {
        self.well_known
    }

    /// A new token for the permission with this rid, good until `expiry`.
    pub(crate) fn issue(&self, permission: &str, expiry: Timestamp) -> String {
        tokens::issue(&self.keys[0].hmac, permission, expiry)
    }

    /// Checks the signature or token of a request.
    pub(crate) fn check(&self, request: &Signed<'_>, now: Timestamp) -> Result<Caller> {
        let Some(header) = request.headers.get(http::header::AUTHORIZATION) else {
            return Err(unauthorized(TEXT_MISSING).with_substatus(5000));
        };
        if let Some(access) = self.bearer(header.as_bytes()) {
            return if request.operator { access.map(Caller::Key) } else { Err(malformed()) };
        }
        let signature = match parse(header.as_bytes())? {
            Credential::Signature(signature) => signature,
            Credential::Resource(token) => {
                let full = self.keys.iter().filter(|key| key.access == Access::Full);
                let permission = tokens::check(full.map(|key| &key.hmac), &token, now)?;
                return Ok(Caller::Permission(permission));
            }
            Credential::Directory(token) if self.directory => {
                let full = self.keys.iter().filter(|key| key.access == Access::Full);
                tokens::check_directory(full.map(|key| &*key.text), &token, now)?;
                return Ok(Caller::Directory);
            }
            Credential::Directory(_) => {
                return Err(unauthorized(
                    "This server does not accept directory (AAD) tokens: sign with an account key, or start it with \
                     --aad.",
                ));
            }
        };
        let (date, date_only) = request.date()?;
        check_window(date::parse(date).ok_or_else(|| unauthorized(TEXT_BAD_DATE))?, now)?;

        let mut payload = Vec::with_capacity(256);
        for link in request.links() {
            payload.clear();
            request.write_payload(*link, date, date_only, &mut payload);
            let signed = |key: &&Key| hmac::verify(&key.hmac, &payload, &signature).is_ok();
            if let Some(key) = self.keys.iter().find(signed) {
                return Ok(Caller::Key(key.access));
            }
        }
        payload.clear();
        request.write_payload(request.links()[0], date, date_only, &mut payload);
        let shown = String::from_utf8_lossy(&payload).replace('\n', "\\n");
        Err(unauthorized(format!(
            "{TEXT_WRONG} Server used the following payload to sign: '{shown}'"
        )))
    }

    /// `Bearer <key>`: `None` if the header is of another kind.
    fn bearer(&self, header: &[u8]) -> Option<Result<Access>> {
        let token = header.strip_prefix(b"Bearer ").or_else(|| header.strip_prefix(b"bearer "))?;
        let known =
            self.keys.iter().find(|key| hmac::verify(&key.hmac, token, key.own.as_ref()).is_ok());
        Some(
            known
                .map(|key| key.access)
                .ok_or_else(|| unauthorized("The bearer key is not one of this account's keys.")),
        )
    }
}

/// What a client of ours sends with a request: `x-ms-date` and `authorization`. `parts` are the names in the path, decoded.
pub fn sign(
    key: &str,
    method: &str,
    parts: &[&str],
    now: Timestamp,
) -> std::result::Result<(String, String), BadKey> {
    let key = STANDARD.decode(key.trim()).map_err(|_| BadKey)?;
    let (date, headers) = (HttpDate(now).to_string(), HeaderMap::new());
    let request = Signed { method, parts, raw: "", headers: &headers, operator: false };
    let mut payload = Vec::with_capacity(256);
    request.write_payload(Link::Decoded, &date, false, &mut payload);
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), &payload);
    let signature =
        STANDARD.encode(tag).replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    Ok((date, format!("type%3Dmaster%26ver%3D1.0%26sig%3D{signature}")))
}

/// The parts of a request that are signed.
pub(crate) struct Signed<'r> {
    /// The verb.
    pub(crate) method: &'r str,
    /// The decoded segments of the path.
    pub(crate) parts: &'r [&'r str],
    /// The path as it was sent.
    pub(crate) raw: &'r str,
    /// All headers.
    pub(crate) headers: &'r HeaderMap,
    /// Whether this is an operator's route, where a bearer key will do.
    pub(crate) operator: bool,
}

/// One way to write the resource link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// Names, decoded.
    Decoded,
    /// Names, as they were sent.
    Raw,
    /// The last rid, in lower case.
    Rid,
}

impl Signed<'_> {
    /// The date that was signed, and whether it stands in `date` alone (then it is the fifth line).
    fn date(&self) -> Result<(&str, bool)> {
        let text =
            |name| headers::text(self.headers, name).map_err(|_| unauthorized(TEXT_BAD_DATE));
        if let Some(date) = text(&headers::XMS_DATE)? {
            return Ok((date, false));
        }
        let date = text(&http::header::DATE)?.ok_or_else(|| unauthorized(TEXT_NO_DATE))?;
        Ok((date, true))
    }

    /// The ways to write the link, the likeliest first.
    fn links(&self) -> &'static [Link] {
        let by_rid = match self.parts {
            ["dbs", database, ..] => DatabaseRid::parse(database).is_some(),
            ["offers", ..] => true,
            _ => false,
        };
        match (by_rid, self.raw.contains('%')) {
            (true, false) => &[Link::Rid, Link::Decoded],
            (true, true) => &[Link::Rid, Link::Decoded, Link::Raw],
            (false, false) => &[Link::Decoded],
            (false, true) => &[Link::Decoded, Link::Raw],
        }
    }

    fn write_payload(&self, link: Link, date: &str, date_only: bool, out: &mut Vec<u8>) {
        // Deleting a partition key is signed as an operation on its container, and a distributed transaction as a feed of its own.
        let parts = match self.parts {
            ["operations", "dtc"] => &["distributedtransactionbatch"],
            [before @ .., "operations", _] => before,
            parts => parts,
        };
        let (kind, owned) = match parts.len() {
            0 => ("", parts),
            count if count % 2 == 1 => (parts[count - 1], &parts[..count - 1]),
            count => (parts[count - 2], parts),
        };
        push_lower(self.method, out);
        push_lower(kind, out);
        match link {
            Link::Decoded => push_joined(owned.iter().copied(), out),
            Link::Raw => {
                let raw = self.raw.split('/').filter(|part| !part.is_empty()).take(owned.len());
                push_joined(raw, out);
            }
            Link::Rid => out
                .extend(owned.last().unwrap_or(&"").bytes().map(|byte| byte.to_ascii_lowercase())),
        }
        out.push(b'\n');
        push_lower(if date_only { "" } else { date }, out);
        push_lower(if date_only { date } else { "" }, out);
    }
}

fn push_lower(text: &str, out: &mut Vec<u8>) {
    out.extend(text.bytes().map(|byte| byte.to_ascii_lowercase()));
    out.push(b'\n');
}

fn push_joined<'p>(parts: impl Iterator<Item = &'p str>, out: &mut Vec<u8>) {
    for (place, part) in parts.enumerate() {
        if place > 0 {
            out.push(b'/');
        }
        out.extend_from_slice(part.as_bytes());
    }
}

/// The bytes of a signature.
type Signature = [u8; 32];

/// What an authorization header holds.
enum Credential {
    Signature(Signature),
    /// The token of a permission.
    Resource(String),
    /// The token of a directory.
    Directory(String),
}

/// How most clients write what stands before the signature.
const USUAL_PREFIX: &[u8] = b"type%3Dmaster%26ver%3D1.0%26sig%3D";

/// The signature or token in `type=master&ver=1.0&sig=…`, percent-encoded or not.
fn parse(header: &[u8]) -> Result<Credential> {
    if header.len() > TOKEN_HEADER_MAX {
        return Err(malformed());
    }
    let mut bytes = Vec::with_capacity(header.len());
    if let Some(signature) = header.strip_prefix(USUAL_PREFIX)
        && header.len() <= HEADER_MAX
    {
        unescape(signature, &mut bytes);
        return decode(&bytes).map(Credential::Signature);
    }
    unescape(header, &mut bytes);
    let text = std::str::from_utf8(&bytes).map_err(|_| malformed())?;
    let mut parts = text.splitn(3, '&');
    let mut part = |name: &str| parts.next()?.strip_prefix(name)?.strip_prefix('=');
    let (kind, version, signature) = (part("type"), part("ver"), part("sig"));
    match (kind, version, signature) {
        (Some("master"), Some(_), Some(signature)) if header.len() <= HEADER_MAX => {
            decode(signature.as_bytes()).map(Credential::Signature)
        }
        (Some("resource"), Some(_), Some(token)) => Ok(Credential::Resource(token.to_owned())),
        (Some("aad"), Some(_), Some(token)) => Ok(Credential::Directory(token.to_owned())),
        _ => Err(malformed()),
    }
}

/// Base64, cut at the first comma.
fn decode(text: &[u8]) -> Result<Signature> {
    let text = text.split(|byte| *byte == b',').next().unwrap_or(text);
    // As long as any text that decodes to a signature, or a little longer.
    let mut bytes = [0; 36];
    match STANDARD.decode_slice(text, &mut bytes) {
        Ok(length) => bytes[..length].try_into().map_err(|_| malformed()),
        Err(_) => Err(malformed()),
    }
}

fn check_window(date: Timestamp, now: Timestamp) -> Result<()> {
    let start = date.minus(SKEW_SECS).unwrap_or_default();
    let expiry = date.plus(LIFETIME_SECS + SKEW_SECS);
    if (start..=expiry).contains(&now) {
        return Ok(());
    }
    Err(Failure::new(
        StatusCode::FORBIDDEN,
        format!(
            "The authorization token is not valid at the current time. Please create another token and retry (token \
             start time: {}, token expiry time: {}, current server time: {}).",
            HttpDate(start),
            HttpDate(expiry),
            HttpDate(now)
        ),
    ))
}

pub(crate) fn unauthorized(text: impl Into<String>) -> Failure {
    Failure::new(StatusCode::UNAUTHORIZED, text)
}

pub(crate) fn malformed() -> Failure {
    unauthorized(TEXT_MALFORMED).with_substatus(5001)
}

/// 403 for one who may do less than that.
pub(crate) fn insufficient() -> Failure {
    Failure::new(StatusCode::FORBIDDEN, TEXT_INSUFFICIENT)
}

const TEXT_MISSING: &str =
    "Required Header authorization is missing. Ensure a valid Authorization token is passed.";
const TEXT_MALFORMED: &str =
    "Authorization header doesn't confirm to the required format. Please verify and try again.";
const TEXT_NO_DATE: &str =
    "Authorization token mandates Date headers. Please pass in RFC 1123 style date format.";
const TEXT_BAD_DATE: &str =
    "The input date header is invalid format. Please pass in RFC 1123 style date format.";
const TEXT_WRONG: &str = "The input authorization token can't serve the request. The wrong key is being used or the \
                          expected payload is not built as per the protocol. For more info: \
                          https://aka.ms/cosmosdb-tsg-unauthorized.";
const TEXT_INSUFFICIENT: &str = "Insufficient permissions provided in the authorization header for the corresponding \
                                 request. Please retry with another authorization header.";

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::path::Decoded;
    use crate::script_tests::sign;

    const SECONDARY: &str = "c2Vjb25kYXJ5LWtleS1vZi10aGUtdGVzdHM=";
    const READ_ONLY: &str = "cmVhZC1vbmx5LWtleS1vZi10aGUtdGVzdHM=";
    const DATE: &str = "Thu, 27 Apr 2017 00:51:12 GMT";
    const NOW: Timestamp = Timestamp(1_493_254_272);

    fn check(
        method: &str,
        raw: &str,
        headers: &[(&'static str, &str)],
        now: Timestamp,
    ) -> Result<Access> {
        let keys = Keys::new(WELL_KNOWN_KEY).unwrap();
        let keys =
            keys.with(SECONDARY, Access::Full).unwrap().with(READ_ONLY, Access::ReadOnly).unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_str(value).unwrap());
        }
        let decoded = Decoded::new(raw).unwrap();
        let segments = decoded.segments().unwrap();
        let operator = crate::routes::is_operator(segments.as_slice());
        let signed = Signed { method, parts: segments.as_slice(), raw, headers: &map, operator };
        keys.check(&signed, now).map(|caller| match caller {
            Caller::Key(access) => access,
            other => panic!("{other:?}"),
        })
    }

    fn outcome(result: Result<Access>) -> String {
        match result {
            Ok(access) => format!("{access:?}"),
            Err(failure) => format!("{} {}", failure.status().as_u16(), failure.text()),
        }
    }

    /// What is signed for each kind of path (wire document, section 1.2).
    #[test]
    fn the_right_text_is_signed() {
        for (method, path, kind, link) in [
            ("GET", "/", "", ""),
            ("GET", "/dbs", "dbs", ""),
            ("GET", "/dbs/", "dbs", ""),
            ("GET", "/dbs/ToDo", "dbs", "dbs/ToDo"),
            ("POST", "/dbs/ToDo/colls", "colls", "dbs/ToDo"),
            ("POST", "/dbs/ToDo/colls/C/docs/", "docs", "dbs/ToDo/colls/C"),
            ("GET", "/dbs/ToDo/colls/C/docs/1", "docs", "dbs/ToDo/colls/C/docs/1"),
            ("GET", "/dbs/d/colls/a%20b/docs/%C3%A4", "docs", "dbs/d/colls/a b/docs/ä"),
            // Some clients sign what they send.
            ("GET", "/dbs/d/colls/a%20b/docs/%C3%A4", "docs", "dbs/d/colls/a%20b/docs/%C3%A4"),
            ("POST", "/dbs/d/colls/c/operations/partitionkeydelete", "colls", "dbs/d/colls/c"),
            ("GET", "/offers", "offers", ""),
            ("PUT", "/offers/AbCd", "offers", "abcd"),
            ("GET", "/dbs/1fIrAA==", "dbs", "1firaa=="),
            ("GET", "/dbs/1fIrAA==/colls", "colls", "1firaa=="),
            ("GET", "/dbs/1fIrAA==/colls/1fIrANmsTf4=/docs", "docs", "1firanmstf4="),
            ("GET", "/dbs/1fIrAA==/colls/1fIrANmsTf4=", "colls", "1firanmstf4="),
            // A name that looks like a rid may be signed as a name.
            ("GET", "/dbs/1fIrAA==", "dbs", "dbs/1fIrAA=="),
            ("GET", "/_admin/clock", "_admin", "_admin/clock"),
        ] {
            let payload =
                format!("{}\n{kind}\n{link}\n{}\n\n", method.to_lowercase(), DATE.to_lowercase());
            let signature = sign(WELL_KNOWN_KEY, &payload);
            let result =
                check(method, path, &[("authorization", &signature), ("x-ms-date", DATE)], NOW);
            assert_eq!(outcome(result), "Full", "{method} {path}");
        }
    }

    #[test]
    fn a_date_header_alone_stands_on_its_own_line() {
        let signature = sign(WELL_KNOWN_KEY, &format!("get\ndbs\n\n\n{}\n", DATE.to_lowercase()));
        assert_eq!(
            outcome(check("GET", "/dbs", &[("authorization", &signature), ("date", DATE)], NOW)),
            "Full"
        );
    }

    /// Every key of the account, encoded or not.
    #[test]
    fn all_keys_open() {
        let payload = format!("get\ndbs\n\n{}\n\n", DATE.to_lowercase());
        for (key, access) in
            [(WELL_KNOWN_KEY, "Full"), (SECONDARY, "Full"), (READ_ONLY, "ReadOnly")]
        {
            let encoded = sign(key, &payload);
            let mut plain = Vec::new();
            unescape(encoded.as_bytes(), &mut plain);
            let plain = String::from_utf8(plain).unwrap();
            for header in [encoded, plain] {
                let result =
                    check("GET", "/dbs", &[("authorization", &header), ("x-ms-date", DATE)], NOW);
                assert_eq!(outcome(result), access);
            }
        }
    }

    /// The exact answers of the wire document, section 1.4.
    #[test]
    fn refusals_have_the_services_words() {
        let payload = format!("get\ndbs\n\n{}\n\n", DATE.to_lowercase());
        let good = sign(WELL_KNOWN_KEY, &payload);
        let (good, long) = (good.as_str(), "x".repeat(1025));
        let wrong = sign("d3Jvbmcta2V5LW9mLXRoZS10ZXN0cy0tLS0=", &payload);
        let malformed = format!("401 {TEXT_MALFORMED}");
        let (early, late) = (Timestamp(NOW.0 - 901), Timestamp(NOW.0 + 1_801));
        type Case<'c> = (&'c [(&'static str, &'c str)], Timestamp, &'c str);
        let cases: [Case<'_>; 12] = [
            (&[("x-ms-date", DATE)], NOW, &format!("401 {TEXT_MISSING}")),
            (&[("authorization", ""), ("x-ms-date", DATE)], NOW, &malformed),
            (&[("authorization", "nonsense"), ("x-ms-date", DATE)], NOW, &malformed),
            (&[("authorization", &long), ("x-ms-date", DATE)], NOW, &malformed),
            (
                &[("authorization", "type=master&ver=1.0&sig=***"), ("x-ms-date", DATE)],
                NOW,
                &malformed,
            ),
            (
                &[("authorization", "type=master&sig=AAAA&ver=1.0"), ("x-ms-date", DATE)],
                NOW,
                &malformed,
            ),
            (
                &[("authorization", "type=odd&ver=1.0&sig=AAAA"), ("x-ms-date", DATE)],
                NOW,
                &malformed,
            ),
            (&[("authorization", good)], NOW, &format!("401 {TEXT_NO_DATE}")),
            (
                &[("authorization", good), ("x-ms-date", "today")],
                NOW,
                &format!("401 {TEXT_BAD_DATE}"),
            ),
            (
                &[("authorization", good), ("x-ms-date", DATE)],
                early,
                "403 The authorization token is not valid at the current time. Please create another token and retry \
                 (token start time: Thu, 27 Apr 2017 00:36:12 GMT, token expiry time: Thu, 27 Apr 2017 01:21:12 GMT, \
                 current server time: Thu, 27 Apr 2017 00:36:11 GMT).",
            ),
            (
                &[("authorization", good), ("x-ms-date", DATE)],
                late,
                "403 The authorization token is not valid at the current time. Please create another token and retry \
                 (token start time: Thu, 27 Apr 2017 00:36:12 GMT, token expiry time: Thu, 27 Apr 2017 01:21:12 GMT, \
                 current server time: Thu, 27 Apr 2017 01:21:13 GMT).",
            ),
            (
                &[("authorization", &wrong), ("x-ms-date", DATE)],
                NOW,
                "401 The input authorization token can't serve the request. The wrong key is being used or the expected \
                 payload is not built as per the protocol. For more info: \
                 https://aka.ms/cosmosdb-tsg-unauthorized. Server used the following payload to sign: \
                 'get\\ndbs\\n\\nthu, 27 apr 2017 00:51:12 gmt\\n\\n'",
            ),
        ];
        for (headers, now, expected) in cases {
            assert_eq!(outcome(check("GET", "/dbs", headers, now)), expected, "{headers:?}");
        }
        // The edges of the window are inside it.
        for now in [Timestamp(NOW.0 - 900), Timestamp(NOW.0 + 1_800)] {
            let result = check("GET", "/dbs", &[("authorization", good), ("x-ms-date", DATE)], now);
            assert_eq!(outcome(result), "Full");
        }
    }

    /// A signature is good for its verb, path and date only.
    #[test]
    fn a_signature_cannot_be_used_for_anything_else() {
        let signature = sign(
            WELL_KNOWN_KEY,
            &format!("get\ndocs\ndbs/d/colls/c/docs/1\n{}\n\n", DATE.to_lowercase()),
        );
        let refused = |method: &str, path: &str, date: &str| {
            check(method, path, &[("authorization", &signature), ("x-ms-date", date)], NOW).is_err()
        };
        assert!(!refused("GET", "/dbs/d/colls/c/docs/1", DATE));
        assert!(refused("DELETE", "/dbs/d/colls/c/docs/1", DATE));
        assert!(refused("GET", "/dbs/d/colls/c/docs/2", DATE));
        assert!(refused("GET", "/dbs/D/colls/c/docs/1", DATE));
        assert!(refused("GET", "/dbs/d/colls/c/docs/1", "Thu, 27 Apr 2017 00:51:13 GMT"));
    }

    #[test]
    fn only_operators_routes_take_a_bearer() {
        let bearer = format!("Bearer {READ_ONLY}");
        let check = |path: &str, header: &str| {
            outcome(check("GET", path, &[("authorization", header)], NOW))
        };
        assert_eq!(check("/_admin/clock", &bearer), "ReadOnly");
        assert_eq!(check("/metrics", &bearer), "ReadOnly");
        assert_eq!(check("/dbs", &bearer), format!("401 {TEXT_MALFORMED}"));
        assert!(check("/_admin/clock", "Bearer nonsense").starts_with("401"));
    }
}
