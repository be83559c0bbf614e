//! Request paths: split at the slashes, percent-decoded, keywords in one case.

use std::borrow::Cow;

use http::Uri;

use crate::error::{Failure, Result};

/// The most segments a route has: `/dbs/d/colls/c/docs/i/attachments/a`.
const SEGMENTS_MAX: usize = 8;

/// Stands between the segments of a path that had to be decoded, where a `/` may be part of a name.
const SEPARATOR: char = '\0';

/// The words of paths. They are matched in any case; names are not.
const KEYWORDS: [&str; 21] = [
    "dbs",
    "colls",
    "docs",
    "pkranges",
    "offers",
    "sprocs",
    "triggers",
    "udfs",
    "conflicts",
    "users",
    "permissions",
    "clientencryptionkeys",
    "attachments",
    "operations",
    "addresses",
    "media",
    "schemas",
    "udts",
    "metrics",
    "_admin",
    "_health",
];

/// The path of a request. No route below `/dbs` has a query: there, a client has left the `?` in an id as it is.
pub(crate) fn of(uri: &Uri) -> &str {
    match uri.path_and_query() {
        Some(whole) if whole.path().starts_with("/dbs/") => whole.as_str().trim_end_matches('?'),
        _ => uri.path(),
    }
}

/// A path with its percent-encoding undone.
pub(crate) struct Decoded<'p>(Cow<'p, str>);

impl<'p> Decoded<'p> {
    /// Decodes each segment of `path` on its own: an encoded slash does not separate.
    pub(crate) fn new(path: &'p str) -> Result<Self> {
        if !path.contains('%') {
            return Ok(Self(Cow::Borrowed(path)));
        }
        let mut bytes = Vec::with_capacity(path.len());
        for segment in path.split('/') {
            unescape(segment.as_bytes(), &mut bytes);
            bytes.push(SEPARATOR as u8);
        }
        let text = String::from_utf8(bytes).map_err(|_| invalid(path))?;
        if path.contains("%00") {
            return Err(invalid(path));
        }
        Ok(Self(Cow::Owned(text)))
    }

    /// The segments; empty ones are left out, keywords are in lower case. `None` if there are more than any route has.
    pub(crate) fn segments(&self) -> Option<Segments<'_>> {
        let separator = if matches!(self.0, Cow::Borrowed(_)) { '/' } else { SEPARATOR };
        let mut segments = Segments { parts: [""; SEGMENTS_MAX], count: 0 };
        for part in self.0.split(separator).filter(|part| !part.is_empty()) {
            let place = segments.parts.get_mut(segments.count)?;
            *place = if segments.count.is_multiple_of(2) { keyword(part) } else { part };
            segments.count += 1;
        }
        Some(segments)
    }
}

/// The segments of a path, without an allocation.
pub(crate) struct Segments<'p> {
    parts: [&'p str; SEGMENTS_MAX],
    count: usize,
}

impl<'p> Segments<'p> {
    /// The segments in order.
    pub(crate) fn as_slice(&self) -> &[&'p str] {
        &self.parts[..self.count]
    }
}

/// Appends `text` with its percent-encoding undone; what is not one stays as it is.
pub(crate) fn unescape(text: &[u8], bytes: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(place) = rest.iter().position(|byte| *byte == b'%') {
        let (plain, escape) = rest.split_at(place);
        bytes.extend_from_slice(plain);
        let digits = match escape {
            [_, high, low, ..] => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match digits {
            Some((high, low)) => {
                bytes.push(high << 4 | low);
                rest = &escape[3..];
            }
            None => {
                bytes.push(b'%');
                rest = &escape[1..];
            }
        }
    }
    bytes.extend_from_slice(rest);
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

fn keyword(part: &str) -> &str {
    if !part.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return part;
    }
    KEYWORDS.into_iter().find(|word| word.eq_ignore_ascii_case(part)).unwrap_or(part)
}

fn invalid(path: &str) -> Failure {
    Failure::bad_request(format!("The request path {path} is invalid."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(path: &str) -> Option<Vec<String>> {
        let decoded = Decoded::new(path).ok()?;
        Some(decoded.segments()?.as_slice().iter().map(|part| (*part).to_owned()).collect())
    }

    #[test]
    fn segments_are_decoded_after_the_split() {
        let parts = |path| split(path).unwrap();
        assert_eq!(parts("/"), Vec::<String>::new());
        assert_eq!(parts("/dbs/d/colls/c/docs/"), ["dbs", "d", "colls", "c", "docs"]);
        assert_eq!(parts("/DBS/DBS/Colls/c"), ["dbs", "DBS", "colls", "c"]);
        assert_eq!(parts("/dbs/a%2Fb/colls/%C3%A4+%25"), ["dbs", "a/b", "colls", "ä+%"]);
        assert_eq!(parts("/dbs/100%"), ["dbs", "100%"]);
    }

    #[test]
    fn bad_paths_are_refused() {
        assert_eq!(split("/dbs/%FF"), None);
        assert_eq!(split("/dbs/a%00b"), None);
        assert_eq!(split("/1/2/3/4/5/6/7/8/9"), None);
    }
}
