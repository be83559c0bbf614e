//! The NoSQL front end: REST in, [`db::Db`] calls out.
//!
//! It translates and decides nothing: no rule about items, TTL or etags lives here. [`FrontEnd::answer`] turns one request into one
//! response without knowing about sockets; [`connection`] has the sockets. The route table is [`routes::route`].
//!
//! A request is looked at in this order: path, signature ([`auth`]), body, version of the wire, route. Every refusal has the
//! service's envelope ([`error`]); a panic in a handler is a bug in us, is logged, and becomes a 500 for that request alone.

mod absent;
mod account;
mod admin;
mod answer;
pub mod auth;
mod batch;
mod binary_json;
mod body;
mod call;
mod changes;
#[cfg(test)]
mod charge_tests;
mod connection;
mod containers;
mod cors;
mod databases;
mod date;
mod error;
mod feed;
mod grants;
#[cfg(test)]
mod grants_tests;
mod headers;
mod history;
mod hybrid_row;
mod items;
mod metrics;
mod offers;
mod path;
mod patience;
mod pkranges;
mod portal;
mod query;
mod resources;
mod routes;
#[cfg(test)]
mod script_tests;
mod sprocs;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod throttle_tests;
mod tokens;
#[cfg(test)]
mod trigger_tests;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use bytes::Bytes;
use db::Db;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Body;
use model::clock::Clock;

pub use auth::{Access, BadKey, Keys, WELL_KNOWN_KEY, sign};
pub use call::Peer;
pub use date::HttpDate;
pub use history::SAMPLE_SECS;

use answer::Answer;
use auth::{Caller, Signed};
use call::Call;
use error::{Failure, Result};
use history::History;
use path::Decoded;

/// How a front end behaves.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Web origins that browsers may call from, beside those of this machine.
    pub origins: Vec<String>,
    /// The certificate that clients must trust, as PEM; shown where the emulator shows its own.
    pub certificate: Option<Bytes>,
}

/// The front end of one account.
pub struct FrontEnd {
    db: Db,
    keys: Keys,
    /// The machine's clock: signatures are dated by it, whatever the database's clock says.
    clock: Arc<dyn Clock>,
    options: Options,
    history: History,
    stopping: AtomicBool,
}

impl FrontEnd {
    /// The front end of `db`. Signatures are dated by `clock`.
    pub fn new(db: Db, keys: Keys, clock: Arc<dyn Clock>, options: Options) -> Self {
        let history = History::default();
        Self { db, keys, clock, options, history, stopping: AtomicBool::new(false) }
    }

    /// Answers one request.
    pub async fn answer<B>(&self, request: Request<B>, peer: Peer) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
    {
        let started = self.clock.stopwatch();
        let (head, body) = request.into_parts();
        let activity_id = activity_id(&head);
        let handled = catch(pin!(self.handle(&head, body, peer))).await;
        let mut answer = handled.unwrap_or_else(|failure| {
            if failure.status().is_server_error() {
                log::error!("{} {}: {}", head.method, head.uri.path(), failure.text());
            }
            failure.into_answer(&activity_id)
        });
        let took = self.clock.stopwatch().saturating_sub(started);
        let outcome = metrics::outcome(answer.status);
        self.db.traffic().nosql.count(metrics::operation(&head), outcome, took);
        if let Some(origin) = head.headers.get(http::header::ORIGIN) {
            cors::allow(&mut answer.headers, origin, &head.headers, &self.options.origins);
        }
        answer.headers.insert(&headers::ACTIVITY_ID, activity_id);
        answer
            .headers
            .insert(&headers::GATEWAY_VERSION, HeaderValue::from_static("version=2.14.0"));
        answer.headers.insert(&headers::SCHEMA_VERSION, HeaderValue::from_static("1.19"));
        let body = if head.method == Method::HEAD { Bytes::new() } else { answer.body };
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        response
    }

    /// From now on [`FrontEnd::answer`] tells probes that the server is stopping.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    async fn handle<B>(&self, head: &http::request::Parts, body: B, peer: Peer) -> Result<Answer>
    where
        B: Body<Data = Bytes>,
    {
        let path = path::of(&head.uri);
        if head.method == Method::OPTIONS {
            return Ok(cors::preflight(&head.headers, &self.options.origins));
        }
        let decoded = Decoded::new(path)?;
        let Some(segments) = decoded.segments() else { return Err(absent::unknown_route(path)) };
        let parts = segments.as_slice();
        if let Some(answer) = routes::open(self, head, parts) {
            return Ok(answer);
        }
        let grant = match self.authorize(head, parts, peer) {
            Ok(grant) => grant,
            Err(failure) => {
                Box::pin(body::discard(body)).await;
                return Err(failure);
            }
        };
        // Boxed like all that a point read does not need: its future is moved about, and should be small.
        let body = match body.is_end_stream() {
            true => Bytes::new(),
            false => Box::pin(body::read(body)).await?,
        };
        if !routes::is_operator(parts) {
            routes::check_version(&head.headers)?;
        }
        let mut seen = None;
        if self.db.is_shared() {
            // What other servers have changed counts from this request on. A point read asks for it with its item.
            match routes::is_point_read(&head.method, parts) {
                true => seen = Some(self.db.seen()),
                false => Box::pin(self.db.refresh()).await?,
            }
        }
        let mut call = Call {
            db: &self.db,
            method: &head.method,
            headers: &head.headers,
            host: host(head),
            query: head.uri.query().unwrap_or_default(),
            peer,
            body,
            seen,
            grant,
        };
        let answer = routes::route(self, &mut call, parts, path).await;
        if call.seen.take().is_none() {
            return answer;
        }
        // It went by a catalog that may not be the store's.
        Box::pin(self.db.refresh()).await?;
        routes::route(self, &mut call, parts, path).await
    }

    /// Refuses what the request's credentials do not allow; gives what a token is limited to.
    fn authorize(
        &self,
        head: &http::request::Parts,
        parts: &[&str],
        peer: Peer,
    ) -> Result<Option<Box<db::Grant>>> {
        // On one's own machine, with the key that everybody knows, there is nothing to hide from a scraper.
        if parts == ["metrics"] && peer.local && self.keys.has_well_known() {
            return Ok(None);
        }
        let resolved;
        let resolved_segments;
        let (mut parts, mut raw) = (parts, path::of(&head.uri));
        if parts == ["addresses"] {
            // Signed as the resource whose addresses are asked for.
            raw = resolve_for(head.uri.query().unwrap_or_default()).unwrap_or_default();
            resolved = Decoded::new(raw)?;
            resolved_segments = resolved.segments().ok_or_else(|| absent::unknown_route(raw))?;
            parts = resolved_segments.as_slice();
        }
        let operator = routes::is_operator(parts);
        let signed =
            Signed { method: head.method.as_str(), parts, raw, headers: &head.headers, operator };
        match self.keys.check(&signed, self.clock.now())? {
            Caller::Key(Access::ReadOnly) => {
                grants::check_reader(&head.method, &head.headers, parts).map(|()| None)
            }
            Caller::Key(Access::Full) => Ok(None),
            Caller::Directory => {
                grants::check_directory(&head.method, &head.headers, parts).map(|()| None)
            }
            Caller::Permission(rid) => {
                grants::check(&self.db, &rid, &head.method, &head.headers, parts).map(Some)
            }
        }
    }
}

/// Host and port that the client used. HTTP/2 has them in the request line.
fn host(head: &http::request::Parts) -> &str {
    let header = head.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    header.or_else(|| head.uri.authority().map(http::uri::Authority::as_str)).unwrap_or("localhost")
}

/// The client's activity id, or a new one.
fn activity_id(head: &http::request::Parts) -> HeaderValue {
    let usable = |id: &&HeaderValue| (1..=64).contains(&id.len()) && id.to_str().is_ok();
    head.headers.get(&headers::ACTIVITY_ID).filter(usable).cloned().unwrap_or_else(|| {
        let digits = fastrand::u128(..);
        let mut text = *b"00000000-0000-4000-8000-000000000000";
        for (place, letter) in text.iter_mut().enumerate() {
            // Version and variant stay as they are.
            if *letter == b'0' {
                *letter = b"0123456789abcdef"[(digits >> (place * 3)) as usize & 15];
            }
        }
        HeaderValue::from_bytes(&text).expect("hex digits are visible")
    })
}

/// The value of `$resolveFor` in a query, still encoded.
fn resolve_for(query: &str) -> Option<&str> {
    query.split('&').filter_map(|pair| pair.split_once('=')).find_map(|(name, value)| {
        let is =
            name.eq_ignore_ascii_case("$resolveFor") || name.eq_ignore_ascii_case("%24resolveFor");
        is.then_some(value)
    })
}

/// Runs a handler; if it panics, the request has failed and the server goes on.
async fn catch(mut handler: Pin<&mut impl Future<Output = Result<Answer>>>) -> Result<Answer> {
    std::future::poll_fn(move |context| {
        // A handler that has panicked is never polled again, so its broken state is never seen.
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(context)));
        polled.unwrap_or_else(|_| {
            let text = "Unknown server error occurred when processing this request.";
            Poll::Ready(Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, text)))
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_one_failed_request() {
        let failure = catch(pin!(async { panic!("a bug") })).await.unwrap_err();
        assert_eq!(failure.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }

    #[test]
    fn new_activity_ids_are_guids_and_differ() {
        let head = http::Request::new(()).into_parts().0;
        let (first, second) = (activity_id(&head), activity_id(&head));
        assert_ne!(first, second);
        let text = first.to_str().unwrap();
        let lengths: Vec<usize> = text.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert!(text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()));
    }
}
