//! What a client is told when it does not get what it asked for: status, substatus, code, text.
//!
//! [`Failure::from`] a [`db::Error`] is the one place where the database's outcomes become the wire's numbers; it is a
//! `match` without `_`, so that a new variant does not compile until it has an answer here.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;

use crate::answer::Answer;
use crate::headers;

/// The result of handling a request.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// A refusal, before it is written down as a response.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The HTTP status.
    status: StatusCode,
    /// What clients' retry rules look at beside the status.
    substatus: Option<u32>,
    /// The text for people, as it stands in the body's `message`.
    text: String,
    /// What a client reads beside the text, in the body's `additionalErrorInfo`.
    info: Option<String>,
    /// When it makes sense to ask again.
    retry_after_ms: Option<u64>,
    /// Headers beside the usual ones: the charge, the session token.
    headers: Option<Box<HeaderMap>>,
}

impl Failure {
    /// A refusal with a text of the front end's own.
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { status, substatus: None, text, info: None, retry_after_ms: None, headers: None }
    }

    /// 400.
    pub(crate) fn bad_request(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// 400 for a header whose value cannot be read.
    pub(crate) fn bad_header(name: &str, value: &str) -> Self {
        Self::bad_request(format!("Value '{value}' specified for the header '{name}' is invalid."))
    }

    /// 400 for what the service has and Sidereal does not have yet.
    pub(crate) fn unsupported(what: &str) -> Self {
        Self::bad_request(format!("Sidereal does not support {what} yet."))
    }

    /// The same with a substatus.
    pub(crate) fn with_substatus(mut self, substatus: u32) -> Self {
        self.substatus = Some(substatus);
        self
    }

    /// The same with what a client reads beside the text.
    pub(crate) fn with_info(mut self, info: String) -> Self {
        self.info = Some(info);
        self
    }

    /// The same with these headers beside the usual ones.
    pub(crate) fn with_headers(mut self, headers: HeaderMap) -> Self {
        self.headers = Some(Box::new(headers));
        self
    }

    /// The status, for the log and the metrics.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The text without the envelope, for the log.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Adds to a result of a batch what is known beside the status.
    pub(crate) fn describe(&self, result: &mut Value) {
        if let Some(substatus) = self.substatus {
            result["subStatusCode"] = substatus.into();
        }
        if let Some(retry_after_ms) = self.retry_after_ms {
            result["retryAfterMilliseconds"] = retry_after_ms.into();
        }
        result["message"] = self.text.clone().into();
    }

    /// The response: `{"code": …, "message": …}` and the headers that go with it.
    pub(crate) fn into_answer(self, activity_id: &HeaderValue) -> Answer {
        let mut headers = self.headers.map_or_else(HeaderMap::new, |headers| *headers);
        headers.insert(http::header::CONTENT_TYPE, headers::JSON.clone());
        headers.entry(&headers::REQUEST_CHARGE).or_insert_with(|| headers::CHARGE_ONE.clone());
        if let Some(substatus) = self.substatus {
            headers.insert(&headers::SUBSTATUS, HeaderValue::from(substatus));
        }
        if let Some(retry_after_ms) = self.retry_after_ms {
            headers.insert(&headers::RETRY_AFTER_MS, HeaderValue::from(retry_after_ms));
            // What clients go by that do not know the service; in whole seconds, so not for short waits.
            if retry_after_ms >= 1_000 {
                let secs = HeaderValue::from(retry_after_ms.div_ceil(1_000));
                headers.insert(http::header::RETRY_AFTER, secs);
            }
        }
        let activity_id = activity_id.to_str().unwrap_or_default();
        let message = format!(
            "{}\r\nActivityId: {activity_id}, Microsoft.Azure.Documents.Common/2.14.0",
            self.text
        );
        let mut body = serde_json::json!({"code": code(self.status), "message": message});
        if let Some(info) = self.info {
            body["additionalErrorInfo"] = info.into();
        }
        Answer { status: self.status, headers, body: Bytes::from(body.to_string()) }
    }
}

impl From<db::Error> for Failure {
    fn from(error: db::Error) -> Self {
        use StatusCode as S;
        let text = error.to_string();
        let (status, substatus, retry_after_ms) = match &error {
            db::Error::Invalid(_) | db::Error::InvalidQuery(_) => (S::BAD_REQUEST, None, None),
            db::Error::PartitionKeyMismatch | db::Error::BadPartitionKey(_) => {
                (S::BAD_REQUEST, Some(1001), None)
            }
            db::Error::NotFound => (S::NOT_FOUND, None, None),
            db::Error::OwnerNotFound => (S::NOT_FOUND, Some(1003), None),
            db::Error::SessionNotAvailable => (S::NOT_FOUND, Some(1002), None),
            db::Error::Exists | db::Error::UniqueKeyViolation { .. } => (S::CONFLICT, None, None),
            db::Error::PreconditionFailed => (S::PRECONDITION_FAILED, None, None),
            db::Error::PatchConditionFailed => (S::PRECONDITION_FAILED, Some(1110), None),
            db::Error::FailedDependency => (S::FAILED_DEPENDENCY, None, None),
            db::Error::TooLarge(_) => (S::PAYLOAD_TOO_LARGE, None, None),
            db::Error::PartitionGone => (S::GONE, Some(1002), None),
            db::Error::Script { number: 0 | 400, .. } => (S::BAD_REQUEST, None, None),
            db::Error::Script { number, .. } => (S::BAD_REQUEST, Some((*number).into()), None),
            db::Error::ScriptTime => (S::REQUEST_TIMEOUT, None, None),
            // Clients take a 408 for a write that may have been made, and do not repeat it unasked.
            db::Error::Unknown(_) => (S::REQUEST_TIMEOUT, None, Some(UNAVAILABLE_RETRY_MS)),
            // This protocol does not say that it repeats a write, so it is never told this.
            db::Error::Repeated => (S::CONFLICT, None, None),
            db::Error::Contention => (retry_with(), None, Some(CONTENTION_RETRY_MS)),
            db::Error::Throttled { retry_after_ms } => {
                (S::TOO_MANY_REQUESTS, Some(3200), Some(*retry_after_ms))
            }
            db::Error::Overloaded => (S::TOO_MANY_REQUESTS, Some(3200), Some(OVERLOADED_RETRY_MS)),
            // The service's answer to storage that is used up; clients do not retry it.
            db::Error::DiskFull(_) => (S::FORBIDDEN, Some(1005), None),
            db::Error::Storage(_) => (S::INTERNAL_SERVER_ERROR, None, None),
            db::Error::Unavailable(_) | db::Error::Stopping => {
                (S::SERVICE_UNAVAILABLE, None, Some(UNAVAILABLE_RETRY_MS))
            }
        };
        let list = match error {
            // Already the JSON list of what is wrong with the query.
            db::Error::InvalidQuery(list) if list.starts_with('[') => {
                format!("{{\"errors\":{list}}}")
            }
            db::Error::InvalidQuery(list) if list.starts_with('{') => list,
            _ => format!("{{\"Errors\":[{}]}}", Value::String(text)),
        };
        let failure = Self::new(status, format!("Message: {list}"));
        Self { substatus, retry_after_ms, ..failure }
    }
}

/// 449, which HTTP itself does not know.
fn retry_with() -> StatusCode {
    StatusCode::from_u16(449).expect("three digits")
}

/// How long a client waits when the write queues are full.
const OVERLOADED_RETRY_MS: u64 = 100;

/// How long a client waits when others keep changing the same.
const CONTENTION_RETRY_MS: u64 = 10;

/// How long a client waits when the store cannot be reached.
const UNAVAILABLE_RETRY_MS: u64 = 1_000;

/// The word in the body's `code` for a status.
fn code(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        408 => "RequestTimeout",
        409 => "Conflict",
        410 => "Gone",
        412 => "PreconditionFailed",
        413 => "RequestEntityTooLarge",
        429 => "429",
        449 => "RetryWith",
        500 => "InternalServerError",
        503 => "ServiceUnavailable",
        _ => "BadRequest",
    }
}
