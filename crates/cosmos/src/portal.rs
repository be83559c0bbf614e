//! The portal's files, under `/_explorer/` as the official emulator has it: part of the binary, open to all.
//!
//! The page is a client of the REST API like any other and signs its requests in the browser, so these files tell nothing and need no key. The
//! policy that goes with them forbids every request to another origin, inline code, and being framed.

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};

use crate::answer::Answer;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

macro_rules! files {
    ($($name:literal: $kind:expr,)*) => {
        [$(($name, $kind, include_bytes!(concat!("../../../portal/", $name)))),*]
    };
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Every file of the portal.
const FILES: &[(&str, &str, &[u8])] = &files! {
    "index.html": HTML,
    "icon.svg": "image/svg+xml",
    "portal.css": CSS,
    "app.js": SCRIPT,
    "api.js": SCRIPT,
    "page.js": SCRIPT,
    "code.js": SCRIPT,
    "tree.js": SCRIPT,
    "items.js": SCRIPT,
    "documents.js": SCRIPT,
    "list.js": SCRIPT,
    "lines.js": SCRIPT,
    "query.js": SCRIPT,
    "scripts.js": SCRIPT,
    "settings.js": SCRIPT,
    "time.js": SCRIPT,
    "ops.js": SCRIPT,
    "plot.js": SCRIPT,
};

/// The file at a path below `/_explorer`, if the portal has it.
pub(crate) fn file(path: &[&str]) -> Option<Answer> {
    let name = match path {
        [] => "index.html",
        [name] => name,
        _ => return None,
    };
    let (_, kind, bytes) = FILES.iter().find(|(known, _, _)| *known == name)?;
    let mut answer = Answer::empty(StatusCode::OK);
    answer.body = Bytes::from_static(bytes);
    for (name, value) in [
        (header::CONTENT_TYPE, *kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // A new server brings new files, and they are small.
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        answer.headers.insert(name, HeaderValue::from_static(value));
    }
    Some(answer)
}

/// Whether a person has opened the server's address in a browser: clients of the wire sign, and ask for no page.
pub(crate) fn is_visit(head: &http::request::Parts) -> bool {
    let accepts = |accept: &HeaderValue| accept.to_str().is_ok_and(|all| all.contains("text/html"));
    head.method == http::Method::GET
        && !head.headers.contains_key(header::AUTHORIZATION)
        && head.headers.get(header::ACCEPT).is_some_and(accepts)
}

/// Sends a browser to the portal.
pub(crate) fn redirect() -> Answer {
    let mut answer = Answer::empty(StatusCode::FOUND);
    for (name, value) in [
        (header::LOCATION, "/_explorer/"),
        // The same address is the account for others.
        (header::VARY, "accept, authorization"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        answer.headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_names_only_its_own_files() {
        let total: usize = FILES.iter().map(|(_, _, bytes)| bytes.len()).sum();
        assert!(total < 300_000, "{total} bytes");
        for (name, _, bytes) in FILES {
            let text = std::str::from_utf8(bytes).unwrap();
            for address in text.split("https://").skip(1).chain(text.split("http://").skip(1)) {
                let known = ["www.w3.org", "localhost", "127.0.0.1"];
                assert!(
                    known.iter().any(|host| address.starts_with(host)),
                    "{name}: {address:.40}"
                );
            }
            for import in text.split("from \"./").skip(1).chain(text.split("import(\"./").skip(1)) {
                let imported = import.split('"').next().unwrap();
                assert!(FILES.iter().any(|(known, _, _)| *known == imported), "{imported}");
            }
        }
    }
}
