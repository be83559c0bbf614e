//! Browsers: which web pages may use the account.
//!
//! Pages of this machine (`localhost`, `127.0.0.1`, `[::1]`), pages that the server itself would serve, and those that the operator
//! names. Not every page: with the well-known key, any web site could otherwise read and erase a developer's local databases.

use http::{HeaderMap, HeaderValue, StatusCode};

use crate::answer::Answer;

/// What a page may read of a response.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "etag, lsn, x-ms-activity-id, x-ms-alt-content-path, x-ms-content-path, x-ms-continuation, \
     x-ms-cosmos-min-throughput, x-ms-documentdb-partitionkeyrangeid, x-ms-item-count, \
     x-ms-offer-replace-pending, x-ms-request-charge, x-ms-resource-quota, x-ms-resource-usage, x-ms-retry-after-ms, \
     x-ms-session-token, x-ms-substatus",
);

/// Answers what a browser asks before it sends a request.
pub(crate) fn preflight(request: &HeaderMap, origins: &[String]) -> Answer {
    let mut answer = Answer::empty(StatusCode::NO_CONTENT);
    let verbs = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    let allowed = request
        .get(http::header::ORIGIN)
        .is_some_and(|origin| is_allowed(origin, request, origins));
    if allowed {
        answer.headers.insert(http::header::ACCESS_CONTROL_ALLOW_METHODS, verbs.clone());
        answer
            .headers
            .insert(http::header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        if let Some(names) = request.get(http::header::ACCESS_CONTROL_REQUEST_HEADERS) {
            answer.headers.insert(http::header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
        }
    }
    answer.headers.insert(http::header::ALLOW, verbs);
    answer
}

/// Lets the page at `origin` read the response, if it may.
pub(crate) fn allow(
    response: &mut HeaderMap,
    origin: &HeaderValue,
    request: &HeaderMap,
    origins: &[String],
) {
    response.insert(http::header::VARY, HeaderValue::from_static("origin"));
    if is_allowed(origin, request, origins) {
        response.insert(http::header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        response.insert(
            http::header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
            HeaderValue::from_static("true"),
        );
        response.insert(http::header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    }
}

fn is_allowed(origin: &HeaderValue, request: &HeaderMap, origins: &[String]) -> bool {
    let Ok(origin) = origin.to_str() else { return false };
    if origins.iter().any(|known| known == origin || known == "*") {
        return true;
    }
    let Some((_, authority)) = origin.split_once("://") else { return false };
    let local = ["localhost", "127.0.0.1", "[::1]"].iter().any(|host| {
        let port = authority.strip_prefix(host);
        port.is_some_and(|port| port.is_empty() || port.starts_with(':'))
    });
    local
        || request
            .get(http::header::HOST)
            .is_some_and(|host| host.as_bytes() == authority.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strange_web_pages_are_not_let_in() {
        let allowed = |origin: &'static str| {
            let mut request = HeaderMap::new();
            request.insert(http::header::HOST, HeaderValue::from_static("db.test:8081"));
            is_allowed(
                &HeaderValue::from_static(origin),
                &request,
                &["https://portal.example".to_owned()],
            )
        };
        for good in [
            "http://localhost:3000",
            "https://127.0.0.1",
            "http://[::1]:1",
            "https://db.test:8081",
            "https://portal.example",
        ] {
            assert!(allowed(good), "{good}");
        }
        for bad in [
            "https://evil.example",
            "null",
            "http://localhost.evil.example",
            "https://db.test",
            "http://127.0.0.1.evil",
        ] {
            assert!(!allowed(bad), "{bad}");
        }
    }
}
