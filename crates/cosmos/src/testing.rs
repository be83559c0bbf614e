//! A front end over a database in memory, for tests that ask it as a client would.

use std::sync::Arc;

use bytes::Bytes;
use db::Db;
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use model::clock::{Clock, Timestamp, VirtualClock};
use serde_json::Value;
use storage::memory::Memory;

use crate::auth::{Access, Keys, WELL_KNOWN_KEY};
use crate::date::HttpDate;
use crate::script_tests::signature;
use crate::{FrontEnd, Options, Peer};

/// A key that may only read.
pub(crate) const READ_ONLY_KEY: &str = "cmVhZC1vbmx5LWtleS1vZi10aGUtdGVzdHM=";

/// What a request shows to get in.
#[derive(Clone, Debug)]
pub(crate) enum Credential<'a> {
    /// Signed with this account key.
    Key(&'a str),
    /// The token of a permission or a directory.
    Token(String),
}

pub(crate) struct Server {
    pub(crate) clock: Arc<VirtualClock>,
    runtime: tokio::runtime::Runtime,
    front_end: FrontEnd,
}

/// What came back.
pub(crate) struct Sent {
    pub(crate) status: u16,
    headers: HeaderMap,
    /// Null where it is empty.
    pub(crate) body: Value,
}

impl Sent {
    /// A header's text; empty where there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Server {
    pub(crate) fn new() -> Self {
        Self::with(db::Options::default())
    }

    pub(crate) fn with(options: db::Options) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let clock = Arc::new(VirtualClock::frozen(Timestamp(1_700_000_000)));
        let open = Db::open(Arc::new(Memory::new()), clock.clone(), options);
        let db = runtime.block_on(open).unwrap();
        let keys = Keys::new(WELL_KNOWN_KEY).unwrap().with(READ_ONLY_KEY, Access::ReadOnly);
        let keys = keys.unwrap().with_directory();
        let front_end = FrontEnd::new(db, keys, clock.clone(), Options::default());
        Self { clock, runtime, front_end }
    }

    /// Signed with the account's key unless there is a token.
    pub(crate) fn send(
        &self,
        request: (&str, &str),
        headers: &[(&str, &str)],
        body: &Value,
        token: Option<&str>,
    ) -> Sent {
        let token = token.map(|token| Credential::Token(token.to_owned()));
        self.send_as(&token.unwrap_or(Credential::Key(WELL_KNOWN_KEY)), request, headers, body)
    }

    pub(crate) fn send_as(
        &self,
        credential: &Credential<'_>,
        (method, path): (&str, &str),
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Sent {
        let date = HttpDate(self.clock.now()).to_string();
        let authorization = match credential {
            Credential::Token(token) => token.clone(),
            Credential::Key(key) => signature(key, method, path, &date),
        };
        let mut request = Request::builder().method(method).uri(format!("/{path}"));
        let fixed = [
            ("x-ms-date", &*date),
            ("x-ms-version", "2020-07-15"),
            ("authorization", &authorization),
        ];
        for (name, value) in fixed.iter().chain(headers) {
            request = request.header(*name, HeaderValue::from_str(value).unwrap());
        }
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = request.body(Full::new(body)).unwrap();
        self.runtime.block_on(async {
            let peer = Peer { secure: true, local: false };
            let (head, body) = self.front_end.answer(request, peer).await.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            Sent { status: head.status.as_u16(), headers: head.headers, body }
        })
    }

    /// What a POST with the account's key has made.
    pub(crate) fn create(&self, path: &str, body: &Value) -> Sent {
        let sent = self.send(("POST", path), &[], body, None);
        assert_eq!(sent.status, 201, "{path}: {}", sent.body);
        sent
    }
}
