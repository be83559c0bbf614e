//! Responses before they go to the socket.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::Value;

use crate::headers;

/// Room for the headers of an item's answer, so that the map never grows. One more would double what is allocated.
const HEADERS: usize = 12;

/// A response: everything but the headers that every response has.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The HTTP status.
    pub(crate) status: StatusCode,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The body; empty where there is none.
    pub(crate) body: Bytes,
}

impl Answer {
    /// No body, no headers yet.
    pub(crate) fn empty(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::with_capacity(HEADERS), body: Bytes::new() }
    }

    /// Bytes that are JSON already.
    pub(crate) fn bytes(status: StatusCode, body: Bytes) -> Self {
        let mut answer = Self { body, ..Self::empty(status) };
        answer.headers.insert(http::header::CONTENT_TYPE, headers::JSON.clone());
        answer
    }

    /// A JSON value.
    pub(crate) fn json(status: StatusCode, body: &Value) -> Self {
        Self::bytes(status, Bytes::from(body.to_string()))
    }
}
