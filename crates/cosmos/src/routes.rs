//! The whole route table, and the order in which a request is looked at.
//!
//! Paths are split and decoded, then the signature is checked, then the body is read: a stranger cannot make the server
//! hold a body. Names may be rids everywhere; the database tells them apart.

use std::sync::atomic::Ordering;

use db::{Kind, Parent, Place};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::call::{Call, Intent};
use crate::error::{Failure, Result};
use crate::{FrontEnd, headers, items, offers, pkranges, portal, query, resources, sprocs};
use crate::{absent, account, admin, answer::Answer, batch, changes, containers, databases};

/// Whether a request is for one item.
pub(crate) fn is_point_read(method: &http::Method, parts: &[&str]) -> bool {
    matches!((method.as_str(), parts), ("GET" | "HEAD", ["dbs", _, "colls", _, "docs", _]))
}

/// Answers a request whose signature and version have been checked.
///
/// All but the point read is boxed: futures are moved about, and the hottest one should not be as large as the largest.
pub(crate) async fn route(
    front_end: &FrontEnd,
    call: &mut Call<'_>,
    parts: &[&str],
    path: &str,
) -> Result<Answer> {
    match (call.method.as_str(), parts) {
        ("GET", []) => account::read(call),

        ("GET", ["dbs"]) => databases::list(call),
        ("POST", ["dbs"]) => Box::pin(databases::post(call)).await,
        ("GET", ["dbs", db]) => databases::read(call, db),
        ("DELETE", ["dbs", db]) => Box::pin(databases::delete(call, db)).await,

        ("GET", ["dbs", db, "colls"]) => containers::list(call, db),
        ("POST", ["dbs", db, "colls"]) => Box::pin(containers::post(call, db)).await,
        ("GET" | "HEAD", ["dbs", db, "colls", c]) => containers::read(call, db, c),
        ("PUT", ["dbs", db, "colls", c]) => Box::pin(containers::replace(call, db, c)).await,
        ("DELETE", ["dbs", db, "colls", c]) => Box::pin(containers::delete(call, db, c)).await,

        ("GET", ["dbs", db, "colls", c, "docs"]) if call.headers.contains_key(&headers::A_IM) => {
            Box::pin(changes::read(call, db, c)).await
        }
        ("GET", ["dbs", db, "colls", c, "docs"]) => Box::pin(items::list(call, db, c)).await,
        ("POST", ["dbs", db, "colls", c, "docs"]) => match Intent::of(call.headers) {
            Intent::Create => Box::pin(items::create(call, db, c, false)).await,
            Intent::Upsert => Box::pin(items::create(call, db, c, true)).await,
            Intent::Query => Box::pin(admin::status::watch(front_end, call, db, c)).await,
            Intent::Plan => query::plan(call, db, c),
            Intent::Batch => Box::pin(batch::run(call, db, c)).await,
        },
        ("GET" | "HEAD", ["dbs", db, "colls", c, "docs", id]) => items::read(call, db, c, id).await,
        ("PUT", ["dbs", db, "colls", c, "docs", id]) => {
            Box::pin(items::replace(call, db, c, id)).await
        }
        ("DELETE", ["dbs", db, "colls", c, "docs", id]) => {
            Box::pin(items::delete(call, db, c, id)).await
        }
        ("PATCH", ["dbs", db, "colls", c, "docs", id]) => {
            Box::pin(items::patch(call, db, c, id)).await
        }

        ("GET", ["dbs", db, "colls", c, "pkranges"]) => pkranges::list(call, db, c),
        ("POST", ["dbs", db, "colls", c, "pkranges"]) => pkranges::post(call, db, c),

        ("GET", ["offers"]) => offers::list(call),
        ("POST", ["offers"]) => offers::post(call),
        ("GET", ["offers", rid]) => offers::read(call, rid),
        ("PUT", ["offers", rid]) => Box::pin(offers::replace(call, rid)).await,

        ("GET", ["metrics"]) => Box::pin(admin::metrics::read(front_end, call)).await,
        ("GET", ["_admin", "clock"]) => admin::read_clock(call),
        ("POST", ["_admin", "clock"]) => Box::pin(admin::move_clock(call)).await,
        ("GET", ["_admin", "ttl"]) => Box::pin(admin::ttl(call)).await,
        ("GET", ["_admin", "ttl", "dbs", db, "colls", c]) => {
            Box::pin(admin::timeline::read(call, db, c)).await
        }
        ("GET", ["_admin", "explain", "dbs", db, "colls", c, "docs"]) => {
            Box::pin(admin::timeline::explain_all(call, db, c)).await
        }
        ("GET", ["_admin", "explain", "dbs", db, "colls", c, "docs", id]) => {
            Box::pin(admin::timeline::explain(call, db, c, id)).await
        }
        ("GET", ["_admin", "status"]) => Box::pin(admin::status::status(front_end, call)).await,
        ("GET", ["_admin", "history"]) => admin::status::history(front_end),
        ("POST", ["_admin", "purge"]) => Box::pin(admin::purge(call)).await,
        ("POST", ["_admin", "split"]) => Box::pin(admin::split(call)).await,

        ("GET" | "POST", ["dbs", db, "users", user, "permissions"]) => {
            let place = Place { parent: Parent::User(db, user), kind: Kind::Permission };
            Box::pin(resources::feed(front_end, call, place)).await
        }
        ("GET" | "PUT" | "DELETE", ["dbs", db, "users", user, "permissions", id]) => {
            let place = Place { parent: Parent::User(db, user), kind: Kind::Permission };
            Box::pin(resources::one(front_end, call, place, id)).await
        }
        ("GET" | "POST", ["dbs", db, word]) if let Some(kind) = resources::of_database(word) => {
            let place = Place { parent: Parent::Database(db), kind };
            Box::pin(resources::feed(front_end, call, place)).await
        }
        ("GET" | "PUT" | "DELETE", ["dbs", db, word, id])
            if let Some(kind) = resources::of_database(word) =>
        {
            let place = Place { parent: Parent::Database(db), kind };
            Box::pin(resources::one(front_end, call, place, id)).await
        }
        ("GET" | "POST", ["dbs", db, "colls", c, word])
            if let Some(kind) = resources::of_container(word) =>
        {
            let place = Place { parent: Parent::Container(db, c), kind };
            Box::pin(resources::feed(front_end, call, place)).await
        }
        ("POST", ["dbs", db, "colls", c, "sprocs", id]) => {
            Box::pin(sprocs::execute(call, db, c, id)).await
        }
        ("GET" | "PUT" | "DELETE", ["dbs", db, "colls", c, word, id])
            if let Some(kind) = resources::of_container(word) =>
        {
            let place = Place { parent: Parent::Container(db, c), kind };
            Box::pin(resources::one(front_end, call, place, id)).await
        }

        ("GET" | "POST", ["dbs", db, kind]) if absent::is_kind(kind) => {
            absent::feed(call, db, None, kind)
        }
        ("GET" | "POST" | "PUT" | "DELETE", ["dbs", db, kind, _]) if absent::is_kind(kind) => {
            absent::one(call, db, None, kind)
        }
        ("GET" | "POST", ["dbs", db, "colls", c, kind]) if absent::is_kind(kind) => {
            absent::feed(call, db, Some(c), kind)
        }
        ("GET" | "POST" | "PUT" | "DELETE", ["dbs", db, "colls", c, kind, _])
            if absent::is_kind(kind) =>
        {
            absent::one(call, db, Some(c), kind)
        }
        ("POST", ["dbs", db, "colls", c, "operations", "partitionkeydelete"]) => {
            Box::pin(items::delete_key(call, db, c)).await
        }
        ("GET", ["addresses"]) => absent::addresses(),
        ("POST", ["operations", "dtc"]) => absent::distributed_transaction(),

        (verb, parts) if !is_verb(verb) || is_route(parts) => Err(absent::unknown_verb()),
        _ => Err(absent::unknown_route(path)),
    }
}

/// Whether some verb has an answer at this path.
fn is_route(parts: &[&str]) -> bool {
    match parts {
        [] | ["dbs"] | ["dbs", _] | ["offers"] | ["offers", _] | ["metrics"] | ["addresses"] => {
            true
        }
        ["operations", "dtc"] => true,
        ["dbs", _, kind] | ["dbs", _, kind, _]
            if absent::is_kind(kind) || resources::of_database(kind).is_some() =>
        {
            true
        }
        ["dbs", _, "users", _, "permissions"] | ["dbs", _, "users", _, "permissions", _] => true,
        ["dbs", _, "colls"] | ["dbs", _, "colls", _] => true,
        ["dbs", _, "colls", _, "docs" | "pkranges"] | ["dbs", _, "colls", _, "docs", _] => true,
        ["dbs", _, "colls", _, "operations", "partitionkeydelete"] => true,
        ["dbs", _, "colls", _, kind] | ["dbs", _, "colls", _, kind, _] => {
            absent::is_kind(kind) || resources::of_container(kind).is_some()
        }
        ["_admin", "clock" | "ttl" | "purge" | "split" | "status" | "history"] => true,
        ["_admin", "ttl", "dbs", _, "colls", _] => true,
        ["_admin", "explain", "dbs", _, "colls", _, "docs"]
        | ["_admin", "explain", "dbs", _, "colls", _, "docs", _] => true,
        _ => false,
    }
}

fn is_verb(verb: &str) -> bool {
    matches!(verb, "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "PATCH")
}

/// Whether a request only reads. A header that says so counts where there is something to query, and nowhere else: who may read must not run a
/// procedure by calling it a query.
pub(crate) fn is_read(method: &http::Method, headers: &HeaderMap, parts: &[&str]) -> bool {
    let is_feed = matches!(parts, ["dbs" | "offers", ..]) && parts.len() % 2 == 1;
    match (method.as_str(), Intent::of(headers)) {
        ("GET" | "HEAD", _) => true,
        ("POST", Intent::Query) => is_feed,
        ("POST", Intent::Plan) => matches!(parts, ["dbs", _, "colls", _, "docs"]),
        _ => false,
    }
}

/// The routes of people who run the server: an account key as bearer will do, and they need no API version.
pub(crate) fn is_operator(parts: &[&str]) -> bool {
    matches!(parts, ["metrics"] | ["_admin", ..])
}

/// What is open to everybody: whether the server lives, whether it takes requests, the portal's files, and the certificate to trust (at the address
/// where scripts written for the emulator fetch it). A supervisor has no key, and these tell nothing.
pub(crate) fn open(
    front_end: &FrontEnd,
    head: &http::request::Parts,
    parts: &[&str],
) -> Option<Answer> {
    let stopping = front_end.stopping.load(Ordering::Relaxed);
    let status = match (parts, stopping) {
        ([], _) if portal::is_visit(head) => return Some(portal::redirect()),
        (["_health"], _) | (["_ready"], false) => StatusCode::OK,
        (["_ready"], true) => StatusCode::SERVICE_UNAVAILABLE,
        (["_explorer", file @ ..], _) if let Some(answer) = portal::file(file) => {
            return Some(answer);
        }
        (["_explorer", "emulator.pem"], _) => {
            let mut answer = Answer::empty(StatusCode::OK);
            let kind = HeaderValue::from_static("application/x-pem-file");
            answer.headers.insert(http::header::CONTENT_TYPE, kind);
            answer.body = front_end.options.certificate.clone()?;
            return Some(answer);
        }
        _ => return None,
    };
    let state = if stopping { "stopping" } else { "ok" };
    Some(Answer::json(status, &serde_json::json!({"status": state})))
}

/// The versions of the wire that clients may speak.
const VERSIONS: [&str; 21] = [
    "2020-07-15",
    "2020-11-05",
    "2018-12-31",
    "2014-08-21",
    "2015-04-08",
    "2015-06-03",
    "2015-08-06",
    "2015-12-16",
    "2016-05-30",
    "2016-07-11",
    "2016-11-14",
    "2017-01-19",
    "2017-02-22",
    "2017-05-03",
    "2017-11-15",
    "2018-06-18",
    "2018-08-31",
    "2018-09-17",
    "2019-10-14",
    "2024-05-15",
    "2024-06-06",
];

/// Refuses a version of the wire that nobody knows.
pub(crate) fn check_version(headers: &HeaderMap) -> Result<()> {
    let version = headers.get(&headers::VERSION).map_or(&[][..], |version| version.as_bytes());
    if VERSIONS.iter().any(|known| known.as_bytes() == version) {
        return Ok(());
    }
    Err(Failure::bad_request(
        "Invalid API version. Ensure a valid x-ms-version header value is passed. Please update to the latest version \
         of Azure Cosmos DB SDK.",
    ))
}
